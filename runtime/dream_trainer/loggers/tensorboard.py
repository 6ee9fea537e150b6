"""A run in TensorBoard's own files."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from .logger import Histogram, Logger, Run
from .media import Audio, Image, Media, Table

FOLDER = "tensorboard"
FLUSH_SECONDS = 30
"""What a kill can lose."""


class TensorBoardLogger(Logger):
    """Writes event files to `runs/<experiment>/tensorboard/`.

    A run that goes on tells TensorBoard to forget what it had logged past that step.
    """

    name = "TensorBoard"
    takes_media = True

    def start(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(
            str(run.folder / FOLDER),
            purge_step=run.start_step + 1 if run.start_step else None,
            flush_secs=FLUSH_SECONDS,
        )
        text = json.dumps(run.config, indent=2).replace("\n", "\n    ")
        self.writer.add_text("config", f"    {text}", run.start_step)

    def log(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def show(self, step: int, name: str, items: Sequence[Media]) -> None:
        for index, item in enumerate(items):
            tag = f"{name}/{index}" if len(items) > 1 else name
            if isinstance(item, Image):
                self.writer.add_image(tag, item.bytes(), step)
            elif isinstance(item, Audio):
                self.writer.add_audio(tag, item.samples.detach().cpu()[None], step, item.rate)
            elif isinstance(item, Table):
                self.writer.add_text(tag, _markdown(item), step)
            else:
                self.writer.add_text(tag, item, step)

    def spread(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        for name, histogram in histograms.items():
            counts, edges = histogram.counts, histogram.edges
            middles = [(low + high) / 2 for low, high in pairwise(edges)]
            pairs = list(zip(counts, middles, strict=True))
            self.writer.add_histogram_raw(
                name,
                min=edges[0],
                max=edges[-1],
                num=sum(counts),
                sum=sum(count * x for count, x in pairs),
                sum_squares=sum(count * x * x for count, x in pairs),
                bucket_limits=edges[1:],
                bucket_counts=counts,
                global_step=step,
            )

    def close(self, exit_code: int, goes_on: bool = False) -> None:
        self.writer.close()


def _markdown(table: Table) -> str:
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)
