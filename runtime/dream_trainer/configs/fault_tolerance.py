"""How a run survives the loss of replicas."""

from dataclasses import dataclass

from .errors import ConfigError, refuse_unless, refuse_unless_counts


@dataclass(kw_only=True)
class FaultToleranceParameters:
    """Several jobs, the replica groups, train one model; each has the mesh of `DeviceParameters`.

    Read by `FaultToleranceCallback`, which a trainer with these parameters has by default.
    Raises `ConfigError` for contradictions.
    """

    enable: bool = True

    lighthouse_address: str | None = None
    """Where `torchft_lighthouse` listens, as in "http://node0:29510". None: TORCHFT_LIGHTHOUSE."""

    replica_group: int | None = None
    """Which group this job is, from 0. None: the variable REPLICA_GROUP_ID, else 0."""

    replica_groups: int | None = None
    """Into how many groups the data are split. None: NUM_REPLICA_GROUPS, else 1."""

    replica_prefix: str | None = None
    """What groups are called in the lighthouse, with their number behind. None: the project."""

    min_replica_size: int = 1
    """A step counts where at least so many groups took part."""

    max_consecutive_failures: int = 3
    """The job ends after more steps in a row that did not count."""

    timeout_seconds: int = 60
    """How long groups wait for each other in a step: a returning one may have to compile."""

    def __post_init__(self) -> None:
        address = self.lighthouse_address
        refuse_unless(
            address is None or address.startswith(("http://", "https://")),
            "lighthouse_address",
            address,
            "the address that torchft_lighthouse prints, http://HOST:PORT, or None",
        )
        refuse_unless_counts(self, {"replica_group": 0, "replica_groups": 1}, optional=True)
        numbers = {"min_replica_size": 1, "max_consecutive_failures": 0, "timeout_seconds": 1}
        refuse_unless_counts(self, numbers)
        if self.replica_groups is not None and self.min_replica_size > self.replica_groups:
            raise ConfigError(
                "DT114",
                f"min_replica_size={self.min_replica_size} of replica_groups="
                f"{self.replica_groups} can never take part.",
                "Lower min_replica_size.",
            )
