"""A device is named by its number.

Each rank has a device of its own. `"cuda:0"` is the same one for all: eight processes share its
memory, seven devices are idle, and collectives fail with "Duplicate GPU detected" or hang.

Bad:

    mask = torch.ones(8, 8, device="cuda:0")
    weights = torch.load(path, map_location="cuda:0")

Good:

    mask = torch.ones(8, 8, device=self.world.device)
    weights = torch.load(path, map_location="cpu")

How to fix: write `self.world.device` in a trainer, `x.device` in a module, "cpu" for what is read
from files. Batches are moved to the device before a step sees them.
"""

import re
from collections.abc import Iterator

from ..facts import Call, Constant, Match, Project, Severity

CODE = "DT705"
NAME = "literal-device"
SEVERITY: Severity = "warning"

NUMBERED = re.compile(r"(cuda|xpu|hip):\d+")

PASSES = (
    """
    import torch

    class MyTrainer(Complete):
        def init_weights(self):
            self.mask = torch.ones(2, device=self.world.device)
            self.other = torch.ones(2).cuda()
            self.third = torch.ones(2).to("cuda")
    """,
    """
    import torch

    class MyTrainer(Complete):
        def init_weights(self):
            self.mask = torch.ones(2, device=f"cuda:{self.world.local_rank}")
            print("runs on cuda:0")
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self):
            self.table.cuda(self.world.local_rank)
            if str(self.world.device) == "cuda:0":
                print("first")
    """,
)

MATCHES = (
    """
    import torch

    class MyTrainer(Complete):
        def init_weights(self):
            self.mask = torch.ones(2, device="cuda:0")
    """,
    """
    import torch

    DEVICE = torch.device("cuda", 0)
    """,
    """
    import torch

    PLACE = "cuda:1"

    class Network(torch.nn.Module):
        def forward(self, x):
            return x.to(PLACE)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Network()
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self):
            self.table = make_table().cuda(0)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trace in project.traces:
        for act, call in trace.calls():
            if (shown := _named(call)) is not None:
                yield Match(
                    act.place,
                    f"{shown} is one device for all ranks.",
                    'Use self.world.device, the device of a tensor at hand, or "cpu".',
                    notes=act.notes,
                )


def _named(call: Call) -> str | None:
    """The device that a call names by its number."""
    if not call.arguments and not call.keywords:
        return None
    for given in (*call.arguments, *call.keywords.values()):
        value = given.value if isinstance(given, Constant) else None
        if isinstance(value, str) and NUMBERED.fullmatch(value) and call.last != "print":
            return f'"{value}"'
    if call.last not in ("cuda", "device"):
        return None
    is_method = call.last == "cuda" and call.receiver is not None and not call.is_foreign()
    position = 0 if is_method else 1
    if not is_method and call.name != "torch.device":
        return None
    first = call.argument(0, "type")
    if not is_method and not (isinstance(first, Constant) and first.value in ("cuda", "xpu")):
        return None
    number = call.argument(position, "device", "index")
    if isinstance(number, Constant) and type(number.value) is int:
        return f"`{call.spot.text}`"
    return None
