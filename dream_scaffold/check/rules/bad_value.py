"""A field has a value that it cannot have.

The parameter classes check their values where they are built, and refuse what would
fail, or never end, hours later: no epochs, an accumulation over no batches, a dtype that
training does not support.

Bad:

    TrainingParameters(gradient_accumulation_steps=0)
    DeviceParameters(param_dtype="fp16")

Good:

    TrainingParameters(gradient_accumulation_steps=1)
    DeviceParameters(param_dtype="bfloat16")

How to fix: the help says what is possible.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT114"
NAME = "bad-value"
SEVERITY: Severity = "error"

PASSES = (
    """
    config = DreamTrainerConfig(training_parameters=TrainingParameters(n_epochs=1))
    """,
    """
    config = DreamTrainerConfig(training_parameters=TrainingParameters(n_epochs=float("inf")))
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(param_dtype="bfloat16")
    )
    """,
    """
    import torch

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(param_dtype=torch.float32)
    )
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(training_parameters=TrainingParameters(n_epochs=0))
    """,
    """
    import torch

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(param_dtype=torch.float16)
    )
    """,
    """
    config = DreamTrainerConfig(logging_parameters=LoggingParameters(log_every_n_steps=-1))
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
