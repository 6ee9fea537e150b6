"""What a new project is made from."""

from dataclasses import asdict, dataclass
from typing import Any

from .modes import Mode, read_mode
from .names import check_name
from .recipes import check_recipe


@dataclass(frozen=True, kw_only=True)
class Options:
    """The answers that decide every byte of a project."""

    name: str
    parallel: str
    """As `read_mode` reads it."""

    recipe: str = "lm"
    compile: bool = False
    ckpt_acts: bool = False

    def check(self) -> None:
        """Raise `DreamError` where no project can be made of these answers."""
        check_name(self.name)
        check_recipe(self.recipe, read_mode(self.parallel))

    def answers(self) -> dict[str, Any]:
        return asdict(self) | {"parallel": self.mode.name}

    @property
    def mode(self) -> Mode:
        return read_mode(self.parallel)

    @property
    def hooks(self) -> list[str]:
        """The hooks that the runtime calls, in its order."""
        return self.mode.hooks(compile_model=self.compile, checkpoint_activations=self.ckpt_acts)

    @property
    def launch(self) -> str:
        """The command that trains the project."""
        ranks = self.mode.ranks
        return f"torchrun --nproc-per-node={ranks} train.py" if ranks > 1 else "python train.py"
