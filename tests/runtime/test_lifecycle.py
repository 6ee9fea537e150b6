"""Setting up: what the hooks return is looked at before anything is trained in vain."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from dream_trainer.configs import RunError
from tests.runtime.tiny import Model, TinyTrainer, batches, config, set_up


def refusal(trainer: type[TinyTrainer]) -> str:
    with pytest.raises(RunError) as caught:
        set_up(trainer(config(), batches(1)))
    return str(caught.value)


class TestOptimizers:
    @pytest.mark.parametrize(
        ("value", "kind"), [(None, "NoneType"), ("adam", "str"), ([1], "list"), (object, "type")]
    )
    def test_not_a_mapping(self, value: Any, kind: str) -> None:
        trainer = type("T", (TinyTrainer,), {"configure_optimizers": lambda self: value})
        assert refusal(trainer) == (
            f"configure_optimizers returned {kind}. Return {{self.model: self.optimizer}}."
        )

    def test_not_an_optimizer(self) -> None:
        trainer = type(
            "T", (TinyTrainer,), {"configure_optimizers": lambda self: {self.model: "sgd"}}
        )
        assert refusal(trainer) == (
            "configure_optimizers returned str as an optimizer. "
            "Return {self.model: self.optimizer}."
        )

    def test_over_foreign_tensors(self) -> None:
        class Foreign(TinyTrainer):
            def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
                own = list(self.model.parameters())[:1]
                other = list(nn.Linear(2, 2).parameters())
                self.optimizer = torch.optim.SGD([*own, *other], lr=1.0)
                return {self.model: self.optimizer}

        assert refusal(Foreign) == (
            "SGD holds 3 tensors, 1 of them parameters of this trainer's models: the others "
            "would be trained in vain. Build it in configure_optimizers, over "
            "self.model.parameters()."
        )

    def test_a_part_of_the_parameters_and_two_optimizers_are_fine(self) -> None:
        class Parts(TinyTrainer):
            def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
                first, second = self.model.layers
                second.requires_grad_(False)
                self.optimizer = torch.optim.SGD(first.parameters(), lr=1.0)
                return {first: self.optimizer}

        set_up(Parts(config()))

    def test_a_model_that_is_no_attribute(self) -> None:
        class Hidden(TinyTrainer):
            def configure_models(self) -> None:
                self.parts = {"model": Model()}

            def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
                model = self.parts["model"]
                return {model: torch.optim.SGD(model.parameters(), lr=1.0)}

        assert "4 tensors, 0 of them parameters of this trainer's models" in refusal(Hidden)


class TestLoaders:
    @pytest.mark.parametrize(
        ("value", "kind"),
        [(None, "NoneType"), ({}, "dict"), ((1,), "tuple"), ((1, 2, 3), "tuple")],
    )
    def test_not_a_pair(self, value: Any, kind: str) -> None:
        trainer = type("T", (TinyTrainer,), {"configure_dataloaders": lambda self: value})
        assert refusal(trainer) == (
            f"configure_dataloaders returned {kind}. "
            "Return (training loader, validation loader); the second may be None."
        )

    def test_one_loader_for_both(self) -> None:
        def both(workers: int) -> type[TinyTrainer]:
            loader = DataLoader(batches(2), num_workers=workers, persistent_workers=workers > 0)  # type: ignore[arg-type, var-annotated]
            hook = {"configure_dataloaders": lambda self: (loader, loader)}
            return type("T", (TinyTrainer,), hook)

        set_up(both(0)(config()))
        assert refusal(both(1)) == (
            "configure_dataloaders returned one object as both loaders; with "
            "persistent_workers=True a validation would end the training epoch. "
            "Build a second loader."
        )


class TestInit:
    def test_no_gradient_is_recorded(self) -> None:
        class Looks(TinyTrainer):
            def init_weights(self) -> None:
                enabled.append(torch.is_grad_enabled())
                super().init_weights()

        enabled: list[bool] = []
        trainer = set_up(Looks(config()))
        assert enabled == [False]
        assert all(p.is_leaf and p.requires_grad for p in trainer.model.parameters())

    def test_models_are_made_on_meta(self) -> None:
        class Looks(TinyTrainer):
            def configure_models(self) -> None:
                super().configure_models()
                made.append(all(p.is_meta for p in self.model.parameters()))

        made: list[bool] = []
        set_up(Looks(config()))
        assert made == [True]
        assert not torch.zeros(1).is_meta

    def test_children_reset_first(self) -> None:
        class Leaf(nn.Linear):
            def reset_parameters(self) -> None:
                nn.init.zeros_(self.weight)
                nn.init.zeros_(self.bias)

        class Root(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.leaf = Leaf(2, 2)

            def reset_parameters(self) -> None:
                nn.init.ones_(self.leaf.weight)

        class Nested(TinyTrainer):
            def configure_models(self) -> None:
                self.model: Any = Root()

        model = set_up(Nested(config())).model
        assert model.leaf.weight.unique().tolist() == [1.0]
        assert model.leaf.bias.unique().tolist() == [0.0]
