"""Trackers, launchers, CI, images, licences: each makes files that work, and can be changed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from identify.vendor.licenses import LICENSES as PUBLISHED
from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement

from dream_scaffold import __version__
from dream_scaffold.errors import DreamError
from dream_scaffold.project.answers import ANSWERS, changed, read_answers
from dream_scaffold.project.listing import as_json, as_text
from dream_scaffold.project.new import create
from dream_scaffold.project.options import Options
from dream_scaffold.project.presets import IMAGES, LAUNCHERS, LICENSES, TRACKERS, WORKFLOWS
from dream_scaffold.project.update.run import take_back, update
from tests.conftest import ROOT

BIN = Path(sys.executable).parent
ALL: dict[str, Any] = {
    "tracker": "tensorboard",
    "launch": "torchrun,slurm,kubernetes,skypilot",
    "ci": "github",
    "docker": True,
    "license": "mit",
}
OF_PRESETS = {
    ".dockerignore",
    ".github/workflows/check.yml",
    "Dockerfile",
    "LICENSE",
    "launch/kubernetes.yaml",
    "launch/skypilot.yaml",
    "launch/slurm.sbatch",
}


def made(folder: Path, recipe: str = "blank", parallel: str = "single", **presets: Any) -> Path:
    options = Options(name="mine", recipe=recipe, parallel=parallel, **presets)
    create(folder / "mine", options, git=False)
    return folder / "mine"


def files(project: Path) -> set[str]:
    return {
        path.relative_to(project).as_posix()
        for path in project.rglob("*")
        if path.is_file() and path.relative_to(project).parts[0] not in (".dream", "dream_trainer")
    }


def texts(project: Path) -> dict[str, bytes]:
    return {name: (project / name).read_bytes() for name in files(project)}


def license_of(project: Path) -> str:
    """The licence whose published text the project has, word for word but for whose it is."""

    def words(text: str) -> list[str]:
        return re.sub(r"^ *Copyright .*$", "", text, flags=re.MULTILINE).split()

    given = words((project / "LICENSE").read_text())
    [name] = (name for name, text in PUBLISHED if words(text) == given)
    return name


def run(command: str, project: Path, **env: str) -> str:
    """A line of shell where `dream` is this one, as a user has it installed."""
    tools = project.parent / "bin"
    tools.mkdir(exist_ok=True)
    dream = tools / "dream"
    dream.write_text(f'#!/bin/sh\nexec {sys.executable} -m dream_scaffold "$@"\n')
    dream.chmod(0o755)
    path = os.pathsep.join([str(tools), str(BIN), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=project,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | env,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("torchrun", "torchrun"),
        ("slurm", "torchrun,slurm"),
        ("skypilot, kubernetes,torchrun", "torchrun,kubernetes,skypilot"),
        ("slurm,slurm", "torchrun,slurm"),
    ],
)
def test_launchers_are_recorded_in_one_way(written: str, read: str) -> None:
    options = Options(name="mine", parallel="ddp", launch=written)
    assert options.answers()["launch"] == read
    assert changed(options, {}).launch == read


@pytest.mark.parametrize(
    ("preset", "value", "fact", "remedy"),
    [
        (
            "tracker",
            "wandbb",
            "--tracker wandbb is unknown.",
            "Did you mean wandb? Known are none, wandb, tensorboard.",
        ),
        (
            "launch",
            "slurm,pbs",
            "--launch pbs is unknown.",
            "Use one of torchrun, slurm, kubernetes, skypilot, alone or joined by commas.",
        ),
        ("ci", "jenkins", "--ci jenkins is unknown.", "Use one of none, github."),
        (
            "license",
            "apache",
            "--license apache is unknown.",
            "Did you mean apache-2.0? Known are none, mit, apache-2.0, bsd-3-clause.",
        ),
    ],
)
def test_an_unknown_value_is_refused(preset: str, value: str, fact: str, remedy: str) -> None:
    with pytest.raises(DreamError) as refused:
        Options(name="mine", parallel="ddp", **{preset: value}).check()
    assert (refused.value.fact, refused.value.remedy) == (fact, remedy)


def test_answers_of_before_there_were_presets(tmp_path: Path) -> None:
    project = made(tmp_path)
    recorded = project / ANSWERS
    lines = recorded.read_text().splitlines()
    old = [line for line in lines if line.partition(":")[0] not in ALL]
    assert len(old) == len(lines) - len(ALL)
    recorded.write_text("\n".join([*old, ""]))
    assert read_answers(project).options == Options(name="mine", recipe="blank", parallel="single")
    before = texts(project)
    assert update(project, {}).is_current
    assert texts(project) == before


def test_the_list_has_a_line_for_each() -> None:
    told = as_text()
    for preset in (TRACKERS, LAUNCHERS, WORKFLOWS, LICENSES):
        for name, choice in preset.items():
            assert re.search(
                rf"^  {re.escape(name)} +{re.escape(choice.meaning)} +{re.escape(choice.advice)}$",
                told,
                re.MULTILINE,
            )
    assert f"--docker\n    {IMAGES[True].meaning}  {IMAGES[True].advice}\n" in told
    known = json.loads(as_json())["presets"]
    assert set(known) == set(ALL)
    assert [each["name"] for each in known["license"]] == list(LICENSES)


TRACKED = {
    "none": ("LoggingParameters", []),
    "wandb": ("WandbLoggingParameters", ["wandb"]),
    "tensorboard": ("LoggingParameters", ["tensorboard"]),
}
SHOW = (
    "import config, json\n"
    "made = [make() for name, make in vars(config).items() if name.endswith('_config')]\n"
    "logging = [each.logging_parameters for each in made]\n"
    "print(json.dumps([[type(each).__name__, each.tensorboard] for each in logging]))"
)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_tracker_is_configured_and_installed(tmp_path: Path, tracker: str) -> None:
    project = made(tmp_path, "blank", "ddp", tracker=tracker)
    kind, packages = TRACKED[tracker]
    shown = json.loads(run(f'python -B -c "{SHOW}"', project))
    assert shown == [[kind, tracker == "tensorboard"]] * 2
    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    names = [Requirement(need).name for need in table["dependencies"]]
    assert names == ["torch", "numpy", "typer", "rich", *packages]


@pytest.mark.parametrize(
    ("tracker", "written"), [("wandb", "wandb/offline-run-*"), ("tensorboard", "tensorboard/*")]
)
def test_a_run_is_tracked(tmp_path: Path, tracker: str, written: str) -> None:
    project = made(tmp_path, tracker=tracker)
    steps = "--set training_parameters.max_steps=2 --set training_parameters.val_steps_per_epoch=1"
    run(f"python train.py {steps}", project, WANDB_MODE="offline")
    assert len(list(project.glob(f"runs/*/{written}"))) == 1


@pytest.fixture
def workflow(tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A project and the steps of its workflow."""
    project = made(tmp_path, ci="github")
    text = (project / ".github/workflows/check.yml").read_text()
    return project, yaml.safe_load(text)["jobs"]["check"]["steps"]


def test_the_workflow_is_one_of_github(workflow: tuple[Path, Any]) -> None:
    schema = "--builtin-schema vendor.github-workflows"
    told = run(f"check-jsonschema {schema} .github/workflows/check.yml", workflow[0])
    assert told == "ok -- validation done\n"


def test_the_workflow_installs_what_it_runs(workflow: tuple[Path, Any]) -> None:
    project, steps = workflow
    [install] = (step["run"] for step in steps if step.get("name") == "Install")
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in install
    pinned, extra = re.findall(r'"(.*?)"', install)[::-1]
    assert pinned == f"dream-scaffold=={__version__}"
    assert extra == ".[dev]"
    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    tools = {Requirement(need).name for need in table["optional-dependencies"]["dev"]} | {"dream"}
    commands = [step["run"].split()[0] for step in steps if "run" in step]
    assert commands == ["pip", "dream", "ruff", "ruff", "pytest"]
    assert set(commands[1:]) <= tools


def test_what_the_workflow_runs_passes(workflow: tuple[Path, Any]) -> None:
    project, steps = workflow
    for step in steps:
        if "run" in step and step["name"] != "Install":
            run(step["run"], project)


def test_the_workflow_puts_findings_at_their_lines(workflow: tuple[Path, Any]) -> None:
    project, steps = workflow
    [check] = (step["run"] for step in steps if step.get("name") == "Check")
    train = project / "train.py"
    train.write_text(train.read_text().replace("def configure_optimizers", "def make_optimizers"))
    told = run(f"{check} || true", project)
    assert re.search(r"^::error .*file=train\.py,line=\d+.*DT206", told, re.MULTILINE)


def test_the_commands_of_agents_md_pass(tmp_path: Path) -> None:
    project = made(tmp_path, "blank", "ddp")
    [block] = re.findall(r"```bash\n(.*?)```", (project / "AGENTS.md").read_text(), re.S)
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    of_the_workflow = ["dream check", "pytest"]
    assert set(of_the_workflow) < set(commands) and len(commands) == 5
    for command in commands:
        if command not in of_the_workflow:  # Which is run for that above.
            run(command, project)


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(instruction, arguments), without comments and with lines put together."""
    text = re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE).replace("\\\n", " ")
    parts = (line.partition(" ") for line in text.splitlines() if line)
    return [(name, arguments) for name, _, arguments in parts]


@pytest.mark.parametrize("parallel", ["single", "fsdp"])
def test_the_dockerfile(tmp_path: Path, parallel: str) -> None:
    project = made(tmp_path, parallel=parallel, docker=True)
    run("hadolint --failure-threshold style Dockerfile", project)
    steps = instructions((project / "Dockerfile").read_text())
    kinds = [kind for kind, _ in steps]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", dict(steps)["FROM"])
    # Only pyproject.toml is there when the packages are installed.
    copies = [arguments for kind, arguments in steps if kind == "COPY"]
    install = next(at for at, step in enumerate(steps) if "pip install" in step[1])
    assert copies == ["pyproject.toml ./", "--chown=1000:1000 . ."]
    assert steps.index(("COPY", copies[0])) < install < steps.index(("COPY", copies[1]))
    assert dict(steps)["USER"] == "1000:1000"
    assert kinds.index("USER") < kinds.index("ENTRYPOINT")
    assert json.loads(dict(steps)["ENTRYPOINT"]) == ["torchrun"]
    ranks = "1" if parallel == "single" else "gpu"
    assert json.loads(dict(steps)["CMD"]) == [
        "--standalone",
        f"--nproc-per-node={ranks}",
        "train.py",
    ]


def test_the_entry_of_the_image_runs(tmp_path: Path) -> None:
    """What the image would hold, under its command: this machine builds no images."""
    project = made(tmp_path, docker=True)
    ignored = (project / ".dockerignore").read_text().split()
    image = tmp_path / "image"
    shutil.copytree(project, image, ignore=shutil.ignore_patterns(*ignored))
    assert {"train.py", "config.py", "pyproject.toml", "dream_trainer"} <= {
        path.name for path in image.iterdir()
    }
    assert not (image / ".dream").exists()
    steps = dict(instructions((image / "Dockerfile").read_text()))
    command = " ".join([*json.loads(steps["ENTRYPOINT"]), *json.loads(steps["CMD"])])
    run(f"{command} --set training_parameters.max_steps=1", image)
    assert len(list((image / "runs").iterdir())) == 1


@pytest.mark.parametrize("license", [name for name in LICENSES if name != "none"])
def test_a_license_is_the_one_it_says(tmp_path: Path, license: str) -> None:
    project = made(tmp_path, license=license)
    spdx = LICENSES[license].meaning
    assert license_of(project) == spdx
    text = (project / "LICENSE").read_text()
    assert len(re.findall(r"^ *Copyright the authors of mine$", text, re.MULTILINE)) == 1
    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert table["license"] == canonicalize_license_expression(spdx) == spdx


def test_nothing_of_a_preset_is_there_unless_it_is_chosen(tmp_path: Path) -> None:
    project = made(tmp_path)
    assert not OF_PRESETS & files(project)
    assert not (project / "launch").exists()
    assert "license" not in tomllib.loads((project / "pyproject.toml").read_text())["project"]


def test_presets_come_and_go_and_edits_stay(tmp_path: Path) -> None:
    project = made(tmp_path)
    train = project / "train.py"
    train.write_text(
        train.read_text().replace("        loss =", "        # Mine.\n        loss =")
    )
    before = texts(project)
    done = update(project, ALL)
    assert done.conflicts == 0 and done.after.launch == ALL["launch"]
    assert files(project) == set(before) | OF_PRESETS
    assert "tensorboard=True" in (project / "config.py").read_text()
    assert train.read_bytes() == before["train.py"]
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    of_new = texts(made(fresh, **ALL))
    assert {name: text for name, text in texts(project).items() if name != "train.py"} == {
        name: text for name, text in of_new.items() if name != "train.py"
    }
    assert update(project, {}).is_current
    update(project, {"launch": "slurm", "license": "apache-2.0", "docker": False})
    assert OF_PRESETS & files(project) == {
        ".github/workflows/check.yml",
        "LICENSE",
        "launch/slurm.sbatch",
    }
    assert license_of(project) == "Apache-2.0"
    none = {"tracker": "none", "launch": "torchrun", "ci": "none", "license": "none"}
    update(project, none)
    assert texts(project) == before
    take_back(project)
    assert license_of(project) == "Apache-2.0"


def test_the_command_line_takes_presets(tmp_path: Path) -> None:
    new = "--recipe blank --parallel single --license mit --docker --no-git"
    run(f"dream new mine {new}", tmp_path)
    project = tmp_path / "mine"
    assert {"LICENSE", "Dockerfile"} <= files(project)
    told = run("dream update --tracker wandb --launch skypilot --no-docker", project)
    assert "tracker none -> wandb, launch torchrun -> torchrun,skypilot, docker True -> " in told
    assert "WandbLoggingParameters()" in (project / "config.py").read_text()
    assert (
        (project / ANSWERS)
        .read_text()
        .endswith(
            "tracker: wandb\nlaunch: torchrun,skypilot\nci: none\ndocker: false\nlicense: mit\n"
        )
    )


@pytest.mark.parametrize("command", ["new", "update"])
def test_help_names_every_value(tmp_path: Path, command: str) -> None:
    told = run(f"dream {command} --help", tmp_path, COLUMNS="200")
    for choices in (TRACKERS, LAUNCHERS, WORKFLOWS, LICENSES):
        for name in set(choices) - {"torchrun"}:
            assert name in told
    for flag in ALL:
        assert f"--{flag}" in told
