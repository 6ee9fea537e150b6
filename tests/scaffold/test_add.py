"""`dream add`: what it writes, where, that it keeps all else, and that it writes whole or not."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_update import _killed_after

from dream_scaffold.check import Options as CheckOptions
from dream_scaffold.check import check
from dream_scaffold.check.hinge import contract
from dream_scaffold.errors import DreamError
from dream_scaffold.project import new
from dream_scaffold.project.add import example
from dream_scaffold.project.add.added import Added
from dream_scaffold.project.add.callback import add_callback
from dream_scaffold.project.add.draft import Draft, carry_out, resume
from dream_scaffold.project.add.events import Runtime
from dream_scaffold.project.add.factory import add_config
from dream_scaffold.project.add.hook import add_hook
from dream_scaffold.project.add.launch import add_launcher
from dream_scaffold.project.add.run import add
from dream_scaffold.project.answers import changed, read_answers
from dream_scaffold.project.options import Options
from dream_scaffold.project.recipes import RECIPES
from dream_scaffold.project.render import render_project, ruff
from dream_scaffold.project.update.run import take_back, update

ROOT = Path(__file__).parents[2]

Make = Callable[..., Path]


@pytest.fixture(scope="session")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`patterns(recipe, parallel)` is a project that nobody has touched, made once."""
    made: dict[tuple[str, str], Path] = {}

    def pattern(recipe: str, parallel: str) -> Path:
        if (recipe, parallel) not in made:
            folder = tmp_path_factory.mktemp("pattern") / "mine"
            options = Options(name="mine", recipe=recipe, parallel=parallel)
            new.create(folder, options, git=False)
            made[recipe, parallel] = folder
        return made[recipe, parallel]

    return pattern


@pytest.fixture(scope="session", autouse=True)
def rendered_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same answers are rendered once: that is what takes long."""
    made: dict[Options, Path] = {}

    def render(options: Options, target: Path) -> None:
        if options not in made:
            made[options] = tmp_path_factory.mktemp("rendered")
            render_project(options, made[options])
        shutil.copytree(made[options], target, dirs_exist_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "render_project", render)
        patch.setattr(new, "render_project", render)
        yield


@pytest.fixture
def make(patterns: Make, tmp_path: Path) -> Make:
    """`make(recipe, parallel)` is a project of one's own."""

    def copy(recipe: str = "blank", parallel: str = "fsdp") -> Path:
        project = tmp_path / "mine"
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(patterns(recipe, parallel), project)
        return project

    return copy


def callback(project: Path, name: str = "EarlyStop", *events: str, **more: object) -> Added:
    why = more.pop("why", None)
    return add(project, lambda d, o: add_callback(d, name, [*events], why, None), **more)  # type: ignore[arg-type]


def hook(project: Path, name: str, **more: bool) -> Added:
    return add(project, lambda draft, options: add_hook(draft, options, name, None), **more)


def config(project: Path, name: str, parallel: str, **answers: bool) -> Added:
    def work(draft: Draft, options: Options) -> Added:
        said = {"parallel": parallel, **answers}
        return add_config(draft, changed(options, said), name, None)

    return add(project, work)


def state(project: Path) -> dict[str, bytes]:
    """Every file but those that only serve to take back."""
    return {
        path.relative_to(project).as_posix(): path.read_bytes()
        for path in sorted(project.rglob("*"))
        if path.is_file() and not {"undo", "__pycache__"} & set(path.parts)
    }


def findings(project: Path) -> list[str]:
    found = check(CheckOptions(paths=(str(project),), strict=True)).findings
    return [f"{each.code} {each.message}" for each in found]


def edit(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_bytes().decode()
    for old, written in pairs:
        assert old in text
        text = text.replace(old, written)
    path.write_bytes(text.encode())


def is_tidy(project: Path) -> bool:
    commands = (["check"], ["format", "--check"])
    return not any(
        subprocess.run([ruff(), *command, "-q", "--no-cache", "."], cwd=project).returncode
        for command in commands
    )


def methods(path: Path) -> dict[str, str]:
    """The trainer's methods, each as it stands."""
    text = path.read_text()
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return {
        node.name: ast.get_source_segment(text, node) or ""
        for node in classes[-1].body
        if isinstance(node, ast.FunctionDef)
    }


# Callbacks.


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_callback_of_every_recipe(make: Make, recipe: str) -> None:
    project = make(recipe, "fsdp")
    before = state(project)
    done = callback(project, "early-stop", "on_boundary", why="Ends a run that is\n  over.")
    assert [write.path for write in done.writes] == [
        "config.py",
        "early_stop.py",
        "tests/test_early_stop.py",
    ]
    assert done.notes == []
    text = (project / "config.py").read_text()
    assert text.count("        extra_callbacks=[EarlyStop()],\n") == 2
    assert text.count("from early_stop import EarlyStop\n") == 1
    assert '    """Ends a run that is over."""\n' in (project / "early_stop.py").read_text()
    assert findings(project) == [] and is_tidy(project)
    after = state(project)
    assert callback(project, "EarlyStop").writes == []
    assert state(project) == after
    assert update(project, {}).is_current
    take_back(project)
    assert state(project) == before


def test_all_events_and_all_defaults_run(make: Make) -> None:
    """Every event's signature and every optional hook's default, in a real run."""
    project = make("blank", "single")
    events = Runtime(project).events
    assert len(events) > 20
    callback(project, "Everything", *events)
    callback(project, "Launched", "pre_launch")
    callback(project, "Ended", "on_interrupt")
    for name in ("configure_schedulers", "configure_metrics", "count_items"):
        hook(project, name)
    assert findings(project) == [] and is_tidy(project)
    written = methods_of(project / "everything.py", "Everything")
    assert [name for name in written if name in events] == list(events)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    tests = [f"tests/test_{name}.py" for name in ("everything", "launched", "ended")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [*command, *tests], cwd=project, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


def methods_of(path: Path, cls: str) -> list[str]:
    nodes = ast.parse(path.read_text()).body
    [found] = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == cls]
    return [node.name for node in found.body if isinstance(node, ast.FunctionDef)]


WHYS = {
    'Says "so"': 'Says "so" ',
    "a\\b": "a\\b",
    'It ends """here': "It ends '''here",
    "word " * 30: f"{('word ' * 17).strip()}\n{('word ' * 13).strip()}",
}


@pytest.mark.parametrize("why", WHYS)
def test_whatever_is_said_is_its_docstring(make: Make, why: str) -> None:
    project = make("blank", "single")
    callback(project, why=why)
    tree = ast.parse((project / "early_stop.py").read_text())
    [cls] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert ast.get_docstring(cls) == WHYS[why]
    assert is_tidy(project)


LAST = "        checkpoint_parameters=CheckpointParameters("
LISTS = {
    "a list": ("extra_callbacks=[Old()],", "extra_callbacks=[Old(), EarlyStop()],"),
    "an empty list": ("extra_callbacks=[],", "extra_callbacks=[EarlyStop()],"),
    "an empty tuple": ("extra_callbacks=(),", "extra_callbacks=(EarlyStop(),),"),
    "a tuple of one": ("extra_callbacks=(Old(),),", "extra_callbacks=(Old(), EarlyStop()),"),
    "what replaces all": ("callbacks=[Old()],", "callbacks=[Old(), EarlyStop()],"),
    "nothing": ("callbacks=None,", "callbacks=None,"),
    "lines with comments": (
        "extra_callbacks=[\n            Old(),  # Why.\n            # Below.\n        ],",
        "extra_callbacks=[\n            Old(),  # Why.\n            EarlyStop(),\n"
        "            # Below.\n        ],",
    ),
    "no last comma": (
        "extra_callbacks=[\n            Old()  # Why.\n        ],",
        "extra_callbacks=[\n            Old(),  # Why.\n            EarlyStop(),\n        ],",
    ),
    "parentheses": (
        "extra_callbacks=[\n            (\n                Old()\n            ),\n        ],",
        "EarlyStop(),\n        ],",
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_where_callbacks_are_listed(make: Make, name: str) -> None:
    project = make("blank", "single")
    old, new = LISTS[name]
    edit(
        project / "config.py",
        (LAST, f"        {old}\n{LAST}"),
        ("\n\n\n@dataclass", "\n\n\nclass Old: ...\n\n\n@dataclass"),
    )
    assert callback(project).notes == []
    text = (project / "config.py").read_text()
    assert new in text and text.count("EarlyStop()") == 1
    ast.parse(text)


def test_a_list_with_a_name_and_a_default_of_the_class(make: Make) -> None:
    project = make("blank", "fsdp")
    edit(
        project / "config.py",
        (LAST, f"        extra_callbacks=CALLBACKS,\n{LAST}"),
        ("\n\n\ndef fsdp", "\n\n\nCALLBACKS: list[object] = [print]\n\n\ndef fsdp"),
    )
    assert callback(project).notes == []
    assert "= [print, EarlyStop()]\n" in (project / "config.py").read_text()
    project = make("blank", "fsdp")
    default = "    extra_callbacks: list = field(default_factory=lambda: [print])\n"
    edit(
        project / "config.py",
        ("import dataclass\n", "import dataclass, field\n"),
        ("    input_dim", f"{default}    input_dim"),
    )
    assert callback(project).notes == []
    assert "lambda: [print, EarlyStop()])\n" in (project / "config.py").read_text()


def test_a_list_out_of_sight_is_told(make: Make) -> None:
    project = make("blank", "single")
    edit(project / "config.py", (LAST, f"        extra_callbacks=make_them(),\n{LAST}"))
    line = (project / "config.py").read_text().split("\n").index("    return Config(") + 1
    done = callback(project)
    assert done.notes == [
        f"config.py:{line} lists its callbacks elsewhere: add EarlyStop() there."
    ]
    assert [write.path for write in done.writes] == ["early_stop.py", "tests/test_early_stop.py"]


LAYOUTS = {
    "src": ("src", "", "from early_stop import EarlyStop\n"),
    "a package": ("mine", "mine.", "from mine.early_stop import EarlyStop\n"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_beside_the_configurations(make: Make, name: str) -> None:
    project = make("lm", "fsdp")
    folder, prefix, imported = LAYOUTS[name]
    (project / folder).mkdir()
    for file in ("train", "config", "data", "model"):
        text = (project / f"{file}.py").read_text()
        text = re.sub(
            r"^from (config|data|model) import", rf"from {prefix}\1 import", text, flags=re.M
        )
        (project / folder / f"{file}.py").write_text(text)
        (project / f"{file}.py").unlink()
    sort = [ruff(), "check", "-q", "--no-cache", "--select", "I", "--fix", "."]
    subprocess.run(sort, cwd=project, check=True)
    callback(project)
    assert (project / folder / "early_stop.py").is_file()
    assert imported in (project / folder / "config.py").read_text()
    test = (project / "tests" / "test_early_stop.py").read_text()
    assert imported in test and f"from {prefix}config import single_config\n" in test
    done = config(project, "big", "fsdp+tp")
    assert [write.path for write in done.writes] == [f"{folder}/config.py", f"{folder}/train.py"]
    text = (project / folder / "train.py").read_text()
    assert f"from {prefix}config import Config, big_config, fsdp_config, single_config\n" in text
    assert "SequenceParallel()" in text and findings(project) == []


def test_without_a_configuration_the_way_is_told(make: Make) -> None:
    project = make("blank", "single")
    text = (project / "config.py").read_text()
    (project / "config.py").write_text(text[: text.index("\n\ndef single_config")])
    edit(
        project / "train.py",
        (", single_config", ""),
        ('{"single": single_config}', "read_somewhere()"),
    )
    done = callback(project)
    assert done.notes == [
        "No call makes a configuration in sight of the trainer: where you make one, write "
        "`from early_stop import EarlyStop` and give it extra_callbacks=[EarlyStop()]."
    ]
    assert "resumed.load_state_dict" in (project / "tests/test_early_stop.py").read_text()


# Hooks.

EVERYTHING = "fsdp+cp+tp+pp"
HAVE = {
    ("lm", EVERYTHING): [
        "apply_pipeline_parallel",
        "apply_tensor_parallel",
        "apply_fully_shard",
        "init_weights",
        "configure_optimizers",
        "configure_schedulers",
        "configure_dataloaders",
        "context_parallel_buffers",
        "training_step",
        "validation_step",
        "count_items",
        "model_state_dict",
    ],
    ("vision", "fsdp+tp"): ["apply_tensor_parallel", "apply_fully_shard", "validation_step"],
    ("gan", "ddp"): ["configure_models", "apply_replicate", "training_step", "model_state_dict"],
    ("finetune", "fsdp"): ["apply_fully_shard", "configure_optimizers"],
    ("blank", "ddp"): ["apply_replicate", "init_weights", "configure_dataloaders"],
}


@pytest.mark.parametrize(("recipe", "mode"), HAVE)
def test_a_hook_that_was_cut_out_comes_back_as_it_was(make: Make, recipe: str, mode: str) -> None:
    project = make(recipe, mode)
    train = project / "train.py"
    whole = train.read_text()
    for name in HAVE[recipe, mode]:
        body = methods(train)[name]
        marked = (
            f"    @torch.no_grad()\n    {body}" if name == "validation_step" else f"    {body}"
        )
        assert f"\n{marked}\n" in whole
        train.write_text(whole.replace(f"\n{marked}\n", "", 1))
        done = hook(project, name)
        assert [write.path for write in done.writes] == ["train.py"]
        text = train.read_text()
        assert sorted(text.split("\n")) == sorted(whole.split("\n")), name
        order = [method for method in methods(train) if method in contract.BY_NAME]
        assert order == sorted(order, key=list(contract.BY_NAME).index)
        assert hook(project, name).writes == []


def test_imports_come_with_a_hook(make: Make) -> None:
    project = make("lm", "single")
    done = hook(project, "apply_tensor_parallel")
    assert done.notes == [
        "No configuration calls apply_tensor_parallel(tp_mesh) yet. In DeviceParameters, set "
        "tensor_parallel above 1."
    ]
    text = (project / "train.py").read_text()
    assert "from torch.distributed.tensor import Replicate, Shard\n" in text
    assert is_tidy(project)
    assert [found.partition(" ")[0] for found in findings(project)] == ["DT203"]


def test_a_model_of_another_name_gets_the_plain_body(make: Make) -> None:
    project = make("lm", "single")
    edit(project / "train.py", ("self.model", "self.net"), ("class Trainer(", "class Teacher("))
    edit(project / "train.py", ("Trainer(config)", "Teacher(config)"))
    hook(project, "apply_fully_shard")
    written = methods(project / "train.py")["apply_fully_shard"]
    assert "for layer in self.net.layers:" in written and "fully_shard(self.net," in written
    hook(project, "apply_tensor_parallel")
    assert "NotImplementedError" in methods(project / "train.py")["apply_tensor_parallel"]
    hook(project, "apply_activation_checkpointing")
    written = methods(project / "train.py")["apply_activation_checkpointing"]
    assert "checkpoint_forward(layer)" in written, "the field of the recipe's own is not there"


def test_a_hook_that_every_run_calls_does_what_the_runtime_does(make: Make) -> None:
    project = make("blank", "single")
    assert hook(project, "count_items").notes == ["Every run calls count_items(batch)."]
    assert methods(project / "train.py")["count_items"] == (
        "def count_items(self, batch: Any) -> int:\n"
        "        # How much a batch weighs in validation means and throughput. By default its "
        "rows.\n        return super().count_items(batch)"
    )
    assert findings(project) == [] and is_tidy(project)


# Configurations.

MODES = [
    ("lm", "single", "fsdp+tp"),
    ("lm", "ddp", "hsdp"),
    ("lm", "fsdp", EVERYTHING),
    ("vision", "single", "fsdp+tp"),
    ("gan", "single", "hsdp"),
    ("finetune", "ddp", "fsdp"),
    ("blank", "fsdp", "ddp"),
]


@pytest.mark.parametrize(("recipe", "first", "second"), MODES)
def test_a_configuration_brings_its_hooks(
    make: Make, patterns: Make, recipe: str, first: str, second: str
) -> None:
    project = make(recipe, first)
    before = state(project)
    done = config(project, second, second)
    called = f"{second.replace('+', '_')}_config"
    assert done.name == called
    assert findings(project) == [] and is_tidy(project)
    fresh = patterns(recipe, second)
    theirs, mine = methods(fresh / "train.py"), methods(project / "train.py")
    assert {name: mine[name] for name in theirs} == theirs
    assert _function(project / "config.py", called) == _function(fresh / "config.py", called)
    [offered] = [
        node
        for node in ast.walk(ast.parse((project / "train.py").read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "cli"
    ]
    assert ast.unparse(offered).endswith(f"'{second}': {called}}})")
    after = state(project)
    assert config(project, second, second).writes == [] and state(project) == after
    take_back(project)
    assert state(project) == before


def _function(path: Path, name: str) -> str:
    text = path.read_text()
    nodes = ast.parse(text).body
    [node] = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == name]
    return ast.get_source_segment(text, node) or ""


def test_an_update_to_the_same_mode_knows_the_configuration(make: Make) -> None:
    project = make("lm", "single")
    config(project, "fsdp+tp", "fsdp+tp")
    done = update(project, {"parallel": "fsdp+tp"})
    # Only what the command line chooses by default is in question.
    assert {c.path: c.conflicts for c in done.changes if c.conflicts} == {"train.py": 1}
    assert (project / "config.py").read_text().count("def fsdp_tp_config") == 1
    assert (project / "train.py").read_text().count("def apply_tensor_parallel") == 1


def test_what_is_owed_is_told(make: Make) -> None:
    project = make("blank", "fsdp")
    done = config(project, "wide", "fsdp+tp", compile=True)
    assert done.notes == [
        "wide_config calls apply_tensor_parallel, which is written as well; "
        "its body is yours to write: apply the models' tensor-parallel plans.",
        "wide_config calls apply_compile, which is written as well.",
        "Run it: torchrun --nproc-per-node=4 train.py --config wide",
    ]


CALL = 'cli(main, {"fsdp": fsdp_config, "single": single_config})'
IMPORT = "from config import Config, fsdp_config, single_config\n"
OFFERED = {
    "one function": (
        "cli(main, fsdp_config)",
        'cli(main, {"fsdp": fsdp_config, "big": big_config})',
    ),
    "one that is made": (
        "cli(main, fsdp_config())",
        'cli(main, {"fsdp": fsdp_config(), "big": big_config})',
    ),
    "a keyword": (
        "cli(main, config={'fsdp': fsdp_config})",
        "cli(main, config={'fsdp': fsdp_config, 'big': big_config})",
    ),
    "a name": (
        "CHOICES = {\n        'fsdp': fsdp_config,  # Mine.\n    }\n    cli(main, CHOICES)",
        "        'fsdp': fsdp_config,  # Mine.\n        'big': big_config,\n    }\n",
    ),
    "a call": ("cli(main, read_somewhere())", None),
    "a name of elsewhere": ("CHOICES = dict(fsdp=fsdp_config)\n    cli(main, CHOICES)", None),
    "what is put together": (
        'cli(main, {"fsdp": fsdp_config} | {"single": single_config})',
        None,
    ),
    "lines": (
        'cli(\n        main,\n        {\n            "fsdp": fsdp_config,  # Mine.\n'
        '            "single": single_config,  # Small.\n        },\n    )',
        '"single": single_config,  # Small.\n            "big": big_config,\n        },',
    ),
}


@pytest.mark.parametrize("name", OFFERED)
def test_what_the_command_line_offers(make: Make, name: str) -> None:
    project = make("blank", "fsdp")
    old, new = OFFERED[name]
    edit(project / "train.py", (CALL, old))
    before = state(project)
    if new is None:
        with pytest.raises(DreamError, match="does not show which configurations it offers"):
            config(project, "big", "fsdp")
        assert state(project) == before
        return
    config(project, "big", "fsdp")
    text = (project / "train.py").read_text()
    assert new in text
    assert "from config import Config, big_config, fsdp_config, single_config\n" in text


def test_a_mapping_at_the_top_or_in_another_file(make: Make) -> None:
    project = make("blank", "fsdp")
    mapping = 'CHOICES = {"fsdp": fsdp_config, "single": single_config}\n'
    edit(
        project / "train.py",
        (CALL, "cli(main, CHOICES)"),
        ("\n\n\ndef main", f"\n\n\n{mapping}\n\ndef main"),
    )
    config(project, "big", "fsdp")
    text = (project / "train.py").read_text()
    assert 'single_config, "big": big_config}\n' in text and "Config, big_config," in text
    project = make("blank", "fsdp")
    (project / "config.py").write_text((project / "config.py").read_text() + f"\n\n{mapping}")
    edit(
        project / "train.py",
        (CALL, "cli(main, CHOICES)"),
        (IMPORT, "from config import CHOICES, Config\n"),
    )
    config(project, "big", "fsdp")
    assert 'single_config, "big": big_config}\n' in (project / "config.py").read_text()
    assert "big_config" not in (project / "train.py").read_text()
    assert findings(project) == []


def test_a_trainer_in_one_file_and_its_launch_in_another(make: Make) -> None:
    project = make("blank", "single")
    text = (project / "train.py").read_text()
    body, main = text.split("\n\n\ndef main")
    (project / "trainer.py").write_text(f"{body}\n")
    top = '"""Runs it."""\n\nfrom config import Config, single_config\n'
    top += "from dream_trainer.utils.cli import cli\nfrom trainer import Trainer\n"
    (project / "train.py").write_text(f"{top}\n\ndef main{main}")
    edit(project / "trainer.py", ("Config, single_config", "Config"))
    edit(project / "trainer.py", ("from dream_trainer.utils.cli import cli\n", ""))
    done = config(project, "big", "ddp")
    assert [write.path for write in done.writes] == ["config.py", "train.py", "trainer.py"]
    assert done.notes == [
        "big_config calls apply_replicate, which is written as well.",
        "Run it: torchrun --nproc-per-node=2 train.py --config big",
    ]
    assert "import Config, big_config, single_config\n" in (project / "train.py").read_text()
    assert "def apply_replicate" in (project / "trainer.py").read_text()
    assert findings(project) == [] and is_tidy(project)


def test_a_name_that_is_taken(make: Make) -> None:
    project = make("blank", "single")
    edit(project / "train.py", ("\n\n\ndef main", "\n\n\nbig_config = 3\n\n\ndef main"))
    before = state(project)
    with pytest.raises(DreamError, match=r"train\.py has a big_config as well"):
        config(project, "big", "ddp")
    assert state(project) == before


def test_functions_named_through_their_module(make: Make) -> None:
    project = make("blank", "fsdp")
    edit(
        project / "train.py",
        (CALL, 'cli(main, {"fsdp": config.fsdp_config})'),
        (IMPORT, "import config\nfrom config import Config\n"),
    )
    config(project, "big", "fsdp")
    assert '"big": config.big_config})' in (project / "train.py").read_text()


# Files in a manner of their own.


def mine(project: Path, name: str, change: Callable[[str], str]) -> None:
    path = project / name
    path.write_bytes(change(path.read_bytes().decode()).encode())


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def tabs(text: str) -> str:
    return re.sub(r"^(?:    )+", lambda found: "\t" * (len(found.group()) // 4), text, flags=re.M)


def odd(text: str) -> str:
    """Single quotes, no blank lines, comments everywhere: whatever ruff would change."""
    text = text.replace('"', "'").replace("'''", '"""').replace("\n\n\n", "\n\n# Mine.\n")
    return re.sub(r"\(self, ", "( self,", text)


@pytest.mark.parametrize("change", [crlf, tabs, odd, lambda text: "\ufeff" + text])
def test_a_manner_of_ones_own_is_kept(make: Make, change: Callable[[str], str]) -> None:
    project = make("lm", "fsdp")
    for name in ("train.py", "config.py"):
        mine(project, name, change)
    before = {name: (project / name).read_bytes().decode() for name in ("train.py", "config.py")}
    callback(project)
    config(project, "big", "fsdp+tp")
    hook(project, "apply_compile")
    hook(project, "configure_metrics")
    for name, text in before.items():
        after = (project / name).read_bytes().decode()
        ast.parse(after.removeprefix("\ufeff"))
        lost = [line for line in text.split("\n") if line not in after.split("\n")]
        # The import of what config.py offers, and the call that offers it.
        assert len(lost) <= 2 and all("single_config" in line for line in lost), lost
        assert ("\r\n" in text) == ("\r\n" in after) == (change is crlf)
        if change is crlf:
            assert after.count("\n") == after.count("\r\n")
        assert after.startswith("\ufeff") == text.startswith("\ufeff")
    assert (b"\r\n" in (project / "early_stop.py").read_bytes()) == (change is crlf)
    assert [found.partition(" ")[0] for found in findings(project)] == ["DT203"]


def test_a_format_of_ones_own_is_taken_over(make: Make) -> None:
    project = make("lm", "fsdp")
    edit(
        project / "pyproject.toml",
        ("line-length = 99", "line-length = 72"),
        ("[tool.mypy]", "[tool.ruff.lint.isort]\nforce-single-line = true\n\n[tool.mypy]"),
        ('"E", "F", "I", "B"', '"F", "I"'),
    )
    for command in (["check", "--fix"], ["format"]):
        subprocess.run([ruff(), *command, "-q", "--no-cache", "."], cwd=project, check=True)
    callback(project, "EarlyStop", "post_train_step")
    config(project, "big", "fsdp+tp")
    assert is_tidy(project) and findings(project) == []
    text = (project / "train.py").read_text()
    assert "\nfrom config import big_config\nfrom config import fsdp_config\n" in text


def test_an_encoding_of_its_own(make: Make) -> None:
    project = make("blank", "single")
    path = project / "config.py"
    text = "# -*- coding: latin-1 -*-\n" + path.read_text() + "NAME = 'é'\n"
    path.write_bytes(text.encode("latin-1"))
    callback(project)
    assert "EarlyStop()" in path.read_bytes().decode("latin-1")


def test_a_link_inside_of_the_project_is_followed_and_none_that_leads_out(
    make: Make, tmp_path: Path
) -> None:
    project = make("blank", "single")
    (project / "real").mkdir()
    (project / "config.py").rename(project / "real" / "config.py")
    (project / "config.py").symlink_to(Path("real") / "config.py")
    callback(project)
    assert (project / "config.py").is_symlink()
    assert "EarlyStop()" in (project / "real" / "config.py").read_text()
    project = make("blank", "single")
    (project / "config.py").rename(tmp_path / "shared.py")
    (project / "config.py").symlink_to(tmp_path / "shared.py")
    before = state(project)
    with pytest.raises(DreamError) as caught:
        callback(project)
    assert str(caught.value) == (
        f"config.py leads out of the project, to {tmp_path.resolve()}/shared.py. "
        "Edit that file by hand, or put a copy into the project."
    )
    assert state(project) == before


# What is refused.

REFUSED = {
    "a hook": (lambda p: hook(p, "apply_compiel"), "Did you mean apply_compile"),
    "an event": (lambda p: callback(p, "X", "post_step"), "--event post_step is unknown"),
    "no name": (lambda p: callback(p, ""), "'' cannot name a callback: it is empty"),
    "a number": (lambda p: callback(p, "3d"), "'3d' is no name in Python"),
    "a path": (lambda p: callback(p, "../x"), "cannot name a callback"),
    "a keyword": (lambda p: callback(p, "Class"), "called as a keyword of Python"),
    "a package": (lambda p: callback(p, "torch"), "hide a package that projects install"),
    "a library": (lambda p: callback(p, "Signal"), "hide one of Python's standard library"),
    "a part": (lambda p: callback(p, "Model"), "a part of every project"),
    "a device": (lambda p: callback(p, "Nul"), "Windows reserves"),
    "one of the runtime's": (lambda p: callback(p, "EMACallback"), "extra_callbacks=\\[EMACallb"),
    "a class": (lambda p: callback(p, "DeviceParameters"), "has a DeviceParameters as well"),
    "a builtin": (lambda p: callback(p, "KeyError"), "builtins has a KeyError as well"),
    "a file": (lambda p: callback(p, "Taken"), "taken.py exists already, and has no class Taken"),
    "a configuration": (lambda p: config(p, "a b", "fsdp"), "cannot name a configuration"),
    "a choice": (lambda p: config(p, "other", "fsdp"), "offers other already"),
    "a mode": (lambda p: config(p, "big", "sideways"), "--parallel sideways is unknown"),
    "a mode of others": (lambda p: config(p, "big", "tp"), "does not go with tp"),
    "a launcher": (lambda p: add_launcher(p, "slrum"), "Did you mean slurm"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(make: Make, name: str) -> None:
    project = make("gan", "fsdp")
    (project / "taken.py").write_text('"""Mine."""\n')
    edit(project / "train.py", ('"single": single', '"other": single_config, "single": single'))
    before = state(project)
    work, told = REFUSED[name]
    with pytest.raises(DreamError, match=told):
        work(project)  # type: ignore[no-untyped-call]
    assert state(project) == before


BROKEN = {
    "no Python": ("train.py", "def (:\n", r"train\.py:1 cannot be read: Invalid syntax"),
    "a conflict": (
        "config.py",
        "<<<<<<< yours\na = 1\n=======\na = 2\n>>>>>>> template\n",
        r"config\.py:1 cannot be read: A conflict of an update or a merge is still open",
    ),
    "no trainer": ("train.py", "from dream_trainer import DreamTrainer\n", "No trainer found"),
    "no answers": (".dream/answers.yml", "- a\n", r"answers\.yml is of no use"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read(make: Make, name: str) -> None:
    project = make("blank", "single")
    path, text, told = BROKEN[name]
    (project / path).write_text(text)
    before = state(project)
    for work in (
        lambda: callback(project),
        lambda: config(project, "big", "fsdp"),
        lambda: hook(project, "apply_compile"),
    ):
        with pytest.raises(DreamError, match=told):
            work()
    assert state(project) == before


def test_beyond_recognition(make: Make) -> None:
    project = make("blank", "single")
    (project / "config.py").unlink()
    before = state(project)
    with pytest.raises(DreamError, match=r"There is no config\.py"):
        config(project, "big", "fsdp")
    assert state(project) == before
    project = make("blank", "single")
    edit(project / "train.py", ('cli(main, {"single": single_config})', "main(single_config())"))
    before = state(project)
    with pytest.raises(DreamError, match=r"train\.py calls no cli\(main, \{\.\.\.\}\)"):
        config(project, "big", "fsdp")
    assert state(project) == before


def test_one_of_several_trainers(make: Make) -> None:
    project = make("blank", "single")
    other = "\n\nclass Other(Trainer):\n    pass\n\n\nclass More(Trainer):\n    pass\n"
    path = project / "train.py"
    edit(path, ("\n\n\ndef main", f"\n{other}\n\ndef main"))
    with pytest.raises(DreamError, match=r"There are several trainers: .*Choose one with --tr"):
        hook(project, "apply_compile")
    with pytest.raises(DreamError, match=r"No trainer is called Mine\. There is"):
        add(project, lambda draft, options: add_hook(draft, options, "apply_compile", "Mine"))
    add(project, lambda draft, options: add_hook(draft, options, "apply_compile", "More"))
    assert path.read_text().index("apply_compile") > path.read_text().index("class More")


# Whole or not.


def test_a_kill_leaves_the_project_as_it_was_or_as_it_should_be(make: Make) -> None:
    project = make("blank", "fsdp")
    old = state(project)
    done = callback(project, pretend=True)
    assert state(project) == old, "until all is known nothing is written"
    kills, states = 0, set()
    while _killed_after(kills, lambda: carry_out(project, done.writes)):
        resume(project)
        now = state(project)
        if now != old:
            assert {write.path: now[write.path] for write in done.writes} == {
                write.path: write.after for write in done.writes
            }
            assert set(now) == {*old, *(write.path for write in done.writes)}
            take_back(project)
            assert state(project) == old
        states.add(now == old)
        kills += 1
    assert kills > 15 and states == {True, False}


def test_a_whole_command_that_is_killed(make: Make) -> None:
    project = make("lm", "single")
    old = state(project)
    config(project, "big", "ddp")
    new_state = state(project)
    take_back(project)
    kills = 0
    while _killed_after(kills, lambda: config(project, "big", "ddp")):
        resume(project)
        now = state(project)
        assert now in (old, new_state)
        if now == new_state:
            take_back(project)
        kills += 7
    assert kills > 14 and state(project) == new_state


def test_the_next_command_completes_what_a_kill_cut_off(make: Make) -> None:
    project = make("blank", "fsdp")
    writes = callback(project, pretend=True).writes
    kills = 0
    while not (project / ".dream" / "update.json").is_file():
        assert _killed_after(kills, lambda: carry_out(project, writes))
        kills += 1
    assert not (project / "early_stop.py").exists()
    assert callback(project).writes == [] and (project / "early_stop.py").is_file()
    assert (project / "tests" / "test_early_stop.py").is_file()
    assert not (project / ".dream" / "update.json").exists()


# The command line.


def dream(project: Path, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "dream_scaffold", "add", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_command_says_what_it_did(make: Make) -> None:
    project = make("blank", "fsdp")
    before = state(project)
    pretended = dream(project, "callback", "EarlyStop", "--event", "pre_fit,post_fit", "--pretend")
    assert "+++ b/early_stop.py" in pretended and "+from early_stop import" in pretended
    assert pretended.endswith("Nothing was written.\n") and state(project) == before
    assert dream(project, "callback", "EarlyStop", "--event", "pre_fit,post_fit") == (
        "mine: callback EarlyStop\n"
        "  changed config.py\n"
        "  new     early_stop.py\n"
        "  new     tests/test_early_stop.py\n"
        "dream check: all hooks match the configuration.\n"
        "`dream update --abort` takes this back.\n"
    )
    again = "callback EarlyStop is there already: nothing was changed.\n"
    assert dream(project / "tests", "callback", "early_stop") == again
    report = json.loads(
        dream(project.parent, "config", "wide", "--parallel", "ddp", "--project", "mine", "--json")
    )
    assert list(report) == [
        *("version", "project", "kind", "name", "is_there_already", "pretended", "changes"),
        "notes",
    ]
    assert [(c["path"], c["verdict"]) for c in report["changes"]] == [
        ("config.py", "changed"),
        ("train.py", "changed"),
    ]
    assert '+    cli(main, {"fsdp"' in report["changes"][1]["diff"]
    told = dream(project, "hook", "nothing", code=2)
    assert told.startswith("error: The hook nothing is unknown.\nhelp: Use one of configure_mod")
    told = dream(project.parent, "hook", "apply_compile", code=2)
    assert "does not lie in a project of `dream new`" in told


def test_a_launcher(make: Make) -> None:
    project = make("blank", "fsdp")
    before = state(project)
    told = dream(project, "launch", "slurm", "--pretend")
    assert "+++ b/launch/slurm.sbatch" in told and state(project) == before
    done, _ = add_launcher(project, "slurm")
    assert "launch/slurm.sbatch" in [write.path for write in done.writes] and done.notes == []
    assert read_answers(project).options.launchers == ("torchrun", "slurm")
    after = state(project)
    again = "launch slurm is there already: nothing was changed.\n"
    assert dream(project, "launch", "slurm") == again and state(project) == after
    add_launcher(project, "kubernetes")
    assert read_answers(project).options.launchers == ("torchrun", "slurm", "kubernetes")
    assert (project / "launch" / "slurm.sbatch").is_file()
    take_back(project)
    assert state(project) == after


def test_the_commands_of_the_page_work(make: Make) -> None:
    project = make("lm", "fsdp")
    page = (ROOT / "docs" / "adding.md").read_text()
    commands = [shlex.split(line) for line in page.split("\n") if line.startswith("dream add ")]
    assert [command[2] for command in commands] == ["callback", "hook", "config", "launch"]
    before = state(project)
    for command in commands:
        assert dream(project, *command[2:], "--pretend").endswith("Nothing was written.\n") or (
            command[2] == "launch"
        )
    assert state(project) == before
