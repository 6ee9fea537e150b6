"""From the shell to the end of the first optimizer step, beside a script written by hand.

    python tests/benchmarks/startup.py [--rounds 5] [--json FILE]

Both train the generated `lm` project's own model on its own text; the script by hand uses
torch alone. Whole processes, in turn; the figure is the median of the rounds' ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project

BY_HAND = """
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F

from config import {mode}_config
from data import TextBatches, split_text
from model import Model

config = {mode}_config()
torch.manual_seed(config.seed)
ranks = int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = Model(config)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cpu")
else:
    model = Model(config)
with torch.no_grad():
    model.init_weights()
optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, fused=True)
rank = int(os.environ.get("RANK", 0))
train, _ = split_text(config)
batches = TextBatches(train, config, rank=rank, ranks=ranks, shuffle=True, drop_last=True)
batch = next(iter(batches))
loss = F.cross_entropy(model(batch["input"]).float().flatten(0, 1), batch["target"].flatten())
loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
print("loss", loss.item())
if ranks > 1:
    dist.barrier()
    dist.destroy_process_group()
"""


def seconds(folder: Path, script: str, ranks: int) -> float:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *(launcher if ranks > 1 else []), script]
    begin = time.perf_counter()
    subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - begin


def prepare(folder: Path, mode: str) -> None:
    render_project(Options(name="lm", recipe="lm", parallel=mode), folder)
    config = folder / "config.py"
    text = config.read_text()
    # One step, and no validation: what remains is the way to it.
    one_step = text.replace("max_steps=200", "max_steps=1").replace(
        "val_every_n_steps=50", "val_steps_per_epoch=0"
    )
    if one_step == text:
        raise RuntimeError("the template's lengths have changed: adapt this benchmark")
    config.write_text(one_step)
    (folder / "by_hand.py").write_text(BY_HAND.format(mode=mode))


def measure(mode: str, ranks: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, mode)
        pairs = []
        for _ in range(rounds + 1):
            pairs.append(
                (seconds(folder, "train.py", ranks), seconds(folder, "by_hand.py", ranks))
            )
        counted = pairs[1:]
        return {
            "dream": statistics.median(ours for ours, _ in counted),
            "by_hand": statistics.median(hand for _, hand in counted),
            "ratio": statistics.median(ours / hand for ours, hand in counted),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = {
        "single": measure("single", 1, options.rounds),
        "fsdp, 2 ranks": measure("fsdp", 2, options.rounds),
    }
    print(f"{'to the first step':<18}{'dream s':>10}{'by hand s':>12}{'ratio':>8}")
    for case, row in report.items():
        print(f"{case:<18}{row['dream']:>10.2f}{row['by_hand']:>12.2f}{row['ratio']:>8.2f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
