"""The solved mesh: every "auto" turned into a number that fits the processes."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from .device import AXES, Degree, DeviceParameters
from .errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The solved mesh: the size of every axis, outermost first."""

    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1

    @property
    def sizes(self) -> dict[str, int]:
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def world_size(self) -> int:
        return prod(self.sizes.values())

    @property
    def dp_size(self) -> int:
        """How many ways the data is split."""
        return self.dp_replicate * self.dp_shard

    def __str__(self) -> str:
        wide = [f"{axis}={size}" for axis, size in self.sizes.items() if size > 1]
        return " x ".join(wide) or "one device"


def resolve_axes(
    parameters: DeviceParameters, world_size: int, local_world_size: int | None = None
) -> Axes:
    """Turn every "auto" into a number and prove that the mesh fits the processes.

    `local_world_size` is the number of processes on one node (default: all on one).
    Raises `ConfigError` with the sizes that would fit.
    """
    parameters.__post_init__()  # Fields may have been set since.
    node = local_world_size or world_size
    axes = _solve(parameters, world_size, node)
    if axes is None:
        raise _misfit(parameters, world_size, node)
    if node % axes.tp:
        choice = _choice(parameters, "tensor_parallel", world_size, node)
        raise ConfigError(
            "DT106",
            f"tensor_parallel={axes.tp} does not fit into one node of {node} processes: "
            "its collectives would cross the network in every layer.",
            f"Set {choice}." if choice else "Launch more processes per node.",
        )
    return axes


def _solve(parameters: DeviceParameters, world_size: int, node: int) -> Axes | None:
    """The mesh of `world_size` processes, or None where the degrees give none."""
    degrees = _with_tensor_parallel(parameters, node)
    fixed = _fixed(degrees)
    auto = next((axis for axis, degree in degrees.items() if degree == "auto"), None)
    if world_size % fixed or (auto is None and world_size != fixed):
        return None
    if auto is not None:
        degrees[auto] = world_size // fixed
    return Axes(**{axis: int(degree) for axis, degree in degrees.items()})


def _with_tensor_parallel(parameters: DeviceParameters, node: int) -> dict[str, Degree]:
    """The degrees; tp beside another "auto" takes the ranks of one node."""
    degrees = parameters.degrees
    if degrees["tp"] == "auto" and list(degrees.values()).count("auto") == 2:
        degrees["tp"] = node
    return degrees


def _fixed(degrees: dict[str, Degree]) -> int:
    return prod(degree for degree in degrees.values() if isinstance(degree, int))


def _misfit(parameters: DeviceParameters, world_size: int, node: int) -> ConfigError:
    degrees = _with_tensor_parallel(parameters, node)
    fixed = _fixed(degrees)
    product = " * ".join(
        f'{axis}("auto")' if degree == "auto" else f"{axis}({degree})"
        for axis, degree in degrees.items()
        if degree != 1 or axis.startswith("dp")
    )
    if "auto" in degrees.values():
        fact = f"{product} needs a multiple of {fixed} processes, but WORLD_SIZE is {world_size}."
        below = world_size - world_size % fixed
        launch = f"Launch {below} or {below + fixed}" if below else f"Launch {fixed}"
    else:
        fact = f"{product} = {fixed}, but WORLD_SIZE is {world_size}."
        launch = f"Launch {fixed}"
    if fixed == 1:
        launch += " (a single device), or choose DeviceParameters.FSDP() or DDP()"
    choices = (_choice(parameters, name, world_size, node) for name in AXES.values())
    remedy = next((f"{launch}, or set {choice}." for choice in choices if choice), f"{launch}.")
    return ConfigError("DT102", fact, remedy)


def _choice(parameters: DeviceParameters, name: str, world_size: int, node: int) -> str:
    """What a degree above 1 could be instead; each value has been tried. Empty: nothing."""

    def fits(degree: Degree) -> Axes | None:
        changes: dict[str, Any] = {name: degree}
        try:
            changed = replace(parameters, **changes)
        except ConfigError:
            return None
        axes = _solve(changed, world_size, node)
        return axes if axes and node % axes.tp == 0 else None

    if getattr(parameters, name) in (1, "auto"):
        return ""
    if name != "tensor_parallel" and (axes := fits("auto")):
        axis = next(axis for axis, field in AXES.items() if field == name)
        return f'{name}="auto" (it would be {axes.sizes[axis]})'
    divisors = (size for size in range(1, world_size + 1) if world_size % size == 0)
    fitting = [str(size) for size in divisors if fits(size)]
    if len(fitting) > 1:
        return f"{name} to one of {', '.join(fitting)}"
    return f"{name}={fitting[0]}" if fitting else ""
