"""The configuration asks for a layout that the runtime does not run.

Start-up refuses it with the same words. Tensor parallelism beside replicas that do not
shard would average wrong gradients, and nothing would say so.

Bad:

    DeviceParameters(dp_replicate="auto", tensor_parallel=2)

Good:

    DeviceParameters.FSDP(tensor_parallel=2)

How to fix: the help names a layout that runs.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT115"
NAME = "unsupported-layout"
SEVERITY: Severity = "error"

PASSES = (
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
        device_parameters=DeviceParameters.FSDP(tensor_parallel=2)
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
        device_parameters=DeviceParameters.DDP()
    )
    """,
)

MATCHES = (
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
        device_parameters=DeviceParameters.DDP(tensor_parallel=2)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
