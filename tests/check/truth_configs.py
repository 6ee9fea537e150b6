"""Random configurations, in the many ways in which one can be written."""

import random
from math import prod

from truth_cases import NETWORKS, WORLDS, Case, TrainerText

HEADER = """\
import os
from dataclasses import dataclass, field, replace
from functools import partial

from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import CheckpointParameters, DeviceParameters, TrainingParameters
"""

DEGREES = (1, 1, 2, 2, 4, 3, "auto", "auto", 8)
WRONG_DEGREES = (0, -1, True, "two", 1.5, None)

AXES = ("pipeline_parallel", "dp_replicate", "dp_shard", "context_parallel", "tensor_parallel")

PRESETS = {
    "DeviceParameters": AXES,
    "DeviceParameters.SINGLE_DEVICE": (),
    "DeviceParameters.DDP": ("dp_replicate",),
    "DeviceParameters.FSDP": ("dp_shard", "tensor_parallel", "context_parallel"),
    "DeviceParameters.HSDP": ("dp_shard", "dp_replicate", "tensor_parallel"),
}

OPTIONS = {
    "checkpoint_activations": (True, True, False),
    "param_dtype": (*("float32", "bfloat16") * 4, "float17"),
    "reduce_dtype": ("float32", "bfloat16"),
    "async_tensor_parallel": (None, False, True, True),
    "cpu_offload": (True, False),
    "force_ddp": (True, False, False),
    "force_fsdp": (True, False, False),
    "loss_parallel": (True, False),
    "activation_memory_budget": (0.5, 0.5, 0.2, 1, 1, 2.0),
    "pipeline_schedule": ("1F1B", "GPipe", "1F1B", "GPipe", "1F1B", "Zigzag"),
    "pipeline_microbatches": (None, 4, 4, 8, 8, 0),
}

CHECKPOINTS = (
    "CheckpointParameters(checkpoint_every_n_steps=5)",
    "CheckpointParameters(checkpoint_every_n_steps=50)",
    "CheckpointParameters(checkpoint_every_n_steps=0)",
    "CheckpointParameters(checkpoint_every_n_steps=5, keep_top_k=-1)",
    "CheckpointParameters(keep_top_k=2)",
)


class ConfigText:
    """Draws the configuration's module."""

    def __init__(self, draw: random.Random, breaks: list[str]) -> None:
        self.draw, self.breaks = draw, breaks
        self.undecidable = False
        self.ranks = 1

    def fields(self, preset: str) -> dict[str, str]:
        """Keyword -> its value as source."""
        draw, chosen = self.draw, {}
        for axis in PRESETS[preset]:
            likely = 0.08 if axis in ("pipeline_parallel", "context_parallel") else 0.4
            if draw.random() < likely or (preset.endswith("HSDP") and axis == "dp_shard"):
                wrong = draw.random() < 0.04
                chosen[axis] = repr(draw.choice(WRONG_DEGREES if wrong else DEGREES))
        degrees = [int(text) for text in chosen.values() if text.isdigit()]
        self.ranks = max(prod(degrees), 1)
        if draw.random() < 0.65:
            chosen["compile_model"] = repr(draw.random() < 0.3)
        for name, values in OPTIONS.items():
            if draw.random() < 0.12:
                chosen[name] = repr(draw.choice(values))
        chance = draw.random()
        if chance < 0.03:
            self.breaks.append("config: unknown keyword")
            chosen[draw.choice(("dp_shards", "compile_models", "tp"))] = "2"
        elif chance < 0.05 and "dp_shard" in chosen:
            self.breaks.append("config: dp_shard left out")
            del chosen["dp_shard"]
        elif chance < 0.09 and set(chosen.values()) - {"None"}:
            self.undecidable = True
            name = draw.choice(sorted(name for name in chosen if chosen[name] != "None"))
            chosen[name] = f"type({chosen[name]})(os.environ.get('NONE', {chosen[name]}))"
        return chosen

    def device(self) -> tuple[list[str], str]:
        """Statements, and the expression of the device parameters after them."""
        draw = self.draw
        preset = draw.choice((*PRESETS, "DeviceParameters", "DeviceParameters.FSDP"))
        fields = self.fields(preset)
        written = ", ".join(f"{name}={value}" for name, value in fields.items())
        style = draw.choice(("call", "call", "dict", "replace", "mutate", "branch", "partial"))
        if style == "dict":
            return [f"options = dict({written})"], f"{preset}(**options)"
        if style == "partial" and fields:
            return [f"make = partial({preset}, {written})"], "make()"
        if style == "branch":
            lines = ["if wide:", f"    device = {preset}({written})", "else:"]
            return [*lines, "    device = DeviceParameters(compile_model=False)"], "device"
        if style == "replace" and "dp_shard" in fields:
            lines = ["base = DeviceParameters(compile_model=False)"]
            return lines, f"replace(base, {written})"
        if style == "mutate" and fields:
            name = draw.choice([key for key in fields if key != "dp_shard"] or ["compile_model"])
            value = fields.pop(name, "False")
            rest = ", ".join(f"{key}={text}" for key, text in fields.items())
            return [f"device = {preset}({rest})", f"device.{name} = {value}"], "device"
        return [], f"{preset}({written})"

    def text(self) -> str:
        """The module, with a factory `my_config`."""
        draw = self.draw
        statements, device = self.device()
        given = [f"device_parameters={device}"]
        if draw.random() < 0.1:
            given.append(f"checkpoint_parameters={draw.choice(CHECKPOINTS)}")
        if draw.random() < 0.3:
            epochs = draw.choice(("1", "3", "3", "2", "1", "0.5", "0.5", "0"))
            given.append(f"training_parameters=TrainingParameters(n_epochs={epochs})")
        name, declared = "DreamTrainerConfig", ""
        if draw.random() < 0.5:
            name = "Config"
            declared = "@dataclass(kw_only=True)\nclass Config(DreamTrainerConfig):\n    "
            declared += draw.choice(("width: int = 8", "width: int", "widths: list = field()"))
            declared += "\n    depth: int = 2\n\n\n"
            if draw.random() < 0.9 and "= 8" not in declared:
                given.append("widths=[8]" if "widths" in declared else "width=8")
            if draw.random() < 0.04:
                given.append("breadth=8")
        lines = [*statements, f"return {name}({', '.join(given)})"]
        if draw.random() < 0.25:
            lines = [*statements, f"config = {name}({', '.join(given[1:])})"]
            lines += [f"config.device_parameters = {device}", "return config"]
        wide = draw.random() < 0.7
        body = "".join(f"    {line}\n" for line in lines)
        if draw.random() < 0.2:
            inner = f"def build(wide):\n{body}\n\n"
            return f"{HEADER}\n\n{declared}{inner}def my_config():\n    return build({wide})\n"
        return f"{HEADER}\n\n{declared}def my_config(wide={wide}):\n{body}"


TRAIN = """\
from config import my_config
from trainers import MyTrainer

from dream_trainer.utils.cli import cli


def main(config):
    MyTrainer(config).fit()


if __name__ == "__main__":
    cli(main, my_config)
"""

TRAIN_ALONG = """\
from config import my_config
from trainers import MyTrainer

from dream_trainer.utils.cli import cli


def run(trainer_class, config):
    trainer = trainer_class(config)
    trainer.fit()


def main(config):
    run(MyTrainer, config)


if __name__ == "__main__":
    cli(main, {"small": my_config})
"""


def fitting(config: str, ranks: int) -> list[int]:
    """Sizes that the degrees of a configuration may fill."""
    takes_rest = '"auto"' in config.replace("'", '"') or "FSDP" in config or "DDP(" in config
    found = [size for size in WORLDS if size % ranks == 0 and (takes_rest or size == ranks)]
    return found or [*WORLDS]


def make_case(seed: int) -> Case:
    """The case of that seed: always the same."""
    draw = random.Random(seed)
    breaks: list[str] = []
    config = ConfigText(draw, breaks)
    trainer = TrainerText(draw, breaks)
    files = {
        "networks.py": NETWORKS,
        "config.py": (written := config.text()),
        "trainers.py": trainer.text(),
        "train.py": draw.choice((TRAIN, TRAIN, TRAIN_ALONG)),
    }
    world_size = draw.choice(WORLDS)
    if draw.random() < 0.8:
        world_size = draw.choice(fitting(written, config.ranks))
    nproc = None
    if draw.random() < 0.3:
        nproc = draw.choice([n for n in range(1, world_size + 1) if world_size % n == 0])
    rank = draw.choice((0, world_size - 1))
    return Case(seed, files, world_size, nproc, rank, breaks, config.undecidable, trainer.opaque)
