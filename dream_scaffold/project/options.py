"""What a new project is made from."""

from dataclasses import asdict, dataclass
from typing import Any

from .choices import check_choice
from .modes import Mode, read_mode
from .names import check_name
from .presets import (
    ALWAYS,
    IMAGES,
    LAUNCHERS,
    LICENSES,
    TRACKERS,
    WORKFLOWS,
    Choice,
    read_launchers,
)
from .recipes import RECIPES, check_recipe


@dataclass(frozen=True, kw_only=True)
class Options:
    """The answers that decide every byte of a project."""

    name: str
    parallel: str
    """As `read_mode` reads it."""

    recipe: str = "lm"
    compile: bool = False
    ckpt_acts: bool = False
    tracker: str = "none"
    launch: str = ALWAYS
    """As `read_launchers` reads it."""

    ci: str = "none"
    docker: bool = False
    license: str = "none"

    def check(self) -> None:
        """Raise `DreamError` where no project can be made of these answers."""
        check_name(self.name)
        check_recipe(self.recipe, read_mode(self.parallel))
        check_choice("--tracker", self.tracker, TRACKERS)
        read_launchers(self.launch)
        check_choice("--ci", self.ci, WORKFLOWS)
        check_choice("--license", self.license, LICENSES)

    def answers(self) -> dict[str, Any]:
        """By name, each in the one way in which it is recorded."""
        return asdict(self) | {"parallel": self.mode.name, "launch": ",".join(self.launchers)}

    @property
    def mode(self) -> Mode:
        return read_mode(self.parallel)

    @property
    def hooks(self) -> list[str]:
        """The hooks that the runtime calls, in its order."""
        return self.mode.hooks(compile_model=self.compile, checkpoint_activations=self.ckpt_acts)

    @property
    def launchers(self) -> tuple[str, ...]:
        return read_launchers(self.launch)

    @property
    def presets(self) -> list[Choice]:
        """What was chosen of each preset."""
        return [
            TRACKERS[self.tracker],
            *(LAUNCHERS[name] for name in self.launchers),
            WORKFLOWS[self.ci],
            IMAGES[self.docker],
            LICENSES[self.license],
        ]

    @property
    def requires(self) -> list[str]:
        """What the project installs beside the runtime's own needs."""
        of_presets = (package for choice in self.presets for package in choice.requires)
        return [*RECIPES[self.recipe].requires, *of_presets]

    @property
    def command(self) -> str:
        """The command that trains the project."""
        ranks = self.mode.ranks
        return f"torchrun --nproc-per-node={ranks} train.py" if ranks > 1 else "python train.py"
