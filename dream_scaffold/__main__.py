"""The `dream` command, and `python -m dream_scaffold`."""

import gc
import sys


def main() -> None:
    """Run the command. A plain `dream check [PATH...]` goes straight to the engine.

    It is what is run most often, by people, editors and hooks, and parsing options would take
    a third of its time.
    """
    # Collecting garbage would take a tenth of a command that is over in half a second.
    gc.disable()
    command, *rest = sys.argv[1:] or [""]
    if command == "check" and not any(word.startswith("-") for word in rest):
        try:
            sys.exit(_check(tuple(rest)))
        except FileNotFoundError:
            pass  # The folder that it was started in is gone; the long way says so.
    from .cli import main as run

    run()


def _check(paths: tuple[str, ...]) -> int:
    from .check import Options, run

    try:
        return run(Options(paths=paths))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    main()
