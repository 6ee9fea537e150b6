"""A signal handler is installed by hand.

Schedulers announce the end of a job by SIGTERM or SIGUSR1. The runtime's checkpoint callback takes
them: the ranks agree on the step at which they stop, save, and exit with code 75, so that the job
is started again. A handler of one's own replaces that one: it runs on one rank at any moment, and
a save that it begins hangs.

Bad:

    signal.signal(signal.SIGTERM, lambda *_: save())

Good:

    DreamTrainerConfig(checkpoint_parameters=CheckpointParameters())

How to fix: leave the signal to the runtime and set `checkpoint_parameters`. What is to happen at
the end belongs into `post_fit` or `on_interrupt` of a callback. See docs/checkpointing.md.
"""

from collections.abc import Iterator

from ..facts import Foreign, Match, Project, Severity

CODE = "DT704"
NAME = "signal-by-hand"
SEVERITY: Severity = "warning"

HARMLESS = ("SIGPIPE", "SIGCHLD", "SIGWINCH", "SIGALRM", "SIGPROF", "SIGVTALRM", "SIGHUP")
"""Signals that the runtime leaves alone."""

PASSES = (
    """
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    """,
    """
    import signal

    def main(config):
        print(signal.getsignal(signal.SIGTERM))
        Complete(config).fit()
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self):
            self.network.signal(15, None)
    """,
)

MATCHES = (
    """
    import signal

    class MyTrainer(Complete):
        def init_weights(self):
            signal.signal(signal.SIGTERM, self.stop)

        def stop(self, *_):
            self.is_stopping = True
    """,
    """
    from signal import SIGUSR1, signal

    def main(config):
        signal(SIGUSR1, print)
        Complete(config).fit()

    if __name__ == "__main__":
        cli(main, DreamTrainerConfig())
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trace in project.traces:
        for act, call in trace.calls("signal"):
            if call.name != "signal.signal":
                continue
            number = call.argument(0, "signalnum")
            if isinstance(number, Foreign) and number.last in HARMLESS:
                continue
            yield Match(
                act.place,
                f"`{call.spot.text}` takes a signal away from the runtime: ranks would heed it "
                "at different steps.",
                "Leave it out: with checkpoint_parameters a run that is told to stop saves first.",
                notes=act.notes,
            )
