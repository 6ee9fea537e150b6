"""Weights from elsewhere: whole, on any mesh, or one error that says what does not fit."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from dream_trainer.checkpoint.manifest import UNFINISHED
from dream_trainer.checkpoint.weights import Matched, Selection, load_weights
from dream_trainer.configs import RunError
from tests.conftest import run_torchrun
from tests.runtime.made_weights import drawn, under, write_checkpoint, write_dcp
from tests.runtime.sized import Config
from tests.runtime.sized import Model as SizedModel
from tests.runtime.tiny import Model, TinyTrainer, config, set_up
from tests.runtime.weight_cases import FORMS, MESHES

SCRIPT = Path(__file__).with_name("weight_cases.py")
FOUR = ("fsdp+tp", "fsdp+pp", "tp+interleaved", "hsdp")
TWO = tuple(mesh for mesh in MESHES if mesh not in FOUR)

State = dict[str, Tensor]


def write_hugging_face(folder: Path, state: State, shards: int = 2) -> Path:
    """`state` dealt out to files, with the index that names them."""
    folder.mkdir()
    names = list(state)
    places: dict[str, str] = {}
    for index in range(shards):
        file = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        places |= dict.fromkeys(names[index::shards], file)
        save_file({n: state[n] for n in names[index::shards]}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def damage(checkpoint: Path) -> None:
    """Change a byte and no size."""
    file = next(checkpoint.glob("*.distcp"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every form of the same weights, and some that must be refused."""
    folder = tmp_path_factory.mktemp("weights")
    bare = drawn(SizedModel(Config()))
    full = under("model", bare)
    torch.save(full, folder / "expected.pt")
    write_checkpoint(folder / "runs", under("model", drawn(SizedModel(Config()), 6)), step=1)
    write_checkpoint(folder / "runs", full, step=2)
    write_dcp(folder / "bare", full)
    torch.save(bare, folder / "model.pt")
    torch.save({"model": bare}, folder / "nested.pt")
    save_file(full, folder / "own.safetensors")
    write_hugging_face(folder / "hugging-face", bare)
    torch.save({k: v for k, v in bare.items() if "head" not in k}, folder / "short.pt")
    torch.save(bare | {"layers.3.up.bias": torch.zeros(5)}, folder / "wide.pt")
    damage(write_checkpoint(folder / "damaged", full))
    return folder


@pytest.fixture(scope="module")
def told(folder: Path) -> Callable[[str], dict[str, Any]]:
    """What a mesh told; the first of a launch brings the others along."""

    @cache
    def launch(meshes: tuple[str, ...], ranks: int) -> None:
        done = run_torchrun(ranks, SCRIPT, folder, *meshes, cwd=folder, timeout=150)
        assert done.returncode == 0, done.stdout + done.stderr

    def read(mesh: str) -> dict[str, Any]:
        launch(*((FOUR, 4) if mesh in FOUR else (TWO, 2)))
        result: dict[str, Any] = json.loads((folder / f"told-{mesh}.json").read_text())
        return result

    return read


class TestMeshes:
    @pytest.mark.parametrize("mesh", MESHES)
    def test_everything_matches(self, mesh: str, told: Callable[[str], dict[str, Any]]) -> None:
        assert [told(mesh)[form][0] for form in FORMS] == ["38 of 38 tensors matched"] * len(FORMS)

    @pytest.mark.parametrize("mesh", MESHES)
    def test_a_rank_reads_what_it_holds(
        self, mesh: str, told: Callable[[str], dict[str, Any]]
    ) -> None:
        for form in FORMS[2:]:
            _, read, held = told(mesh)[form]
            assert read == held

    @pytest.mark.parametrize("mesh", MESHES)
    def test_every_rank_gets_the_same_error(
        self, mesh: str, folder: Path, told: Callable[[str], dict[str, Any]]
    ) -> None:
        short, wide, damaged, absent = told(mesh)["errors"]
        assert short == (
            "init-from matched 37 of 38 tensors. Missing: model.head.weight. "
            'Pass allow_missing=["head.*"] if intended.'
        )
        assert wide == (
            f"init-from: model.layers.3.up.bias is (5,) in {folder}/wide.pt and (96,) here. "
            "Build the model with the sizes of the source, or leave it as it is: "
            'allow_missing=["layers.*"].'
        )
        assert damaged == (
            f"{folder}/damaged/run/checkpoints/step-00000001 is damaged: __0_0.distcp is "
            "damaged: its checksum has changed. Use another checkpoint."
        )
        assert absent == (
            f"{folder}/none does not exist. Name a checkpoint, the folder of a run, a .pt file, "
            "a .safetensors file or a folder of those."
        )

    @pytest.mark.parametrize("mesh", MESHES)
    def test_exports_hold_the_same(
        self, mesh: str, folder: Path, told: Callable[[str], dict[str, Any]]
    ) -> None:
        from safetensors import safe_open

        told(mesh)
        exports, expected = folder / "exports" / mesh, torch.load(folder / "model.pt")
        assert sorted(p.name for p in exports.iterdir()) == ["hugging-face", "model.pt"]
        assert_equal(torch.load(exports / "model.pt"), expected)
        index = json.loads((exports / "hugging-face/model.safetensors.index.json").read_text())
        files = sorted((exports / "hugging-face").glob("*.safetensors"))
        assert len(files) > 4
        assert set(index["weight_map"].values()) == {file.name for file in files}
        found: State = {}
        for file in files:
            with safe_open(file, framework="pt") as opened:
                found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        assert_equal(found, expected)


def assert_equal(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor, expected[name]), name


@pytest.fixture
def trainer() -> TinyTrainer:
    return set_up(TinyTrainer(config()))


@pytest.fixture
def weights() -> State:
    return drawn(Model())


def refusal(trainer: Any, source: object, **options: Any) -> str:
    with pytest.raises(RunError) as error:
        load_weights(trainer, str(source), **options)
    return str(error.value)


class TestSources:
    @pytest.mark.parametrize("name", ["runs/run", "runs/run/", "runs/run/checkpoints"])
    def test_the_newest_of_a_run(
        self, name: str, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        write_checkpoint(tmp_path / "runs", under("model", weights), step=10)
        write_checkpoint(tmp_path / "runs", under("model", drawn(Model(), 9)), step=9)
        load_weights(trainer, f"{tmp_path}/{name}")
        assert_equal(dict(trainer.model.state_dict()), weights)

    def test_one_checkpoint(self, trainer: TinyTrainer, weights: State, tmp_path: Path) -> None:
        write_checkpoint(tmp_path, under("model", drawn(Model(), 9)), step=2)
        folder = write_checkpoint(tmp_path, under("model", weights), step=1)
        load_weights(trainer, str(folder))
        assert_equal(dict(trainer.model.state_dict()), weights)

    def test_the_optimizer_trains_what_was_loaded(
        self, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        before = [p.data_ptr() for p in trainer.model.parameters()]
        torch.save(weights, tmp_path / "w.pt")
        load_weights(trainer, str(tmp_path / "w.pt"))
        assert [p.data_ptr() for p in trainer.optimizer.param_groups[0]["params"]] == before

    def test_dtypes_are_converted(
        self, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        half = {key: tensor.bfloat16() for key, tensor in weights.items()}
        torch.save(half, tmp_path / "w.pt")
        save_file(half, tmp_path / "w.safetensors")
        write_dcp(tmp_path / "w", under("model", half))
        for name in ("w.pt", "w.safetensors", "w"):
            load_weights(trainer, str(tmp_path / name))
            assert_equal(
                dict(trainer.model.state_dict()), {key: v.float() for key, v in half.items()}
            )

    @pytest.mark.parametrize(
        "prefix",
        [
            "",
            "module.",
            "_orig_mod.",
            "module._orig_mod.",
            "model.",
            "model.module.",
            "model._orig_mod.",
        ],
    )
    def test_wrappers(
        self, prefix: str, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        wrapped = {
            f"{prefix}{key.replace('layers.0', 'layers.0._checkpoint_wrapped_module')}": tensor
            for key, tensor in weights.items()
        }
        torch.save(wrapped, tmp_path / "w.pt")
        assert load_weights(trainer, str(tmp_path / "w.pt")) == Matched(4, 4, (), ())
        assert_equal(dict(trainer.model.state_dict()), weights)

    def test_numbers_beside_tensors_are_no_weights(
        self, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        torch.save({"model": weights, "epoch": 3}, tmp_path / "w.pt")
        assert str(load_weights(trainer, str(tmp_path / "w.pt"))) == "4 of 4 tensors matched"

    def test_a_scalar_buffer(self, tmp_path: Path) -> None:
        class Counting(TinyTrainer):
            def configure_models(self) -> None:
                super().configure_models()
                self.model.register_buffer("seen", torch.zeros((), dtype=torch.int64))

            def init_weights(self) -> None:
                super().init_weights()
                torch.nn.init.zeros_(self.model.seen)  # type: ignore[arg-type]

        trainer = set_up(Counting(config()))
        weights: State = drawn(Model()) | {"seen": torch.tensor(12)}
        torch.save(weights, tmp_path / "w.pt")
        save_file(weights, tmp_path / "w.safetensors")
        write_dcp(tmp_path / "w", under("model", weights))
        for name in ("w.pt", "w.safetensors", "w"):
            torch.nn.init.zeros_(trainer.model.seen)  # type: ignore[arg-type]
            load_weights(trainer, str(tmp_path / name))
            assert trainer.model.seen == 12

    def test_hugging_face_names(
        self, trainer: TinyTrainer, weights: State, tmp_path: Path, monkeypatch: Any
    ) -> None:
        theirs = {key: key.replace("layers", "model.blocks") for key in weights}
        monkeypatch.setattr(trainer, "hugging_face_layout", lambda: (theirs, {}))
        folder = write_hugging_face(tmp_path / "w", {theirs[k]: v for k, v in weights.items()})
        load_weights(trainer, str(folder))
        assert_equal(dict(trainer.model.state_dict()), weights)

    def test_unfinished(self, trainer: TinyTrainer, weights: State, tmp_path: Path) -> None:
        made = write_checkpoint(tmp_path, under("model", weights))
        (made / "manifest.json").unlink()
        unfinished = made.rename(f"{made}{UNFINISHED}")
        told = refusal(trainer, unfinished)
        assert told.startswith(f"{unfinished} holds no finished checkpoint.")

    def test_truncated(self, trainer: TinyTrainer, weights: State, tmp_path: Path) -> None:
        made = write_checkpoint(tmp_path, under("model", weights))
        file = made / "__0_0.distcp"
        size = file.stat().st_size
        file.write_bytes(file.read_bytes()[:-1])
        assert refusal(trainer, made) == (
            f"{made} is damaged: __0_0.distcp has {size - 1:,} bytes of {size:,}. "
            "Use another checkpoint."
        )

    def test_a_damaged_folder_of_others(
        self, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        write_dcp(tmp_path / "w", under("model", weights))
        (tmp_path / "w/__0_0.distcp").unlink()
        told = refusal(trainer, tmp_path / "w")
        assert told.startswith(f"init-from cannot read {tmp_path}/w: FileNotFoundError: ")

    def test_a_pickle_of_more_than_tensors(self, trainer: TinyTrainer, tmp_path: Path) -> None:
        torch.save(Model(), tmp_path / "w.pt")
        told = refusal(trainer, tmp_path / "w.pt")
        assert told.startswith(f"{tmp_path}/w.pt cannot be read as tensors: ")
        assert told.endswith("Write it by torch.save(model.state_dict(), path).")
        assert "\n" not in told

    def test_a_broken_safetensors_file(
        self, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        save_file(weights, tmp_path / "w.safetensors")
        content = (tmp_path / "w.safetensors").read_bytes()
        (tmp_path / "w.safetensors").write_bytes(content[:-3])
        told = refusal(trainer, tmp_path / "w.safetensors")
        assert told.startswith(f"{tmp_path}/w.safetensors cannot be read: ")

    def test_an_absent_shard(self, trainer: TinyTrainer, weights: State, tmp_path: Path) -> None:
        folder = write_hugging_face(tmp_path / "w", weights)
        (folder / "model-00002-of-00002.safetensors").unlink()
        assert refusal(trainer, folder) == (
            f"{folder}/model.safetensors.index.json names model-00002-of-00002.safetensors, "
            "which is not there. Fetch it again."
        )


class TestNames:
    @pytest.fixture
    def short(self, weights: State, tmp_path: Path) -> Path:
        """All but the last layer's weight, and something else."""
        weights["head.weight"] = weights.pop("layers.1.weight")
        torch.save(weights, tmp_path / "w.pt")
        return tmp_path / "w.pt"

    def test_left_over_on_both_sides(self, trainer: TinyTrainer, short: Path) -> None:
        assert refusal(trainer, short) == (
            "init-from matched 3 of 4 tensors. Missing: model.layers.1.weight. "
            'Pass allow_missing=["layers.*"] if intended. Unexpected: head.weight. '
            'Pass allow_unexpected=["head.*"] if intended.'
        )

    @pytest.mark.parametrize("missing", ["layers.*", "model.layers.1.weight", "*"])
    def test_allowed(self, missing: str, trainer: TinyTrainer, short: Path) -> None:
        options: dict[str, Any] = {"allow_missing": [missing], "allow_unexpected": ["head.*"]}
        matched = load_weights(trainer, str(short), **options)
        assert matched == Matched(3, 4, ("model.layers.1.weight",), ("head.weight",))

    def test_other_shapes(self, trainer: TinyTrainer, weights: State, tmp_path: Path) -> None:
        torch.save(weights | {"layers.1.weight": torch.zeros(3, 2)}, tmp_path / "w.pt")
        before = trainer.model.state_dict()["layers.1.weight"].clone()
        assert refusal(trainer, tmp_path / "w.pt") == (
            f"init-from: model.layers.1.weight is (3, 2) in {tmp_path}/w.pt and (2, 4) here. "
            "Build the model with the sizes of the source, or leave it as it is: "
            'allow_missing=["layers.*"].'
        )
        matched = load_weights(trainer, str(tmp_path / "w.pt"), allow_missing=["layers.1.*"])
        assert matched == Matched(3, 4, ("model.layers.1.weight",), ())
        assert torch.equal(trainer.model.state_dict()["layers.1.weight"], before)

    def test_many_missing(self, trainer: TinyTrainer, weights: State, tmp_path: Path) -> None:
        torch.save({"layers.0.bias": weights["layers.0.bias"]}, tmp_path / "w.pt")
        assert refusal(trainer, tmp_path / "w.pt") == (
            "init-from matched 1 of 4 tensors. Missing: model.layers.0.weight and 2 more. "
            'Pass allow_missing=["layers.*"] if intended.'
        )

    def test_nothing_fits_whatever_is_allowed(
        self, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        torch.save({"a.x": torch.zeros(1), "b.x": torch.zeros(1)}, tmp_path / "w.pt")
        told = refusal(trainer, tmp_path / "w.pt", allow_missing=["*"], allow_unexpected=["*"])
        assert told == (
            f"init-from matched 0 of 4 tensors. {tmp_path}/w.pt holds a.x, b.x; this trainer "
            "model.layers.0.weight, model.layers.0.bias, model.layers.1.weight and 1 more. "
            "Pass rename={old: new}."
        )

    def test_a_refusal_changes_nothing(self, trainer: TinyTrainer, short: Path) -> None:
        before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
        refusal(trainer, short)
        assert_equal(dict(trainer.model.state_dict()), before)

    @pytest.mark.parametrize(
        ("rename", "made"),
        [
            ({"encoder": "layers"}, "encoder."),
            ({"model.encoder": "model.layers"}, "model.encoder."),
            ({"encoder": "model.layers"}, "encoder."),
            ({"": "layers"}, ""),
            ({"net.layers": "layers"}, "net.layers."),
            ({"net": ""}, "net.layers."),
        ],
    )
    def test_rename(
        self,
        rename: dict[str, str],
        made: str,
        trainer: TinyTrainer,
        weights: State,
        tmp_path: Path,
    ) -> None:
        torch.save(
            {made + k.removeprefix("layers."): v for k, v in weights.items()}, tmp_path / "w.pt"
        )
        load_weights(trainer, str(tmp_path / "w.pt"), rename=rename)
        assert_equal(dict(trainer.model.state_dict()), weights)

    def test_two_for_one(self, trainer: TinyTrainer, weights: State, tmp_path: Path) -> None:
        torch.save(weights | {"old.0.bias": torch.zeros(4)}, tmp_path / "w.pt")
        assert refusal(trainer, tmp_path / "w.pt", rename={"old": "layers"}) == (
            f"init-from: layers.0.bias and old.0.bias of {tmp_path}/w.pt would both fill "
            "model.layers.0.bias. Leave one out by exclude."
        )

    def test_what_is_included_must_be_whole(
        self, trainer: TinyTrainer, weights: State, tmp_path: Path
    ) -> None:
        renamed = {f"encoder.{k[7:]}": v for k, v in weights.items() if k != "layers.0.bias"}
        torch.save(renamed, tmp_path / "w.pt")
        options = {"include": ["encoder.0.*"], "rename": {"encoder": "layers"}}
        assert refusal(trainer, tmp_path / "w.pt", **options) == (
            "init-from matched 1 of 4 tensors. Missing: model.layers.0.bias. "
            'Pass allow_missing=["layers.*"] if intended.'
        )

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"include": ["layers.*", "encoder.*"]}, "include='encoder.*'"),
            ({"exclude": ["head.*"]}, "exclude='head.*'"),
            ({"rename": {"encoder": "layers"}}, "rename={'encoder': 'layers'}"),
        ],
    )
    def test_what_fits_nothing(
        self,
        options: dict[str, Any],
        told: str,
        trainer: TinyTrainer,
        weights: State,
        tmp_path: Path,
    ) -> None:
        torch.save(weights, tmp_path / "w.pt")
        assert refusal(trainer, tmp_path / "w.pt", **options) == (
            f"init-from: {told} fits none of the 4 tensors of {tmp_path}/w.pt, which are "
            "layers.0.weight, layers.0.bias, layers.1.weight and 1 more."
        )

    def test_names_of_a_source(self) -> None:
        selection = Selection(roots=("model",), rename={"encoder": "backbone"})
        assert selection.target("model.encoder.x") == "model.backbone.x"
        assert selection.target("encoders.x") == "encoders.x"
        assert selection.origin("model.backbone.x") == "model.encoder.x"
        assert selection.plain("model.module.layers.0._orig_mod.x") == "model.layers.0.x"


class TestSeveralModels:
    class Pair(TinyTrainer):
        def configure_models(self) -> None:
            super().configure_models()
            self.critic = nn.Linear(4, 1)

    def test_full_names_only(self, weights: State, tmp_path: Path) -> None:
        trainer = set_up(self.Pair(config(startup_checks=False)))
        torch.save(weights, tmp_path / "w.pt")
        told = refusal(trainer, tmp_path / "w.pt")
        assert told.startswith("init-from matched 0 of 6 tensors.")
        matched = load_weights(
            trainer, str(tmp_path / "w.pt"), rename={"": "model"}, allow_missing=["critic.*"]
        )
        assert matched.filled == 4
        assert_equal(dict(trainer.model.state_dict()), weights)


@pytest.mark.parametrize("name", ["w.pt", "w"])
def test_a_state_of_parameters(
    name: str, trainer: TinyTrainer, weights: State, tmp_path: Path, monkeypatch: Any
) -> None:
    def parameters() -> dict[str, Any]:
        return {"model": dict(trainer.model.named_parameters())}

    monkeypatch.setattr(trainer, "model_state_dict", parameters)
    torch.save(weights, tmp_path / "w.pt")
    write_dcp(tmp_path / "w", under("model", weights))
    load_weights(trainer, str(tmp_path / name))
    assert_equal(dict(trainer.model.state_dict()), weights)
    assert all(p.requires_grad and p.is_leaf for p in trainer.model.parameters())


def test_a_state_of_copies(trainer: TinyTrainer, weights: State, tmp_path: Path) -> None:
    def copies() -> dict[str, Any]:
        return {"model": {k: v.clone() for k, v in trainer.model.state_dict().items()}}

    trainer.model_state_dict = copies  # type: ignore[method-assign,assignment]
    torch.save(weights, tmp_path / "w.pt")
    assert refusal(trainer, tmp_path / "w.pt") == (
        "model_state_dict returned model.layers.0.weight as a copy, which cannot be loaded into. "
        "Return the tensors themselves, as get_model_state_dict(model) without options does."
    )
