"""What rules about state and launching say beyond yes and no: how severe it is, and the edit."""

from collections.abc import Callable

import pytest
from small_projects import codes

from dream_scaffold.check import Result
from dream_scaffold.check.facts import Finding

Check = Callable[..., Result]

FSDP = "config = DreamTrainerConfig(device_parameters=DeviceParameters.FSDP({options}))\n"

MODEL = """
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from dream_trainer.callbacks import Callback

class MyTrainer(Complete):
    def configure_models(self):
        self.model = nn.Linear(2, 2)

    def configure_optimizers(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        return {self.model: self.optimizer}

    def model_state_dict(self, **_):
        return {"model": self.model.state_dict()}

"""


def only(result: Result, code: str) -> Finding:
    found = [finding for finding in result.findings if finding.code == code]
    assert len(found) == 1
    return found[0]


def test_a_plain_state_dict_of_a_model_compiled_by_assignment_is_an_error(project: Check) -> None:
    compiled = "    def apply_compile(self):\n        self.model = torch.compile(self.model)\n\n"
    off = "compile_model=False"
    severe = project(MODEL + compiled + FSDP.format(options=""))
    assert only(severe, "DT601").severity == "error"
    assert "renames self.model" in only(severe, "DT601").message
    assert only(project(MODEL + compiled + FSDP.format(options=off)), "DT601").severity == (
        "warning"
    )


def test_a_plain_state_dict_beside_a_lenient_load_is_an_error(project: Check) -> None:
    lenient = (
        "    def init_weights(self):\n"
        '        self.model.load_state_dict(torch.load("x.pt"), strict=False)\n'
    )
    assert only(project(MODEL + lenient), "DT601").severity == "error"
    strict = lenient.replace(", strict=False", "")
    assert only(project(MODEL + strict), "DT601").severity == "warning"


CLOCK = """
class Save(Callback):
    def post_setup(self, trainer):
        self.begin = time.time()

    def on_boundary(self, trainer):
        if {test}:
            dcp.save({{}}, checkpoint_id="x")

"""


@pytest.mark.parametrize(
    ("test", "severity"),
    [
        ("time.time() - self.begin > 60", ["error"]),
        ("self.path.exists()", ["warning"]),
        ("self.begin is not None", []),
        ("trainer.global_step > 60", []),
        ("trainer.world.broadcast(time.time() > self.end)", []),
    ],
)
def test_a_clock_surely_parts_the_ranks(project: Check, test: str, severity: list[str]) -> None:
    text = MODEL + CLOCK.format(test=test) + FSDP.format(options="compile_model=False")
    found = [f.severity for f in project(text).findings if f.code == "DT608"]
    assert found == severity


def test_a_run_that_a_clock_ends(project: Check) -> None:
    stop = """
class Limit(Callback):
    def on_boundary(self, trainer):
        trainer.is_stopping |= {test}

"""
    late = stop.format(test="time.monotonic() > self.end")
    assert only(project(MODEL + late), "DT608").severity == "error"
    patient = stop.format(test="self.since >= self.patience")
    assert "DT608" not in codes(project(MODEL + patient))


LONELY = """
    def validation_step(self, batch, batch_idx):
        if self.world.is_rank_zero:
            dist.barrier()
        return {}

"""


def test_on_one_process_a_lonely_collective_waits_for_nobody(project: Check) -> None:
    single = "config = DreamTrainerConfig()\n"
    wide = FSDP.format(options="compile_model=False")
    assert only(project(MODEL + LONELY + wide), "DT604").severity == "error"
    assert only(project(MODEL + LONELY + single), "DT604").severity == "warning"
    assert only(project(MODEL + LONELY + single + "other = " + wide), "DT604").severity == "error"


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("dist.get_rank() == 0", True),
        ("dist.get_rank(self.group) == 0", True),
        ("int(os.environ['SLURM_PROCID']) == 0", True),
        ("os.environ['MODE'] == 'fast'", False),
        ("self.world.world_size > 1", False),
        ("self.config.rank > 0", False),
        ("not dist.is_initialized()", False),
    ],
)
def test_what_asks_for_a_rank(project: Check, test: str, found: bool) -> None:
    text = "import os\n" + MODEL + LONELY.replace("self.world.is_rank_zero", test)
    assert ("DT604" in codes(project(text))) is found


def test_the_edit_puts_an_optimizer_into_a_mapping(project: Check) -> None:
    text = MODEL.replace("return {self.model: self.optimizer}", "return self.optimizer")
    fix = only(project(text), "DT603").fix
    assert fix is not None and fix.safe
    assert [edit.text for edit in fix.edits] == ["return {self.model: self.optimizer}"]
    two = text.replace(
        "self.model = nn.Linear(2, 2)", "self.model, self.head = nn.Linear(2, 2), nn.Linear(2, 2)"
    ).replace("self.model.parameters()", "[*self.model.parameters(), *self.head.parameters()]")
    assert only(project(two), "DT603").fix is None


def test_the_edit_guards_a_launch(project: Check) -> None:
    launch = "cli(lambda config: MyTrainer(config).fit(), DreamTrainerConfig())\n"
    fix = only(project(MODEL + launch), "DT702").fix
    assert fix is not None and not fix.safe
    assert fix.edits[0].text == f'if __name__ == "__main__":\n    {launch.rstrip()}'
    inside = "if True:\n    " + launch
    assert only(project(MODEL + inside), "DT702").fix is None


def test_what_nothing_comes_to_is_only_possible(project: Check) -> None:
    unused = "def set_up():\n    dist.init_process_group()\n\n"
    assert only(project(MODEL + unused), "DT701").severity == "info"
    assert only(project(MODEL + unused + "set_up()\n"), "DT701").severity == "error"


def test_a_monitor_may_come_from_a_callback_that_is_not_shown(project: Check) -> None:
    text = """
from elsewhere import Watch

config = DreamTrainerConfig(
    checkpoint_parameters=CheckpointParameters(monitor="val/loss", resume_mode="min"),
    callbacks=[{callbacks}],
)
"""
    assert only(project(MODEL + text.format(callbacks="")), "DT109").severity == "error"
    assert only(project(MODEL + text.format(callbacks="Watch()")), "DT109").severity == "info"
    own = "class Own(Callback):\n    def post_epoch(self, trainer):\n        {}\n\n"
    added = own.format('trainer.also_log({"val/loss": 1.0})')
    assert "DT109" not in codes(project(MODEL + added + text.format(callbacks="Own()")))
    other = own.format('trainer.also_log({"other": 1.0})')
    assert only(project(MODEL + other + text.format(callbacks="Own()")), "DT109").severity == (
        "error"
    )


def test_modules_that_no_trainer_uses_are_left_alone(project: Check) -> None:
    text = MODEL + "import used\n--- used.py\nimport torch\nA = torch.ones(3)\n"
    assert only(project(text), "DT111").place.path == "used.py"
    text = MODEL + "--- test_it.py\nimport torch\nfrom train import MyTrainer\nA = torch.ones(3)\n"
    assert "DT111" not in codes(project(text, paths=(".",)))
