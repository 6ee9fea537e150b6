"""A frozen model passes gradients on, and its own stay those of its own loss."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.runtime.tiny import Batch, Model, TinyTrainer, batches, config


class Adversaries(TinyTrainer):
    """The critic learns first, then the generator through it; the gradients are compared."""

    def configure_models(self) -> None:
        self.generator, self.critic = Model(), Model()

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.own = torch.optim.SGD(self.generator.parameters(), lr=0.1)
        self.other = torch.optim.SGD(self.critic.parameters(), lr=0.1)
        return {self.generator: self.own, self.critic: self.other}

    def gradients(self) -> dict[str, torch.Tensor]:
        named = self.critic.named_parameters()
        return {n: p.grad.clone() for n, p in named if p.grad is not None}

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        fake = self.generator(batch["x"])
        self.backward(self.critic(batch["x"]).square().mean())
        before = self.gradients()
        with self.frozen(self.critic):
            assert not any(weight.requires_grad for weight in self.critic.parameters())
            mixed = self.critic(batch["x"] + fake.sum() * 0.01)
            self.backward(mixed.mean())
        assert all(weight.requires_grad for weight in self.critic.parameters())
        after = self.gradients()
        assert before.keys() == after.keys() and len(before) > 0
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert all(weight.grad is not None for weight in self.generator.parameters())
        self.step(self.other)
        self.step(self.own)
        return {"train/loss": mixed.mean()}

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return {"val/loss": self.critic(batch["x"]).mean()}


@pytest.mark.parametrize("window", [1, 2])
def test_gradients_pass_through_and_not_into(window: int) -> None:
    chosen = config(gradient_accumulation_steps=window)
    trainer = Adversaries(chosen, train=batches(4), val=batches(1))
    trainer.fit()
    assert trainer.global_step == 4 // window


def test_what_was_frozen_before_stays_frozen() -> None:
    trainer = Adversaries(config(), train=batches(1), val=batches(1))
    trainer.fit()
    first = next(trainer.critic.parameters()).requires_grad_(False)
    with pytest.raises(RuntimeError, match="left"), trainer.frozen(trainer.critic):
        raise RuntimeError("left")
    assert not first.requires_grad
    assert all(weight.requires_grad for weight in list(trainer.critic.parameters())[1:])
