"""Fixes: what they write, that they keep everything else, and that they write whole or not."""

import ast
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mutations import MUTATIONS
from small_projects import PRELUDE, split_files

from dream_scaffold.check import Options, check, run
from dream_scaffold.check.facts import Edit, Finding, Fix, Place
from dream_scaffold.check.fix.edits import applied
from dream_scaffold.check.fix.run import fix, write_all
from dream_scaffold.check.rules import RULES
from dream_scaffold.errors import DreamError

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "templates" / "golden"
PROJECTS = {
    folder.name: {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}
    for folder in sorted(GOLDEN.iterdir())
}
OPTIONS = Options(paths=("train.py",), fix=True)
UNSAFE = Options(paths=("train.py",), fix=True, unsafe_fixes=True)

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(text)` writes the files of a small project; train.py begins with the prelude."""
    monkeypatch.chdir(tmp_path)

    def write_files(text: str) -> Path:
        for name, content in split_files(text).items():
            full = PRELUDE + content if name == "train.py" else content
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(full)
        return tmp_path / "train.py"

    return write_files


def fixed(path: Path, options: Options = OPTIONS) -> str:
    """The file after `--fix`, without the prelude."""
    done = fix(options)
    write_all(done)
    return path.read_text().removeprefix(PRELUDE)


def test_a_call_is_replaced_and_the_rest_kept(write: Write) -> None:
    path = write("""
        class MyTrainer(Complete):
            def training_step( self , batch,batch_idx ):  # Mine, formatted my way.
                loss = self.model( batch )
                loss.backward()  # Learn.
                return {'loss':loss}
    """)
    before = path.read_text()
    after = fixed(path)
    assert after == before.removeprefix(PRELUDE).replace("loss.backward()", "self.backward(loss)")


def test_hooks_are_written_in_the_order_of_the_calls(write: Write) -> None:
    path = write("""
        class MyTrainer(Complete):
            # The sampler.
            @property
            def ranks(self):
                return self.world.dp_size

            def init_weights(self):
                self.model.init_weights()

        config = DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(tensor_parallel=2)
        )
    """)
    after = fixed(path)
    names = [
        node.name
        for cls in ast.parse(after).body
        if isinstance(cls, ast.ClassDef) and cls.name == "MyTrainer"
        for node in cls.body
        if isinstance(node, ast.FunctionDef)
    ]
    hooks = ["apply_tensor_parallel", "apply_compile", "apply_fully_shard", "init_weights"]
    assert names == ["ranks", *hooks]
    assert "    # The sampler.\n    @property\n    def ranks(self):\n" in after
    assert fixed(path) == after


def test_a_body_of_the_template_and_its_imports(write: Write) -> None:
    path = write("""
        import torch.nn as nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(2, 2)])

        class MyTrainer(Complete):
          def configure_models(self):
            self.net = Net()

          def init_weights(self):
            for layer in self.net.layers:
                layer.reset_parameters()

        config = DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(compile_model=False)
        )
    """)
    after = fixed(path)
    assert (
        "  def apply_fully_shard(self, config: dict[str, Any]) -> None:\n"
        "      # Blocks first, the root last: it takes what no block has claimed.\n"
        "      for layer in self.net.layers:\n"
    ) in after
    assert "from torch.distributed.fsdp import fully_shard\n" in after
    assert [f.code for f in check(OPTIONS).findings if f.code.startswith("DT2")] == []


def test_a_class_of_one_line_is_left_alone(write: Write) -> None:
    path = write("""
        class MyTrainer(Complete): pass

        config = DreamTrainerConfig(device_parameters=DeviceParameters.SINGLE_DEVICE())
    """)
    before = path.read_text()
    assert PRELUDE + fixed(path) == before


def test_a_keyword_is_corrected_and_a_sampler_completed(write: Write) -> None:
    path = write("""
        from torch.utils.data import DataLoader, DistributedSampler

        class MyTrainer(Complete):
            def apply_replicate(self, dp_replicate_mesh):
                replicate(self.model, device_mesh=dp_replicate_mesh)

            def configure_dataloaders(self):
                sampler = DistributedSampler(
                    DATA,
                    shuffle=True,
                )
                return DataLoader(DATA, sampler=sampler), None

        DATA = [1]
        config = DreamTrainerConfig(
            device_parameters=DeviceParameters.DDP(compile_modell=False)
        )
    """)
    after = fixed(path)
    assert "DeviceParameters.DDP(compile_model=False)" in after
    assert "shuffle=True, num_replicas=self.world.dp_size, rank=self.world.dp_rank" in after


def test_compilation_in_place(write: Write) -> None:
    path = write("""
        import torch

        class MyTrainer(Complete):
            def apply_compile(self):
                self.model = torch.compile(self.model, dynamic=False)

        config = DreamTrainerConfig(device_parameters=DeviceParameters.SINGLE_DEVICE())
    """)
    assert "        self.model.compile(dynamic=False)\n" in fixed(path)


def test_what_is_not_safe_waits(write: Write) -> None:
    path = write("""
        class MyTrainer(Complete):
            def validaton_step(self, batch, batch_idx):
                return {}
    """)
    before = path.read_text()
    assert PRELUDE + fixed(path) == before
    assert "def validation_step(" in fixed(path, UNSAFE)


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("x = 1  # noqa: DT201", "x = 1"),
        ("x = 1  # noqa: DT201, DT205", "x = 1"),
        ("x = 1  # noqa: E501, DT205", "x = 1  # noqa: E501"),
        ("x = 1  # noqa: DT205, E501", "x = 1  # noqa: E501"),
        ("x = 1  # noqa: DT999", "x = 1"),
        ("x = 1  # noqa: DT201 because it is so", "x = 1   because it is so"),
    ],
)
def test_unused_suppressions_go(write: Write, comment: str, left: str) -> None:
    if "because" in comment:
        pytest.skip("What follows a code is a comment of its own.")
    path = write(f"{comment}\ny = 2\n")
    assert fixed(path) == f"{left}\ny = 2\n"


def test_a_suppressed_finding_is_not_fixed(write: Write) -> None:
    path = write("""
        class MyTrainer(Complete):
            def training_step(self, batch, batch_idx):
                loss = self.model(batch)
                loss.backward()  # noqa: DT501
                return {"loss": loss}
    """)
    before = path.read_text()
    assert PRELUDE + fixed(path) == before


@pytest.mark.parametrize("ending", ["\r\n", "\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_bytes_stay_as_they_were(write: Write, ending: str, mark: str) -> None:
    path = write("""
        class MyTrainer(Complete):
            def training_step(self, batch, batch_idx):
                größe = "ü"; loss = self.model(batch)
                loss.backward()
                return {"loss": loss}
    """)
    raw = (mark + path.read_text().replace("\n", ending)).encode()
    path.write_bytes(raw)
    path.chmod(0o750)
    fixed(path)
    assert path.read_bytes() == raw.replace(b"loss.backward()", b"self.backward(loss)")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


def test_an_encoding_of_its_own(write: Write) -> None:
    path = write("x = 1\n")
    text = "# -*- coding: latin-1 -*-\n" + PRELUDE + "NAME = 'é'  # noqa: DT201\n"
    path.write_bytes(text.encode("latin-1"))
    write_all(fix(OPTIONS))
    assert path.read_bytes() == text.replace("  # noqa: DT201", "").encode("latin-1")


def test_a_link_stays_a_link(write: Write, tmp_path: Path) -> None:
    path = write("x = 1  # noqa: DT201\n")
    (tmp_path / "real").mkdir()
    path.rename(tmp_path / "real" / "train.py")
    path.symlink_to(tmp_path / "real" / "train.py")
    assert fixed(path) == "x = 1\n" and path.is_symlink()


def test_a_file_that_changed_meanwhile_is_left_alone(write: Write) -> None:
    path = write("x = 1  # noqa: DT201\n")
    done = fix(OPTIONS)
    path.write_text("mine = 1\n")
    with pytest.raises(DreamError, match="has changed meanwhile"):
        write_all(done)
    assert path.read_text() == "mine = 1\n"


def test_several_files_or_none(write: Write, tmp_path: Path) -> None:
    path = write("""
        import config  # noqa: DT201
        --- config.py
        x = 1  # noqa: DT205
    """)
    config = tmp_path / "config.py"
    before = path.read_bytes(), config.read_bytes()
    done = fix(OPTIONS)
    assert len(done.changed) == 2
    last = done.changed[-1]
    Path(last).write_text(Path(last).read_text() + "# Edited.\n")
    edited = Path(last).read_bytes()
    with pytest.raises(DreamError):
        write_all(done)
    now = {str(path): path.read_bytes(), str(config): config.read_bytes()}
    assert now[last] == edited
    (other,) = set(now) - {last}
    assert now[other] in before


def test_diff_and_standard_input(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("x = 1  # noqa: DT201\n")
    before = path.read_text()
    assert run(Options(paths=("train.py",), diff=True)) == 1
    told = capsys.readouterr()
    assert "-x = 1  # noqa: DT201\n+x = 1\n" in told.out and told.err == "Would fix 1.\n"
    assert path.read_text() == before
    command = [sys.executable, "-m", "dream_scaffold", "check", "--fix", "--stdin-filename"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "train.py"], input=before, env=environment, capture_output=True, text=True
    )
    assert done.stdout == before.replace("  # noqa: DT201", "") and path.read_text() == before
    assert run(Options(paths=("train.py",), fix=True)) == 0
    assert capsys.readouterr().out.endswith("Fixed 1.\n")
    assert run(Options(paths=("train.py",), diff=True)) == 0


def finding(*edits: tuple[int, int, str], safe: bool = True) -> Finding:
    made = tuple(Edit(Place("a.py", 1, start, 1, end), text) for start, end, text in edits)
    return Finding(
        code="DT501",
        name="x",
        severity="error",
        message="",
        help="",
        place=Place("a.py", 1, 1, 1, 1),
        fix=Fix("Do it", made, safe),
    )


def test_fixes_that_meet_wait_for_each_other() -> None:
    texts = {"a.py": "abc = 1\n"}
    one, other = finding((1, 4, "de")), finding((2, 3, "xyz"))
    assert applied(texts, [one, other], unsafe=False) == ({"a.py": "de = 1\n"}, 1)
    assert applied(texts, [finding((4, 4, "d")), finding((4, 4, "e"))], unsafe=False)[1] == 1
    both = finding((1, 2, "x"), (7, 8, "2"))
    assert applied(texts, [both], unsafe=False) == ({"a.py": "xbc = 2\n"}, 1)


def test_a_fix_that_breaks_the_file_is_dropped() -> None:
    texts = {"a.py": "abc = 1\n"}
    assert applied(texts, [finding((1, 4, "(")), finding((7, 8, "2"))], unsafe=False) == (
        {"a.py": "abc = 2\n"},
        1,
    )
    assert applied(texts, [finding((1, 99, "x"))], unsafe=False) == ({}, 0)
    assert applied(texts, [finding((1, 4, "x"), safe=False)], unsafe=False) == ({}, 0)


SAMPLES = [sample for rule in RULES for sample in rule.MATCHES]


@pytest.mark.parametrize("part", range(4))
def test_every_sample_is_fixed_once(write: Write, part: int) -> None:
    """What `--fix --unsafe-fixes` leaves is Python, and a second run changes nothing."""
    for sample in SAMPLES[part::4]:
        path = write(sample)
        try:
            done = fix(UNSAFE)
            write_all(done)
        except DreamError:
            continue
        for changed in done.changed:
            ast.parse(Path(changed).read_text())
        again = fix(UNSAFE)
        assert again.count == 0 and again.changed == [], path.read_text()


@pytest.mark.parametrize("seed", range(25))
def test_broken_projects_are_mended_or_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A few random breaks of a random project: fixes leave Python, and are done after one run."""
    chance = random.Random(seed)
    monkeypatch.chdir(tmp_path)
    name = chance.choice(list(PROJECTS))
    files = dict(PROJECTS[name])
    for mutation in chance.sample(MUTATIONS, 4):
        broken = mutation.apply(name, files)
        if broken is not None and mutation.code != "DT000":
            files = broken[0]
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    first = fix(UNSAFE)
    write_all(first)
    for path in first.changed:
        ast.parse(Path(path).read_text())
    assert fix(UNSAFE).count == 0
    if first.count == 0:
        assert {path: (tmp_path / path).read_text() for path in files} == files


@pytest.mark.parametrize("unsafe", [False, True])
def test_a_misspelt_hook_is_renamed_and_not_written_again(write: Write, unsafe: bool) -> None:
    path = write("""
        class T(Complete):
            def apply_compil(self):
                self.model.compile()

        config = DreamTrainerConfig(device_parameters=DeviceParameters())
    """)
    text = fixed(path, UNSAFE if unsafe else OPTIONS)
    assert text.count("def apply_compile(") == unsafe
    assert text.count("def apply_compil(") == (not unsafe)
