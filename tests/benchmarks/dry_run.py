"""How long a dry run of a large model takes, and how much memory.

    python tests/benchmarks/dry_run.py [--json FILE]

Generated `lm` projects with the sizes of large models, as rank 0 of 4,096, each in a process
of its own. Budgets: 7B in 20 s and 1 GiB, 70B in 45 s, on two cores.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project

TEXT_BYTES = 36_000_000
"""Enough for a window of 4,096 bytes on each of 4,096 ranks, in training and validation."""

COMMON = "--set seq_len=4096 --set batch_size=1 --set validation_share=0.5 --set vocab_size=32000"
LLAMA_7B = (
    "--set dim=4096 --set num_layers=32 --set num_heads=32 --set num_kv_heads=8 "
    "--set hidden_dim=14336"
)
LLAMA_70B = (
    "--set dim=8192 --set num_layers=80 --set num_heads=64 --set num_kv_heads=8 "
    "--set hidden_dim=28672"
)
CASES: dict[str, tuple[str, str]] = {
    "7B fsdp": ("fsdp", LLAMA_7B),
    "70B hsdp+tp": (
        "hsdp+tp",
        f"{LLAMA_70B} --set device_parameters.dp_shard=8 "
        "--set device_parameters.tensor_parallel=8",
    ),
    "70B fsdp+tp+pp": (
        "fsdp+tp+pp",
        f"{LLAMA_70B} --set device_parameters.pipeline_parallel=8 "
        "--set device_parameters.tensor_parallel=8 --rank 4095 --set batch_size=16",
    ),
}


def measure(folder: Path, mode: str, sizes: str) -> dict[str, Any]:
    render_project(Options(name="lm", recipe="lm", parallel=mode), folder)
    (folder / "text.bin").write_bytes(bytes(TEXT_BYTES))
    command = (
        f"train.py dry-run --world-size 4096 --nproc-per-node 8 --memory 80GiB --json {COMMON} "
        f"--set 'text_files=(\"text.bin\",)' {sizes}"
    )
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *shlex.split(command)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    told = process.communicate()[0]
    report = json.loads(told)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.perf_counter() - begin,
        "peak_rss_mib": used.ru_maxrss / 1024,  # Of the largest process so far.
        "exit_code": process.returncode,
        "memory_gib": report["memory"] and report["memory"]["peak"] / 2**30,
        "errors": [error["text"] for error in report["errors"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = {}
    print(f"{'as rank of 4,096':<18}{'s':>7}{'RSS MiB':>9}{'needs GiB':>11}  exit")
    for name, (mode, sizes) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            report[name] = row = measure(Path(folder), mode, sizes)
        print(
            f"{name:<18}{row['seconds']:>7.1f}{row['peak_rss_mib']:>9.0f}"
            f"{row['memory_gib'] or 0:>11.1f}  {row['exit_code']} {' '.join(row['errors'])}"
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
