"""A configuration is made without a field that has no default.

Python refuses it with a TypeError, but only when that configuration is built: a factory that
you seldom launch may carry the mistake for months.

Bad:

    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        vocabulary: int

    def small_config():
        return Config(seed=1)

Good:

    def small_config():
        return Config(seed=1, vocabulary=256)

How to fix: give the field, or give it a default where it is declared.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT112"
NAME = "missing-field"
SEVERITY: Severity = "error"

_CONFIG = """
    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        vocabulary: int
        width: int = 8
"""

PASSES = (
    _CONFIG
    + """
    config = Config(vocabulary=256)
    """,
    _CONFIG
    + """
    def config():
        options = load_options()
        return Config(**options)
    """,
    _CONFIG
    + """
    def config():
        return replace(Config(vocabulary=1), width=3)
    """,
    """
    class Config(DreamTrainerConfig):
        vocabulary: int

    config = Config()
    """,
    """
    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        width: int
        double: int = field(init=False)

        def __post_init__(self):
            self.double = 2 * self.width

    config = Config(width=4)
    """,
)

MATCHES = (
    _CONFIG
    + """
    config = Config(width=4)
    """,
    _CONFIG
    + """
    @dataclass(kw_only=True)
    class Larger(Config):
        depth: int

    def config():
        return Larger(depth=2)
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
