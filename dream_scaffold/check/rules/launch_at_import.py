"""Training starts when the script is imported: `cli()` or an entrypoint is called unguarded.

Workers of a loader that are spawned, tests, notebooks and other scripts import the module. Without
`if __name__ == "__main__"` each of them starts a training run of its own, or a process tree
that never ends.

Bad:

    cli(main, make_config)

Good:

    if __name__ == "__main__":
        cli(main, make_config)

How to fix: put the call under `if __name__ == "__main__":`. `--unsafe-fixes` do it where
it stands alone. See docs/training-cli.md.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Call,
    Code,
    Edit,
    Fix,
    Match,
    Place,
    Project,
    Script,
    Severity,
    runs_at_import,
    statement_of,
)

CODE = "DT702"
NAME = "launch-at-import"
SEVERITY: Severity = "error"

PASSES = (
    """
    def main(config):
        Complete(config).fit()

    if __name__ == "__main__":
        cli(main, DreamTrainerConfig())
    """,
    """
    def main(config):
        Complete(config).fit()

    def launch():
        cli(main, DreamTrainerConfig())

    if "__main__" == __name__:
        launch()
    """,
    """
    @entrypoint
    def main():
        Complete(DreamTrainerConfig()).fit()

    def names():
        return ["main"]

    NAMES = names()

    if __name__ == "__main__":
        main()
    """,
)

MATCHES = (
    """
    def main(config):
        Complete(config).fit()

    cli(main, DreamTrainerConfig())
    """,
    """
    from dream_trainer.utils.cli import cli as run

    def launch():
        run(lambda config: Complete(config).fit(), DreamTrainerConfig())

    launch()
    """,
    """
    @entrypoint
    def main():
        Complete(DreamTrainerConfig()).fit()

    main()
    """,
)


def check(project: Project) -> Iterator[Match]:
    for script in project.scripts:
        decorated = _decorated(script)
        told: set[Place] = set()
        for act in script.body.acts:
            statement = statement_of(act)
            is_cli = isinstance(act.term, Call) and act.term.name.endswith(".cli.cli")
            launches = (is_cli and act.kind == "call") or (
                bool(act.via and decorated)
                and statement.text.partition("(")[0].strip() in decorated
            )
            if not launches or not runs_at_import(act) or statement.place in told:
                continue
            told.add(statement.place)
            yield Match(
                statement.place,
                "This starts training whenever the module is imported.",
                'Put it under if __name__ == "__main__":.',
                fix=_fix(statement.text, act, statement.place),
            )


def _decorated(script: Script) -> set[str]:
    """The functions that `@entrypoint` decorates."""
    return {
        call.arguments[0].name
        for _, call in script.body.calls("entrypoint")
        if call.is_foreign("dream_trainer") and call.arguments
        if isinstance(call.arguments[0], Code)
    }


def _fix(text: str, act: Act, place: Place) -> Fix | None:
    """The guard above it, where the call is a statement of one line at the margin."""
    if place.column != 1 or "\n" in text or act.guards:
        return None
    edit = Edit(place, f'if __name__ == "__main__":\n    {text}')
    return Fix('Put it under if __name__ == "__main__"', (edit,), safe=False)
