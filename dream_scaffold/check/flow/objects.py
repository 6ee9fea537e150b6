"""What is assigned to paths: attributes of the trainer, and the modules below them."""

import ast

from ..facts import Call, Code, Constant, Display, Either, Foreign, Path, Term
from ..values.classes import find_member
from ..values.domain import Class, Function
from .calls import Calls
from .elements import either
from .frame import Frame, Given

UNCHANGED = frozenset(
    {"to", "cuda", "cpu", "float", "half", "bfloat16", "double", "train", "eval", "share_memory"}
    | {"requires_grad_", "compile", "deepcopy", "fully_shard", "replicate", "checkpoint_wrapper"}
    | {
        "parallelize_module",
        "DistributedDataParallel",
        "DDP",
        "to_empty",
        "apply",
        "requires_grad",
    }
)
"""Methods and functions that return the module that they are given."""

CONTAINERS = frozenset(
    {"ModuleList", "Sequential", "ParameterList", "ModuleDict", "ParameterDict"}
)
DEEPEST_PATH = 9


class Objects(Calls):
    """Knows the objects at paths: what class they have, how they were made."""

    def set_path(self, dotted: str, value: Term, frame: Frame, node: ast.AST) -> None:
        self.act("set", value, node, frame, Path(dotted))
        known = self.attributes.get(dotted)
        conditional = any(guard.kind in ("if", "else", "except") for guard in frame.guards)
        both = known is not None and conditional
        self.attributes[dotted] = either([known, value]) if known and both else value
        self.furnish(dotted, value, frame, node)

    def furnish(self, dotted: str, value: Term, frame: Frame, node: ast.AST) -> None:
        """Work out what lies below a path."""
        if dotted.count(".") > DEEPEST_PATH:
            return
        made = origin_of(value)
        if isinstance(made, Either):
            for choice in made.choices:
                self.furnish(dotted, choice, frame, node)
        elif isinstance(made, Display):
            self.furnish_display(dotted, made, frame, node)
        elif isinstance(made, Path) and made.dotted in self.instances:
            self.instances[dotted] = self.instances[made.dotted]
        elif isinstance(made, Call) and isinstance(made.function, Code):
            if isinstance(made.function.definition, Class):
                self.construct(dotted, made.function.definition, made, frame, node)
        elif isinstance(made, Call) and made.is_foreign() and made.last in CONTAINERS:
            first = made.arguments[0] if made.arguments else None
            whole = first if len(made.arguments) == 1 and isinstance(first, Display) else None
            inner = whole or Display("tuple", made.arguments, is_open=made.is_open)
            self.furnish_display(dotted, inner, frame, node)

    def furnish_display(self, dotted: str, display: Display, frame: Frame, node: ast.AST) -> None:
        for index, item in enumerate(display.items):
            key = str(index)
            if display.kind == "dict":
                name = display.keys[index]
                key = str(name.value) if isinstance(name, Constant) else "*"
            elif display.is_open:
                key = "*"
            inner = f"{dotted}.{key}"
            self.attributes[inner] = item
            self.furnish(inner, item, frame, node)
            if display.kind != "dict" and inner in self.instances:
                self.instances.setdefault(f"{dotted}.*", self.instances[inner])

    def emit(self, function: Term, given: Given, node: ast.AST, frame: Frame) -> Call:
        made = super().emit(function, given, node, frame)
        if (
            given.positional
            and isinstance(function, Path)
            and function.last in ("append", "insert")
        ):
            owner = function.dotted.rpartition(".")[0]
            self.add_element(owner, Constant(None), given.positional[-1], frame, node)
        return made

    def add_element(
        self, dotted: str, key: Term, value: Term, frame: Frame, node: ast.AST
    ) -> None:
        """One more module in a container: `self.layers.append(Block())`."""
        made = self.attributes.get(dotted)
        if not isinstance(made, Call) or not made.is_foreign() or made.last not in CONTAINERS:
            return
        text = key.value if isinstance(key, Constant) else None
        inner = f"{dotted}.{text if isinstance(text, str) else '*'}"
        if inner not in self.attributes:
            self.attributes[inner] = value
        self.furnish(inner, value, frame, node)

    def construct(self, dotted: str, cls: Class, made: Call, frame: Frame, node: ast.AST) -> None:
        self.instances[dotted] = cls
        found = find_member(cls, "__init__")
        if found is None or not isinstance(found[1], Function):
            if cls.is_dataclass:
                for name, value in zip(cls.annotations, made.arguments, strict=False):
                    self.attributes[f"{dotted}.{name}"] = value
                for name, value in made.keywords.items():
                    self.attributes[f"{dotted}.{name}"] = value
            return
        self.follow(
            found[1],
            Path(dotted),
            Given(made.arguments, made.keywords, made.is_open),
            node,
            frame,
            constructing=True,
        )


def origin_of(value: Term) -> Term:
    """The term below calls that return what they are given: `Net().to(device)`."""
    while isinstance(value, Call) and value.last in UNCHANGED:
        inner = value.receiver
        if inner is None or isinstance(value.function, Foreign):
            inner = value.arguments[0] if value.arguments else None
        if inner is None:
            return value
        value = inner
    return value
