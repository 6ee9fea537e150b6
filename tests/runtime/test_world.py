"""Ranks, devices and meshes; nothing waits for others before the mesh is known to fit."""

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy

from dream_trainer import world as world_module
from dream_trainer.configs import AXES, ConfigError, DeviceParameters, RunError
from dream_trainer.world import World, as_dtype, pick_device

D = DeviceParameters


def connected(parameters: D) -> World:
    world = World(parameters)
    world.connect()
    return world


class TestDataRanks:
    @pytest.mark.parametrize(
        ("parameters", "expected"),
        [
            (D.DDP(), [0, 1, 2, 3, 4, 5, 6, 7]),
            (D.FSDP(), [0, 1, 2, 3, 4, 5, 6, 7]),
            (D.HSDP(dp_shard=2), [0, 1, 2, 3, 4, 5, 6, 7]),
            (D.HSDP(dp_shard=4), [0, 1, 2, 3, 4, 5, 6, 7]),
            (D.FSDP(tensor_parallel=2), [0, 0, 1, 1, 2, 2, 3, 3]),
            (D.FSDP(tensor_parallel="auto"), [0] * 8),
            (D.HSDP(dp_shard=2, tensor_parallel=2), [0, 0, 1, 1, 2, 2, 3, 3]),
            (D.HSDP(dp_shard=2, dp_replicate=1, tensor_parallel=4), [0] * 4 + [1] * 4),
            (D.DDP(pipeline_parallel=2), [0, 1, 2, 3] * 2),
            (D.FSDP(context_parallel=2), [0, 0, 1, 1, 2, 2, 3, 3]),
            (D.FSDP(force_ddp=True), [0, 1, 2, 3, 4, 5, 6, 7]),
        ],
    )
    def test_share_of_each_rank(self, parameters: D, expected: list[int], fake_world: Any) -> None:
        shares = []
        for rank in range(8):
            with fake_world(rank, 8):
                world = connected(parameters)
                shares.append(world.dp_rank)
                assert world.dp_size == len(set(expected))
                assert (world.rank, world.world_size) == (rank, 8)
                assert world.is_rank_zero == (rank == 0)
                names = world.mesh.mesh_dim_names or ()
                assert list(names) == [axis for axis in AXES if axis in names]
                assert world.loss_size == world.dp_size * world.axes.cp
                if world.loss_size > 1:
                    place = world.dp_rank * world.axes.cp + world.coordinate["cp"]
                    assert dist.get_world_size(world.loss_group) == world.loss_size
                    assert dist.get_rank(world.loss_group) == place
                del world
        assert shares == expected

    def test_coordinates_are_distinct(self, fake_world: Any) -> None:
        seen = []
        for rank in range(8):
            with fake_world(rank, 8):
                world = connected(D.HSDP(dp_shard=2, tensor_parallel=2))
                assert list(world.coordinate) == list(AXES)
                seen.append(tuple(world.coordinate.values()))
                del world
        assert seen == list(itertools.product([0], [0, 1], [0, 1], [0], [0, 1]))


class TestFullyShard:
    @pytest.mark.parametrize(
        ("parameters", "shape", "names"),
        [
            (D.FSDP(), (8,), ("dp_shard",)),
            (D.FSDP(tensor_parallel=2), (4,), ("dp_shard",)),
            (D.HSDP(dp_shard=4), (2, 4), ("dp_replicate", "dp_shard")),
            (D.HSDP(dp_shard=8), (8,), ("dp_shard",)),
            (D.HSDP(dp_shard=2, tensor_parallel=2), (2, 2), ("dp_replicate", "dp_shard")),
        ],
    )
    def test_mesh(
        self, parameters: D, shape: tuple[int, ...], names: tuple[str, ...], fake_world: Any
    ) -> None:
        with fake_world(3, 8):
            mesh = connected(parameters).fsdp_config()["mesh"]
            assert (mesh.shape, mesh.mesh_dim_names) == (shape, names)

    def test_precision_and_offload(self, fake_world: Any) -> None:
        with fake_world(0, 2):
            plain = connected(D.FSDP()).fsdp_config()
            policy = plain["mp_policy"]
            assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, torch.float32)
            assert set(plain) == {"mesh", "mp_policy"}
            offloaded = connected(D.FSDP(cpu_offload=True, param_dtype="float32")).fsdp_config()
            assert offloaded["mp_policy"].param_dtype is torch.float32
            assert offloaded["offload_policy"] == CPUOffloadPolicy(pin_memory=False)

    def test_a_stage_stays_gathered_for_all_its_microbatches(self, fake_world: Any) -> None:
        with fake_world(0, 4):
            config = connected(D.FSDP(pipeline_parallel=2)).fsdp_config()
            assert config["reshard_after_forward"] is False

    @pytest.mark.parametrize("parameters", [D(force_fsdp=True), D.FSDP(force_fsdp=True)])
    def test_on_one_rank(self, parameters: D) -> None:
        mesh = connected(parameters).fsdp_config()["mesh"]
        assert (mesh.shape, mesh.mesh_dim_names) == ((1,), ("dp_shard",))


class TestBeforeConnecting:
    def test_a_misfit_is_told_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match="= 1, but WORLD_SIZE is 4"):
            World(D.SINGLE_DEVICE())
        assert not dist.is_initialized()

    def test_node_size_comes_from_the_launcher(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"}.items():
            monkeypatch.setenv(name, value)
        axes = World(D.FSDP(tensor_parallel="auto")).axes
        assert (axes.dp_shard, axes.tp) == (4, 2)

    def test_no_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(RunError) as caught:
            connected(D.FSDP())
        assert str(caught.value) == (
            "WORLD_SIZE is 2, but MASTER_ADDR is not set. "
            "Launch with torchrun, or export the first node's address as MASTER_ADDR."
        )

    def test_alone_needs_no_address(self) -> None:
        world = connected(D.FSDP())
        assert (world.dp_size, world.dp_rank, world.is_rank_zero) == (1, 0, True)
        assert world.broadcast("value") == "value"


class TestDevices:
    @pytest.fixture
    def chosen(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Two CUDA devices are visible; which one was chosen."""
        chosen: list[int] = []
        monkeypatch.setattr(world_module, "accelerator_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
        return chosen

    def test_cuda_by_local_rank(self, chosen: list[int]) -> None:
        assert pick_device(1, 4) == torch.device("cuda", 1)
        assert chosen == [1]

    def test_more_processes_than_devices(self, chosen: list[int]) -> None:
        with pytest.raises(RunError) as caught:
            pick_device(2, 4)
        assert str(caught.value) == (
            "local rank 2 has no device: 2 visible on this node. Launch with --nproc-per-node=2."
        )
        assert chosen == []

    @pytest.mark.parametrize(("size", "kind"), [(1, "mps"), (2, "cpu")])
    def test_mps_is_for_one_process(
        self, size: int, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(world_module, "accelerator_count", lambda: 0)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
        assert pick_device(0, size).type == kind

    def test_else_the_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(world_module, "accelerator_count", lambda: 0)
        assert pick_device(0, 1) == pick_device(3, 4) == torch.device("cpu")


def test_dtypes() -> None:
    assert as_dtype("bfloat16") is torch.bfloat16
    assert as_dtype(D().reduce_dtype) is torch.float32
    with pytest.raises(RunError) as caught:
        as_dtype("nn")
    assert str(caught.value) == "'nn' is not the name of a torch dtype."
