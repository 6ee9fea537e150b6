"""`dream lsp`, spoken to as an editor does: the same findings and fixes, on text not yet saved."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from editor import Editor, edited
from small_projects import PRELUDE

GOLDEN = Path(__file__).parents[1] / "templates" / "golden"
SEVERITIES = {"error": 1, "warning": 2, "info": 3}

IDLE = (
    PRELUDE
    + """\
class MyTrainer(Complete):
    def on_epoch_end(self):
        loss = 1
        loss.backward()

    def training_step(self, batch, batch_idx):
        loss = self.model(batch)
        loss.backward()
        return {"loss": loss}


cli(entrypoint(MyTrainer), [DreamTrainerConfig()])
"""
)
BROKEN_NAMES = (("configure_optimizers", "configure_optimizer"), ("training_step", "train_step"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose path needs escapes in an address."""
    folder = tmp_path / "mein Projekt é"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    return folder


def dream(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "dream_scaffold", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def plain(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Diagnostics as comparable rows. Columns agree with the check's where all is ASCII."""
    rows = []
    for each in found:
        start, end = each["range"]["start"], each["range"]["end"]
        where = (start["line"], start["character"], end["line"], end["character"])
        rows.append((each["code"], each["severity"], each["message"], *where))
    return sorted(rows)


def reported(folder: Path, name: str) -> list[tuple[Any, ...]]:
    """What `dream check` of the project says of a file, in the same rows."""
    found = json.loads(dream(folder, "check", "--output-format", "json"))["findings"]
    return sorted(
        (
            each["code"],
            SEVERITIES[each["severity"]],
            f"{each['message']} {each['help']}".rstrip(),
            each["line"] - 1,
            each["column"] - 1,
            each["end_line"] - 1,
            each["end_column"] - 1,
        )
        for each in found
        if each["path"] == name
    )


@pytest.mark.parametrize("name", ["lm-fsdp+cp+tp+pp", "gan-ddp", "vision-tp"])
def test_unsaved_text_is_checked_as_a_saved_one(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(GOLDEN / name, folder)
    path = folder / "train.py"
    text = path.read_text()
    wrong = text
    for old, new in BROKEN_NAMES:
        wrong = wrong.replace(f"def {old}", f"def {new}")
    assert wrong != text
    with Editor(folder) as editor:
        editor.open("train.py")
        clean = plain(editor.diagnostics("train.py")) if reported(folder, "train.py") else []
        assert clean == reported(folder, "train.py")
        editor.write("train.py", wrong)
        shown = plain(editor.diagnostics("train.py"))
        assert path.read_text() == text
        path.write_text(wrong)
        assert shown == reported(folder, "train.py") != clean
        assert editor.quit() == 0


def test_a_change_in_one_file_renews_another(folder: Path) -> None:
    config = "from dream_trainer import DreamTrainerConfig\n\nCONFIG = DreamTrainerConfig({})\n"
    train = IDLE.replace("loss.backward()", "pass").replace("[DreamTrainerConfig()]", "[CONFIG]")
    (folder / "config.py").write_text(config.format(""))
    (folder / "train.py").write_text(f"from config import CONFIG\n{train}")
    with Editor(folder) as editor:
        editor.open("train.py")
        editor.open("config.py", config.format("sede=1"))
        assert "DT107" in editor.codes("config.py")
        editor.write("config.py", config.format("seed=1"))
        assert editor.codes("config.py") == []
        editor.write("config.py", config.format("").replace("CONFIG =", "OTHER ="))
        editor.write("train.py", train + "\n")
        assert "DT107" not in editor.codes("train.py")
        editor.write("train.py", "from config import CONFIG\n" + IDLE)
        assert "DT501" in editor.codes("train.py")


def test_incremental_changes_count_utf16(folder: Path) -> None:
    """An emoji is two units and one character; a form feed and a line separator end no line."""
    strange = '"\U0001f600日\f\u2028")'
    text = IDLE.replace("loss = self.model(batch)", f"loss = self.model(batch, {strange}")
    text = text.replace("        loss.backward()\n", "")
    (folder / "train.py").write_text(text)
    lines = text.split("\n")
    row = next(i for i, line in enumerate(lines) if strange in line)
    at = {"line": row, "character": len(lines[row]) + 1}
    with Editor(folder) as editor:
        editor.open("train.py")
        assert "DT501" not in editor.codes("train.py")
        changes = [
            {"range": {"start": at, "end": at}, "text": "backward()"},
            {"range": {"start": at, "end": at}, "text": "; loss."},
        ]
        editor.change("train.py", changes)
        found = [each for each in editor.diagnostics("train.py") if each["code"] == "DT501"]
        assert [each["range"]["start"] for each in found] == [
            {"line": row, "character": at["character"] + len("; ")}
        ]
        after = {"line": row + 1, "character": 0}
        editor.change("train.py", [{"range": {"start": at, "end": after}, "text": "\n"}])
        assert "DT501" not in editor.codes("train.py")


@pytest.mark.parametrize(("encodings", "width"), [(None, 2), (["utf-8"], 4), (["utf-32"], 1)])
def test_columns_are_in_the_units_agreed_upon(folder: Path, encodings: Any, width: int) -> None:
    text = IDLE.replace("        loss.backward()", '        "\U0001f600"; loss.backward()')
    (folder / "train.py").write_text(text)
    with Editor(folder, encodings=encodings) as editor:
        editor.open("train.py")
        found = [each for each in editor.diagnostics("train.py") if each["code"] == "DT501"]
        assert found[-1]["range"]["start"]["character"] == 8 + 2 + width + 2


def test_a_fix_is_what_the_command_writes(folder: Path) -> None:
    path = folder / "train.py"
    path.write_text(IDLE)
    with Editor(folder) as editor:
        editor.open("train.py")
        diagnostics = editor.diagnostics("train.py")
        everywhere = {
            "start": {"line": 0, "character": 0},
            "end": {"line": IDLE.count("\n"), "character": 0},
        }
        offered = editor.actions("train.py", everywhere, ["source.fixAll"])
        assert [each["kind"] for each in offered] == ["source.fixAll.dream"]
        (change,) = offered[0]["edit"]["documentChanges"]
        assert change["textDocument"] == {"uri": editor.uri("train.py"), "version": 1}
        assert any(each["code"] == "DT501" for each in diagnostics)
        dream(folder, "check", "--fix")
        assert edited(IDLE, change["edits"]) == path.read_text() != IDLE


def test_one_fix_and_its_suppression_are_offered_where_the_finding_is(folder: Path) -> None:
    (folder / "train.py").write_text(IDLE)
    with Editor(folder) as editor:
        editor.open("train.py")
        found = [each for each in editor.diagnostics("train.py") if each["code"] == "DT501"]
        offered = editor.actions("train.py", found[-1]["range"], ["quickfix"])
        fixes = [each for each in offered if each["isPreferred"]]
        silences = [each for each in offered if each["title"] == "Suppress DT501 on this line"]
        assert len(fixes) == len(silences) == 1
        for action in (*fixes, *silences):
            (change,) = action["edit"]["documentChanges"]
            editor.write("train.py", edited(IDLE, change["edits"]))
            left = [e for e in editor.diagnostics("train.py") if e["code"] in ("DT501", "DT001")]
            assert len(left) == len(found) - 1
        assert editor.texts[editor.uri("train.py")].count("loss.backward()  # noqa: DT501") == 1
        nowhere = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
        assert editor.actions("train.py", nowhere, ["quickfix"]) == []


def test_a_file_that_is_no_python_yet_keeps_nothing_old(folder: Path) -> None:
    (folder / "train.py").write_text(IDLE)
    with Editor(folder) as editor:
        editor.open("train.py")
        assert "DT501" in editor.codes("train.py")
        editor.write("train.py", IDLE + "\ndef half(\n")
        assert editor.codes("train.py") == ["DT000"]
        editor.write("train.py", IDLE)
        assert "DT501" in editor.codes("train.py")


def test_closing_the_last_file_takes_everything_back(folder: Path) -> None:
    (folder / "train.py").write_text(IDLE)
    with Editor(folder) as editor:
        editor.open("train.py")
        assert editor.diagnostics("train.py")
        editor.close("train.py")
        uri = editor.uri("train.py")
        editor.wait(lambda: editor.shown[uri]["diagnostics"] == [])
        assert editor.quit() == 0


def test_settings_of_the_project_and_of_the_editor_count(folder: Path) -> None:
    (folder / "train.py").write_text(IDLE)
    settings = folder / "pyproject.toml"
    with Editor(folder, options={"select": ["DT5"]}) as editor:
        editor.open("train.py")
        assert set(editor.codes("train.py")) == {"DT501"}
        settings.write_text('[tool.dream.check]\nignore = ["DT501"]\n')
        changes = [{"uri": settings.as_uri(), "type": 2}]
        editor.tell("workspace/didChangeWatchedFiles", changes=changes)
        uri = editor.uri("train.py")
        editor.wait(lambda: editor.shown[uri]["diagnostics"] == [])
        settings.write_text("[tool.dream.check]\nignroe = []\n")
        editor.tell("workspace/didChangeWatchedFiles", changes=changes)
        editor.wait(lambda: any("ignroe" in line for line in editor.log))
        assert "client/registerCapability" in editor.requests


def test_a_project_within_another_has_its_own_settings(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[tool.dream.check]\nignore = ["DT501"]\n')
    for where in (folder, inner):
        (where / "train.py").write_text(IDLE)
    with Editor(folder) as editor:
        editor.open("inner/train.py")
        assert set(editor.codes("inner/train.py")) == {"DT702"}
        editor.open("train.py")
        assert set(editor.codes("train.py")) == {"DT501", "DT702"}
        assert set(editor.codes("inner/train.py")) == {"DT702"}


def test_a_trainer_that_is_not_on_the_disk_yet_is_found(folder: Path) -> None:
    (folder / "train.py").write_text("")
    with Editor(folder) as editor:
        editor.open("train.py", IDLE)
        assert "DT501" in editor.codes("train.py")


def test_a_file_of_no_project_has_no_findings_and_does_no_harm(folder: Path) -> None:
    (folder / "other.py").write_text("print(1)\n")
    with Editor(folder) as editor:
        editor.tell("textDocument/didChange", textDocument={"uri": "x:y"}, contentChanges=3)
        editor.tell(
            "textDocument/didOpen",
            textDocument={"uri": "untitled:1", "languageId": "python", "version": 1, "text": "("},
        )
        editor.open("other.py")
        nowhere = {"start": {"line": 9, "character": 9}, "end": {"line": 9, "character": 9}}
        assert editor.actions("other.py", nowhere) == []
        assert not editor.shown
        (folder / "train.py").write_text(IDLE)
        editor.open("train.py")
        assert "DT501" in editor.codes("train.py")


def test_the_manual_is_shown_at_a_finding_and_at_a_suppression(folder: Path) -> None:
    text = IDLE.replace('return {"loss": loss}', 'return {"loss": loss}  # noqa: DT201, E501')
    (folder / "train.py").write_text(text)
    row = next(i for i, line in enumerate(text.split("\n")) if "noqa" in line)
    column = text.split("\n")[row].index("DT201")
    with Editor(folder) as editor:
        editor.open("train.py")
        document = {"uri": editor.uri("train.py")}
        found = [each for each in editor.diagnostics("train.py") if each["code"] == "DT501"]

        def hover(position: dict[str, int]) -> str | None:
            answer = editor.ask("textDocument/hover", textDocument=document, position=position)
            return None if answer is None else str(answer["contents"]["value"])

        assert (hover(found[0]["range"]["start"]) or "").startswith("**DT501 ")
        assert (hover({"line": row, "character": column}) or "").startswith("**DT201 ")
        assert hover({"line": row, "character": column + len("DT201, E")}) is None
        assert hover({"line": 1, "character": 0}) is None


def test_an_exit_without_shutdown_is_a_failure(folder: Path) -> None:
    with Editor(folder) as editor:
        assert editor.quit(politely=False) == 1


def test_an_editor_that_dies_takes_the_server_along(folder: Path) -> None:
    with Editor(folder) as editor:
        assert editor.process.stdin is not None
        editor.process.stdin.close()
        assert editor.process.wait(40) == 1


def test_an_address_is_refused_where_it_is_none(folder: Path) -> None:
    command = [sys.executable, "-m", "dream_scaffold", "lsp", "--tcp", "here"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --tcp here is no address.")
