"""Trainers that differ in what has to be saved of them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import lr_scheduler

from dream_trainer.callbacks import Callback
from dream_trainer.callbacks.callback import RankZeroCallback
from tests.runtime.resuming import Net, Trainer

Batch = dict[str, Tensor]


class Plain(Trainer):
    """No momentum: an optimizer without any state."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=0.1)


class Momentum(Trainer):
    """Two groups that differ in everything."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        layers = self.model.layers
        groups = [
            {"params": layers[0].parameters(), "lr": 0.1, "momentum": 0.9, "nesterov": True},
            {"params": layers[1:].parameters(), "weight_decay": 0.1},
        ]
        return torch.optim.SGD(groups, lr=0.05, momentum=0.5)

    def make_scheduler(self) -> Any:
        return lr_scheduler.LambdaLR(self.optimizer, [lambda s: 0.9**s, lambda s: 1 / (1 + s)])


class Adagrad(Trainer):
    """Its state is there before the first step."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(self.model.parameters(), lr=0.1, initial_accumulator_value=0.2)

    def make_scheduler(self) -> Any:
        warm = lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=5)
        decay = lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, T_0=4)
        return lr_scheduler.SequentialLR(self.optimizer, [warm, decay], milestones=[5])


class Adafactor(Trainer):
    """Its state has other shapes than the parameters."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adafactor(self.model.parameters(), lr=0.1)


class OneCycle(Trainer):
    """A schedule that moves the momentum as well, and more state per parameter."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), lr=0.01, amsgrad=True)

    def make_scheduler(self) -> Any:
        return lr_scheduler.OneCycleLR(self.optimizer, max_lr=0.1, total_steps=30)


class TensorRate(Trainer):
    """A learning rate that is a tensor, which the schedule changes in place."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=torch.tensor(0.01), foreach=False)


class RMSprop(Trainer):
    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(self.model.parameters(), lr=0.01, momentum=0.5, centered=True)

    def make_scheduler(self) -> Any:
        return lr_scheduler.ChainedScheduler(
            [
                lr_scheduler.ExponentialLR(self.optimizer, 0.9),
                lr_scheduler.MultiStepLR(self.optimizer, [3, 9]),
            ]
        )


class Frozen(Trainer):
    """One layer is not trained, and another has no gradient before step 8."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        self.model.layers[1].requires_grad_(False)
        return super().make_optimizer()

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        bias = self.model.layers[2].bias
        bias.requires_grad_(self.global_step >= 8)
        return super().training_step(batch, batch_idx)


class TiedNet(Net):
    def __init__(self) -> None:
        super().__init__()
        self.layers[1].weight = self.layers[0].weight = nn.Parameter(torch.empty(8, 4))
        self.layers[1].in_features = 4

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.layers[0](x).tanh())
        return self.layers[2](self.layers[1](x[:, :4]) + x)


class Tied(Trainer):
    def configure_models(self) -> None:
        self.model = TiedNet()


class Adversaries(Trainer):
    """Two models, two optimizers with a schedule each; the second steps every other time."""

    def configure_models(self) -> None:
        self.generator, self.critic = Net(), Net()

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.slow = torch.optim.Adam(self.generator.parameters(), lr=0.01)
        critic = torch.optim.RMSprop(self.critic.parameters(), lr=0.02)
        return {self.generator: self.slow, self.critic: critic}

    def configure_schedulers(self) -> Any:
        other = next(o for o in self.optimizers.values() if o is not self.slow)
        return {
            self.slow: lr_scheduler.ExponentialLR(self.slow, 0.95),
            other: lr_scheduler.StepLR(other, 2, 0.8),
        }

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        fake = self.generator(batch["x"])
        told = self.critic(torch.cat([fake, fake], 1).detach())
        loss = F.mse_loss(told, batch["y"])
        critic = next(o for o in self.optimizers.values() if o is not self.slow)
        if self.global_step % 2:
            self.backward(loss)
            self.step(critic)
        own = F.mse_loss(fake, batch["y"])
        self.backward(own)
        self.step(self.slow)
        return {"train/loss": own, "train/critic": loss}

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return {"val/loss": F.mse_loss(self.generator(batch["x"]), batch["y"])}


class Averages(Callback):
    """Tensors of the weights, and how often: it changes what is trained."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.count = 0
        self.shadow: dict[str, Tensor] = {}
        self.history = torch.empty(0)

    def pre_fit(self, trainer: Any) -> None:
        if not self.shadow:
            self.shadow = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}

    def post_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
        self.count += 1
        norm = torch.zeros(())
        with torch.no_grad():
            for name, parameter in trainer.model.named_parameters():
                self.shadow[name].lerp_(parameter, 1 - self.decay)
                if self.count % 3 == 0:
                    parameter.copy_(self.shadow[name])
                norm += self.shadow[name].norm()
        self.history = torch.cat([self.history, norm[None]])

    def state_dict(self) -> dict[str, Any]:
        return {**self.shadow, "count": self.count, "history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count, self.history = state["count"], state["history"]
        self.shadow = {k: v for k, v in state.items() if k not in ("count", "history")}


class Best(RankZeroCallback):
    """An object of its own: lists in dicts."""

    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = {"losses": []}

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        self.seen["losses"].append(result["train/loss"].item())

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "nothing": None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]
