"""Small projects as text, and what a check found in them."""

import re
from textwrap import dedent

from dream_scaffold.check import Result

PRELUDE = """\
from dataclasses import dataclass, field, replace

from dream_trainer import DreamTrainer, DreamTrainerConfig
from dream_trainer.configs import (
    CheckpointParameters, DeviceParameters, LoggingParameters, TrainingParameters
)
from dream_trainer.utils.cli import cli
from dream_trainer.utils.entrypoint import entrypoint


class Complete(DreamTrainer):
    def configure_models(self):
        self.model = make_model()

    def configure_optimizers(self):
        return {self.model: make_optimizer(self.model)}

    def configure_dataloaders(self):
        return make_loader(), make_loader()

    def training_step(self, batch, batch_idx):
        return {"loss": self.model(batch)}


"""
"""Imports, and a trainer that defines what every run needs and nothing else."""


def split_files(text: str) -> dict[str, str]:
    """`--- name` begins a file; what stands before the first is train.py."""
    files: dict[str, list[str]] = {}
    current = files.setdefault("train.py", [])
    for line in dedent(text).strip().split("\n"):
        if line.startswith("--- "):
            current = files.setdefault(line[4:].strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def options_of(sample: str) -> dict[str, int]:
    """The options that a sample asks for: `# dream check --world-size 8`."""
    line = re.search(r"# dream check (.*)", sample)
    given = re.findall(r"--([\w-]+) (\d+)", line[1]) if line else []
    return {name.replace("-", "_"): int(value) for name, value in given}


def codes(result: Result, severity: str | None = None) -> list[str]:
    return [f.code for f in result.findings if severity in (None, f.severity)]


def hooks(result: Result, config: str) -> dict[str, str]:
    """The hooks that a configuration calls, by `apply_` name."""
    for trainer in result.project.trainers:
        for found in trainer.configs:
            if found.name == config:
                needs = found.hooks.items()
                return {
                    n: need for n, need in needs if n.startswith("apply_") and need != "unused"
                }
    known = [config.name for trainer in result.project.trainers for config in trainer.configs]
    raise LookupError(f"{config} is not among {known}")


def sections(text: str) -> dict[str, str]:
    """`# -- name` begins a sample; what follows is its source."""
    _, *parts = ("\n" + text).split("\n# -- ")
    samples = {}
    for part in parts:
        name, _, source = part.partition("\n")
        samples[name] = source.strip("\n") + "\n"
    return samples
