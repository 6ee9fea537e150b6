"""WeightTransferCallback and `receive`: whole versions, in order, on any mesh."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dream_trainer.callbacks import Callback, WeightTransferCallback
from dream_trainer.callbacks.weight_transfer import newest, receive
from dream_trainer.checkpoint import snapshots
from dream_trainer.configs import ConfigError, RunError
from tests.conftest import run_torchrun
from tests.runtime import sized, transfer_cases
from tests.runtime.tiny import Model, TinyTrainer, batches, config


class Receives(Callback):
    """The other side: asks after each step, with a model of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.model, self.version = folder, Model(), 0
        self.seen: list[tuple[int, int]] = []
        self.is_equal: list[bool] = []

    def pre_train_step(self, trainer: Any, batch: Any, batch_idx: int) -> None:
        self.version = receive(self.folder, self.model, known=self.version)
        self.seen.append((trainer.global_step, self.version))
        theirs = trainer.model.parameters()
        pairs = zip(self.model.parameters(), theirs, strict=True)
        self.is_equal.append(all(torch.equal(own, other) for own, other in pairs))


def run(folder: Path, *callbacks: Callback, number: int = 5, **arguments: Any) -> TinyTrainer:
    transfer = WeightTransferCallback(str(folder), **arguments)
    trainer = TinyTrainer(config(callbacks=[transfer, *callbacks]), batches(number))
    trainer.fit()
    return trainer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_versions_come_while_training_goes_on(tmp_path: Path) -> None:
    other = Receives(tmp_path)
    run(tmp_path, other, every_n_steps=2)
    assert other.seen == [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3)]
    assert other.is_equal == [True, False, True, False, True]
    assert names(tmp_path) == ["latest.json", "version-00000002.pt", "version-00000003.pt"]
    assert json.loads((tmp_path / "latest.json").read_text()) == {
        "version": 3,
        "step": 4,
        "name": "version-00000003.pt",
    }


@pytest.mark.parametrize("format", ["pt", "safetensors"])
def test_the_last_ones_stay(tmp_path: Path, format: Any) -> None:
    trainer = run(tmp_path, keep=3, format=format)
    suffix = ".pt" if format == "pt" else ""
    kept = [f"version-{number:08d}{suffix}" for number in (4, 5, 6)]
    assert names(tmp_path) == ["latest.json", *kept]
    model = Model()
    assert receive(tmp_path, model) == 6
    for own, other in zip(model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(own, other)


def test_a_run_that_begins_again_counts_on(tmp_path: Path) -> None:
    run(tmp_path, number=2)
    run(tmp_path, number=1)
    found = newest(tmp_path)
    assert found is not None and (found.version, found.step) == (5, 1)


def test_nothing_new(tmp_path: Path) -> None:
    model = Model()
    before = [p.clone() for p in model.parameters()]
    assert newest(tmp_path) is None and receive(tmp_path, model) == 0
    run(tmp_path, number=1)
    assert receive(tmp_path, model, known=2) == 2
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_failed_write_leaves_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, number=1)
    replace = snapshots.os.replace

    def full(source: Any, target: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(snapshots.os, "replace", full)
    with pytest.raises(RunError, match="No space left on device"):
        run(tmp_path, number=1)
    monkeypatch.setattr(snapshots.os, "replace", replace)
    model = Model()
    assert receive(tmp_path, model) == 2
    run(tmp_path, number=1)
    assert receive(tmp_path, model) == 4 and not [n for n in names(tmp_path) if "parts" in n]


def test_a_version_that_goes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, number=1)
    old = newest(tmp_path)
    run(tmp_path, number=3)
    told = iter([old])
    real = snapshots.newest
    monkeypatch.setattr(snapshots, "newest", lambda folder: next(told, None) or real(folder))
    assert receive(tmp_path, Model()) == 6
    (tmp_path / "version-00000006.pt").unlink()
    with pytest.raises(RunError, match=r"version-00000006\.pt does not exist"):
        receive(tmp_path, Model())


def test_several_models_and_another_dtype(tmp_path: Path) -> None:
    class Two(TinyTrainer):
        def configure_models(self) -> None:
            super().configure_models()
            self.critic = nn.Linear(4, 1)

    transfer = WeightTransferCallback(str(tmp_path))
    trainer = Two(config(callbacks=[transfer]), batches(1))
    trainer.config.training_parameters.startup_checks = False
    trainer.fit()
    critic, model = nn.Linear(4, 1, dtype=torch.bfloat16), Model()
    receive(tmp_path, critic, root="critic")
    assert torch.equal(critic.weight, trainer.critic.weight.bfloat16())
    receive(tmp_path, model, root="model")
    assert torch.equal(model.layers[0].weight, trainer.model.layers[0].weight)
    with pytest.raises(RunError) as caught:
        receive(tmp_path, model)
    assert str(caught.value).startswith(
        f"{tmp_path}/version-00000002.pt and Model differ in critic.bias, critic.weight, "
        "layers.0.bias and 7 more. Receive into the model that is trained"
    )


def test_another_shape(tmp_path: Path) -> None:
    run(tmp_path, number=1)
    model = Model()
    model.layers[1] = nn.Linear(4, 3)
    with pytest.raises(RunError, match=r"differ in layers\.1\.weight, layers\.1\.bias\. Rec"):
        receive(tmp_path, model)


def test_steps_are_waited_for_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dream_trainer.world import World

    waits: list[int] = []
    monkeypatch.setattr(World, "set_timeout", lambda _, seconds: waits.append(seconds))
    transfer = WeightTransferCallback(str(tmp_path))
    trainer = TinyTrainer(config(callbacks=[transfer]), batches(2))
    trainer.config.device_parameters.comm.init_timeout_seconds = 11
    trainer.config.device_parameters.comm.train_timeout_seconds = 22
    trainer.fit()
    assert [seconds for seconds in waits if seconds < 100] == [11, 11, 22, 22, 22]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"every_n_steps": 0}, "every_n_steps=0 is not possible. Use a whole number from 1."),
        ({"keep": 1}, "keep=1 is not possible. Use a whole number from 2."),
        ({"format": "npz"}, "format='npz' is not possible. Use pt or safetensors."),
    ],
)
def test_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WeightTransferCallback("folder", **arguments)
    assert str(caught.value) == text


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "safetensors.torch", None)
    with pytest.raises(RunError, match=r"needs safetensors\. Install it"):
        WeightTransferCallback(str(tmp_path), format="safetensors")


def test_meshes(tmp_path: Path) -> None:
    done = run_torchrun(2, transfer_cases.__file__, tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for mesh in transfer_cases.MESHES:
        model = sized.Model(sized.Config())
        assert receive(tmp_path / mesh, model) == 3
        found = newest(tmp_path / mesh)
        assert found is not None and found.step == 2
        expected = torch.load(tmp_path / f"{mesh}.pt")
        own = model.state_dict(prefix="model.")
        assert own.keys() == expected.keys()
        assert all(torch.equal(own[name], value) for name, value in expected.items()), mesh
        assert not list((tmp_path / mesh).glob("*.parts"))
