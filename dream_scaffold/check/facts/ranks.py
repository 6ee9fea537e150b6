"""Which conditions hang on a rank, and which calls need every rank."""

import re
from collections.abc import Iterator

from .project import Configuration, Project
from .terms import Attribute, Call, Constant, Derived, Foreign, Item, Path, Term
from .traces import Act, Guard, Trace

OF_ALL = frozenset({"local_rank", "global_rank", "node_rank", "is_rank_zero", "is_main_process"})
"""Attributes that differ between ranks: `self.world.local_rank`."""

OF_SOME = frozenset({"dp_rank", "tp_rank", "pp_rank", "cp_rank", "coordinate", "get_coordinate"})
"""Attributes that differ between ranks, and are the same within some group of them."""

OWNERS = ("", "world", "process", "dist", "env")
"""What has a `rank` of all; that of a matrix is another one."""

ASKED = frozenset({"get_rank", "get_node_local_rank", "get_local_rank", "is_main_process"})
VARIABLES = frozenset({"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "GROUP_RANK"})

VERBS = ("step", "backward", "model_state_dict", "also_log")
"""Methods of a trainer that all ranks have to call together."""

STATE = frozenset(
    {"get_model_state_dict", "get_optimizer_state_dict", "get_state_dict"}
    | {"set_model_state_dict", "set_optimizer_state_dict", "set_state_dict"}
)
_PLAIN = frozenset(
    {"new_group", "barrier", "monitored_barrier", "all_reduce", "reduce", "broadcast"}
    | {"reduce_scatter", "gather", "scatter"}
)
_WORD = re.compile(r"(all_gather|all_to_all|broadcast|reduce_scatter|gather_object|scatter_obj)")
_CHECKPOINT = frozenset({"save", "load", "async_save", "save_state_dict", "load_state_dict"})
_GROUPS = ("group", "process_group", "device_mesh", "mesh")


def is_of_rank(term: Term) -> bool:
    """Whether a condition is about which rank this is, of all or within a group."""
    return any(_is_rank(part) or _is_place(part) for part in _parts(term))


def is_of_group(term: Term) -> bool:
    """Whether a condition is about a rank within a group only, so that others may share it."""
    parts = list(_parts(term))
    return any(map(_is_place, parts)) and not any(map(_is_rank, parts))


def _parts(term: Term) -> Iterator[Term]:
    """What is compared in a condition; what merely went into a call's making is left out."""
    if isinstance(term, Derived) and term.operator in ("Is", "IsNot", "format"):
        return
    yield term
    inner = term.parts()
    if isinstance(term, Call):
        inner = term.arguments if term.name in ("builtins.int", "builtins.bool") else ()
    for part in inner:
        yield from _parts(part)


def _is_rank(term: Term) -> bool:
    if isinstance(term, Path):
        if term.last != "rank":
            return term.last in OF_ALL
        owner = term.dotted.rpartition(".")[0].rpartition(".")[2]
        return owner in OWNERS or term.mentions("get_rank", "environ", "getenv")
    if isinstance(term, Attribute):
        return term.name in OF_ALL
    if isinstance(term, Call) and term.last in ASKED:
        # A mesh knows the place in a group, `dist` the rank of all, or in a group.
        return term.last != "get_local_rank" and not (term.arguments or term.keywords)
    return _reads_variable(term)


def _is_place(term: Term) -> bool:
    if isinstance(term, Path):
        return term.last in OF_SOME or ".coordinate." in term.dotted
    if isinstance(term, Attribute):
        return term.name in OF_SOME
    if isinstance(term, Call) and term.last in ASKED:
        return term.last == "get_local_rank" or bool(term.arguments or term.keywords)
    return False


def _reads_variable(term: Term) -> bool:
    """`os.environ["RANK"]`, `os.environ.get("RANK")`, `os.getenv("RANK")`."""
    key: Term | None = None
    if isinstance(term, Item) and isinstance(term.of, Foreign) and term.of.name == "os.environ":
        key = term.key
    elif isinstance(term, Call) and term.name in ("os.environ.get", "os.getenv"):
        key = term.argument(0, "key")
    return isinstance(key, Constant) and key.value in VARIABLES


def collective(call: Call, trainer: str = "trainer") -> str | None:
    """How a call that every rank has to make is shown; None for any other call.

    `trainer` is what the trainer is called there: in its own methods `self`.
    """
    name, last = call.name, call.last
    if last in STATE or last == "full_tensor":
        return f"{last}()"
    if isinstance(call.function, Foreign):
        if name.startswith("torch.distributed.checkpoint.") and last in _CHECKPOINT:
            return None if "no_dist" in call.keywords else f"dcp.{last}()"
        if name.startswith("torch.distributed.") and (last in _PLAIN or _WORD.match(last)):
            return f"dist.{last}()"
        return None
    if isinstance(call.function, Path):
        owner = call.function.dotted.rpartition(".")[0]
        if owner == trainer and last in VERBS:
            return f"{owner}.{last}()"
        if owner.endswith("world") and last in ("broadcast", "settle"):
            return f"{name}()"
    return None


def names_group(call: Call) -> bool:
    """Whether a collective says which ranks take part."""
    given = [call.keywords[name] for name in _GROUPS if name in call.keywords]
    if any(not (isinstance(term, Constant) and term.value is None) for term in given):
        return True
    return any("group" in origin for term in call.arguments for origin in term.origins)


def guards_of_rank(act: Act, trace: Trace) -> Iterator[Guard]:
    """The conditions about ranks under which an act happens, the innermost last."""
    for guard in act.guards:
        if guard.kind not in ("if", "else", "after", "loop") or not is_of_rank(guard.test):
            continue
        if guard.kind == "loop" and not isinstance(guard.test, Derived):
            continue
        if guard.kind == "after" and _raises(guard, trace):
            continue
        yield guard


def _raises(after: Guard, trace: Trace) -> bool:
    """Whether what ended the function under a condition was an exception: the run is over."""
    return any(
        guard.test is after.test
        for act in trace.of_kind("raise")
        for guard in act.guards
        if guard.kind == "if"
    )


def is_parallel(config: Configuration) -> bool:
    """Whether a configuration has, or may have, more than one rank."""
    return config.is_wide(*config.axes) is not False


def may_be_parallel(project: Project) -> bool:
    """Whether a trainer may run on more than one rank."""
    trainers = project.trainers
    return any(not t.configs or any(map(is_parallel, t.configs)) for t in trainers)
