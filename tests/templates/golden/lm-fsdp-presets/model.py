"""A small decoder-only transformer: rotary positions, grouped-query attention, SwiGLU.

No constructor sets a weight, since they all run on the meta device: `init_weights` fills
every parameter and every buffer.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from config import Config

INIT_STD = 0.02


class Model(nn.Module):
    """Tokens (batch, seq) to logits of the next token (batch, seq, vocab_size)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_layers = config.num_layers
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def init_weights(self) -> None:
        """Fill every parameter and buffer.

        Projections back onto the residual stream start smaller, by 1 / sqrt(2 * layers),
        so that its variance does not grow with depth (GPT-2, section 2.3).
        """
        residual_std = INIT_STD / (2 * self.num_layers) ** 0.5
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                residual = name.endswith((".out", ".down"))
                nn.init.normal_(module.weight, std=residual_std if residual else INIT_STD)
            elif isinstance(module, (nn.RMSNorm, RotaryPositions)):
                module.reset_parameters()


class Block(nn.Module):
    """Attention, then a feed-forward network, each added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.dim)
        self.feed_forward = FeedForward(config.dim, config.hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Attention(nn.Module):
    """Causal self-attention whose key and value heads each serve a group of query heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.dim // config.num_heads
        kv_dim = config.num_kv_heads * self.head_dim
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.key = nn.Linear(config.dim, kv_dim, bias=False)
        self.value = nn.Linear(config.dim, kv_dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)
        self.rotary = RotaryPositions(self.head_dim, config.seq_len, config.rope_base)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, dim) to the same shape."""
        # (batch, seq, heads * head_dim) -> (batch, heads, seq, head_dim)
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(
            self.rotary(query), self.rotary(key), value, is_causal=True, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class RotaryPositions(nn.Module):
    """Turns feature pairs by an angle that grows with position (RoFormer, section 3.2.2)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, head_dim: int, seq_len: int, base: float) -> None:
        super().__init__()
        self.base = base
        for table in ("cos", "sin"):
            self.register_buffer(table, torch.empty(seq_len, head_dim // 2), persistent=False)

    def reset_parameters(self) -> None:
        # No checkpoint holds the tables: they are computed here or nowhere.
        seq_len, pairs = self.cos.shape
        exponent = torch.arange(pairs, device=self.cos.device) / pairs
        position = torch.arange(seq_len, device=self.cos.device)
        angle = torch.outer(position, self.base**-exponent)
        self.cos.copy_(angle.cos())
        self.sin.copy_(angle.sin())

    def forward(self, x: Tensor) -> Tensor:
        """(batch, heads, seq, head_dim) to the same shape, computed in float32."""
        left, right = x.float().chunk(2, dim=-1)
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        turned = torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
        return turned.type_as(x)


class FeedForward(nn.Module):
    """SwiGLU: a linear map, gated by the SiLU of another, and back (Shazeer 2020)."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden_dim, bias=False)
        self.up = nn.Linear(dim, hidden_dim, bias=False)
        self.down = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def llama_layout(config: Config) -> tuple[dict[str, str], dict[str, Any]]:
    """This model as Hugging Face's Llama: own names -> names there, and its config.json."""
    names = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
    block = {
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj",
        "feed_forward.down": "mlp.down_proj",
    }
    for layer in range(config.num_layers):
        names |= {
            f"layers.{layer}.{own}": f"model.layers.{layer}.{llama}"
            for own, llama in block.items()
        }
    described = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "max_position_embeddings": config.seq_len,
        "rope_theta": config.rope_base,
        "rms_norm_eps": torch.finfo(torch.float32).eps,  # What nn.RMSNorm adds by default.
        "tie_word_embeddings": False,
        "bos_token_id": None,  # Tokens are bytes: none of them begins or ends a text.
        "eos_token_id": None,
        "dtype": "float32",
    }
    return {f"{own}.weight": f"{llama}.weight" for own, llama in names.items()}, described
