"""How a run survives the loss of replicas."""

from dataclasses import dataclass


@dataclass(kw_only=True)
class FaultToleranceParameters:
    """Read by the fault-tolerance callback; without it nothing is done."""

    enable: bool = False
    lighthouse_address: str | None = None
    replica_prefix: str | None = None
    min_replica_size: int = 1
    max_consecutive_failures: int = 3
