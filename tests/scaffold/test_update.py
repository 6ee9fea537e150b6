"""An update keeps every edit: what it takes, merges, marks, keeps, and how it is taken back."""

import os
import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dream_scaffold.errors import DreamError
from dream_scaffold.project.options import Options
from dream_scaffold.project.snapshot import write_snapshot
from dream_scaffold.project.update import journal, run
from dream_scaffold.project.update.run import Updated, take_back, update

ANSWERS = 'template: "0.1.0"\nname: mine\nparallel: ddp\nrecipe: lm\n'
OLD = {
    "train.py": "".join(f"line_{number} = {number}\n" for number in range(1, 21)),
    "data.py": "".join(f"data_{number} = {number}\n" for number in range(1, 21)),
    "dream_trainer/loop.py": "".join(f"loop_{number} = {number}\n" for number in range(1, 21)),
    "notes.txt": "one\ntwo\nthree\n",
}

Files = dict[str, str | bytes]


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


class Project:
    """A project made of small files, and the template that it comes from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template: Files = dict(OLD)
        folder.mkdir()
        self.render(Options(name="mine", parallel="ddp"), folder)
        write_snapshot(folder)

    def render(self, options: Options, target: Path) -> None:
        answers = ANSWERS.replace("parallel: ddp", f"parallel: {options.parallel}")
        write(target, {**self.template, ".dream/answers.yml": answers})

    def change(self, name: str, old: str, new: str) -> None:
        """Edit the template."""
        self.template[name] = str(self.template[name]).replace(old, new)

    def edit(self, name: str, old: str, new: str) -> None:
        """Edit the project."""
        text = self.read(name)
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def update(self, **options: object) -> Updated:
        dry_run = bool(options.pop("dry_run", False))
        return update(self.folder, options, dry_run=dry_run)

    def verdicts(self, **options: object) -> dict[str, str]:
        return {change.path: change.verdict for change in self.update(**options).changes}

    def state(self) -> dict[str, bytes]:
        """Every file but those that only serve to take back."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and "undo" not in path.parts and "set-aside" not in path.parts
        }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path / "mine")
    monkeypatch.setattr(run, "render_project", made.render)
    yield made


def test_nothing_to_do(project: Project) -> None:
    before = project.state()
    assert project.update().is_current
    assert project.state() == before


def test_what_you_did_not_edit_is_replaced(project: Project) -> None:
    project.change("train.py", "line_3 = 3", "line_3 = 33")
    assert project.verdicts() == {"train.py": "updated"}
    assert "line_3 = 33" in project.read("train.py")


def test_edits_elsewhere_are_merged(project: Project) -> None:
    project.edit("train.py", "line_18 = 18", "line_18 = 'mine'")
    project.change("train.py", "line_3 = 3\n", "line_3 = 33\nnew = 1\n")
    assert project.verdicts() == {"train.py": "merged"}
    text = project.read("train.py")
    assert "line_18 = 'mine'" in text and "line_3 = 33\nnew = 1\n" in text


def test_the_same_line_is_a_conflict_with_both_versions_and_the_base(project: Project) -> None:
    project.edit("train.py", "line_3 = 3\n", "line_3 = 'mine'\n")
    project.change("train.py", "line_3 = 3\n", "line_3 = 'theirs'\n")
    done = project.update()
    assert [(c.path, c.verdict, c.conflicts) for c in done.changes] == [
        ("train.py", "conflict", 1)
    ]
    assert (
        "<<<<<<< yours\nline_3 = 'mine'\n||||||| template 0.1.0\nline_3 = 3\n"
        "=======\nline_3 = 'theirs'\n>>>>>>> template 0.1.0\n"
    ) in project.read("train.py")


def test_neighbouring_lines_are_a_conflict(project: Project) -> None:
    project.edit("train.py", "line_3 = 3\n", "line_3 = 'mine'\n")
    project.change("train.py", "line_4 = 4\n", "line_4 = 'theirs'\n")
    assert project.verdicts() == {"train.py": "conflict"}


def test_the_same_change_on_both_sides_is_no_conflict(project: Project) -> None:
    project.edit("train.py", "line_3 = 3", "line_3 = 33")
    project.change("train.py", "line_3 = 3", "line_3 = 33")
    assert project.verdicts() == {}


def test_open_conflicts_are_refused(project: Project) -> None:
    project.edit("train.py", "line_3 = 3\n", "line_3 = 'mine'\n")
    project.change("train.py", "line_3 = 3\n", "line_3 = 'theirs'\n")
    project.update()
    state = project.state()
    with pytest.raises(DreamError, match=r"still open in train\.py"):
        project.update()
    assert project.state() == state


def test_a_file_you_deleted_stays_deleted(project: Project) -> None:
    (project.folder / "data.py").unlink()
    assert project.verdicts() == {}
    project.change("data.py", "data_3 = 3", "data_3 = 33")
    assert project.verdicts() == {"data.py": "kept"}
    assert not (project.folder / "data.py").exists()


def test_a_file_the_template_drops_goes_unless_you_edited_it(project: Project) -> None:
    del project.template["data.py"], project.template["notes.txt"]
    project.edit("notes.txt", "two", "my two")
    assert project.verdicts() == {"data.py": "deleted", "notes.txt": "kept"}
    assert not (project.folder / "data.py").exists()
    assert project.read("notes.txt") == "one\nmy two\nthree\n"


@pytest.mark.parametrize("name", ["data.py", "dream_trainer/loop.py"])
def test_a_file_the_template_renames_takes_your_edits_along(project: Project, name: str) -> None:
    new = f"{name.removesuffix('.py')}_new.py"
    stem = Path(name).stem
    project.edit(name, f"{stem}_18 = 18", f"{stem}_18 = 'mine'")
    project.template[new] = str(project.template.pop(name)).replace(f"{stem}_2 = 2", "two = 2")
    assert project.verdicts() == {name: "renamed", new: "renamed"}
    assert not (project.folder / name).exists()
    text = project.read(new)
    assert f"{stem}_18 = 'mine'" in text and "two = 2" in text


def test_a_file_you_renamed_gets_the_changes(project: Project) -> None:
    os.rename(project.folder / "data.py", project.folder / "dataset.py")
    project.edit("dataset.py", "data_18 = 18", "data_18 = 'mine'")
    project.change("data.py", "data_2 = 2", "data_2 = 22")
    assert project.verdicts() == {"dataset.py": "merged"}
    assert "data_2 = 22" in project.read("dataset.py")
    assert not (project.folder / "data.py").exists()


def test_both_add_a_file(project: Project) -> None:
    write(project.folder, {"serve.py": "one = 1\nmine = 2\n", "same.py": "a = 1\n"})
    project.template |= {"serve.py": "one = 1\ntheirs = 2\n", "same.py": "a = 1\n"}
    assert project.verdicts() == {"serve.py": "conflict"}
    text = project.read("serve.py")
    assert "mine = 2\n=======\ntheirs = 2" in text and "|||||||" not in text


def test_an_edited_runtime_is_merged(project: Project) -> None:
    name = "dream_trainer/loop.py"
    project.edit(name, "loop_18 = 18", "loop_18 = 'mine'")
    project.change(name, "loop_2 = 2\n", "loop_2 = 22\n")
    assert project.verdicts() == {name: "merged"}
    assert "loop_2 = 22" in project.read(name) and "loop_18 = 'mine'" in project.read(name)


def test_a_project_in_another_format_is_merged_in_that_format(project: Project) -> None:
    old = "values = {'one': 1, 'two': 2, 'three': 3, 'four': 4}\nother = (1)\nlast = 3\n"
    nice = 'values = {"one": 1, "two": 2, "three": 3, "four": 4}\nother = 1\nlast = 3\n'
    narrow = (
        'values = {\n    "one": 1,\n    "two": 2,\n    "three": 3,\n    "four": 4,\n}\n'
        "other = 1\nlast = 3\nmine = 5\n"
    )
    assert old != nice
    project.template["short.py"] = nice
    project.update()
    write(project.folder, {"short.py": narrow, "ruff.toml": "line-length = 40\n"})
    project.template["short.py"] = nice.replace('"two": 2', '"two": 22')
    assert project.verdicts() == {"short.py": "merged"}
    assert project.read("short.py") == narrow.replace('"two": 2', '"two": 22')


def test_line_endings_stay_yours(project: Project) -> None:
    text = project.read("train.py").replace("line_18 = 18", "line_18 = 'mine'")
    (project.folder / "train.py").write_bytes(text.replace("\n", "\r\n").encode())
    project.change("train.py", "line_3 = 3\n", "line_3 = 33\n")
    assert project.verdicts() == {"train.py": "merged"}
    raw = (project.folder / "train.py").read_bytes()
    assert raw.count(b"\r\n") == raw.count(b"\n") == 20 and b"line_3 = 33\r\n" in raw


def test_mode_bits_stay_yours(project: Project) -> None:
    (project.folder / "train.py").chmod(0o755)
    project.change("train.py", "line_3 = 3", "line_3 = 33")
    project.update()
    assert stat.S_IMODE((project.folder / "train.py").stat().st_mode) == 0o755


def test_bytes_that_are_no_text_are_laid_beside(project: Project) -> None:
    project.template["logo.png"] = b"\0old"
    project.update()
    (project.folder / "logo.png").write_bytes(b"\0mine")
    project.template["logo.png"] = b"\0new"
    assert project.verdicts() == {"logo.png.from-template": "conflict"}
    assert (project.folder / "logo.png").read_bytes() == b"\0mine"
    assert (project.folder / "logo.png.from-template").read_bytes() == b"\0new"


def test_nothing_is_written_through_a_link(project: Project, tmp_path: Path) -> None:
    shared = tmp_path / "shared.py"
    shared.write_text(project.read("data.py"))
    (project.folder / "data.py").unlink()
    (project.folder / "data.py").symlink_to(shared)
    project.change("data.py", "data_3 = 3", "data_3 = 33")
    before = shared.read_text()
    assert project.verdicts() == {"data.py.from-template": "conflict"}
    assert shared.read_text() == before and (project.folder / "data.py").is_symlink()


def test_without_a_base_every_difference_is_marked(project: Project) -> None:
    project.edit("train.py", "line_18 = 18\n", "line_18 = 'mine'\n")
    (project.folder / ".dream" / "base" / "train.py").unlink()
    (project.folder / ".dream" / "runtime.zip").write_bytes(b"nonsense")
    project.edit("dream_trainer/loop.py", "loop_18 = 18\n", "loop_18 = 'mine'\n")
    verdicts = project.verdicts()
    assert verdicts == {"train.py": "conflict", "dream_trainer/loop.py": "conflict"}
    for name, line in (("train.py", "line_18"), ("dream_trainer/loop.py", "loop_18")):
        text = project.read(name)
        assert f"<<<<<<< yours\n{line} = 'mine'\n=======\n{line} = 18\n>>>>>>>" in text


def test_a_base_that_was_changed_is_not_believed(project: Project) -> None:
    project.edit(".dream/base/train.py", "line_3 = 3", "line_3 = 'forged'")
    project.edit("train.py", "line_3 = 3", "line_3 = 'forged'")
    assert project.verdicts() == {"train.py": "conflict"}


def test_other_answers(project: Project) -> None:
    render = project.render

    def by_answer(options: Options, target: Path) -> None:
        render(options, target)
        write(target, {"config.py": f"mode = {options.parallel!r}\n"})

    project.template["config.py"] = "mode = 'ddp'\n"
    project.update()
    project.edit("train.py", "line_18 = 18", "line_18 = 'mine'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "render_project", by_answer)
        done = project.update(parallel="tp+fsdp")
        assert {c.path: c.verdict for c in done.changes} == {"config.py": "updated"}
        assert project.update().is_current
    assert project.read("config.py") == "mode = 'fsdp+tp'\n"
    assert "parallel: fsdp+tp" in project.read(".dream/answers.yml")
    with pytest.raises(DreamError, match="sideways"):
        project.update(parallel="sideways")


def test_conflicts_name_the_answers_that_differ(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    render = project.render

    def by_answer(options: Options, target: Path) -> None:
        project.template["notes.txt"] = f"one\n{options.parallel}\nthree\n"
        render(options, target)

    monkeypatch.setattr(run, "render_project", by_answer)
    project.edit("notes.txt", "two", "mine")
    project.update(parallel="fsdp")
    assert ">>>>>>> template 0.1.0, parallel fsdp\n" in project.read("notes.txt")
    assert "||||||| template 0.1.0, parallel ddp\n" in project.read("notes.txt")


def test_twice_is_once(project: Project) -> None:
    project.edit("train.py", "line_18 = 18", "line_18 = 'mine'")
    project.change("train.py", "line_3 = 3", "line_3 = 33")
    project.update()
    state = project.state()
    assert project.update().is_current
    assert project.state() == state


def test_a_dry_run_writes_nothing_and_says_the_same(project: Project) -> None:
    project.edit("train.py", "line_3 = 3\n", "line_3 = 'mine'\n")
    project.change("train.py", "line_3 = 3\n", "line_3 = 33\n")
    project.change("data.py", "data_3 = 3", "data_3 = 33")
    state = project.state()
    dry = project.update(dry_run=True)
    assert project.state() == state
    assert dry.changes == project.update().changes


def test_abort_takes_everything_back(project: Project) -> None:
    project.edit("train.py", "line_3 = 3\n", "line_3 = 'mine'\n")
    project.change("train.py", "line_3 = 3\n", "line_3 = 33\n")
    del project.template["data.py"]
    project.template["deep/new.py"] = "new = 1\n"
    state = project.state()
    project.update()
    assert project.state() != state
    project.edit("train.py", "line_18 = 18", "line_18 = 'half resolved'")
    told = take_back(project.folder)
    assert project.state() == state and not (project.folder / "deep").exists()
    assert "train.py" in told
    assert "half resolved" in project.read(".dream/set-aside/train.py")
    with pytest.raises(DreamError, match="no update to take back"):
        take_back(project.folder)


def test_a_newer_template_is_refused(project: Project) -> None:
    project.edit(".dream/answers.yml", '"0.1.0"', '"99.0"')
    with pytest.raises(DreamError, match=r"made by dream 99\.0"):
        project.update()


@pytest.mark.parametrize("text", ["", "- a\n", "name: [", "name: mine\n", "{}", "compile: 3"])
def test_answers_that_are_of_no_use(project: Project, text: str) -> None:
    (project.folder / ".dream" / "answers.yml").write_text(text)
    with pytest.raises(DreamError, match=r"answers\.yml is of no use"):
        project.update()


def _complicated(project: Project) -> None:
    project.edit("train.py", "line_3 = 3\n", "line_3 = 'mine'\n")
    project.change("train.py", "line_18 = 18\n", "line_18 = 1818\n")
    project.change("notes.txt", "two", "2")
    del project.template["data.py"]
    project.template["deep/new.py"] = "new = 1\n"


def test_a_kill_leaves_the_old_project_or_the_new_one(project: Project) -> None:
    _complicated(project)
    old = project.state()
    kills, states = 0, set()
    while _killed_after(kills, project.update):
        journal.finish(project.folder)
        now = project.state()
        if now != old:
            take_back(project.folder)
            assert project.state() == old
        states.add(now == old)
        kills += 1
    assert kills > 30 and states == {True, False}
    take_back(project.folder)
    kills = 0
    project.update()
    new = project.state()
    while _killed_after(kills, lambda: take_back(project.folder)):
        journal.finish(project.folder)
        assert project.state() in (old, new)
        if project.state() == old:
            project.update()
            assert project.state() == new
        kills += 3
    assert project.state() == old


WRITES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.copyfile", "shutil.rmtree")


def _killed_after(count: int, work: Callable[[], object]) -> bool:
    """Do `work` in a process that ends before its `count`-th operation; whether it was killed."""
    child = os.fork()
    if child == 0:
        import sys

        left = count

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            writes = event == "open" and any(mode in str(arguments[1]) for mode in "wax")
            if event in WRITES or writes:
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(watch)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 9


# Edits at random.


def _edited(text: str, chance: random.Random, mark: str) -> str:
    """A text with some lines changed, removed, added or moved; what is new bears `mark`."""
    lines = text.splitlines(keepends=True)
    for number in range(chance.randrange(1, 6)):
        at = chance.randrange(len(lines) + 1)
        kind = chance.choice(["add", "change", "remove", "move"])
        if kind == "add" or at == len(lines):
            lines.insert(at, f"{mark}_{number} = {chance.random()}\n")
        elif kind == "change":
            lines[at] = f"{mark}_{number} = {chance.random()}\n"
        elif kind == "remove":
            del lines[at]
        else:
            lines.insert(chance.randrange(len(lines)), lines.pop(at))
    return "".join(lines)


@pytest.mark.parametrize("seed", range(150))
def test_no_line_of_yours_is_ever_lost(project: Project, seed: int) -> None:
    chance = random.Random(seed)
    names = [name for name in OLD if name != "notes.txt"]
    for name in names:
        if chance.random() < 0.7:
            text = _edited(project.read(name), chance, f"mine_{Path(name).stem}")
            (project.folder / name).write_text(text)
        if chance.random() < 0.7:
            project.template[name] = _edited(str(project.template[name]), chance, "theirs")
        if chance.random() < 0.15:
            project.template.pop(name)
        elif chance.random() < 0.15:
            project.template[f"moved/{name}"] = project.template.pop(name)
    if chance.random() < 0.3:
        (project.folder / chance.choice(names)).unlink()
    if chance.random() < 0.2 and (project.folder / "data.py").exists():
        os.rename(project.folder / "data.py", project.folder / "renamed.py")
    if chance.random() < 0.2:
        (project.folder / ".dream" / "base" / "train.py").unlink()
    before = project.state()
    mine = _lines_of(before, "mine_")
    done = project.update()
    after = project.state()
    assert mine <= _lines_of(after, "mine_")
    for change in done.changes:
        name = change.path.replace("renamed.py", "data.py")
        if change.verdict == "updated":
            assert after[change.path] == str(project.template[name]).encode()
    if not done.conflicts:
        assert project.update().is_current and project.state() == after
    if done.changes and not done.is_current:
        take_back(project.folder)
        assert project.state() == before


def _lines_of(state: dict[str, bytes], mark: str) -> set[str]:
    return {
        line
        for path, content in state.items()
        if not path.startswith(".dream/")
        for line in content.decode().splitlines()
        if line.startswith(mark)
    }
