"""Tensor parallelism is wider than one node.

Its collectives run inside every layer, forward and backward. Within a node they take
the fast links between the devices; across nodes every layer would wait for the network.
Checked when the size of a node is given: `--nnodes N --nproc-per-node M`.

Bad:

    DeviceParameters.FSDP(tensor_parallel=16)    # dream check --nnodes 4 --nproc-per-node 8

Good:

    DeviceParameters.FSDP(tensor_parallel=8)

How to fix: use a divisor of the number of processes on one node, or
`tensor_parallel="auto"`, which takes all of them.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT106"
NAME = "tp-across-nodes"
SEVERITY: Severity = "error"

PASSES = (
    """
    # dream check --nnodes 2 --nproc-per-node 8
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel=8)
    )
    """,
    """
    # dream check --nnodes 2 --nproc-per-node 8
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel="auto")
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel=16)
    )
    """,
)

MATCHES = (
    """
    # dream check --nnodes 4 --nproc-per-node 8
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel=16)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
