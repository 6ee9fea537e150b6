"""Options, settings, exit codes, suppressions, and what the command line makes of them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_projects import PRELUDE, codes, sections

from dream_scaffold.check import Options, Result, explain, run
from dream_scaffold.check.options import FORMATS
from dream_scaffold.errors import DreamError

Check = Callable[..., Result]

FAULTY = "config = DreamTrainerConfig(device_parameters=DeviceParameters())"
MISSPELT = "class T(Complete):\n    def init_weight(self):\n        return 1"
SOUND = "class T(Complete):\n    pass"


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        (SOUND, {}, 0),
        (FAULTY, {}, 1),
        (FAULTY, {"exit_zero": True}, 0),
        (FAULTY, {"ignore": ("DT201",)}, 0),
        (FAULTY, {"select": ("DT1",)}, 0),
        (FAULTY, {"select": ("dt2",)}, 1),
        (MISSPELT, {}, 0),
        (MISSPELT, {"strict": True}, 1),
        ("def f(:\n    pass", {}, 1),
        (FAULTY, {"paths": ("nowhere.py",)}, 2),
        (FAULTY, {"paths": ("nowhere.py",), "exit_zero": True}, 2),
        (FAULTY, {"select": ("DT9",)}, 2),
        (FAULTY, {"output_format": "xml"}, 2),
        (FAULTY, {"world_size": 0}, 2),
    ],
)
def test_exit_codes(
    project: Check, text: str, options: dict[str, object], code: int, tmp_path: Path
) -> None:
    project(SOUND)
    (tmp_path / "train.py").write_text(PRELUDE + text)
    given = {"paths": ("train.py",), **options}
    assert run(Options(**given)) == code  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": ("nowhere",)}, "nowhere does not exist. Give a file or a folder."),
        ({"select": ("DT9",)}, "DT9 is no rule. `dream explain` lists all rules."),
        (
            {"output_format": "xml"},
            "xml is not an output format. Use full, concise, json, sarif, github, gitlab, junit.",
        ),
        ({"nproc_per_node": 0}, "--nproc-per-node 0 is not possible. Use a whole number from 1."),
        (
            {"nnodes": 2},
            "--nnodes 2 alone does not say how many processes there are. "
            "Give --nproc-per-node, too.",
        ),
        (
            {"world_size": 8, "nnodes": 2, "nproc_per_node": 8},
            "--world-size 8 contradicts --nnodes 2 --nproc-per-node 8. Leave one of them out.",
        ),
    ],
)
def test_refusals(project: Check, options: dict[str, object], message: str) -> None:
    with pytest.raises(DreamError) as refusal:
        project(SOUND, **options)
    assert str(refusal.value) == message


def test_refusals_go_to_standard_error(project: Check, capsys: pytest.CaptureFixture[str]) -> None:
    project(SOUND)
    assert run(Options(paths=("nowhere",))) == 2
    assert capsys.readouterr() == (
        "",
        "error: nowhere does not exist.\nhelp: Give a file or a folder.\n",
    )


def test_settings(project: Check) -> None:
    table = '--- pyproject.toml\n[tool.dream.check]\nignore = ["DT201"]\nstrict = true\n'
    assert codes(project(f"{FAULTY}\n{table}")) == []
    assert codes(project(f"{FAULTY}\n{table}", ignore=("DT205",))) == ["DT201"]
    assert project(f"{MISSPELT}\n{table}").exit_code == 1
    assert project(f"{MISSPELT}\n{table}", strict=False).exit_code == 0


def test_sizes_of_the_settings_belong_together(project: Check) -> None:
    table = "--- pyproject.toml\n[tool.dream.check]\nnnodes = 2\nnproc-per-node = 8\n"
    text = (
        "config = DreamTrainerConfig(device_parameters=DeviceParameters.FSDP("
        f"dp_shard=16, compile_model=False))\n{table}"
    )
    assert codes(project(text, select=("DT1",))) == []
    assert codes(project(text, select=("DT1",), world_size=8)) == ["DT102"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "selects = []",
            "pyproject.toml sets selects in [tool.dream.check], which is no setting. Did you mean "
            "select? The settings are output-format, select, ignore, strict, world-size, nnodes, "
            "nproc-per-node, config, exclude, per-file-ignores.",
        ),
        (
            "strict = 1",
            "pyproject.toml sets strict = 1 in [tool.dream.check]. Give it a value of type bool.",
        ),
        (
            "strict = ",
            "pyproject.toml is not valid TOML: Invalid value (at line 2, column 9). Correct it.",
        ),
    ],
)
def test_wrong_settings(project: Check, line: str, message: str) -> None:
    with pytest.raises(DreamError) as refusal:
        project(f"{SOUND}\n--- pyproject.toml\n[tool.dream.check]\n{line}\n")
    assert str(refusal.value) == message


SUPPRESSED = sections(
    """
# -- class line
class T(Complete):  # noqa: DT201
    pass

config = DreamTrainerConfig(device_parameters=DeviceParameters())

# -- several codes
class T(Complete):  # noqa: E501,DT205, DT201
    pass

config = DreamTrainerConfig(device_parameters=DeviceParameters())

# -- lower case
class T(Complete):  # NOQA:dt201
    pass

config = DreamTrainerConfig(device_parameters=DeviceParameters())

# -- bare
class T(Complete):  # noqa
    pass

config = DreamTrainerConfig(device_parameters=DeviceParameters())

# -- line of the call
config = DreamTrainerConfig(seeds=1)  # noqa: DT107

# -- last line of the call
config = DreamTrainerConfig(
    device_parameters=DeviceParameters(
        dp_shard='auto',
        dp_replicate='auto',
    )  # noqa: DT101
)

# -- def line
def config():  # noqa: DT107
    return DreamTrainerConfig(seeds=1)

# -- hook line
class T(Complete):
    def init_weights(self, std):  # noqa: DT204
        return 1
"""
)


@pytest.mark.parametrize("text", SUPPRESSED.values(), ids=SUPPRESSED)
def test_suppressions(project: Check, text: str) -> None:
    assert codes(project(text, ignore=("DT001",))) == []


def test_another_code_suppresses_nothing(project: Check) -> None:
    text = "class T(Complete):  # noqa: DT204\n    def init_weights(self, std):\n        return 1"
    assert codes(project(text)) == ["DT001", "DT204"]


def test_unused_suppressions(project: Check) -> None:
    result = project("x = 1  # noqa: DT201, DT205, E501, DT999")
    assert [f.message for f in result.findings] == [
        "noqa: DT201 suppresses nothing.",
        "noqa: DT205 suppresses nothing.",
        "noqa: DT999 names no rule.",
    ]
    place = result.findings[1].place
    line = Path(place.path).read_text().split("\n")[place.line - 1]
    assert line[place.column - 1 : place.end_column - 1] == "DT205"
    assert codes(project("x = 1  # noqa: DT201", ignore=("DT201",))) == []
    assert codes(project('x = "# noqa: DT201"')) == []


def test_standard_input(project: Check, tmp_path: Path) -> None:
    project(SOUND + "\n--- config.py\n" + PRELUDE + FAULTY)
    command = [sys.executable, "-m", "dream_scaffold", "check", "--stdin-filename", "train.py"]
    text = f"{PRELUDE}from config import config\n\n{SOUND}\n"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, "--output-format", "concise"],
        input=text,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(root)},
    )
    assert (done.returncode, done.stderr) == (1, "")
    line = text.split("\n").index("class T(Complete):") + 1
    assert done.stdout.startswith(f"train.py:{line}:7: error: DT201 compile_model=True")


def test_explain() -> None:
    listed = explain(None)
    assert listed.startswith("DT0  The check itself\n  DT000  error    syntax-error ")
    assert listed.endswith("`dream explain CODE` prints the manual of one.")
    manual = explain("dt201")
    assert manual.startswith("DT201 missing-hook (error)\n\nA configuration turns a mode on")
    assert explain("missing-hook") == manual
    with pytest.raises(DreamError) as refusal:
        explain("DT999")
    assert str(refusal.value) == "DT999 is no rule. `dream explain` lists all rules."


def test_every_format_has_a_file() -> None:
    folder = Path(__file__).parents[2] / "dream_scaffold" / "check" / "report"
    assert all((folder / f"{name}.py").is_file() for name in FORMATS)


HEAVY = ("torch", "copier", "rich", "jinja2", "numpy", "train", "config")


def test_no_heavy_imports(project: Check, tmp_path: Path) -> None:
    project(f"from config import x\n{FAULTY}\n--- config.py\nx = 1\n")
    script = (
        "import sys\nfrom dream_scaffold.check import Options, run\n"
        "code = run(Options(paths=('train.py',), verbose=True))\n"
        f"print(code, [name for name in {HEAVY} if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(root)},
    )
    assert done.stdout.split("\n")[-2] == "1 []", done.stderr


def test_an_open_conflict_is_called_one(project: Check) -> None:
    text = "<<<<<<< yours\nx = 1\n=======\nx = 2\n>>>>>>> template\n"
    (found,) = project(f"y = 0\n{text}", prelude=False).findings
    assert found.code == "DT000" and found.place.line == 2
    assert found.message == "A conflict of an update or a merge is still open."


def test_a_table_of_megabytes_may_be_imported_but_not_checked(
    project: Check,
) -> None:
    table = "ROWS = [\n" + '    "a row of some words",\n' * 90_000 + "]\n"
    result = project(f"from table import ROWS\n\n{MISSPELT}\n--- table.py\n{table}")
    assert "DT000" not in codes(result)
    (found,) = project("", prelude=False, paths=("table.py",)).findings
    assert (found.code, found.severity) == ("DT000", "error")
