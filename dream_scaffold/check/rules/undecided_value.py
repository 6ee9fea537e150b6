"""A value of a configuration cannot be decided from source.

The check never runs your code, so it cannot know what a file, the environment or a
library says. Nothing is reported as an error on account of such a value, which also
means that nothing is proven about it. Shown only with `--verbose`.

Bad:

    DeviceParameters.FSDP(compile_model=os.environ.get("COMPILE") == "1")

Good:

    def fsdp_config(compile_model: bool = True) -> Config:
        return Config(device_parameters=DeviceParameters.FSDP(compile_model=compile_model))

How to fix: nothing has to be. Where proof is wanted, give each choice a factory of its
own, with literal values.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT002"
NAME = "undecided-value"
SEVERITY: Severity = "info"

PASSES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=1 < 2)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(**{"dp_shard": 2 * 2})
    )
    """,
)

MATCHES = (
    """
    import os

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=os.environ.get("C") == "1")
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
