"""Optional packages, and what each of them is for."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from .reading import Reading

OPTIONAL = {
    "numpy": "torch's collectives of objects",
    "rich": "the progress bar",
    "safetensors": "export to Hugging Face folders",
    "fsspec": "checkpoints at URLs",
    "torchdata": "loaders that can be resumed exactly",
    "torchmetrics": "metrics over all ranks",
    "wandb": "WandbLogger",
    "tensorboard": "TensorBoardLogger",
    "torchao": "Fp8Quantization",
    "torchft": "FaultToleranceCallback",
}
NEEDED = ("numpy",)


def probe() -> Iterator[Reading]:
    """Readings under the topic `packages`."""
    for name, use in OPTIONAL.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            if name in NEEDED:
                yield Reading("packages", name, "bad", f"missing: {use}", f"pip install {name}")
            else:
                yield Reading(
                    "packages", name, "note", f"missing, for {use}", f"pip install {name}"
                )
        else:
            yield Reading("packages", name, "ok", f"{found}, for {use}")
