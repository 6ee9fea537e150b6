"""How people break distributed training, each by the number of its mode: what the runtime says.

Modes that one process can show come first; `failure_modes.py` has those that need two ranks.
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, Sampler

from dream_trainer import processes
from dream_trainer.configs import ConfigError, DeviceParameters, RunError, resolve_axes
from dream_trainer.configs.device import Comm
from dream_trainer.parallel.context import attention_across, context_parallel
from tests.conftest import run_torchrun
from tests.runtime.failure_modes import Idle, PPTrainer, TPTrainer, tokens
from tests.runtime.tiny import FLOAT32, Batch, Model, TinyTrainer, batches, config, set_up, single

SCRIPT = Path(__file__).with_name("failure_modes.py")
DDP = DeviceParameters.DDP(**FLOAT32)
FSDP = DeviceParameters.FSDP(**FLOAT32)


def refusal(trainer: TinyTrainer) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RunError) as caught:
            trainer.fit()
    return str(caught.value)


# A. Config and mesh


def test_mode_01_sizes_do_not_multiply() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_axes(DeviceParameters.FSDP(tensor_parallel=3), 8)
    assert str(caught.value) == (
        'dp_replicate(1) * dp_shard("auto") * tp(3) needs a multiple of 3 processes, but '
        "WORLD_SIZE is 8. Launch 6 or 9, or set tensor_parallel to one of 1, 2, 4, 8."
    )


def shards(*meshes: Any) -> type[TinyTrainer]:
    """A trainer that shards the layers and the root over meshes of its own."""

    class Shards(TinyTrainer):
        def apply_fully_shard(self, config: dict[str, Any]) -> None:
            made = [mesh(self) if callable(mesh) else mesh for mesh in meshes]
            for layer in self.model.layers:
                fully_shard(layer, mesh=made[0])
            fully_shard(self.model, mesh=made[-1])

        def apply_tensor_parallel(self, tp_mesh: Any) -> None:
            """No plan."""

        def context_parallel_buffers(self, batch: Batch) -> list[tuple[Tensor, int]]:
            return [(batch["x"], 0)]

    return Shards


ALL = "model.layers.0.weight, model.layers.0.bias, model.layers.1.weight, model.layers.1.bias"


def wrong_mesh(actual: str, expected: str) -> str:
    return (
        f"apply_fully_shard put 4 trained parameters on {actual}, expected {expected}: {ALL}. "
        "Pass **config to every fully_shard."
    )


@pytest.mark.parametrize(
    ("degrees", "mesh", "actual", "expected"),
    [
        ({"dp_shard": 2, "tensor_parallel": 2}, None, "unnamed=4", "dp_shard=2"),
        (
            {"dp_shard": 2, "tensor_parallel": 2},
            lambda trainer: trainer.world.mesh,
            "dp_shard=2 x tp=2",
            "dp_shard=2",
        ),
        (
            {"dp_shard": 2, "dp_replicate": 2},
            lambda trainer: type(trainer.world.mesh)._concatenate(
                [trainer.world.mesh["dp_shard"], trainer.world.mesh["dp_replicate"]]
            ),
            "dp_shard=2 x dp_replicate=2",
            "dp_replicate=2 x dp_shard=2",
        ),
        (
            {"dp_shard": 2, "dp_replicate": 2},
            lambda trainer: trainer.world.mesh["dp_shard"],
            "dp_shard=2",
            "dp_replicate=2 x dp_shard=2",
        ),
        (
            {"dp_shard": 2, "context_parallel": 2},
            lambda trainer: trainer.world.mesh["dp_shard"],
            "dp_shard=2",
            "dp_shard_cp=4",
        ),
    ],
    ids=["none", "whole", "swapped", "not replicated", "cp left out"],
)
def test_mode_02_wrong_mesh(
    degrees: dict[str, int], mesh: Any, actual: str, expected: str, fake_world: Any
) -> None:
    with fake_world(0, 4):
        trainer = shards(mesh)(config(DeviceParameters(**degrees, **FLOAT32)), batches(1))
        assert refusal(trainer) == wrong_mesh(actual, expected)


@pytest.mark.parametrize(
    ("size", "degrees", "mesh"),
    [
        (4, {"dp_shard": 4}, None),
        (4, {"dp_shard": 4}, lambda trainer: init_device_mesh("cpu", (4,))),
        (
            4,
            {"dp_shard": 2, "dp_replicate": 2},
            lambda trainer: init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner")),
        ),
        (1, {"force_fsdp": True}, None),
    ],
)
def test_mode_02_not_on_another_mesh_of_the_same_ranks(
    size: int, degrees: dict[str, Any], mesh: Any, fake_world: Any
) -> None:
    with fake_world(0, size):
        set_up(shards(mesh)(config(DeviceParameters(**degrees, **FLOAT32))))


class Planned(TinyTrainer):
    """Column-wise, then row-wise, and sharded in the usual way."""

    plan: dict[str, Any] = {"layers.0": ColwiseParallel(), "layers.1": RowwiseParallel()}

    def apply_tensor_parallel(self, tp_mesh: Any) -> None:
        parallelize_module(self.model, tp_mesh, self.plan)


@pytest.mark.parametrize(
    "degrees",
    [
        {"dp_shard": 4},
        {"dp_shard": 2, "dp_replicate": 2},
        {"dp_shard": 2, "tensor_parallel": 2},
        {"dp_shard": 2, "dp_replicate": 2, "tensor_parallel": 2},
        {"tensor_parallel": 2},
    ],
)
def test_mode_02_not_on_config(degrees: dict[str, int], fake_world: Any) -> None:
    with fake_world(1, torch.tensor(list(degrees.values())).prod().item()):
        set_up(Planned(config(DeviceParameters(**degrees, **FLOAT32))))


def test_mode_02_no_mesh_on_a_tensor_parallel_model(fake_world: Any) -> None:
    class NoMesh(Planned):
        def apply_fully_shard(self, config: dict[str, Any]) -> None:
            fully_shard(self.model)

    with fake_world(0, 4):
        trainer = NoMesh(config(DeviceParameters(dp_shard=2, tensor_parallel=2, **FLOAT32)))
        assert refusal(trainer) == (
            "fully_shard got no mesh for a tensor-parallel model. Pass **config to every "
            "fully_shard."
        )


def test_mode_03_gloo_beside_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {}
    monkeypatch.setattr(processes.dist, "init_process_group", lambda b, **k: options.update(b=b))
    processes.start_process_group(processes.Process(), torch.device("cuda", 0), Comm())
    assert options == {"b": "cpu:gloo,cuda:nccl"}


# B. Hooks


def test_mode_04_unsharded_root(fake_world: Any) -> None:
    class NoRoot(TinyTrainer):
        def apply_fully_shard(self, config: dict[str, Any]) -> None:
            fully_shard(self.model.layers[0], **config)

    class NoRootTP(Planned, NoRoot):
        pass

    message = (
        "apply_fully_shard left 2 trained parameters outside every FSDP group: "
        "model.layers.1.weight, model.layers.1.bias. Their gradients would not be averaged "
        "over ranks. End the hook with fully_shard(self.model, **config)."
    )
    with fake_world(0, 2):
        assert refusal(NoRoot(config(FSDP))) == message
    with fake_world(0, 4):
        parameters = DeviceParameters(dp_shard=2, tensor_parallel=2, **FLOAT32)
        assert refusal(NoRootTP(config(parameters))) == message


def test_mode_04_not_on_a_frozen_root(fake_world: Any) -> None:
    class Frozen(TinyTrainer):
        def apply_fully_shard(self, config: dict[str, Any]) -> None:
            self.model.layers[1].requires_grad_(False)
            fully_shard(self.model.layers[0], **config)

        def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
            self.optimizer = torch.optim.SGD(self.model.layers[0].parameters(), lr=1.0)
            return {self.model: self.optimizer}

    with fake_world(0, 2):
        set_up(Frozen(config(FSDP)))


def test_mode_04_root_first(fake_world: Any) -> None:
    class RootFirst(TinyTrainer):
        def apply_fully_shard(self, config: dict[str, Any]) -> None:
            fully_shard(self.model, **config)
            for layer in self.model.layers:
                fully_shard(layer, **config)

    with fake_world(0, 2):
        assert refusal(RootFirst(config(FSDP))) == (
            "apply_fully_shard shards a module inside one that is sharded already. "
            "Shard the blocks first and the root last."
        )


@pytest.mark.parametrize("covers", ["nothing", "a part"])
def test_mode_04_nothing_replicated(covers: str, fake_world: Any) -> None:
    class Bare(TinyTrainer):
        def apply_replicate(self, dp_replicate_mesh: Any) -> None:
            if covers == "a part":
                replicate(self.model.layers[0], device_mesh=dp_replicate_mesh)

    bare = ALL if covers == "nothing" else "model.layers.1.weight, model.layers.1.bias"
    with fake_world(0, 2):
        assert refusal(Bare(config(DDP))) == (
            f"apply_replicate left {bare.count(',') + 1} trained parameters outside every "
            f"replicated module: {bare}. Their gradients would not be averaged over ranks. "
            "Call replicate(self.model, device_mesh=dp_replicate_mesh)."
        )


def test_mode_05_sharding_in_another_hook(fake_world: Any) -> None:
    class Early(TinyTrainer):
        def apply_activation_checkpointing(self) -> None:
            fully_shard(self.model.layers[0], mesh=self.world.mesh["dp_shard"])

    with fake_world(0, 2):
        trainer = Early(config(DeviceParameters.FSDP(checkpoint_activations=True, **FLOAT32)))
        assert refusal(trainer) == (
            "model.layers.0 is sharded before apply_fully_shard is called. fully_shard belongs "
            "there: it comes after tensor parallelism, checkpointing and compilation."
        )


class Scores(Model):
    """A model with a method beside `forward`."""

    def score(self, x: Tensor) -> Tensor:
        return self(x) if self.calls_forward else self.layers[1](self.layers[0](x))

    calls_forward = False


class Methods(TinyTrainer):
    registers = False

    def configure_models(self) -> None:
        self.model: Any = Scores()

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        fully_shard(self.model, **config)
        if self.registers:
            register_fsdp_forward_method(self.model, "score")

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.backward(F.mse_loss(self.predict(batch["x"]), batch["y"]))
        return {"norm": self.step(self.optimizer)}

    def predict(self, x: Tensor) -> Tensor:
        return self.model.score(x)


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    places = (n for n, line in enumerate(lines, 1) if text in line and "line_of" not in line)
    return f"{Path(__file__).name}:{next(places)}"


def test_mode_07_a_method_that_is_not_forward(fake_world: Any) -> None:
    with fake_world(0, 2):
        assert refusal(Methods(config(FSDP), batches(1))) == (
            f"self.model.score() ({line_of('return self.model.score')}) runs outside FSDP's "
            "forward hook. In apply_fully_shard add "
            'register_fsdp_forward_method(self.model, "score").'
        )


def test_mode_07_a_part_of_a_sharded_model(fake_world: Any) -> None:
    class Inside(Methods):
        def predict(self, x: Tensor) -> Tensor:
            return self.model.layers[0](x)[:, :2]  # the part

    with fake_world(0, 2):
        assert refusal(Inside(config(FSDP), batches(1))) == (
            f"self.model.layers.0(...) ({line_of('# the part')}) runs outside FSDP's forward "
            "hook. Call the model that is sharded, or give this module a fully_shard of its own."
        )


@pytest.mark.parametrize(
    "options", [{"registers": True}, {"predict": lambda self, x: self.model(x)}]
)
def test_mode_07_not_as_it_should_be(options: dict[str, Any], fake_world: Any) -> None:
    with fake_world(0, 2):
        type("T", (Methods,), options)(config(FSDP), batches(1)).fit()


# C. Meta device and initialisation


def test_mode_09_weights_written_on_meta(capsys: pytest.CaptureFixture[str]) -> None:
    class Initialises(TinyTrainer):
        def configure_models(self) -> None:
            self.model = Model()
            self.model.apply(zero)  # discarded

    class Loads(TinyTrainer):
        def configure_models(self) -> None:
            self.model = Model()
            with torch.device("cpu"):
                state = Model().state_dict()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.model.load_state_dict(state)  # loaded

    class Data(TinyTrainer):
        def configure_models(self) -> None:
            self.model = Model()
            self.model.layers[0].weight.data.fill_(1.0)  # data

    for trainer, line in (
        (Initialises, line_of("nn.init.zeros_(module.weight)  # by")),
        (Loads, line_of("# loaded")),
        (Data, line_of("# data")),
    ):
        set_up(trainer(config()))
        assert capsys.readouterr().err == (
            f"warning: configure_models wrote to model.layers.0.weight on the meta device ({line})"
            ", where there is no memory: the values are lost. Move it to init_weights.\n"
        )


def zero(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.weight)  # by apply


class Resets(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 2)
        self.apply(zero)
        self.register_buffer("table", torch.zeros(2).fill_(3.0), persistent=False)


def test_mode_09_not_in_constructors(capsys: pytest.CaptureFixture[str]) -> None:
    class Constructs(TinyTrainer):
        def configure_models(self) -> None:
            self.model: Any = nn.Sequential(Resets(), nn.BatchNorm1d(2), nn.Embedding(3, 2, 0))
            self.model[1].weight.requires_grad_(False)
            scale = torch.ones(3) * 2
            scale += 1

        def init_weights(self) -> None:
            super().init_weights()
            self.model[0].table.fill_(3.0)

    set_up(Constructs(config()))
    assert capsys.readouterr().err == ""


def test_mode_10_does_not_depend_on_a_seed_of_the_users(fake_world: Any) -> None:
    class Seeds(TinyTrainer):
        def init_weights(self) -> None:
            torch.manual_seed(self.config.seed + self.world.rank)
            super().init_weights()

    found = []
    for rank in (0, 1):
        with fake_world(rank, 2):
            found.append(set_up(Seeds(config(DDP))).model.state_dict())
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name])


class Rope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", torch.arange(4) / 8, persistent=False)


def test_mode_11_and_12_left_uninitialised() -> None:
    class Forgets(TinyTrainer):
        def configure_models(self) -> None:
            self.model: Any = nn.Sequential(nn.Linear(2, 2), nn.RMSNorm(2), Rope())

        def init_weights(self) -> None:
            for module in self.model.modules():
                if isinstance(module, nn.Linear):
                    module.reset_parameters()

    assert refusal(Forgets(config())) == (
        "init_weights left 2 tensors uninitialised: model.1.weight, model.2.inv_freq. Fill "
        "every parameter and every buffer there, those that no checkpoint holds "
        "(persistent=False) included."
    )


class BuiltEarly(TinyTrainer):
    def configure_models(self) -> None:
        super().configure_models()
        self.early = torch.optim.AdamW(self.model.parameters())

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer: Any = self.early
        return {self.model: self.optimizer}


def test_mode_14_optimizer_before_sharding(fake_world: Any) -> None:
    with fake_world(0, 2):
        assert refusal(BuiltEarly(config(FSDP))) == (
            "AdamW holds 4 tensors, 0 of them parameters of this trainer's models: the others "
            "would be trained in vain. Build it in configure_optimizers, over "
            "self.model.parameters()."
        )


def test_mode_14_not_where_parameters_stay_the_same() -> None:
    trainer = BuiltEarly(config(), batches(1))
    trainer.fit()
    assert len(trainer.optimizer.state) == 4


NO_LONGER = (
    "An optimizer would train tensors that are not the model's. Set weights in place, never as "
    "a new nn.Parameter nor by assign=True, and run no forward before the first step."
)


def test_mode_14_a_forward_before_the_optimizer(fake_world: Any) -> None:
    class WarmsUp(Methods):
        def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
            self.model(torch.zeros(2, 4))
            return super().configure_optimizers()

    with fake_world(0, 2):
        assert refusal(WarmsUp(config(FSDP))) == (
            f"4 of 4 trained parameters are no longer sharded: {ALL}. {NO_LONGER}"
        )


def test_mode_14_parameters_that_nothing_trains(capsys: pytest.CaptureFixture[str]) -> None:
    class Half(TinyTrainer):
        def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
            self.optimizer = torch.optim.SGD(self.model.layers[0].parameters(), lr=1.0)
            return {self.model: self.optimizer}

    Half(config(), batches(2)).fit()
    assert capsys.readouterr().err == (
        "warning: no optimizer holds 2 of 4 trainable parameters: model.layers.1.weight, "
        "model.layers.1.bias. Add them to one, or freeze them with requires_grad_(False).\n"
    )


class LoadsFull(TinyTrainer):
    assign = False

    def init_weights(self) -> None:
        super().init_weights()
        self.model.load_state_dict(Model().state_dict(), assign=self.assign)  # full


def full_tensors() -> str:
    return (
        f"self.model.load_state_dict() ({line_of('# full')}) got full tensors for sharded "
        "parameters. Use torch.distributed.checkpoint.state_dict.set_model_state_dict, with "
        "StateDictOptions(full_state_dict=True)."
    )


def test_mode_15_full_weights_for_a_sharded_model(fake_world: Any) -> None:
    with fake_world(0, 2):
        assert refusal(LoadsFull(config(FSDP))) == full_tensors()


def test_mode_15_parameters_replaced(fake_world: Any) -> None:
    class Replaces(TinyTrainer):
        def init_weights(self) -> None:
            super().init_weights()
            self.model.layers[0].weight = nn.Parameter(torch.ones(4, 4))

    class Assigns(LoadsFull):
        assign = True

    with fake_world(0, 2):
        assert refusal(Replaces(config(FSDP))) == (
            "1 of 4 trained parameters are no longer sharded: model.layers.0.weight. " + NO_LONGER
        )
        assert refusal(Assigns(config(FSDP))) == full_tensors()


def test_mode_15_the_remedy_works(fake_world: Any) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    class Sets(TinyTrainer):
        def init_weights(self) -> None:
            state = {name: torch.ones_like(p) for name, p in Model().state_dict().items()}
            set_model_state_dict(self.model, state, options=StateDictOptions(full_state_dict=True))

    with fake_world(0, 2):
        for parameter in set_up(Sets(config(FSDP))).model.parameters():
            assert isinstance(parameter, DTensor)
            assert (parameter.to_local() == 1).all()


# D. Data loading


def test_mode_17_one_loader_for_both() -> None:
    loader: Any = DataLoader(batches(2), num_workers=1, persistent_workers=True)  # type: ignore[arg-type]
    trainer = type("T", (TinyTrainer,), {"configure_dataloaders": lambda self: (loader, loader)})
    assert refusal(trainer(config())) == (
        "configure_dataloaders returned one object as both loaders; with "
        "persistent_workers=True a validation would end the training epoch. "
        "Build a second loader."
    )


class Shuffles(Sampler[int]):
    shuffle = True

    def __iter__(self) -> Iterator[int]:
        return iter([1, 0])

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(("epochs", "sampler"), [(2, True), (1, True), (2, None)])
def test_mode_19_one_order_in_every_epoch(
    epochs: int, sampler: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    items: Any = [{key: value[0] for key, value in batch.items()} for batch in batches(2)]
    loader: Any = (
        DataLoader(items, sampler=Shuffles()) if sampler else DataLoader(items, shuffle=True)
    )
    TinyTrainer(config(n_epochs=epochs), loader).fit()
    assert capsys.readouterr().err == (
        "warning: Shuffles shuffles but has no set_epoch: unless it counts epochs itself, every "
        "epoch has the same order.\n"
        if (epochs, sampler) == (2, True)
        else ""
    )


def test_a_validation_loader_that_is_used_up(capsys: pytest.CaptureFixture[str]) -> None:
    TinyTrainer(config(n_epochs=4), batches(1), (batch for batch in batches(2))).fit()
    assert capsys.readouterr().err == (
        "warning: the validation loader gave no batch, so that nothing was validated. A "
        "generator can be read only once; return a loader, or None for no validation.\n"
    )


# E. Optimisation


@pytest.mark.parametrize("window", [1, 2])
def test_parameters_without_a_gradient(window: int, capsys: pytest.CaptureFixture[str]) -> None:
    Idle(config(gradient_accumulation_steps=window), batches(4)).fit()
    assert capsys.readouterr().err == (
        "warning: 1 of 5 parameters of SGD got no gradient in the first step: model.spare. The "
        "loss does not depend on them.\n"
    )


def low(dtype: torch.dtype, **options: Any) -> TinyTrainer:
    class Low(TinyTrainer):
        def configure_models(self) -> None:
            self.model = Model().to(dtype)

    return Low(config(single(**options)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mode_28_weights_of_16_bits(dtype: torch.dtype) -> None:
    assert refusal(low(dtype)) == (
        f"4 of 4 parameters that SGD trains are {str(dtype)[6:]}: steps below its precision are "
        "lost. Keep them float32 and set param_dtype, or opt in with "
        "DeviceParameters(allow_low_precision_params=True)."
    )
    set_up(low(dtype, allow_low_precision_params=True))
    set_up(low(torch.float64))


# G. Compile


def test_mode_37_async_tensor_parallelism_without_compilation() -> None:
    with pytest.raises(ConfigError) as caught:
        DeviceParameters.FSDP(tensor_parallel=2, async_tensor_parallel=True, compile_model=False)
    assert str(caught.value) == (
        "async_tensor_parallel=True needs compile_model=True: it is a compiler pass. "
        "Turn compilation on, or leave async_tensor_parallel out."
    )


@pytest.mark.parametrize("lengths", [1, 8])
def test_mode_38_compiled_again_and_again(
    lengths: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Compiled(TinyTrainer):
        def apply_compile(self) -> None:
            self.model.compile(backend="eager", dynamic=False)

    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    data = [batches(1, rows=2 + index % lengths)[0] for index in range(20)]
    Compiled(config(single(compile_model=True)), data).fit()
    told = capsys.readouterr().err
    if lengths == 1:
        assert told == ""
    else:
        first, _, last = told.partition(", last because ")
        assert first == "warning: code was compiled again 7 times in 20 steps"
        assert "size mismatch at index 0. expected 8, actual 9" in last
        assert last.endswith("Pad batches to fixed shapes, or compile with dynamic=True.\n")


# H. Tensor and context parallel


class Attention(nn.Module):
    def __init__(self, heads: int, hidden: int) -> None:
        super().__init__()
        self.head_dim = 4
        self.wq = nn.Linear(8, 4 * heads)
        self.wo = nn.Linear(hidden, 8)


class Heads(TinyTrainer):
    heads, hidden = 2, 8
    plan: dict[str, Any] = {"layers.*.wq": ColwiseParallel(), "layers.*.wo": RowwiseParallel()}

    def configure_models(self) -> None:
        self.model: Any = nn.Module()
        self.model.layers = nn.ModuleList([Attention(self.heads, self.hidden)])

    def apply_tensor_parallel(self, tp_mesh: Any) -> None:
        parallelize_module(self.model, tp_mesh, self.plan)


TP2 = DeviceParameters(tensor_parallel=2, **FLOAT32)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (
            {"layers.*.attn.wq": ColwiseParallel(), "layers.*.wo": RowwiseParallel()},
            "'attn.wq'",
        ),
        (
            {"layer.*.wq": ColwiseParallel(), "haed": RowwiseParallel()},
            "'layer.*.wq' (did you mean 'layers.*.wq'?), 'haed'",
        ),
    ],
)
def test_mode_39_plan_keys_without_a_module(
    plan: dict[str, Any], told: str, fake_world: Any
) -> None:
    with fake_world(0, 2):
        trainer = type("T", (Heads,), {"plan": plan})(config(TP2))
        assert refusal(trainer) == (
            f"No module matches {told} of the plan in apply_tensor_parallel: what is meant "
            "would stay whole on every rank. Correct the names."
        )


@pytest.mark.parametrize(
    ("heads", "hidden", "told"),
    [
        (3, 8, "model.layers.0.wq has 3 heads"),
        (1, 8, "model.layers.0.wq has 1 heads"),
        (2, 7, "model.layers.0.wo has 7 features"),
    ],
)
def test_indivisible_heads(heads: int, hidden: int, told: str, fake_world: Any) -> None:
    with fake_world(0, 2):
        trainer = type("T", (Heads,), {"heads": heads, "hidden": hidden})(config(TP2))
        assert refusal(trainer) == (
            f"{told}, which tensor_parallel=2 cannot divide. Use a multiple of 2, or lower "
            "tensor_parallel."
        )


def test_mode_39_not_on_plans_that_fit(fake_world: Any) -> None:
    with fake_world(0, 2), warnings.catch_warnings():
        warnings.simplefilter("error")
        set_up(Heads(config(TP2)))


def test_mode_43_a_mask_under_context_parallelism(fake_world: Any) -> None:
    x = torch.zeros(1, 1, 4, 2)
    with fake_world(0, 2):
        mesh = init_device_mesh("cpu", (2,))
        with attention_across(mesh, 8, "allgather"), pytest.raises(RunError) as caught:
            F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(4, 4))
    assert str(caught.value) == (
        "Context parallelism supports attention that is causal or full, but "
        "scaled_dot_product_attention was called with an attn_mask. Set "
        "context_parallel=1, or drop the mask."
    )


def test_mode_43_nothing_of_the_batch_is_split(fake_world: Any) -> None:
    batch = {"x": torch.zeros(2, 8)}
    with fake_world(0, 2):
        mesh = init_device_mesh("cpu", (2,))
        with context_parallel(mesh, batch, [(batch["x"], 1)], "allgather") as local:
            assert local["x"].shape == (2, 4)
        with (
            pytest.raises(RunError) as caught,
            context_parallel(mesh, batch, [(batch["x"][:, :4], 1)], "allgather"),
        ):
            pass
    assert str(caught.value) == (
        "context_parallel_buffers names no tensor of the batch, so that every rank would read "
        "the whole sequence. Return the batch's own tensors, not slices or copies."
    )


# Off, and on two ranks


def test_all_of_it_can_be_turned_off(fake_world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with fake_world(0, 1):
        Idle(config(startup_checks=False), batches(1)).fit()
    with fake_world(0, 4):
        parameters = DeviceParameters(dp_shard=2, tensor_parallel=2, **FLOAT32)
        set_up(shards(lambda t: t.world.mesh)(config(parameters, startup_checks=False)))
    assert capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Case -> [error, warnings, value] of each rank."""
    done = run_torchrun(2, SCRIPT, cwd=tmp_path_factory.mktemp("modes"), timeout=240)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, list[Any]] = {}
    for line in sorted(line for line in done.stdout.splitlines() if line.startswith("[")):
        _, case, *outcome = json.loads(line)
        outcomes.setdefault(case, []).append(outcome)
    return outcomes


NOT_AVERAGED = (
    f"dp_replicate ranks got different gradients for {ALL}: they were not averaged. Call "
    "self.model(...), not its parts or methods, let the loss depend on every parameter, and "
    "leave gradient synchronisation on."
)
NORMS = ", ".join(f"model.layers.{i}.norm.{name}" for i in (0, 1) for name in ("weight", "bias"))
SPLIT = "Split the data by self.world.dp_rank and self.world.dp_size alone."

REFUSED = {
    "mode_06_parts_of_a_replicated_model": NOT_AVERAGED,
    "mode_25_sync_left_off_ddp": NOT_AVERAGED,
    "mode_25_sync_left_off_fsdp": (
        "No parameter of SGD has a gradient at step 1. Call self.backward(loss) before "
        "self.step(optimizer), on a loss that depends on its parameters, and leave gradient "
        "synchronisation on."
    ),
    "mode_16_tp_ranks_read_other_batches": (
        f"tp ranks 0 and 1 of dp rank 0 received different batches. {SPLIT}"
    ),
    "pp_ranks_read_other_batches": (
        f"pp ranks 0 and 1 of dp rank 0 received different batches. {SPLIT}"
    ),
    "mode_41_sharded_logits": (
        "The logits are sharded over classes, the targets are not. Give the head "
        "output_layouts=Replicate(), or compute the loss within loss_parallel()."
    ),
    "mode_42_a_norm_left_out": (
        f"tp ranks got different gradients for {NORMS}: each sees a part of the sequence or "
        "of the features. A module on a split sequence needs SequenceParallel() in the plan of "
        "apply_tensor_parallel."
    ),
    "mode_10_replicated_over_tp": (
        "tp replicas disagree on model.layers.1.norm.weight after init_weights. Do not fold "
        "the rank into a seed there: the runtime seeds it."
    ),
    "mode_10_a_buffer_over_dp_shard": (
        "dp_shard replicas disagree on model.table after init_weights. Do not fold the rank "
        "into a seed there: the runtime seeds it."
    ),
    "a_ragged_batch": (
        "A batch of 6 cannot be cut into 4 pipeline microbatches. Set drop_last=True on the "
        "loader, and batch_size to a multiple of them."
    ),
    "fewer_microbatches_than_stages": (
        "pipeline_microbatches=1 does not suit 1F1B on 2 ranks, which has 2 stages. Use a "
        "multiple of 2."
    ),
}

REFUSED |= {
    f"mode_08_a_branch_not_all_take_under_{kind}": (
        "Step 2: data rank 1 called model.layers.1 where others called model.layers.0. Call it "
        "on every rank, with a zero-weighted dummy input where there is nothing to do."
    )
    for kind in ("fsdp", "ddp")
}

SILENT = [
    "mode_08_not_where_all_take_the_same",
    "two_models_and_two_optimizers",
    "mode_06_not_where_the_model_is_called",
    "mode_16_18_not_on_split_data",
    "mode_42_not_where_the_norm_is_in_the_plan",
    "mode_60_dropout_differs_over_dp_and_not_over_tp",
]


@pytest.mark.parametrize("case", REFUSED)
def test_refused_on_both_ranks(case: str, real: dict[str, list[Any]]) -> None:
    assert real[case] == [[REFUSED[case], [], None]] * 2


@pytest.mark.parametrize("case", SILENT)
def test_sound_code_on_two_ranks(case: str, real: dict[str, list[Any]]) -> None:
    assert real[case] == [[None, [], None]] * 2


def test_mode_41_local_logits(real: dict[str, list[Any]]) -> None:
    first, second = (error for error, _, _ in real["mode_41_local_logits"])
    losses = [word for word in first.split() if word[0].isdigit()]
    assert (
        first
        == second
        == (
            f"The loss is {losses[0]} on one tp rank and {losses[1]} on another, but they work on "
            "one batch. Are the logits sharded over classes? Give the head "
            "output_layouts=Replicate(), or compute the loss within loss_parallel()."
        )
    )
    assert float(losses[0]) < float(losses[1])


def test_mode_16_18_the_same_data_on_every_rank(real: dict[str, list[Any]]) -> None:
    def told(number: str) -> str:
        return (
            f"warning: dp ranks 0 and 1 received the same first {number}. Split the data by "
            "self.world.dp_rank and self.world.dp_size."
        )

    assert real["mode_16_18_data_not_split"] == [
        [None, [told("2 batches")], None],
        [None, [], None],
    ]
    first, _ = real["mode_10_rank_in_the_seed_does_nothing"]
    assert first == [None, [told("batch")], None]


def test_a_parameter_outside_the_loss(real: dict[str, list[Any]]) -> None:
    told = (
        "warning: 1 of 5 parameters of SGD got no gradient in the first step: model.spare. The "
        "loss does not depend on them."
    )
    assert real["a_parameter_outside_the_loss_fsdp"] == [[None, [told], None], [None, [], None]]
    first, second = real["a_parameter_outside_the_loss_ddp"]
    assert first == [NOT_AVERAGED, [told], None]
    assert second == [NOT_AVERAGED, [], None]


def test_mode_23_means_of_uneven_batches(real: dict[str, list[Any]]) -> None:
    told = (
        "warning: batches of the first step count 1 to 2 items, but "
        "self.backward(loss) weighs all batches alike. For the mean over items pass their sum, "
        "and num_items=."
    )
    assert real["mode_23_means_of_uneven_batches"] == [[None, [told], None], [None, [], None]]


def test_mode_22_means_of_uneven_windows(capsys: pytest.CaptureFixture[str]) -> None:
    for rows in (2, 3):
        data = [*batches(1, rows=2), *batches(1, rows=rows)]
        TinyTrainer(config(gradient_accumulation_steps=2), data).fit()
        told = capsys.readouterr().err
        expected = "warning: batches of the first step count 2 to 3 items, but"
        assert told.startswith(expected) if rows == 3 else told == ""


def test_mode_22_23_tokens_unevenly_spread(real: dict[str, list[Any]]) -> None:
    assert real["mode_22_23_tokens_unevenly_spread"] == [[None, [], True]] * 2


def alone(trainer: TinyTrainer) -> float:
    """The gradient norm of one step on one process."""
    type(trainer).logs_step = lambda self, step: True  # type: ignore[method-assign]
    trainer.fit()
    return trainer.norm.item()  # type: ignore[attr-defined, no-any-return]


def test_mode_26_one_norm_whatever_the_mesh(real: dict[str, list[Any]]) -> None:
    norm = alone(type("T", (TPTrainer,), {})(config(max_steps=1), tokens()))
    for _, _, norms in real["mode_26_a_norm_over_mixed_meshes"]:
        assert norms == pytest.approx([norm] * 4, rel=1e-5)


def test_mode_44_accumulation_over_a_pipeline(real: dict[str, list[Any]]) -> None:
    parameters = {"gradient_accumulation_steps": 2, "gradient_clip_val": 9.0}
    norm = alone(PPTrainer(config(**parameters), batches(2, rows=8)))
    for _, _, found in real["mode_44_accumulation_over_a_pipeline"]:
        assert found == pytest.approx(norm, rel=1e-5)
