"""A run on Weights & Biases, or in its files until they are synchronised."""

import json
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..configs import RunError, WandbLoggingParameters
from .logger import Histogram, Logger, Run
from .media import Audio, Image, Media, Table, write

IDENTITY = "wandb.json"
"""In the run's folder: the id under which Weights & Biases knows it."""


class WandbLogger(Logger):
    """One run, whatever the number of ranks, and the same one after a resume.

    Every row carries `step`, the optimizer step, which all charts have as their axis: a
    resumed run may go back to its checkpoint, where wandb's own counter only goes up and
    would drop what it logs.
    """

    name = "wandb"
    takes_media = True

    def __init__(self, parameters: WandbLoggingParameters) -> None:
        self.parameters = parameters
        self.run: Any = None

    def start(self, run: Run) -> None:
        import wandb

        identity = run.folder / IDENTITY
        known = _read_identity(identity) if run.start_step else None
        mode: Any = self.parameters.mode or os.environ.get("WANDB_MODE")
        if mode is None:
            mode = "online" if _has_key(wandb) else "offline"
            if mode == "offline":
                print(
                    f"wandb: no API key, logging offline. Later: wandb sync {run.folder}/wandb/*"
                )
        options = self._options(run, known or secrets.token_hex(4), resumes=known is not None)
        try:
            self.run = wandb.init(mode=mode, **options)
        except wandb.errors.Error as error:
            if self.parameters.mode is not None or mode == "offline":
                raise RunError(
                    f"wandb could not start the run {mode}: {error} "
                    'Set logging_parameters.mode to "offline", or use LoggingParameters.'
                ) from error
            print(f"warning: wandb cannot be reached, logging offline: {error}", flush=True)
            self.run = wandb.init(mode="offline", **options)
        identity.write_text(json.dumps({"id": self.run.id}) + "\n")
        self.run.define_metric("step", hidden=True)
        self.run.define_metric("*", step_metric="step")

    def _options(self, run: Run, id: str, resumes: bool) -> dict[str, Any]:
        return {
            "entity": self.parameters.entity,
            "project": run.project,
            "group": run.group,
            "name": run.experiment,
            "id": id,
            "resume": "allow" if resumes else None,
            "tags": list(self.parameters.tags),
            "config": run.config,
            "allow_val_change": True,  # A resumed run may have another configuration.
            "save_code": self.parameters.save_code,
            "dir": str(run.folder),
            "reinit": "create_new",
        }

    def log(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        self.run.log({"step": step, "epoch": epoch, **values})

    def show(self, step: int, name: str, items: Sequence[Media]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shown = [
                _as_wandb(item, Path(folder) / str(index)) for index, item in enumerate(items)
            ]
            self.run.log({"step": step, name: shown if len(shown) > 1 else shown[0]})

    def spread(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        import numpy
        import wandb

        made = {
            name: wandb.Histogram(
                np_histogram=(numpy.asarray(item.counts), numpy.asarray(item.edges))
            )
            for name, item in histograms.items()
        }
        self.run.log({"step": step, **made})

    def close(self, exit_code: int, goes_on: bool = False) -> None:
        if goes_on:
            self.run.mark_preempting()
        self.run.finish(exit_code=exit_code)


def _as_wandb(item: Media, path: Path) -> Any:
    import wandb

    if isinstance(item, Table):
        return wandb.Table(columns=list(item.columns), data=[list(row) for row in item.rows])
    if isinstance(item, Image):
        return wandb.Image(str(write(item, path)), caption=item.caption or None)
    if isinstance(item, Audio):
        return wandb.Audio(str(write(item, path)), caption=item.caption or None)
    return wandb.Table(columns=["text"], data=[[item]])


def _read_identity(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _has_key(wandb: Any) -> bool:
    """Whether wandb finds an API key without asking for one."""
    try:
        return bool(wandb.login(prompt=False, verify=False))
    except TypeError:  # Before 0.31.
        return bool(wandb.api.api_key)
