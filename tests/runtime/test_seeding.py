"""The same seed gives the same weights on every mesh; dropout differs by data rank only."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from dream_trainer.configs import DeviceParameters
from dream_trainer.streams import seed_everything, stream_seed
from dream_trainer.trainer import AbstractTrainer
from tests.conftest import run_torchrun
from tests.runtime.tiny import FLOAT32, TinyTrainer, config, set_up

D = DeviceParameters


def nothing(weight: Tensor) -> None:
    """For those that reset themselves."""


INITIALISERS: dict[str, Callable[[Tensor], Any]] = {
    "normal": lambda w: nn.init.normal_(w, std=0.02),
    "method": lambda w: w.normal_(),
    "data": lambda w: w.data.normal_(std=0.02),
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
        for child in self.extra:
            nn.init.orthogonal_(child.weight)
            child.bias.data.normal_()
        for child in [self.default, self.conv, self.embed, self.norm]:
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
        if self.world.axes.dp_shard == 8:
            del self.model.layers["orthogonal"]  # torch cannot: fewer rows than ranks.

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
            assert set(alone) - set(held) <= {f"layers.orthogonal.{p}" for p in ("weight", "bias")}
            for name, tensor in held.items():
                if "orthogonal" in name and size > 1:
                    continue  # Its QR communicates: see `real`.
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

    def apply_compile(self) -> None:
        for name, layer in self.model.layers.items():
            self.model.layers[name] = torch.compile(layer, backend="eager")


class WrappedByDefault(Wrapped):
    init_weights = AbstractTrainer.init_weights


@pytest.mark.parametrize("trainer", [Wrapped, WrappedByDefault])
@pytest.mark.parametrize(
    ("option", "prefix"),
    [
        ("checkpoint_activations", "_checkpoint_wrapped_module."),
        ("compile_model", "_orig_mod."),
    ],
)
def test_wrappers_do_not_change_weights(
    option: str, prefix: str, trainer: type[TinyTrainer]
) -> None:
    plain = weights(set_up(trainer(config(D.SINGLE_DEVICE(**FLOAT32)))))
    wrapped = weights(set_up(trainer(config(D.SINGLE_DEVICE(**(FLOAT32 | {option: True}))))))
    assert any(prefix in name for name in wrapped)
    for name, tensor in wrapped.items():
        assert torch.equal(tensor, plain[name.replace(prefix, "")]), name


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


def real() -> None:
    """What a pretended world cannot show; each rank prints one line per case."""
    import warnings
    from typing import Any

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    from dream_trainer.configs import DeviceParameters, RunError
    from dream_trainer.utils.entrypoint import leave_process_group
    from tests.runtime.tiny import FLOAT32, TinyTrainer, config, set_up

    warnings.simplefilter("ignore")
    D = DeviceParameters

    class Folds(TinyTrainer):
        def init_weights(self) -> None:
            super().init_weights()
            self.model.layers[1].bias.fill_(float(self.world.rank))

    class Permutes(TinyTrainer):
        def init_weights(self) -> None:
            super().init_weights()
            values = torch.tensor([1.0, 2.0])
            self.model.layers[1].bias.copy_(values.roll(self.world.rank))

    class Whole(TinyTrainer):
        def configure_models(self) -> None:
            self.model: Any = nn.Sequential(nn.Embedding(6, 4, padding_idx=0), nn.Linear(5, 7))

        def apply_fully_shard(self, config: dict[str, Any]) -> None:
            fully_shard(self.model, **config)

        def init_weights(self) -> None:
            self.model[0].reset_parameters()
            nn.init.orthogonal_(self.model[1].weight)
            nn.init.zeros_(self.model[1].bias)

    def check(name: str, trainer: TinyTrainer) -> None:
        try:
            set_up(trainer)
        except RunError as error:
            told.append(f"{name}: {error}")
        else:
            told.append(f"{name}: fine")

    told: list[str] = []
    check("agree", TinyTrainer(config(D.DDP(**FLOAT32))))
    check("sharded", TinyTrainer(config(D.FSDP(**FLOAT32))))
    check("fold", Folds(config(D.DDP(**FLOAT32))))
    check("permute", Permutes(config(D.DDP(**FLOAT32))))

    rows = {}
    for preset in ("DDP", "FSDP"):
        trainer = set_up(Whole(config(getattr(D, preset)(**FLOAT32))))
        weights = [trainer.model[0].weight, trainer.model[1].weight]
        rows[preset] = [w.full_tensor() if preset == "FSDP" else w for w in weights]
    for name, whole, sharded in zip(("padding", "orthogonal"), *rows.values(), strict=True):
        told.append(f"{name}: {'equal' if torch.equal(whole, sharded) else 'differ'}")
    print("".join(f"[{dist.get_rank()}] {line}\n" for line in told), end="", flush=True)
    del trainer, weights, rows
    leave_process_group()


@pytest.fixture(scope="module")
def on_real_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("real")
    script = folder / "real.py"
    script.write_text(inspect.getsource(real) + "\n\nreal()\n")
    done = run_torchrun(2, script, cwd=folder, timeout=90)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout.splitlines()


MESSAGE = (
    "dp_replicate replicas disagree on model.layers.1.bias after init_weights. "
    "Do not fold the rank into a seed there: the runtime seeds it."
)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("agree", "fine"),
        ("sharded", "fine"),
        ("fold", MESSAGE),
        ("permute", MESSAGE),
        ("padding", "equal"),
        ("orthogonal", "equal"),
    ],
)
def test_on_two_real_ranks(case: str, text: str, on_real_ranks: list[str]) -> None:
    told = [line for line in on_real_ranks if f"] {case}: " in line]
    assert sorted(told) == [f"[0] {case}: {text}", f"[1] {case}: {text}"]
