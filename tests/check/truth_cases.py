"""Random projects as a user would write them, some of them wrong, each from its seed."""

import random
import textwrap
from dataclasses import dataclass, field

HEADER = """\
import functools

import torch
from networks import Network, Tower
from torch import nn
from torch.distributed._composable.checkpoint_activation import checkpoint
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from dream_trainer import DreamTrainer
from dream_trainer.parallel.pipeline import cut_model
"""

NETWORKS = """\
from torch import nn

WIDTH = 110880


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))


class Network(nn.Module):
    def __init__(self, depth=8):
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(depth)])
        self.head = nn.Linear(WIDTH, WIDTH)
"""
"""A width that every tensor-parallel degree below divides; nothing takes memory."""

WORLDS = (1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 9, 10, 12, 15, 16, 18, 20, 24, 28, 30, 32)

ARGUMENTS = {
    "apply_pipeline_parallel": "pp_mesh",
    "apply_tensor_parallel": "tp_mesh",
    "apply_fully_shard": "config",
    "apply_replicate": "dp_replicate_mesh",
    "context_parallel_buffers": "batch",
    "training_step": "batch, batch_idx",
    "validation_step": "batch, batch_idx",
}

LAYERS = "for layer in self.model.layers:\n    "
EACH = "for model in self.named_models().values():\n    "
LOOP = "for index, layer in enumerate(self.model.layers):\n    "

RIGHT: dict[str, tuple[str, ...]] = {
    "configure_models": ("{models}",),
    "configure_optimizers": ("return {{{optimizers}}}",),
    "configure_dataloaders": (
        "return [torch.ones(2, 8)], None",
        "train = [torch.ones(2, 8)]\nreturn train, [torch.ones(2, 8)]",
    ),
    "training_step": ('return {{"rows": batch_idx}}', 'values = {{"rows": 1.0}}\nreturn values'),
    "apply_pipeline_parallel": (
        'return {{"model": cut_model('
        'self.model, pp_mesh, self.world, layers="layers", first=[], last=[])}}',
    ),
    "apply_tensor_parallel": (
        LAYERS + "parallelize_module(layer, tp_mesh, ColwiseParallel())",
        'parallelize_module(self.model, tp_mesh, {{"layers.0": ColwiseParallel()}})',
        'plan = {{f"layers.{{i}}": ColwiseParallel() for i in range(2)}}\n'
        "parallelize_module(self.model, tp_mesh, plan)",
    ),
    "apply_activation_checkpointing": (
        LAYERS + "checkpoint(layer)",
        LOOP + "if index % 2 == 0:\n        checkpoint(layer)",
    ),
    "apply_compile": (
        LAYERS + 'layer.compile(backend="eager")',
        EACH + 'model.compile(backend="eager")',
        'self.model.compile(backend="eager", dynamic=False)',
    ),
    "apply_fully_shard": (
        EACH + "fully_shard(model, **config)",
        "{layers}\n" + EACH + "fully_shard(model, **config)",
        "options = {{**config}}\n" + EACH + "fully_shard(model, **options)",
        EACH + "for layer in model.layers:\n        fully_shard(layer, **config)\n"
        "    fully_shard(model, **config)",
        "{each_model:fully_shard({{model}}, **config)}",
    ),
    "apply_replicate": (
        EACH + "replicate(model, device_mesh=dp_replicate_mesh)",
        "{each_model:replicate({{model}}, device_mesh=dp_replicate_mesh)}",
    ),
    "context_parallel_buffers": ("return [(batch, 1)]", "buffers = [(batch, 1)]\nreturn buffers"),
    "init_weights": (EACH + "for layer in model.modules():\n        {reset}",),
    "validation_step": ('return {{"rows": 1.0}}',),
}
"""Hook -> bodies that work. The last two are optional."""

OPTIONAL = ("init_weights", "validation_step")

STUBS = (
    "pass",
    "...",
    '"""To be written."""',
    "raise NotImplementedError",
    'raise NotImplementedError("Write it.")',
    '"""To be written."""\nraise NotImplementedError("Write it.")',
)

IDLE: dict[str, tuple[str, ...]] = {
    "apply_tensor_parallel": (
        'print("tensor parallel over", tp_mesh.size())',
        "plan = ColwiseParallel()",
        "parallelize_module(self.model, tp_mesh, {{}})",
        LAYERS + "parallelize_module(layer, self.world.mesh, ColwiseParallel())",
        LAYERS + "parallelize_module(layer, None, ColwiseParallel())",
    ),
    "apply_activation_checkpointing": (
        "layers = list(self.model.layers)",
        LAYERS + "layer.train()",
        LAYERS + "print(layer)",
        LAYERS + 'layer.compile(backend="eager")',
    ),
    "apply_compile": (
        'print("compiling")',
        LAYERS + "layer.requires_grad_(True)",
        LAYERS + "checkpoint(layer)",
    ),
    "apply_fully_shard": (
        "{layers}",
        "fully_shard(self.model, **config)\n{layers}",
        EACH + "fully_shard(model)",
        "{layers}\n" + EACH + "fully_shard(model, mesh=config['mesh'])",
        LAYERS + "fully_shard(layer)\n" + EACH + "fully_shard(model, **config)",
        EACH + "fully_shard(model, mesh=self.world.mesh)",
        'print("sharding", config)',
        EACH + "replicate(model)",
        EACH + "for parameter in model.parameters():\n        parameter.requires_grad_(True)",
        "fully_shard(self.model, **config)",
        "fully_shard(self.model.layers[0], **config)",
        EACH + "fully_shard(model, **config)\n{compile}",
        "if len(self.model.layers) > 100:\n    fully_shard(self.model, **config)",
    ),
    "apply_replicate": (
        EACH + "model.train()",
        EACH + "replicate(model)",
        "replicate(self.model, device_mesh=dp_replicate_mesh)",
        LAYERS + "replicate(layer, device_mesh=dp_replicate_mesh)",
        "print(dp_replicate_mesh)",
        EACH + "replicate(model, device_mesh=dp_replicate_mesh)\n{compile}",
    ),
    "configure_optimizers": ("torch.optim.SGD(self.model.parameters(), lr=0.1)",),
}
"""Bodies that do something, but not what the hook is for; a few of them work after all."""

MISFITS = ("", "one, two, three", "*, options", "batch, index, extra")
"""Parameters that do not fit, unless they do."""

FITS = ("*args", "*args, **kwargs", "first=None, second=None")

MISSPELT = {"apply_fully_shard": "apply_fully_sharded", "apply_replicate": "apply_replicat"}


@dataclass
class Case:
    """One project at one size, and how it was broken."""

    seed: int
    files: dict[str, str]
    world_size: int
    nproc: int | None
    rank: int
    breaks: list[str] = field(default_factory=list)
    undecidable: bool = False
    """Whether a value comes from where source cannot tell."""

    opaque: set[str] = field(default_factory=set)
    """Hooks behind a decorator or a condition: nothing is certain of what their bodies do."""


class TrainerText:
    """Draws a trainer: its hooks, their bodies, and where they stand."""

    def __init__(self, draw: random.Random, breaks: list[str]) -> None:
        self.draw, self.breaks = draw, breaks
        self.opaque: set[str] = set()
        self.models = {"model": draw.choice(("Network()", "Network()", "Tower()"))}
        if draw.random() < 0.25:
            self.models["critic"] = draw.choice(("Tower()", "Network(9)"))
        self.sound = draw.random() < 0.35

    def body(self, text: str) -> str:
        """A template's text for the models that were drawn."""
        if text.startswith("{each_model:"):
            call = text.removeprefix("{each_model:").removesuffix("}")
            return "\n".join(call.replace("{{model}}", f"self.{name}") for name in self.models)
        return text.format(
            models="\n".join(f"self.{name} = {made}" for name, made in self.models.items()),
            optimizers=", ".join(
                f"self.{name}: torch.optim.AdamW(self.{name}.parameters(), lr=0.1)"
                for name in self.models
            ),
            layers=LAYERS + "fully_shard(layer, **config)",
            compile=LAYERS + 'layer.compile(backend="eager")',
            reset='if hasattr(layer, "reset_parameters"):\n            layer.reset_parameters()',
        )

    def hook(self, name: str) -> tuple[str, str] | None:
        """The parameters and the body of a hook; None where it is left out."""
        draw, arguments = self.draw, ARGUMENTS.get(name, "")
        right = self.body(draw.choice(RIGHT[name]))
        always = name.startswith("configure") or name == "training_step"
        if self.sound or draw.random() < (0.9 if always else 0.6):
            return arguments, right
        kind = draw.choice(("stub", "missing", "misfit", "idle", "idle", "idle", "fit"))
        if kind == "idle" and name not in IDLE:
            kind = "stub"
        if kind != "fit":
            self.breaks.append(f"{name}: {kind}")
        if kind == "missing":
            return None
        if kind == "stub":
            return arguments, draw.choice(STUBS)
        if kind == "idle":
            text = draw.choice(IDLE[name])
            if text.startswith("if "):
                self.opaque.add(name)
            return arguments, self.body(text)
        if kind == "misfit":
            other = draw.choice([text for text in MISFITS if text != arguments])
            return other, f"{unpacked(arguments, '()')}{right}"
        if "*" in (fit := draw.choice(FITS)):
            return fit, f"{unpacked(arguments, 'args')}{right}"
        return fit, f"{unpacked(arguments, '(first, second)')}{right}"

    def methods(self) -> dict[str, str]:
        """Name -> source of every method."""
        written = {}
        for name in RIGHT:
            if name in OPTIONAL and self.draw.random() < 0.7:
                continue
            if (drawn := self.hook(name)) is None:
                if name in MISSPELT:
                    written[MISSPELT[name]] = method(MISSPELT[name], ARGUMENTS[name], "pass")
                continue
            written[name] = self.placed(name, *drawn)
        return written

    def placed(self, name: str, arguments: str, body: str) -> str:
        """A method with its body in place, in a helper, or behind a decorator."""
        style = self.draw.random()
        plain = arguments == ARGUMENTS.get(name, "")
        if style < 0.15 and plain:
            call = f"return self._{name}({arguments})"
            return method(name, arguments, call) + "\n" + method(f"_{name}", arguments, body)
        if style < 0.2 and plain:
            self.opaque.add(name)
            return f"    @told\n{method(name, arguments, body)}"
        return method(name, arguments, body)

    def text(self) -> str:
        """The module with the trainer, in one class or spread over several."""
        methods, style = self.methods(), self.draw.choice(("one", "one", "mixin", "base", "super"))
        told = textwrap.dedent("""
            def told(function):
                @functools.wraps(function)
                def wrapper(*args, **kwargs):
                    return function(*args, **kwargs)

                return wrapper
        """)
        start = f"{HEADER}\n{told}\n"
        if style == "one":
            return start + class_text("MyTrainer(DreamTrainer)", methods.values())
        names = sorted(methods)
        chosen = set(self.draw.sample(names, len(names) // 2))
        some = [text for name, text in methods.items() if name in chosen]
        rest = [text for name, text in methods.items() if name not in chosen]
        if style == "mixin":
            first, second = "Parallel", "MyTrainer(Parallel, DreamTrainer)"
        else:
            first, second = "Shared(DreamTrainer)", "MyTrainer(Shared)"
        # That a call of its own does not fit is what a type checker finds.
        fits = "configure_models: misfit" not in self.breaks
        if style == "super" and "configure_models" in chosen and fits:
            rest.append(method("configure_models", "", "super().configure_models()"))
        return start + class_text(first, some) + "\n\n" + class_text(second, rest)


def unpacked(arguments: str, source: str) -> str:
    """The line that gives a body the names it expects."""
    names = [name.strip() for name in arguments.split(",") if name.strip()]
    if not names or source == "()":
        return ""
    if source.startswith("("):
        chosen = ("first", "second")[: len(names)]
        return f"{', '.join(names)} = {', '.join(chosen)}\n"
    return f"{', '.join(names)}{',' if len(names) == 1 else ''} = {source}\n"


def method(name: str, arguments: str, body: str) -> str:
    """A method of a class."""
    head = f"def {name}({', '.join(part for part in ('self', arguments) if part)}):"
    return f"    {head}\n{textwrap.indent(body, ' ' * 8)}\n"


def class_text(head: str, methods: "list[str] | object") -> str:
    """A class of these methods."""
    body = "\n".join(methods)  # type: ignore[call-overload]
    return f"class {head}:\n{body or '    pass'}\n"
