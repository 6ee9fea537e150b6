"""Checkpoints are ranked by a value that nothing reports.

With `resume_mode="min"` or `"max"` the best checkpoints are those with the least or greatest
`monitor`. A name that neither step returns, no metric has and nobody adds is in no checkpoint:
all of them rank alike, the best one is deleted as soon as `keep_top_k` newer ones exist, and
`export` picks whichever is newest. Nothing fails.

Bad:

    def validation_step(self, batch, batch_idx):
        return {"val/loss": loss}

    CheckpointParameters(monitor="val_loss", resume_mode="min")

Good:

    CheckpointParameters(monitor="val/loss", resume_mode="min")

How to fix: write the name as the step returns it. A metric that `configure_metrics` assigns to
`self.accuracy` is logged as `metrics/accuracy`. See docs/checkpointing.md.
"""

from collections.abc import Iterator

from ..facts import (
    Call,
    Code,
    Configuration,
    Constant,
    Derived,
    Display,
    Either,
    Foreign,
    Item,
    Match,
    Path,
    Project,
    Setting,
    Severity,
    Term,
    Trace,
    Trainer,
)

CODE = "DT109"
NAME = "unreported-monitor"
SEVERITY: Severity = "error"

OF_RUNTIME = ("lr/", "perf/", "grad_norm/", "param_norm/")
"""What the names of values begin with that the runtime's own callbacks add."""

_STEPS = """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            return {"train/loss": self.model(batch)}

        def validation_step(self, batch, batch_idx):
            values = {"val/loss": self.model(batch)}
            if self.config.seed:
                values["val/bits"] = values["val/loss"] / 2
            return values
"""

PASSES = (
    _STEPS
    + """
    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(monitor="val/bits", resume_mode="min")
    )
    """,
    _STEPS
    + """
    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(monitor="whatever", resume_mode="last")
    )
    """,
    _STEPS
    + """
        def configure_metrics(self):
            self.accuracy = make_metric()

    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(
            monitor="metrics/accuracy", resume_mode="max"
        )
    )
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            return {f"{self.name}/loss": self.model(batch)}

    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(monitor="a/loss", resume_mode="min")
    )
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            self.also_log({"train/error": self.model(batch)})
            return {}

    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(monitor="train/error", resume_mode="min")
    )
    """,
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            values = {}
            values.update(self.measure(batch))
            return values

    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(monitor="a/loss", resume_mode="min")
    )
    """,
)

MATCHES = (
    _STEPS
    + """
    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(monitor="val_loss", resume_mode="min")
    )
    """,
    """
    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(resume_mode="min")
    )
    """,
    _STEPS
    + """
        def configure_metrics(self):
            self.accuracy = make_metric()

    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(monitor="val/accuracy", resume_mode="max")
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        ranking = [(c, s) for c in trainer.configs if (s := _ranked_by(c)) is not None]
        if not ranking or trainer.open is not None:
            continue
        names = _reported(trainer, project)
        if names is None:
            continue
        for config, setting in ranking:
            name = str(setting.value)
            mode = config.settings["checkpoint_parameters.resume_mode"]
            if name in names or name.startswith(OF_RUNTIME) or _is_metric(name, names):
                continue
            default = "" if setting.is_explicit else ", the default"
            yield Match(
                setting.place if setting.is_explicit else mode.place,
                f'Checkpoints are ranked by "{name}"{default}, which nothing reports.',
                _remedy(name, names),
                certain=config.value("callbacks") is None or _are_shown(project),
                config=config.name,
            )


def _ranked_by(config: Configuration) -> Setting | None:
    """What `monitor` holds, where it ranks checkpoints."""
    mode = config.value("checkpoint_parameters.resume_mode")
    setting = config.settings.get("checkpoint_parameters.monitor")
    if mode not in ("min", "max") or setting is None or not setting.is_known:
        return None
    return setting if config.value("checkpoint_parameters.enable") is True else None


def _remedy(name: str, names: set[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(names), n=1, cutoff=0.5)
    if near:
        return f'Write monitor="{near[0]}".'
    known = ", ".join(f'"{known}"' for known in sorted(names)) or "nothing"
    return f"What is reported: {known}."


def _is_metric(name: str, names: set[str]) -> bool:
    """Whether it is a value of a metric that has several."""
    return name.startswith("metrics/") and any(name.startswith(f"{m}/") for m in names)


def _reported(trainer: Trainer, project: Project) -> set[str] | None:
    """The names of everything that is logged; None where that is not known."""
    behaviour = trainer.behaviour
    names: set[str] = set()
    if "training_step" not in behaviour.traces:
        return None
    for trace in behaviour.named("training_step", "validation_step"):
        found = _of_step(trace)
        if found is None:
            return None
        names |= found
    for trace in project.traces:
        for _, call in trace.calls("also_log"):
            added = _keys(call.argument(0, "values"))
            if added is None:
                return None
            names |= added
    for trace in behaviour.named("configure_metrics"):
        if trace.is_open:
            return None
        for act in trace.of_kind("set"):
            if isinstance(act.target, Path) and act.target.dotted.startswith("self."):
                names.add(f"metrics/{act.target.dotted.split('.')[1]}")
    return names


def _of_step(trace: Trace) -> set[str] | None:
    names: set[str] = set()
    if trace.is_cut:
        return None
    for act in trace.returns:
        found = _keys(act.term)
        if found is None:
            return None
        names |= found
    for act in trace.of_kind("set"):
        target = act.target
        if isinstance(target, Item) and isinstance(target.of, (Display, Either)):
            if not isinstance(target.key, Constant):
                return None
            names.add(str(target.key.value))
    for _, call in trace.calls("update", "setdefault"):
        if isinstance(call.receiver, (Display, Either, Call)):
            return None
    return names


def _keys(term: Term | None) -> set[str] | None:
    """The keys of a mapping; None where they are not known."""
    names: set[str] = set()
    for option in term.options() if term is not None else ():
        found: set[str] | None = None
        if isinstance(option, Display) and option.kind == "dict" and not option.is_open:
            keys = [key.value for key in option.keys if isinstance(key, Constant)]
            found = set(map(str, keys)) if len(keys) == len(option.keys) else None
        elif isinstance(option, Derived) and option.operator == "BitOr":
            parts = [_keys(part) for part in option.of]
            known = [part for part in parts if part is not None]
            found = set().union(*known) if len(known) == len(parts) else None
        elif isinstance(option, Call) and option.name == "builtins.dict":
            first = _keys(option.arguments[0]) if option.arguments else set()
            if first is not None and not option.is_open:
                found = first | set(option.keywords)
        elif isinstance(option, Constant):
            found = set()
        if found is None:
            return None
        names |= found
    return names if term is not None else None


def _are_shown(project: Project) -> bool:
    """Whether every callback that a configuration is given is one whose source is known."""
    for trace in project.traces:
        for _, call in trace.calls():
            for name in ("callbacks", "extra_callbacks"):
                given = call.keywords.get(name)
                if given is not None and not _is_shown(given):
                    return False
    return True


def _is_shown(given: Term) -> bool:
    if isinstance(given, Constant):
        return True
    if not isinstance(given, Display) or given.is_open:
        return False
    return all(
        isinstance(item, Call)
        and (
            isinstance(item.function, Code)
            or (isinstance(item.function, Foreign) and item.is_foreign("dream_trainer"))
        )
        for item in given.items
    )
