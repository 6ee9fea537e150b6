"""A tensor, model, loader or file is made when a module is imported.

A script is imported by every rank, by every worker of every loader, by tests and by tools,
before there is a process group or a device. What is made then is made that many times, on
the wrong device, with random numbers that no seed governs; a default of a class or function
is besides one object that all share.

Bad:

    MASK = torch.ones(2048, 2048).tril()

    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        network: nn.Module = Network()

Good:

    class Attention(nn.Module):
        def __init__(self, config):
            self.register_buffer("mask", torch.ones(2048, 2048).tril())

How to fix: make models in `configure_models`, loaders in `configure_dataloaders`, tables in the
module that uses them. Numbers, dtypes and paths are fine anywhere.
"""

from collections.abc import Iterator

from ..facts import Act, Call, Code, Match, Project, Script, Severity, runs_at_import, statement_of

CODE = "DT111"
NAME = "built-at-import"
SEVERITY: Severity = "warning"

TENSORS = frozenset(
    {"tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm"}
    | {"arange", "linspace", "eye", "from_numpy", "as_tensor", "load", "tril", "triu"}
)
"""Functions of torch."""

LAYERS = frozenset(
    {"Linear", "Bilinear", "Embedding", "EmbeddingBag", "LayerNorm", "RMSNorm", "GroupNorm"}
    | {"Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "BatchNorm1d", "BatchNorm2d", "Parameter"}
    | {"LSTM", "GRU", "RNN", "MultiheadAttention", "Transformer", "TransformerEncoder"}
    | {"TransformerDecoder", "TransformerEncoderLayer", "TransformerDecoderLayer"}
)
"""Modules that hold weights; a loss or an activation is harmless."""

LOADERS = ("DataLoader", "StatefulDataLoader")

PASSES = (
    """
    import torch
    from torch import nn

    DTYPE, DEVICE, LOSS = torch.float32, torch.device("cpu"), nn.CrossEntropyLoss()
    with open("words.txt") as file:
        WORDS = file.read().split()
    """,
    """
    import torch

    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        weights: list = field(default_factory=lambda: [torch.zeros(3)])

    def make():
        return torch.zeros(3)
    """,
    """
    import torch

    def main():
        print(torch.zeros(3))

    if __name__ == "__main__":
        main()
    """,
)

MATCHES = (
    """
    import torch

    MASK = torch.ones(8, 8).tril()
    """,
    """
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        network: nn.Module = Network()
    """,
    """
    import torch

    def read():
        return torch.load("table.pt")

    TABLE = read()
    """,
    """
    LOG = open("log.txt", "w")
    """,
    """
    import torch

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx, weight=torch.ones(3)):
            return {"loss": self.model(batch)}
    """,
)


def check(project: Project) -> Iterator[Match]:
    modules = {kind.name for script in project.scripts for kind in script.kinds if kind.is_module}
    for script in project.scripts:
        seen = set()
        for act, call in script.body.calls():
            what = _made(act, call, script, modules)
            if what is None or not runs_at_import(act):
                continue
            place = statement_of(act).place
            if place.line not in seen:
                seen.add(place.line)
                yield Match(
                    place,
                    f"{what} is made at import, by every process before it has its device.",
                    "Make it in the hook or module that uses it.",
                )


def _made(act: Act, call: Call, script: Script, modules: set[str]) -> str | None:
    name, last = call.name, call.last
    if isinstance(call.function, Code):
        return "A model" if call.function.kind == "class" and name in modules else None
    if name.startswith("torch.nn."):
        return "A model" if last in LAYERS else None
    if name.startswith("torch.") and name.count(".") == 1:
        return "A tensor" if last in TENSORS else None
    if last in LOADERS and call.is_foreign():
        return "A loader"
    if last == "from_pretrained" and call.is_foreign() and "Model" in name:
        return "A model"
    return "An open file" if name == "builtins.open" and _stays_open(call, script) else None


def _stays_open(call: Call, script: Script) -> bool:
    """Whether a file is neither a `with` block's nor read on the spot."""
    for act in script.body.acts:
        if any(guard.test is call for guard in act.guards):
            return False
        other = act.term
        if isinstance(other, Call) and (other.receiver is call or call in other.arguments):
            return False
    return True
