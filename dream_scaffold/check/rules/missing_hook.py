"""A configuration turns a mode on whose hook the trainer does not define.

The runtime never guesses how your model is sharded, replicated or compiled. Start-up
stops where the hook is missing, on every rank of the job that waited in the queue.

Bad:

    DeviceParameters.FSDP()               # dp_shard="auto"

    class MyTrainer(DreamTrainer):        # no apply_fully_shard

Good:

    class MyTrainer(DreamTrainer):
        def apply_fully_shard(self, config):
            for layer in self.model.layers:
                fully_shard(layer, **config)
            fully_shard(self.model, **config)

How to fix: define the hook, or turn the mode off. The second place in the report is the
line of the configuration that turns it on. A configuration with a value that cannot be
decided from source is only an info.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT201"
NAME = "missing-hook"
SEVERITY: Severity = "error"

PASSES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
    """
    class MyTrainer(Complete):
        def apply_fully_shard(self, config):
            shard(self.model, **config)

        def apply_replicate(self, dp_replicate_mesh):
            replicate(self.model, dp_replicate_mesh)

        def apply_tensor_parallel(self, tp_mesh):
            parallelize(self.model, tp_mesh)

        def apply_compile(self):
            self.model.compile()


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP()
    )
    """,
    """
    import os

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=os.environ["C"] == "1")
    )
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE()
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=False, checkpoint_activations=True)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
