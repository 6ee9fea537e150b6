"""A causal language model of transformers, and low-rank updates of its linear maps (LoRA)."""

import os
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from config import Config

TINY = Path("runs") / "tiny-model"


class LoRALinear(nn.Linear):
    """A linear map whose weight stays as it is, plus an update of low rank (Hu et al. 2021).

    Its weight and bias keep their names, so that a checkpoint of the model fits.
    """

    def __init__(self, linear: nn.Linear, rank: int, scale: float) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None)
        self.scale = scale
        self.lora_a = nn.Parameter(torch.empty(rank, self.in_features))
        self.lora_b = nn.Parameter(torch.empty(self.out_features, rank))
        self.requires_grad_(False)
        self.lora_a.requires_grad_(True)
        self.lora_b.requires_grad_(True)

    def reset_update(self) -> None:
        """The update begins as nothing: lora_b is 0."""
        nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)
        nn.init.zeros_(self.lora_b)

    def forward(self, x: Tensor) -> Tensor:
        update = F.linear(F.linear(x, self.lora_a), self.lora_b)
        return super().forward(x) + self.scale * update

    def merged(self) -> Tensor:
        """The weight with the update in it, (out_features, in_features)."""
        return self.weight + self.scale * self.lora_b @ self.lora_a


def build(config: Config) -> PreTrainedModel:
    """The model that the config names, without its weights."""
    described = AutoConfig.from_pretrained(model_folder(config.model))
    model: PreTrainedModel = AutoModelForCausalLM.from_config(described)
    if config.lora_rank:
        model.requires_grad_(False)
        scale = config.lora_alpha / config.lora_rank
        for module in list(model.get_decoder().modules()):
            for name, child in list(module.named_children()):
                if type(child) is nn.Linear:
                    setattr(module, name, LoRALinear(child, config.lora_rank, scale))
    return model


def model_folder(name: str) -> Path:
    """Where the files of a model lie; they are fetched or made first, if need be.

    Raises `OSError` where a name is no folder, and the hub cannot be reached or has no such model.
    """
    if not name:
        return tiny_model()
    if os.path.isdir(name):
        return Path(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.model"]))


def tiny_model() -> Path:
    """A Llama of two layers over bytes, with random weights, always the same ones."""
    if not TINY.exists():
        TINY.parent.mkdir(exist_ok=True)
        described = LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            initializer_range=0.2,  # Else its logits are too small for updates to tell apart.
            bos_token_id=None,
            eos_token_id=None,
        )
        with torch.random.fork_rng(), torch.device("cpu"):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(described, dtype=torch.float32)
        # Several ranks may be here at once: the first one to finish has made it.
        with tempfile.TemporaryDirectory(dir=TINY.parent) as made:
            described.save_pretrained(Path(made) / "model")
            save_file(model.state_dict(), Path(made) / "model" / "model.safetensors")
            try:
                os.rename(Path(made) / "model", TINY)
            except OSError:
                if not TINY.exists():
                    raise
    return TINY
