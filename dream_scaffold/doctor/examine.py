"""All probes, one after the other."""

from pathlib import Path

from . import accelerators, machine, network, packages, project, smoke, storage
from .reading import Reading, take


def examine(folder: Path, *, smoke_test: bool = True) -> list[Reading]:
    """Everything that can be seen from `folder`."""
    readings = take("machine", machine.probe)
    asked = accelerators.ask_torch()
    readings += take("devices", lambda: accelerators.probe(asked))
    if smoke_test:
        readings += take("collectives", lambda: smoke.probe(asked))
    readings += take("network", network.probe)
    readings += take("storage", lambda: storage.probe(folder / "runs"))
    readings += take("packages", packages.probe)
    readings += take("project", lambda: project.probe(folder))
    return readings
