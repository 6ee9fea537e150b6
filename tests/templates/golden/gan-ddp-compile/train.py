"""Train my-project, which draws digits: two models, two optimizers, alternating steps.

    torchrun --nproc-per-node=2 train.py    ddp over 2 ranks
    python train.py --config single         one device, no launcher
    python train.py --cfg                   print the resolved config and exit
    dream check                             do the hooks match config.py?

The sizes are in config.py, the models in model.py, the images in data.py. The hooks of
`Trainer` stand in the order in which the runtime calls them.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import DataLoader, DistributedSampler

from config import Config, ddp_config, single_config
from data import Digits
from dream_trainer import DreamTrainer
from dream_trainer.utils.cli import cli
from model import Critic, Generator


class Trainer(DreamTrainer):
    """Teaches `Generator` to draw what `Critic` takes for real (Goodfellow et al. 2014)."""

    config: Config

    def configure_models(self) -> None:
        # Runs on the meta device: shapes only. A weight set or loaded here is lost.
        self.generator = Generator(self.config)
        self.critic = Critic(self.config)

    def apply_compile(self) -> None:
        # Block by block and in place: the blocks share one graph, and no name changes.
        for model in (self.generator, self.critic):
            for layer in model.layers:
                layer.compile()

    def apply_replicate(self, dp_replicate_mesh: DeviceMesh) -> None:
        for model in (self.generator, self.critic):
            replicate(model, device_mesh=dp_replicate_mesh)

    def init_weights(self) -> None:
        for model in (self.generator, self.critic):
            for module in model.modules():
                if isinstance(module, nn.Linear):
                    module.reset_parameters()

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        betas = (0.5, 0.99)
        self.generator_optimizer = torch.optim.Adam(
            self.generator.parameters(), lr=self.config.generator_rate, betas=betas, fused=True
        )
        self.critic_optimizer = torch.optim.Adam(
            self.critic.parameters(), lr=self.config.critic_rate, betas=betas, fused=True
        )
        return {self.generator: self.generator_optimizer, self.critic: self.critic_optimizer}

    def configure_dataloaders(self) -> tuple[Iterable[Any], Iterable[Any]]:
        return self.loader(held_out=False), self.loader(held_out=True)

    def loader(self, *, held_out: bool) -> DataLoader[dict[str, Tensor]]:
        images = Digits(self.config, held_out=held_out)
        return DataLoader(
            images,
            batch_size=self.config.batch_size,
            # Without rank and size every rank reads the same batches, and nothing complains.
            sampler=DistributedSampler(
                images,
                num_replicas=self.world.dp_size,
                rank=self.world.dp_rank,
                shuffle=not held_out,
                seed=self.config.seed,
            ),
            drop_last=not held_out,
        )

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        real = batch["image"]
        fake = self.draw(len(real))

        # The critic learns from images that lead no gradient back to the generator.
        of_fake, of_real = self.critic(torch.cat((fake.detach(), real))).float().chunk(2)
        critic_loss = F.softplus(of_fake).mean() + F.softplus(-of_real).mean()
        self.backward(critic_loss)  # not .backward(): this one knows about accumulation
        critic_norm = self.step(self.critic_optimizer)

        # The generator learns through the critic, whose own gradients are none of this.
        with self.frozen(self.critic):
            loss = F.softplus(-self.critic(fake).float()).mean()
            self.backward(loss)
        return {
            "train/loss": loss,
            "train/critic_loss": critic_loss,
            "train/grad_norm": self.step(self.generator_optimizer),
            "train/critic_grad_norm": critic_norm,
        }

    @torch.no_grad()
    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        real, fake = batch["image"], self.draw(len(batch["image"]))
        # How far apart the pixels' means and spreads are: 0 where the two look alike.
        gap = F.mse_loss(fake.mean(0), real.mean(0)) + F.mse_loss(fake.std(0), real.std(0))
        told_apart = torch.cat((self.critic(real) > 0, self.critic(fake) <= 0))
        return {"val/gap": gap, "val/critic_accuracy": told_apart.float().mean()}

    def draw(self, count: int) -> Tensor:
        """Images (count, height * width) from the generator."""
        noise = torch.randn(count, self.config.noise_dim, device=self.world.device)
        return self.generator(noise).float()

    def model_state_dict(self, **_: Any) -> dict[str, Any]:
        # Checkpoints in this form can be loaded on another mesh.
        return {
            "generator": get_model_state_dict(self.generator),
            "critic": get_model_state_dict(self.critic),
        }


def main(config: Config) -> None:
    Trainer(config).fit()


if __name__ == "__main__":
    cli(main, {"ddp": ddp_config, "single": single_config})
