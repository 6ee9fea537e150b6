"""The same seed gives the same weights on every mesh; dropout differs by data rank only."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from dream_trainer.configs import DeviceParameters
from dream_trainer.seeding import seed_everything, stream_seed
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.runtime.tiny import FLOAT32, TinyTrainer, config, set_up

D = DeviceParameters


def nothing(weight: Tensor) -> None:
    """For those that reset themselves."""


INITIALISERS: dict[str, Callable[[Tensor], Any]] = {
    "normal": lambda w: nn.init.normal_(w, std=0.02),
    "method": lambda w: w.normal_(),
    "trunc_normal": lambda w: nn.init.trunc_normal_(w, std=0.5, a=-1, b=1),
    "uniform": lambda w: nn.init.uniform_(w, -0.1, 0.1),
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "kaiming_uniform": lambda w: nn.init.kaiming_uniform_(w, a=5**0.5),
    "kaiming_normal": nn.init.kaiming_normal_,
    "orthogonal": nn.init.orthogonal_,
    "bernoulli": lambda w: w.bernoulli_(0.3),
    "exponential": lambda w: w.exponential_(),
    "constant": lambda w: nn.init.constant_(w, 0.25),
}


class Zoo(nn.Module):
    """One layer per initialiser, with rows that 2, 3, 4 and 8 ranks do not divide alike."""

    def __init__(self, before: int = 0) -> None:
        super().__init__()
        self.extra = nn.ModuleList(nn.Linear(3, 3) for _ in range(before))
        self.layers = nn.ModuleDict({name: nn.Linear(5, 7) for name in INITIALISERS})
        self.default = nn.Linear(6, 10)
        self.conv = nn.Conv1d(3, 4, 2)
        self.embed = nn.Embedding(9, 4)
        self.norm = nn.LayerNorm(4)
        self.gru = nn.GRU(3, 4)
        self.bilinear = nn.Bilinear(2, 3, 4)

    def init_weights(self) -> None:
        for child in [*self.extra, self.default, self.conv, self.embed, self.norm]:
            child.reset_parameters()
        self.gru.reset_parameters()
        self.bilinear.reset_parameters()
        for name, layer in self.layers.items():
            INITIALISERS[name](layer.weight)
            nn.init.normal_(layer.bias)


class ZooTrainer(TinyTrainer):
    before = 0

    def configure_models(self) -> None:
        self.model: Any = Zoo(self.before)

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        for layer in self.model.layers.values():
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def init_weights(self) -> None:
        self.model.init_weights()


def weights(trainer: TinyTrainer) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in trainer.model.named_parameters()}


def part(full: Tensor, tensor: Tensor) -> Tensor:
    """The part of `full` that this rank should hold of `tensor`."""
    if not isinstance(tensor, DTensor):
        return full
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None:
        raise AssertionError("this rank is not in the mesh")
    for dim, placement in enumerate(tensor.placements):
        if placement.is_shard():
            chunks = torch.chunk(full, tensor.device_mesh.size(dim), dim=placement.dim)
            empty = full.narrow(placement.dim, 0, 0)
            full = [*chunks, *[empty] * 8][coordinate[dim]]
    return full


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    """The weights on a single device."""
    import torch.distributed as dist

    trainer = set_up(ZooTrainer(config()))
    dist.destroy_process_group()
    return {name: tensor.clone() for name, tensor in weights(trainer).items()}


MESHES = [
    *((f"fsdp-{size}", D.FSDP(**FLOAT32), size) for size in (2, 3, 4, 8)),
    *((f"ddp-{size}", D.DDP(**FLOAT32), size) for size in (2, 3, 4, 8)),
    *((f"hsdp-2x{size // 2}", D.HSDP(dp_shard=size // 2, **FLOAT32), size) for size in (4, 8)),
    ("hsdp-4x2", D.HSDP(dp_shard=2, **FLOAT32), 8),
    ("hsdp-3x1", D.HSDP(dp_shard=1, **FLOAT32), 3),
    ("forced-fsdp-1", D.SINGLE_DEVICE(force_fsdp=True, **FLOAT32), 1),
    ("forced-ddp-4", D.FSDP(force_ddp=True, **FLOAT32), 4),
    ("offloaded-2", D.FSDP(cpu_offload=True, **FLOAT32), 2),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("parameters", "size"), [case[1:] for case in MESHES], ids=[case[0] for case in MESHES]
)
def test_weights_are_those_of_one_device(
    parameters: D, size: int, alone: dict[str, Tensor], fake_world: Any
) -> None:
    # On eight ranks the outer and two inner ones: their shards show each kind of end.
    for rank in range(size) if size < 8 else (0, 3, 7):
        with fake_world(rank, size):
            trainer = set_up(ZooTrainer(config(parameters)))
            held = weights(trainer)
            assert list(held) == list(alone)
            for name, tensor in held.items():
                local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
                assert torch.equal(local, part(alone[name], tensor)), f"{name} on rank {rank}"
            del trainer, held


def test_weights_are_not_trivial(alone: dict[str, Tensor]) -> None:
    drawn = [t for name, t in alone.items() if "constant" not in name and t.ndim > 1]
    for i, tensor in enumerate(drawn):
        assert tensor.std() > 0
        for other in drawn[i + 1 :]:
            assert tensor.shape != other.shape or not torch.equal(tensor, other)


def test_seeds_give_other_weights(alone: dict[str, Tensor]) -> None:
    changed = config()
    changed.seed += 1
    other = weights(set_up(ZooTrainer(changed)))
    assert not torch.equal(other["default.weight"], alone["default.weight"])
    assert not torch.equal(other["layers.orthogonal.weight"], alone["layers.orthogonal.weight"])


def test_repeats_itself_whatever_was_drawn_before(alone: dict[str, Tensor]) -> None:
    torch.randn(1000)
    again = weights(set_up(ZooTrainer(config())))
    for name, tensor in again.items():
        assert torch.equal(tensor, alone[name]), name


@pytest.mark.parametrize(
    "name",
    [
        *(f"layers.{name}.weight" for name in INITIALISERS),
        "default.weight",
        "embed.weight",
        "gru.weight_ih_l0",
    ],
)
def test_a_module_more_does_not_change_the_others(name: str, alone: dict[str, Tensor]) -> None:
    class More(ZooTrainer):
        before = 2

    assert torch.equal(weights(set_up(More(config())))[name], alone[name])


class Wrapped(ZooTrainer):
    """Checkpoints by wrapping, which adds to the names of parameters."""

    def apply_activation_checkpointing(self) -> None:
        for name, layer in self.model.layers.items():
            self.model.layers[name] = checkpoint_wrapper(layer)

    def init_weights(self) -> None:
        for child in self.model.modules():
            if callable(reset := getattr(child, "reset_parameters", None)):
                reset()


class Compiled(Wrapped):
    """Compiles by wrapping, which adds to the names of parameters."""

    def apply_compile(self) -> None:
        for name, layer in self.model.layers.items():
            self.model.layers[name] = torch.compile(layer, backend="eager")


@pytest.mark.parametrize(
    ("trainer", "option", "prefix"),
    [
        (Wrapped, "checkpoint_activations", "_checkpoint_wrapped_module."),
        (Compiled, "compile_model", "_orig_mod."),
    ],
)
def test_wrappers_do_not_change_weights(
    trainer: type[TinyTrainer], option: str, prefix: str
) -> None:
    plain = weights(set_up(trainer(config(D.SINGLE_DEVICE(**FLOAT32)))))
    wrapped = weights(set_up(trainer(config(D.SINGLE_DEVICE(**(FLOAT32 | {option: True}))))))
    assert any(prefix in name for name in wrapped)
    for name, tensor in wrapped.items():
        assert torch.equal(tensor, plain[name.replace(prefix, "")]), name


@pytest.mark.filterwarnings("ignore")
def test_padding_row_is_zero_on_every_mesh(fake_world: Any) -> None:
    class Padded(TinyTrainer):
        def configure_models(self) -> None:
            self.model: Any = nn.Sequential(nn.Embedding(6, 4, padding_idx=0))

        def apply_fully_shard(self, config: dict[str, Any]) -> None:
            fully_shard(self.model, **config)

    with fake_world(0, 1):
        plain = weights(set_up(Padded(config())))["0.weight"].clone()
    assert plain[0].abs().sum() == 0
    for rank in range(2):
        with fake_world(rank, 2):
            held = weights(set_up(Padded(config(D.FSDP(**FLOAT32)))))["0.weight"]
            assert torch.equal(held.to_local(), part(plain, held)), f"rank {rank}"


def test_buffers_are_drawn_alike(fake_world: Any) -> None:
    class Noisy(TinyTrainer):
        def configure_models(self) -> None:
            self.model: Any = nn.Linear(4, 4)
            self.model.register_buffer("noise", torch.zeros(5))

        def apply_fully_shard(self, config: dict[str, Any]) -> None:
            fully_shard(self.model, **config)

        def init_weights(self) -> None:
            self.model.noise.normal_()
            self.model.reset_parameters()

    with fake_world(0, 1):
        plain = set_up(Noisy(config())).model.noise.clone()
    with fake_world(1, 2):
        assert torch.equal(set_up(Noisy(config(D.FSDP(**FLOAT32)))).model.noise, plain)


class TestStreams:
    def stream(self, rank: int, size: int, parameters: D, fake_world: Any) -> Tensor:
        class Plain(TinyTrainer):
            def apply_tensor_parallel(self, tp_mesh: Any) -> None:
                """Every rank keeps a whole copy."""

        with fake_world(rank, size):
            set_up(Plain(config(parameters)))
            return nn.functional.dropout(torch.ones(256))

    @pytest.mark.parametrize(
        "parameters", [D.DDP(**FLOAT32), D.FSDP(**FLOAT32), D.HSDP(dp_shard=2, **FLOAT32)]
    )
    def test_dropout_differs_over_data_ranks(self, parameters: D, fake_world: Any) -> None:
        masks = [self.stream(rank, 4, parameters, fake_world) for rank in range(4)]
        for i, mask in enumerate(masks):
            assert torch.equal(mask, self.stream(i, 4, parameters, fake_world))
            assert all(not torch.equal(mask, other) for other in masks[i + 1 :])

    def test_dropout_is_equal_over_tensor_parallel_ranks(self, fake_world: Any) -> None:
        parameters = D.FSDP(tensor_parallel=2, **FLOAT32)
        first, second, third, fourth = (
            self.stream(rank, 4, parameters, fake_world) for rank in range(4)
        )
        assert torch.equal(first, second) and torch.equal(third, fourth)
        assert not torch.equal(first, third)

    def test_seeds(self) -> None:
        sizes = {"pp": 2, "dp_replicate": 3, "dp_shard": 4, "cp": 2, "tp": 2}
        seeds: dict[int, tuple[int, ...]] = {}
        for pp in range(2):
            for replicate in range(3):
                for shard in range(4):
                    for cp in range(2):
                        place = (pp, replicate, shard, cp)
                        pair = {
                            stream_seed(42, dict(zip(sizes, (*place, tp), strict=True)), sizes)
                            for tp in range(2)
                        }
                        assert len(pair) == 1
                        assert seeds.setdefault(pair.pop(), place) == place
        assert len(seeds) == 48

    def test_seed_everything(self) -> None:
        import random

        def draw() -> tuple[float, float]:
            return random.random(), torch.rand(()).item()

        seed_everything(3)
        first = draw()
        assert draw() != first
        seed_everything(3)
        assert draw() == first


def disagree() -> None:
    import sys

    import torch
    from dream_trainer.configs import DeviceParameters, RunError

    from tests.runtime.tiny import FLOAT32, TinyTrainer, batches, config

    class Folds(TinyTrainer):
        def init_weights(self) -> None:
            super().init_weights()
            if "fold" in sys.argv:
                self.model.layers[1].bias.fill_(float(self.world.rank))
            if "permute" in sys.argv:
                values = torch.tensor([1.0, 2.0])
                self.model.layers[1].bias.copy_(values.roll(self.world.rank))

    trainer = Folds(config(DeviceParameters.DDP(**FLOAT32), max_steps=1), batches(1))
    try:
        trainer.fit()
    except RunError as error:
        print(f"[{trainer.world.rank}] {error}")
    else:
        print(f"[{trainer.world.rank}] agree")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


MESSAGE = (
    "replicas disagree on model.layers.1.bias after init_weights. "
    "Do not fold the rank into a seed there: the runtime seeds it."
)


@pytest.mark.parametrize(
    ("mode", "text"), [("none", "agree"), ("fold", MESSAGE), ("permute", MESSAGE)]
)
def test_replicas_that_disagree(mode: str, text: str, torchrun: Any, tmp_path: Path) -> None:
    script = tmp_path / "disagree.py"
    script.write_text(inspect.getsource(disagree) + "\n\ndisagree()\n")
    done = torchrun(2, script, mode, timeout=60)
    assert sorted(done.stdout.split("\n"))[1:] == [f"[0] {text}", f"[1] {text}"], done.stderr
