"""The dry run: what it finds, and how its figures compare with those of real runs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._composable.checkpoint_activation import checkpoint
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel

from dream_trainer.callbacks import Callback
from dream_trainer.configs import Axes, DeviceParameters, TrainingParameters
from dream_trainer.simulate import Finding, Plan, Report, dry_run, parse_size
from dream_trainer.simulate.meter import Meter, size_of
from dream_trainer.simulate.report import along, crosses, mesh_rows, size
from dream_trainer.utils import commands
from tests.conftest import run_bounded, run_torchrun
from tests.runtime import sized
from tests.runtime.sized import FLOAT32, Config, Trainer, config

FSDP = DeviceParameters.FSDP(**FLOAT32)
SIZED = Path(sized.__file__)


def attempt(
    trainer: type[Trainer] = Trainer,
    device: DeviceParameters = FSDP,
    *,
    world_size: int = 4,
    rank: int = 0,
    memory: int | None = None,
    node: int | None = None,
    **fields: Any,
) -> Report:
    """The report of a dry run of `trainer`."""
    plan = Plan(
        world_size=world_size,
        local_world_size=node or world_size,
        rank=rank,
        memory=memory,
    )
    return dry_run(lambda config: trainer(config).fit(), lambda: config(device, **fields), plan)


def errors(report: Report) -> list[str]:
    return [finding.text for finding in report.errors]


class TestFaults:
    def test_none(self) -> None:
        report = attempt()
        assert report.ok and report.errors == [] and report.notes == []
        assert "nothing wrong" in report.as_text()

    def test_unsharded_root(self) -> None:
        class Rootless(Trainer):
            def apply_fully_shard(self, config: dict[str, Any]) -> None:
                for layer in self.model.layers:
                    fully_shard(layer, **config)

        report = attempt(Rootless)
        assert not report.ok and report.memory is None
        assert errors(report) == [
            "apply_fully_shard left 2 trained parameters outside every FSDP group: "
            "model.embed.weight, model.head.weight. Their gradients would not be averaged over "
            "ranks. End the hook with fully_shard(self.model, **config)."
        ]
        assert [row.axis for row in report.mesh] == ["dp_shard"]

    def test_wrong_mesh(self) -> None:
        class Whole(Trainer):
            def apply_fully_shard(self, config: dict[str, Any]) -> None:
                fully_shard(self.model, mesh=self.world.mesh["dp_replicate"])

        device = DeviceParameters.HSDP(dp_shard=2, **FLOAT32)
        (text,) = errors(attempt(Whole, device))
        assert text.startswith("apply_fully_shard put ") and "dp_replicate=2" in text
        assert text.endswith("Pass **config to every fully_shard.")

    def test_unmatched_plan_key(self) -> None:
        class Misspelt(Trainer):
            def plan(self) -> dict[str, Any]:
                return super().plan() | {"query_projection": ColwiseParallel()}

        (text,) = errors(attempt(Misspelt, DeviceParameters(tensor_parallel=4, **FLOAT32)))
        assert "'query_projection'" in text and "apply_tensor_parallel" in text

    def test_indivisible_heads(self) -> None:
        device = DeviceParameters.FSDP(tensor_parallel=4, **FLOAT32)
        (text,) = errors(attempt(device=device, world_size=8, heads=2))
        assert "tensor_parallel=4" in text and "head" in text

    def test_does_not_fit(self) -> None:
        assert attempt(memory=2**30).memory.fits is True  # type: ignore[union-attr]
        report = attempt(memory=2**20)
        assert report.memory is not None and report.memory.fits is False
        (finding,) = report.errors
        assert finding.code == "memory"
        assert finding.text == (
            f"Rank 0 needs {size(report.memory.peak)} at the fullest moment, but --memory is "
            "1.0 MiB. Shard over more ranks, lower the batch size, or recompute activations "
            "(--ckpt-acts)."
        )
        assert "DOES NOT FIT" in report.as_text()

    def test_missing_hooks_in_the_words_of_start_up(self) -> None:
        hooks = {"apply_fully_shard", "training_step"}
        rest = {name: value for name, value in vars(Trainer).items() if name not in hooks}
        bare = type("Bare", (Trainer.__mro__[1],), rest)
        report = attempt(bare)
        assert [finding.code for finding in report.errors] == ["DT201", "DT206"]
        assert errors(report)[0] == (
            'dp_shard="auto" calls apply_fully_shard(config), which Bare does not define. '
            "Define it, or set dp_shard=1."
        )
        assert "test_simulate.py" in report.errors[0].place or report.errors[0].place == ""

    def test_sizes_that_do_not_fit(self) -> None:
        report = attempt(device=DeviceParameters(dp_shard=3, **FLOAT32))
        assert [finding.code for finding in report.errors] == ["DT102"]
        assert errors(report)[0].startswith(
            "dp_replicate(1) * dp_shard(3) = 3, but WORLD_SIZE is 4"
        )

    @pytest.mark.parametrize(
        ("plan", "text"),
        [
            ({"rank": 4}, "There is no rank 4 among 4. Use --rank 0 to 3."),
            (
                {"node": 3},
                "4 processes do not fill nodes of 3. "
                "Use a --world-size that is a multiple of --nproc-per-node.",
            ),
        ],
    )
    def test_clusters_that_cannot_be(self, plan: dict[str, int], text: str) -> None:
        assert errors(attempt(**plan)) == [text]  # type: ignore[arg-type]

    def test_weights_left_out(self) -> None:
        class Forgets(Trainer):
            def init_weights(self) -> None:
                for layer in self.model.layers:
                    layer.query.reset_parameters()
                    layer.up.weight.data.normal_()
                    layer.out.weight.copy_(torch.zeros_like(layer.out.weight))

        (text,) = errors(attempt(Forgets, layers=1))
        assert text == (
            "init_weights left 7 tensors uninitialised: model.embed.weight, "
            "model.layers.0.norm.weight, model.layers.0.out.bias, model.layers.0.up.bias, "
            "model.layers.0.down.weight, model.layers.0.down.bias, model.head.weight. Fill every "
            "parameter and every buffer there, those that no checkpoint holds (persistent=False) "
            "included."
        )

    def test_a_failing_step_is_placed(self) -> None:
        class Fails(Trainer):
            def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Any]:
                return {"loss": self.model(batch).view(7)}

        (finding,) = attempt(Fails).errors
        assert finding.code == "RuntimeError" and "shape '[7]' is invalid" in finding.text
        assert finding.place.startswith(f"{__file__}:") and finding.place.endswith("training_step")

    def test_no_fit(self) -> None:
        plan = Plan(world_size=2, local_world_size=2)
        report = dry_run(lambda _: None, lambda: config(FSDP), plan)
        assert errors(report) == [
            "main(config) ended without a call of fit(), so there is nothing to try."
        ]

    def test_too_little_data_is_told_and_the_rest_measured(self) -> None:
        class Short(Trainer):
            def configure_dataloaders(self) -> Any:
                if self.world.dp_size > 8:
                    raise ValueError(f"too little text for {self.world.dp_size}")
                return super().configure_dataloaders()

        report = attempt(Short, world_size=16)
        assert errors(report) == ["too little text for 16"]
        assert report.notes == ["the batch is that of a run on one data rank"]
        assert report.memory is not None


class TestValues:
    def test_numbers_that_are_read(self) -> None:
        class Reads(Trainer):
            def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Any]:
                result = super().training_step(batch, batch_idx)
                return {"loss": result["train/loss"].item(), "again": float(result["train/loss"])}

        report = attempt(Reads)
        assert report.ok
        assert report.notes == ["a step reads 2 numbers from the device, and waits for them"]

    def test_decisions(self) -> None:
        class Decides(Trainer):
            def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Any]:
                if self.model(batch).isnan().any():
                    return {}
                return super().training_step(batch, batch_idx)

        (finding,) = attempt(Decides).errors
        assert finding.text.startswith("A decision depends on the values of a tensor")
        assert finding.place.startswith(f"{__file__}:")

    def test_shapes_that_depend_on_values(self) -> None:
        class Selects(Trainer):
            def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Any]:
                return {"loss": self.model(batch)[batch > 3].sum()}

        (finding,) = attempt(Selects).errors
        assert finding.code == "values" and "(aten." in finding.text


class TestSizes:
    def test_4096_ranks(self) -> None:
        report = attempt(world_size=4096, rank=4095, node=8)
        assert report.ok and report.memory is not None
        (row,) = report.mesh
        assert (row.axis, row.size, row.place, row.first, row.stride) == (
            "dp_shard",
            4096,
            4095,
            0,
            1,
        )
        assert row.crosses_nodes
        assert "on 512 nodes of 8" in report.as_text()
        assert "node 511: 4088 4089 4090 4091 4092 4093 4094 [4095]" in report.as_text()

    def test_what_crosses_nodes(self) -> None:
        device = DeviceParameters.HSDP(dp_shard=4, tensor_parallel=2, **FLOAT32)
        report = attempt(device=device, world_size=32, rank=13, node=8)
        assert report.ok, errors(report)
        assert [(r.axis, r.size, r.place, list(r.ranks)) for r in report.mesh] == [
            ("dp_replicate", 4, 1, [5, 13, 21, 29]),
            ("dp_shard", 4, 2, [9, 11, 13, 15]),
            ("tp", 2, 1, [12, 13]),
        ]
        across = {row.axis: row.crosses_nodes for row in report.collectives}
        assert across == {"dp_replicate": True, "dp_shard": False, "tp": False}

    @pytest.mark.parametrize("schedule", ["GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble"])
    def test_every_rank_of_a_pipeline(self, schedule: str) -> None:
        device = DeviceParameters.FSDP(pipeline_parallel=2, pipeline_schedule=schedule, **FLOAT32)
        reports = [attempt(device=device, rank=rank) for rank in (0, 3)]
        for report in reports:
            assert report.ok, errors(report)
            operations = {row.operation for row in report.collectives if row.axis == "pp"}
            assert {"send", "receive", "broadcast"} <= operations
        whole = sum(p.numel() for p in sized.Model(config(FSDP)).parameters())
        assert sum(report.parameters for report in reports) == whole

    def test_a_pipeline_of_tensor_parallel_stages(self) -> None:
        device = DeviceParameters.FSDP(pipeline_parallel=4, tensor_parallel=2, **FLOAT32)
        report = attempt(device=device, world_size=16, rank=10)
        assert report.ok, errors(report)
        assert [row.place for row in report.mesh] == [2, 1, 0]

    def test_context_parallel(self) -> None:
        device = DeviceParameters.FSDP(context_parallel=2, **FLOAT32)
        report = attempt(device=device)
        assert report.ok, errors(report)
        assert {row.axis for row in report.collectives} == {"cp", "dp_shard_cp"}
        assert report.notes == ["attention over cp is that of a CPU: it gathers keys and values"]

    def test_recomputed_activations(self) -> None:
        class Recomputes(Trainer):
            def apply_activation_checkpointing(self) -> None:
                for layer in self.model.layers:
                    checkpoint(layer)

        def activations(**options: Any) -> int:
            device = DeviceParameters.FSDP(**FLOAT32, **options)
            memory = attempt(Recomputes, device, layers=16, rows=32).memory
            assert memory is not None
            return memory.activations

        assert activations(checkpoint_activations=True) < activations() / 5

    def test_offload_is_host_memory(self) -> None:
        device = DeviceParameters.FSDP(cpu_offload=True, **FLOAT32)
        memory = attempt(device=device).memory
        assert memory is not None
        assert memory.host == memory.parameters + memory.gradients + memory.optimizer
        assert memory.device == memory.peak - memory.host

    def test_what_is_left_out_is_said(self) -> None:
        def make() -> Config:
            made = config(DeviceParameters.FSDP())
            made.training_parameters = TrainingParameters(
                gradient_accumulation_steps=4, max_steps=1
            )
            return made

        plan = Plan(world_size=2, local_world_size=2)
        assert dry_run(sized.main, make, plan).notes == [
            "compile_model is off here: the figures are those of eager code",
            "gradients are not accumulated: the figures are those of one batch",
        ]


class TestNothingIsLeft:
    @pytest.mark.parametrize("layers", [4, 1])
    def test_after_a_run_and_after_a_failure(self, layers: int) -> None:
        before, resize = dict(os.environ), torch.UntypedStorage.resize_
        device = DeviceParameters.FSDP(pipeline_parallel=2, **FLOAT32)
        assert attempt(device=device, layers=layers).ok is (layers == 4)
        assert not dist.is_initialized()
        assert dict(os.environ) == before
        assert torch.UntypedStorage.resize_ is resize
        ddp = nn.parallel.DistributedDataParallel
        assert ddp.forward.__module__ == "torch.nn.parallel.distributed"

    def test_callbacks_do_not_run(self) -> None:
        class Loud(Callback):
            def post_setup(self, trainer: Any) -> None:
                raise AssertionError("ran")

        assert attempt(callbacks=[Loud()]).ok

    def test_a_group_that_exists(self, fake_world: Callable[..., Any]) -> None:
        with fake_world(0, 2):
            assert errors(attempt()) == [
                "A dry run needs a process of its own: a process group exists already."
            ]
            assert dist.get_world_size() == 2


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    """What two real ranks held, by configuration and rank."""
    run = run_torchrun(2, SIZED, "measure", cwd=tmp_path_factory.mktemp("real"))
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines() if line[:1] == "{"]
    return {(line["name"], line["rank"]): line for line in lines}


class TestAgainstRealRuns:
    @pytest.mark.parametrize("rank", [0, 1])
    @pytest.mark.parametrize("name", ["fsdp", "ddp", "tp"])
    def test_figures(self, name: str, rank: int, real: dict[tuple[str, int], Any]) -> None:
        held = real[name, rank]
        plan = Plan(world_size=2, local_world_size=2, rank=rank)
        report = dry_run(sized.main, sized.CONFIGS[name], plan)
        memory = report.memory
        assert memory is not None and report.ok
        for figure in ("parameters", "gradients", "optimizer", "gathered"):
            assert getattr(memory, figure) == held[figure], figure
        # What autograd keeps, and on top of it what the forward pass makes in passing.
        assert held["saved"] <= memory.activations <= 1.2 * held["saved"]
        if name != "ddp":  # It rebuilds its buckets in the second step, once.
            tolerance = 0.05 if name == "tp" else 0.01
            assert memory.activations == pytest.approx(held["activations"], rel=tolerance)
            assert memory.peak == pytest.approx(held["peak"], rel=tolerance)
        collectives = [row for row in held["collectives"] if row[0] != "broadcast"]
        assert [[r.operation, r.count, r.bytes] for r in report.collectives] == collectives


class TestMeter:
    def test_memory_lives_and_dies(self) -> None:
        meter = Meter()
        with meter:
            with torch.no_grad():
                meter.in_optimizer = True
                x = torch.ones(256)
                y = x.view(2, 128)  # shares memory
                meter.in_optimizer = False
            z = y * 2
            assert meter.now == {"other": 1024, "activations": 1024}
            del x
            assert meter.now["other"] == 1024
            del y
            assert meter.now["other"] == 0
            z.untyped_storage().resize_(0)
        assert meter.now["activations"] == 0
        assert meter.peaks["activations"] == 1024 and meter.fullest.total() == 2048

    def test_sizes_count_shared_memory_once(self) -> None:
        x = torch.ones(256)
        assert size_of([x, x.view(2, 128), x.detach()]) == 1024
        assert size_of([]) == 0


class TestCommandLine:
    @staticmethod
    def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return run_bounded([sys.executable, str(SIZED), *arguments], cwd=cwd, timeout=60)

    def test_json(self, tmp_path: Path) -> None:
        fits = self.run(
            "dry-run", "--world-size=16", "--rank=9", "--config=tp", "--nproc-per-node=4",
            "--set=device_parameters.tensor_parallel=4",
            "--set=device_parameters.dp_shard=4", "--memory=1GiB", "--json", cwd=tmp_path,
        )  # fmt: skip
        record = json.loads(fits.stdout)
        assert fits.returncode == 0 and record["ok"] is True
        assert list(record) == [
            "version", "ok", "rank", "world_size", "local_world_size", "mesh", "parameters",
            "memory", "collectives", "errors", "notes",
        ]  # fmt: skip
        assert (record["rank"], record["world_size"], record["local_world_size"]) == (9, 16, 4)
        assert record["mesh"][1] == {
            "axis": "tp", "size": 4, "place": 1, "first": 8, "stride": 1, "crosses_nodes": False,
        }  # fmt: skip
        assert set(record["memory"]) == {
            "parameters", "buffers", "gradients", "optimizer", "activations", "gathered",
            "peak", "at_peak", "host", "limit", "device", "fits",
        }  # fmt: skip
        assert record["memory"]["fits"] is True
        assert set(record["collectives"][0]) == {
            "axis", "operation", "count", "bytes", "crosses_nodes",
        }  # fmt: skip
        assert not list(tmp_path.iterdir())


class TestOptions:
    @pytest.fixture
    def call(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> Iterator[Callable[..., tuple[int, str, str]]]:
        def run(*arguments: str) -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
            for name, value in {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}.items():
                monkeypatch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                sized.cli(sized.main, sized.CONFIGS)
            told = capsys.readouterr()
            return int(ended.value.code or 0), told.out, told.err

        yield run

    def test_help_lists_training_and_commands(self, call: Callable[..., Any]) -> None:
        code, out, _ = call("--help")
        assert code == 0 and "--no-compile" in out and "dry-run" in out
        code, out, _ = call("dry-run", "--help")
        assert code == 0
        for option in ("--world-size", "--nproc-per-node", "--rank", "--memory", "--no-compile"):
            assert option in out

    def test_options_go_behind_the_command(self, call: Callable[..., Any]) -> None:
        code, _, err = call("--no-compile", "dry-run", "--world-size", "2")
        assert code == 2 and "Write the options of dry-run behind it." in err

    def test_text(self, call: Callable[..., Any]) -> None:
        code, out, _ = call("dry-run", "--world-size=2", "--memory=1KiB")
        lines = out.splitlines()
        assert code == 1 and lines[0] == "rank 0 of 2" and lines[-1] == "1 error"
        assert any(line.startswith("error: Rank 0 needs ") for line in lines)

    def test_a_size_that_is_none(self, call: Callable[..., Any]) -> None:
        code, _, err = call("dry-run", "--world-size", "2", "--memory", "lots")
        assert code == 2 and "'lots' is not a size. Write it as 80GiB or 40GB." in err

    def test_a_configuration_that_is_none(self, call: Callable[..., Any]) -> None:
        code, out, _ = call("dry-run", "--world-size=2", "--json", "--set=dim=wide")
        (error,) = json.loads(out)["errors"]
        assert code == 1 and error["code"] == "DT107"

    def test_more_commands(
        self, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(commands, "COMMANDS", dict(commands.COMMANDS))

        def shout(main: Any, make_config: Any, *, times: int = 1) -> int:
            """Say the width."""
            print(str(make_config().dim) * times)
            return 3

        commands.COMMANDS["shout"] = commands.Command("shout", shout)
        monkeypatch.setattr(sys.modules[sized.cli.__module__], "COMMANDS", commands.COMMANDS)
        assert call("shout", "--times", "2", "--set", "dim=64")[:2] == (3, "6464\n")
        assert "Say the width." in call("--help")[1]


class TestWords:
    @pytest.mark.parametrize(
        ("text", "count"),
        [("80GiB", 80 * 2**30), ("40 GB", 40 * 10**9), ("512", 512), ("1.5k", 1536), ("7B", 7)],
    )
    def test_parse_size(self, text: str, count: int) -> None:
        assert parse_size(text) == count

    @pytest.mark.parametrize("text", ["", "GiB", "80 apples", "-", "8GiBB"])
    def test_no_size(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a size"):
            parse_size(text)

    def test_size(self) -> None:
        assert [size(n) for n in (0, 1023, 1024, 1536, 2**40, 2**52)] == [
            "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 TiB", "4,096.0 TiB",
        ]  # fmt: skip

    def test_along(self) -> None:
        assert along(range(0, 12, 4)) == "0, 4, 8"
        assert along(range(4096)) == "0, 1, 2 ... 4095"

    def test_mesh_rows(self) -> None:
        axes = Axes(pp=2, dp_shard=4, tp=2)
        rows = mesh_rows(axes, 13, 8)
        assert [(row.axis, row.place, list(row.ranks)) for row in rows] == [
            ("pp", 1, [5, 13]),
            ("dp_shard", 2, [9, 11, 13, 15]),
            ("tp", 1, [12, 13]),
        ]
        assert [row.crosses_nodes for row in rows] == [True, False, False]
        assert not crosses([0, 1], 2) and crosses([1, 2], 2)

    def test_report_without_a_mesh(self) -> None:
        report = Report(0, 2, 2, errors=[Finding("DT102", "It does not fit.", "a.py:1")])
        assert report.as_text() == (
            "rank 0 of 2\n\nerror: It does not fit. [DT102]\n  --> a.py:1\n1 error"
        )
