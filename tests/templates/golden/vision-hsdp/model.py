"""A small vision transformer: patches as tokens, no class token, the mean of all tokens.

No constructor sets a weight, since they all run on the meta device: `init_weights` fills
every parameter.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from config import Config

INIT_STD = 0.02


class Model(nn.Module):
    """Images (batch, height, width) to logits (batch, num_classes)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = Patches(config)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, config.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))

    def init_weights(self) -> None:
        """Fill every parameter."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=INIT_STD)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            elif isinstance(module, Patches):
                nn.init.trunc_normal_(module.positions, std=INIT_STD)


class Patches(nn.Module):
    """Images (batch, height, width) to tokens (batch, patches, dim), positions added."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.patch_size = config.patch_size
        self.project = nn.Linear(config.patch_size**2, config.dim)
        count = (config.image_size // config.patch_size) ** 2
        self.positions = nn.Parameter(torch.empty(count, config.dim))

    def forward(self, images: Tensor) -> Tensor:
        size = self.patch_size
        # (batch, rows * size, columns * size) -> (batch, rows, columns, size, size)
        patches = images.unflatten(1, (-1, size)).unflatten(3, (-1, size)).transpose(2, 3)
        return self.project(patches.flatten(3).flatten(1, 2)) + self.positions


class Block(nn.Module):
    """Attention, then a feed-forward network, each added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.dim)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.dim)
        self.feed_forward = FeedForward(config.dim, config.hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Attention(nn.Module):
    """Every token attends to every other one."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.dim // config.num_heads
        self.query = nn.Linear(config.dim, config.dim)
        self.key = nn.Linear(config.dim, config.dim)
        self.value = nn.Linear(config.dim, config.dim)
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, dim) to the same shape."""
        # (batch, tokens, heads * head_dim) -> (batch, heads, tokens, head_dim)
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two linear maps with a GELU between them."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden_dim)
        self.down = nn.Linear(hidden_dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))
