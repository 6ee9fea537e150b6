"""The `doctor` command: it parses and prints, `examine` looks."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .reading import Reading

SIGNS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


def doctor_command(
    path: Annotated[str, typer.Argument(help="The project. Default: this folder.")] = ".",
    no_smoke: Annotated[
        bool, typer.Option("--no-smoke", help="Start no processes to try collectives.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what this machine and this project will do for a run, and what is in the way.

    Exits with 0 if nothing is bad, 1 if something is.
    """
    from .examine import examine

    folder = Path(os.path.abspath(path))
    readings = examine(folder, smoke_test=not no_smoke)
    typer.echo(_json(readings) if as_json else _text(readings))
    raise typer.Exit(int(any(reading.state == "bad" for reading in readings)))


def _text(readings: "list[Reading]") -> str:
    width = max(len(reading.name) for reading in readings)
    lines: list[str] = []
    topic = ""
    for reading in readings:
        if reading.topic != topic:
            lines += ["", reading.topic] if lines else [reading.topic]
            topic = reading.topic
        lines.append(f"  {SIGNS[reading.state]}  {reading.name:{width}}  {reading.text}")
        if reading.remedy and reading.state != "ok":
            lines.append(f"  {'':4}  {'':{width}}  {reading.remedy}")
    bad = sum(reading.state == "bad" for reading in readings)
    lines += ["", f"{bad} in the way." if bad else "Nothing is in the way."]
    return "\n".join(lines)


def _json(readings: "list[Reading]") -> str:
    import json

    report = {
        "version": 1,
        "readings": [vars(reading) for reading in readings],
        "bad": sum(reading.state == "bad" for reading in readings),
    }
    return json.dumps(report, indent=2)
