"""What a project can start from."""

from dataclasses import dataclass

from ..errors import DreamError
from .choices import check_choice
from .modes import PARTS, Mode


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One kind of project: its model, its data and its steps."""

    meaning: str
    advice: str
    """When to take it."""

    requires: tuple[str, ...] = ()
    """What its projects install beside the runtime's own needs."""

    parts: frozenset[str] = frozenset(PARTS)
    """The parts of `--parallel` that make sense for it."""

    why_not: str = ""
    """Why the others do not."""


RECIPES = {
    "lm": Recipe(
        meaning="a small language model that learns real text",
        advice="Your own transformer, or a first look: it knows every mode.",
    ),
    "vision": Recipe(
        meaning="a small vision transformer that reads digits",
        advice="Images and labels: a dataset, a sampler, accuracy.",
        requires=("scikit-learn>=1.4",),
        parts=frozenset({"single", "ddp", "fsdp", "hsdp", "tp"}),
        why_not="an image is a short sequence, and the model is not deep",
    ),
    "gan": Recipe(
        meaning="two models and two optimizers in alternating steps",
        advice="An algorithm of your own, such as GANs and RL.",
        requires=("scikit-learn>=1.4",),
        parts=frozenset({"single", "ddp", "fsdp", "hsdp"}),
        why_not="its two models are small, and shard or replicate as a whole",
    ),
    "finetune": Recipe(
        meaning="a Hugging Face language model, tuned by LoRA or as a whole",
        advice="You have a model of the hub, and prompts with answers.",
        requires=("transformers>=5", "safetensors>=0.4"),
        parts=frozenset({"single", "ddp", "fsdp", "hsdp"}),
        why_not="its model is one of transformers, whose layers it does not split",
    ),
    "blank": Recipe(
        meaning="a stand-in model and data, to be replaced",
        advice="You have a model; the hooks wait for it.",
    ),
}


def check_recipe(name: str, mode: Mode) -> None:
    """Raise `DreamError` where there is no such recipe, or `mode` makes no sense for it."""
    check_choice("--recipe", name, RECIPES)
    recipe = RECIPES[name]
    unfit = [part for part in mode.parts if part not in recipe.parts]
    if unfit:
        possible = ", ".join(part for part in PARTS if part in recipe.parts)
        raise DreamError(
            f"--recipe {name} does not go with {unfit[0]}: {recipe.why_not}.",
            f"Its modes are made of {possible}.",
        )
