"""A generated `lm` as Hugging Face's Llama, and back again."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tests.conftest import run_bounded
from tests.runtime.made_weights import under, write_checkpoint

ROPE_BASE = 300.0
"""Not Llama's own."""


def exported(project: Path, run: Path, output: Path) -> subprocess.CompletedProcess[str]:
    paths = ["--checkpoint-path", str(run), "--output-path", str(output)]
    options = ["--max-shard-size", "1MB", "--set", f"rope_base={ROPE_BASE}"]
    command = [sys.executable, "train.py", "export", *paths, *options]
    return run_bounded(command, cwd=project, timeout=60)


def test_the_same_logits_and_the_same_weights(
    lm: SimpleNamespace, projects: dict[str, Path], tmp_path: Path
) -> None:
    from transformers import LlamaForCausalLM

    config = replace(lm.config.single_config(), rope_base=ROPE_BASE)
    model = lm.model.Model(config)
    model.init_weights()
    for norm in (module for module in model.modules() if hasattr(module, "normalized_shape")):
        torch.nn.init.normal_(norm.weight, mean=1.0)
    weights = dict(model.state_dict())
    write_checkpoint(tmp_path, under("model", weights))

    done = exported(projects["lm-single"], tmp_path / "run", tmp_path / "llama")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "llama").glob("*.safetensors"))) > 2

    read: Any = LlamaForCausalLM.from_pretrained
    llama, loading = read(tmp_path / "llama", output_loading_info=True)
    assert not any(loading.values()), loading
    tokens = torch.randint(config.vocab_size, (2, config.seq_len))
    with torch.no_grad():
        ours, theirs = model(tokens), llama(tokens).logits
    assert ours.abs().max() > 0.5
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)

    trainer = import_module("train").Trainer(config)
    trainer.callbacks = import_module("dream_trainer.callbacks").CallbackCollection()
    import_module("dream_trainer.lifecycle").set_up(trainer)
    load_weights = import_module("dream_trainer.checkpoint.weights").load_weights
    assert str(load_weights(trainer, str(tmp_path / "llama"))) == "39 of 39 tensors matched"
    loaded = trainer.model.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items())
