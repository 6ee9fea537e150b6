"""What `async_save` returns is thrown away.

`async_save` only begins to write; the future that it returns is the one way to learn when it is
done and whether it failed. Without it the next save may overtake this one, the process may end
while files are open, and a full disk is never noticed: the newest checkpoint cannot be read.

Bad:

    dcp.async_save(state, checkpoint_id=path)

Good:

    DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(), callbacks=[AsyncCheckpointCallback()]
    )

How to fix: use `AsyncCheckpointCallback`, which has one save under way and waits for it. If you
write by hand, keep the future and call its `result()` before the next save and at the end.
See docs/checkpointing.md.
"""

from collections.abc import Iterator

from ..facts import Call, Match, Project, Severity, Trace

CODE = "DT609"
NAME = "discarded-save"
SEVERITY: Severity = "warning"

_IMPORTS = """
    import torch.distributed.checkpoint as dcp
    from dream_trainer.callbacks import Callback
"""

PASSES = (
    _IMPORTS
    + """
    class Save(Callback):
        def post_epoch(self, trainer):
            self.future = dcp.async_save({}, checkpoint_id="x")
    """,
    _IMPORTS
    + """
    class Save(Callback):
        def post_epoch(self, trainer):
            future = dcp.async_save({}, checkpoint_id="x")
            future.result()
    """,
    _IMPORTS
    + """
    class Save(Callback):
        def post_epoch(self, trainer):
            self.pending.append(self.begin())

        def begin(self):
            return dcp.async_save({}, checkpoint_id="x")
    """,
    _IMPORTS
    + """
    class Save(Callback):
        def post_epoch(self, trainer):
            dcp.save({}, checkpoint_id="x")
    """,
)

MATCHES = (
    _IMPORTS
    + """
    class Save(Callback):
        def post_epoch(self, trainer):
            dcp.async_save({}, checkpoint_id="x")
    """,
    """
    from torch.distributed.checkpoint import async_save as begin

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            if self.global_step % 100 == 0:
                unused = begin({"model": self.model}, checkpoint_id="x")
            return {"loss": loss}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trace in project.traces:
        for act, call in trace.calls("async_save"):
            if call.is_foreign("torch") and not _is_used(call, trace):
                yield Match(
                    act.place,
                    "The future of async_save() is thrown away: nobody waits for the save, or "
                    "learns that it failed.",
                    "Use AsyncCheckpointCallback, or keep the future and call its result().",
                    notes=act.notes,
                )


def _is_used(call: Call, trace: Trace) -> bool:
    name = f"{call.name}()"
    for act in trace.acts:
        terms = [act.term] if act.target is None else [act.term, act.target]
        if act.term is call and act.kind == "call":
            terms = terms[1:]
        for term in terms:
            if name in term.origins and any(part is call for part in term.walk()):
                return True
    return False
