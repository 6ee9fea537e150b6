"""The two models of a generative adversarial network, both plain residual networks."""

import torch.nn.functional as F
from torch import Tensor, nn

from config import Config


class Network(nn.Module):
    """Residual blocks between two linear maps, (batch, inputs) to (batch, outputs)."""

    def __init__(self, config: Config, *, inputs: int, outputs: int) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, config.hidden_dim)
        self.layers = nn.ModuleList(Block(config.hidden_dim) for _ in range(config.num_layers))
        self.head = nn.Linear(config.hidden_dim, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(F.leaky_relu(x, 0.2))


class Block(nn.Module):
    """A feed-forward network beside the residual stream."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.leaky_relu(self.up(F.leaky_relu(x, 0.2)), 0.2))


class Generator(Network):
    """Noise (batch, noise_dim) to images (batch, height * width) from -1 to 1."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, inputs=config.noise_dim, outputs=config.image_size**2)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).tanh()


class Critic(Network):
    """Images (batch, height * width) to how real they seem (batch,): above 0 means real."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, inputs=config.image_size**2, outputs=1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze(-1)
