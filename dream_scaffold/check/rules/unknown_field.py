"""A keyword is no field of the class that it is given to.

Python refuses it with a TypeError, but only when that configuration is built: a factory
that you seldom launch may carry the mistake for months.

Bad:

    DeviceParameters.FSDP(compile_modle=False)

Good:

    DeviceParameters.FSDP(compile_model=False)

How to fix: the help names the nearest field. A class of your own has the fields of its
annotations only if it is decorated with `@dataclass(kw_only=True)`.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT107"
NAME = "unknown-field"
SEVERITY: Severity = "error"

PASSES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
    """,
    """
    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        lr: float = 1e-3


    config = Config(lr=1.0, seed=1)
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_modle=False)
    )
    """,
    """
    config = DreamTrainerConfig(batch_size=8)
    """,
    """
    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        batch_size: int = 8


    config = Config(batch_sise=4)
    """,
    """
    class Config(DreamTrainerConfig):
        batch_size: int = 8


    config = Config(batch_size=4)
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
