"""Folders that hold what is no source, or what changes, or what leads nowhere."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import ENDLESS, check_apart
from small_projects import PRELUDE

from dream_scaffold.check import Options, check
from dream_scaffold.check import candidates as candidates_module
from dream_scaffold.check.candidates import candidates
from dream_scaffold.check.source import python_files
from dream_scaffold.errors import DreamError

SOUND = f"{PRELUDE}Complete(DreamTrainerConfig()).fit()\n"
USES = "from dream_trainer import DreamTrainer\n\n\nclass MyBase(DreamTrainer):\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "train.py").write_text(SOUND)
    monkeypatch.chdir(path)
    return path


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


ODD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a socket": listen,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to a pseudo file": lambda path: path.symlink_to("/proc/self/mem"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to its folder": lambda path: path.symlink_to(path.parent),
    "a folder": lambda path: path.mkdir(),
    "an empty file": lambda path: path.touch(),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "zeros": lambda path: path.write_bytes(b"dream_trainer" + b"\0" * 100_000),
    "UTF-16": lambda path: path.write_text(SOUND, encoding="utf-16"),
    "UTF-32": lambda path: path.write_text(SOUND, encoding="utf-32"),
    "latin-1": lambda path: path.write_bytes(f"# dream_trainer é\n{SOUND}".encode("latin-1")),
    "half a character": lambda path: path.write_bytes(b"# dream_trainer \xe2\x82"),
    "a lone surrogate": lambda path: path.write_bytes(b"# dream_trainer \xed\xa0\x80\n"),
    "a wrong declaration": lambda path: path.write_bytes(b"# coding: ascii\n# \xff dream_trainer"),
    "no such encoding": lambda path: path.write_bytes(b"# coding: klingon\n# \xff dream_trainer"),
    "no text encoding": lambda path: path.write_bytes(b"# coding: rot13\n# \xff dream_trainer"),
    "an undefined encoding": lambda path: path.write_bytes(
        b"# coding: undefined\n# \xff dream_trainer"
    ),
    "an encoding of names": lambda path: path.write_bytes(
        b"# coding: idna\n# \xff dream_trainer" + b"." * 1000
    ),
    "a slow encoding": lambda path: path.write_bytes(
        b"# coding: punycode\n# \xff dream_trainer " + b"a-" * 900_000
    ),
    "escapes as an encoding": lambda path: path.write_bytes(
        b"# coding: unicode_escape\n# \xff dream_trainer \\N{BEL} \\x"
    ),
    "ten megabytes of data": lambda path: path.write_text(
        "import dream_trainer\nx = [" + "1, " * 3_500_000 + "]\n"
    ),
    "ten megabytes of code": lambda path: path.write_text(
        "import dream_trainer\n" + "class A(B): pass\n" * 600_000
    ),
    "two megabytes in a line": lambda path: path.write_text(
        "import dream_trainer; x = '" + "dream_trainer class A(" * 80_000 + "'\n"
    ),
    "carriage returns": lambda path: path.write_bytes(SOUND.replace("\n", "\r").encode()),
    "mixed line ends": lambda path: path.write_bytes(SOUND.replace("\n\n", "\r\n\r").encode()),
    "form feeds": lambda path: path.write_text(SOUND.replace("\n\n", "\n\f\n\v\n")),
    "warnings": lambda path: path.write_text(SOUND + "x = '\\d' is 1 or 0x1for x in y\n"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize("paths", [(), ("odd.py",)], ids=["in a folder", "named"])
def test_what_is_called_source_and_is_none(
    folder: Path, make: Callable[[Path], object], paths: tuple[str, ...]
) -> None:
    make(folder / "odd.py")
    answer = check_apart(folder, *paths)
    assert answer.is_one, answer
    assert "Warning" not in answer.text


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_an_import_of_what_is_no_source(folder: Path, make: Callable[[Path], object]) -> None:
    make(folder / "odd.py")
    (folder / "train.py").write_text(f"import odd\nfrom odd import *\nodd.x.y\n{SOUND}")
    answer = check_apart(folder, "train.py")
    assert answer.is_one, answer


@pytest.mark.parametrize(
    "name",
    [
        "new\nline.py",
        "quo'te\".py",
        "spa ce.py",
        "-dash.py",
        "[red]x[red].py",
        "%0A.py",
        "\x1b[31m.py",
        "ünïcødé.py",
        "a" * 240 + ".py",
        ".py",
        "..py",
        "TRAIN.py",
    ],
)
@pytest.mark.parametrize("output_format", ["full", "concise", "json", "github"])
def test_names_that_nobody_gives(folder: Path, name: str, output_format: str) -> None:
    (folder / name).write_text(f"{SOUND}class Owing(DreamTrainer):\n    pass\n")
    for paths in ((), (f"./{name}",)):
        answer = check_apart(folder, *paths, output_format=output_format)
        assert answer.is_one, answer


def test_a_name_that_is_not_text(folder: Path) -> None:
    name = os.fsdecode(b"\xff\xfe.py")
    try:
        (folder / name).write_text(f"{SOUND}class Owing(DreamTrainer):\n    pass\n")
    except OSError:
        pytest.skip("the file system takes only text")
    for output_format in ("full", "concise", "json", "github"):
        answer = check_apart(folder, output_format=output_format)
        assert (answer.end, "Owing" in answer.text) == (1, True), answer


def test_a_pipe_is_refused_by_name(folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")
    with pytest.raises(DreamError) as caught:
        check(Options(paths=("pipe.py",)))
    assert caught.value.fact == "pipe.py is neither a file nor a folder."


def test_links_that_lead_in_circles(folder: Path) -> None:
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    (folder / "train.py").write_text(f"import loop.train\nfrom loop.loop.train import *\n{SOUND}")
    for paths in ((), ("loop",), ("loop/loop/train.py",), ("a",)):
        assert check_apart(folder, *paths).is_one, paths


def test_a_folder_deeper_than_python_recurses(folder: Path) -> None:
    made = [folder]
    for _ in range(1200):
        made.append(made[-1] / "d")
        made[-1].mkdir()
    (made[-1] / "train.py").write_text(SOUND)
    assert len(candidates(str(folder))) == 2
    assert check_apart(folder).is_one
    (made[-1] / "train.py").unlink()
    for inner in reversed(made[1:]):  # Who cleans up behind the tests recurses, too.
        inner.rmdir()


def test_a_file_that_vanishes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "base.py").write_text(USES)

    def listed(path: str) -> list[str]:
        return [*python_files(path), str(folder / "gone.py"), str(folder / "gone" / "too.py")]

    monkeypatch.setattr(candidates_module, "python_files", listed)
    assert candidates(str(folder)) == [str(folder / "base.py"), str(folder / "train.py")]


def test_a_chosen_file_that_vanishes(folder: Path) -> None:
    (folder / "train.py").write_text(f"import gone\n{SOUND}")
    (folder / "gone.py").symlink_to("nowhere")
    assert check_apart(folder, "train.py").end == 0


def test_a_folder_that_is_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "closed").mkdir()
    (folder / "closed" / "train.py").write_text(SOUND)
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert candidates(str(folder)) == [str(folder / "train.py")]
    assert check(Options()).exit_code == 0


def test_a_file_that_is_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "closed.py").write_text(SOUND)
    (folder / "train.py").write_text(f"import closed\n{SOUND}")
    real = os.stat

    def refuse(path: str, **options: bool) -> object:
        if str(path).endswith("closed.py"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert candidates(str(folder)) == [str(folder / "train.py")]


def test_a_project_of_many_modules_in_a_circle(folder: Path) -> None:
    for number in range(400):
        (folder / f"m{number}.py").write_text(f"from m{(number + 1) % 400} import *\nx = 1\n")
    (folder / "train.py").write_text(f"from m0 import *\n{SOUND}")
    assert check_apart(folder, "train.py").is_one


@pytest.mark.parametrize("count", [1, 2, 3])
def test_import_cycles_of_every_kind(folder: Path, count: int) -> None:
    for statement in (
        "import m{n}",
        "from m{n} import *",
        "from m{n} import m{n}, x",
        "from . import m{n}",
        "from .m{n} import *",
        "import m{n}.m{n}.m{n}",
        "import m{n} as m{n}\nx = m{n}.m{n}.x",
    ):
        for number in range(count):
            line = statement.format(n=(number + 1) % count)
            (folder / f"m{number}.py").write_text(f"{line}\nx = 1\n{line}\n")
        (folder / "train.py").write_text(f"from m0 import *\nimport m0\nm0.x\n{SOUND}")
        assert check_apart(folder, "train.py").end == 0


def test_a_tree_of_many_files(folder: Path) -> None:
    for outer in range(100):
        inner = folder / f"d{outer}"
        inner.mkdir()
        for number in range(100):
            (inner / f"f{number}.py").write_text("from base import MyBase\nx = 1\n")
    (folder / "base.py").write_text("x = 1\n")
    assert check_apart(folder).end == 0
    assert candidates(str(folder)) == [str(folder / "train.py")]


@pytest.mark.parametrize(
    "importing",
    [
        "from base import MyBase\n\nclass T(MyBase): pass\n",
        "import base\n\nclass T(base.MyBase): pass\n",
        "import base as b\n\nclass T(b.MyBase): pass\n",
        "from base import (  # them\n    MyBase as M,\n)\n\nclass T(M): pass\n",
        "def main():\n    from base import MyBase\n    MyBase(1).fit()\n",
        "if 1: from base import MyBase as M; M(1)\n",
        "from .base import MyBase\nMyBase(1)\n",
        "from . import (\n    base,\n)\nbase.MyBase(1)\n",
        "from project.base import MyBase\nMyBase(1)\n",
        "from between import MyBase\nMyBase(1)\n",
    ],
)
def test_who_uses_a_trainer_is_found(folder: Path, importing: str) -> None:
    (folder / "base.py").write_text(USES)
    (folder / "between.py").write_text("from base import *\n")
    (folder / "use.py").write_text(importing)
    assert str(folder / "use.py") in candidates(str(folder))


def test_a_source_folder_is_known(folder: Path) -> None:
    (folder / "src" / "package").mkdir(parents=True)
    (folder / "src" / "package" / "base.py").write_text(USES)
    (folder / "use.py").write_text("from package.base import MyBase\nMyBase(1)\n")
    assert str(folder / "use.py") in candidates(str(folder))


@pytest.mark.parametrize(
    "text",
    [
        "from" + "." * 1_900_000,
        "from" + " " * 1_900_000,
        "from . import (" * 120_000,
        "from base import " * 100_000,
        "import " + "base." * 300_000,
        "from base import " + "base," * 300_000,
        "".join(f"import base{number}\n" for number in range(100_000)),
    ],
    ids=["dots", "spaces", "open", "from", "deep", "names", "many"],
)
def test_imports_without_end(folder: Path, text: str) -> None:
    (folder / "base.py").write_text(USES)
    (folder / "use.py").write_text(text)
    assert check_apart(folder).is_one


@pytest.mark.parametrize(
    "importing",
    [
        "from elsewhere import MyBase\n",
        "from base import Other\n",
        "import base\nMyBases, MyBas = 1, 2\n",
        "MyBase = 1\nbase = 2\n",
    ],
)
def test_who_uses_none_is_left_out(folder: Path, importing: str) -> None:
    (folder / "base.py").write_text(USES)
    (folder / "use.py").write_text(importing)
    assert str(folder / "use.py") not in candidates(str(folder))


def test_the_net_below_these_tests_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import forked

    monkeypatch.setattr(forked, "PATIENCE", 0.2)
    monkeypatch.setattr(forked.session, "run", lambda options: os.read(os.pipe()[0], 1))
    assert check_apart(folder).end == ENDLESS
