"""The finetune recipe against transformers: weights in, updates trained, a model out."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPARE = """
import sys
from dataclasses import replace

import torch
from transformers import AutoModelForCausalLM

import config, data, model
from dream_trainer.configs import CheckpointParameters, TrainingParameters
from train import Trainer


class Look(Trainer):
    def configure_dataloaders(self):
        x = torch.arange(40).reshape(2, 20)
        plain = AutoModelForCausalLM.from_pretrained(model.model_folder(self.config.model))
        with torch.no_grad():
            # The updates begin as nothing.
            torch.testing.assert_close(self.model(x).logits, plain(x).logits)
        return super().configure_dataloaders()


rank, steps = map(int, sys.argv[1:])
run = Look(
    replace(
        config.single_config(),
        experiment="tuned",
        lora_rank=rank,
        training_parameters=TrainingParameters(max_steps=steps, val_steps_per_epoch=2),
    )
)
run.fit()
before = AutoModelForCausalLM.from_pretrained(model.TINY).state_dict()
after = run.model.state_dict()
changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
trained = [name for name, weight in run.model.named_parameters() if weight.requires_grad]
if rank:
    assert changed == [] and all(".lora_" in name for name in trained), (changed, trained)
else:
    assert set(changed) == set(before) and len(trained) == len(before)
"""

MERGED = """
import torch
from transformers import AutoModelForCausalLM
import config, model

tuned = model.build(config.single_config())
tuned.load_state_dict(torch.load("tuned.pt", weights_only=True))
merged = AutoModelForCausalLM.from_pretrained("merged")
x = torch.arange(40).reshape(2, 20)
with torch.no_grad():
    torch.testing.assert_close(tuned(x).logits, merged(x).logits, rtol=1e-4, atol=1e-4)
    plain = AutoModelForCausalLM.from_pretrained(model.TINY)
    assert not torch.allclose(plain(x).logits, merged(x).logits, atol=0.1)
"""


@pytest.fixture
def project(projects: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(projects["finetune-fsdp"], tmp_path / "project"))


def run(project: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=project, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_updates_are_trained_and_merged(project: Path) -> None:
    run(project, "-c", COMPARE, "8", "30")
    rows = map(json.loads, (project / "runs/tuned/log.jsonl").read_text().splitlines())
    losses = [row["train/loss"] for row in rows if "train/loss" in row]
    assert losses[-1] < losses[0]
    run(
        project,
        "train.py",
        "export",
        "--checkpoint-path",
        "runs/tuned",
        "--output-path",
        "tuned.pt",
    )
    run(project, "merge.py", "tuned.pt", "merged")
    run(project, "-c", MERGED)


def test_all_weights_are_trained(project: Path) -> None:
    run(project, "-c", COMPARE, "0", "2")


def test_prompts_and_padding_are_not_learnt(project: Path) -> None:
    code = """
import data
batch = data.collate([([1, 2, 3], [4, 5]), ([6], [7, 8, 9, 10, 11])], seq_len=5)
assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
assert batch["labels"].tolist() == [[-100, -100, -100, 4, 5], [-100, 7, 8, 9, 10]]
assert data.collate([([1], [2])], seq_len=4)["attention_mask"].tolist() == [[1, 1, 0, 0]]
assert batch["count"] == 6
"""
    run(project, "-c", code)


@pytest.mark.parametrize(
    ("line", "told"),
    [("{}", "rows.jsonl:2 is no prompt"), ("prompt", "rows.jsonl:2 is no prompt")],
)
def test_data_that_cannot_be_used(project: Path, line: str, told: str) -> None:
    good = json.dumps({"prompt": "a", "answer": "b"})
    (project / "rows.jsonl").write_text(f"{good}\n{line}\n")
    code = "import data; print(len(data.read_pairs('rows.jsonl')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True
    )
    assert told in done.stderr
    (project / "rows.jsonl").write_text(f"{good}\n{good}\n")
    assert run(project, "-c", code) == "2\n"
