"""The loop: how long it runs, what a step's gradients are, what it validates and when."""

import copy
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

from dream_trainer import callbacks
from dream_trainer.configs import LoggingParameters, RunError
from tests.runtime.tiny import Batch, Model, TinyTrainer, batches, config, joined, single


class Stream:
    """Batches without a length; counts how many were asked for."""

    def __init__(self, data: Sequence[Batch]) -> None:
        self.data = data
        self.given = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.data:
            self.given += 1
            yield batch


class Counting(TinyTrainer):
    """Notes which batches it saw, and whether it was accumulating."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[tuple[int, int, bool]] = []
        self.returned: list[Tensor | None] = []
        self.validated: list[int] = []

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.seen.append((self.epoch, batch_idx, self.is_accumulating_gradients))
        result = super().training_step(batch, batch_idx)
        self.returned.append(result["train/grad_norm"])
        return result

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.validated.append(self.global_step)
        return super().validation_step(batch, batch_idx)


class TestLength:
    @pytest.mark.parametrize("loader", [list, Stream])
    @pytest.mark.parametrize(
        ("training", "steps", "epochs"),
        [
            ({}, 5, 1),
            ({"n_epochs": 1}, 5, 1),
            ({"n_epochs": 3}, 15, 3),
            ({"train_steps_per_epoch": 2}, 2, 1),
            ({"train_steps_per_epoch": 2, "n_epochs": 3}, 6, 3),
            ({"train_steps_per_epoch": 9, "n_epochs": 2}, 10, 2),
            ({"max_steps": 3}, 3, 1),
            ({"max_steps": 5}, 5, 1),
            ({"max_steps": 12}, 12, 3),
            ({"max_steps": 12, "n_epochs": 2}, 10, 2),
            ({"max_steps": 7, "n_epochs": inf}, 7, 2),
            ({"max_steps": 7, "train_steps_per_epoch": 2}, 7, 4),
            ({"gradient_accumulation_steps": 2}, 3, 1),
            ({"gradient_accumulation_steps": 2, "n_epochs": 2}, 6, 2),
            ({"gradient_accumulation_steps": 2, "max_steps": 4}, 4, 2),
            ({"gradient_accumulation_steps": 2, "train_steps_per_epoch": 2}, 2, 1),
            ({"gradient_accumulation_steps": 7}, 1, 1),
        ],
    )
    def test_steps_and_epochs(
        self, training: dict[str, Any], steps: int, epochs: int, loader: Callable[..., Any]
    ) -> None:
        trainer = Counting(config(**training), loader(batches(5)))
        trainer.fit()
        assert (trainer.global_step, trainer.epoch) == (steps, epochs)
        assert sum(not accumulates for *_, accumulates in trainer.seen) == steps
        if loader is list:
            assert trainer.expected_steps == steps

    @pytest.mark.parametrize(
        ("training", "expected"),
        [
            ({"max_steps": 3}, 3),
            ({"train_steps_per_epoch": 2}, 2),
            ({"train_steps_per_epoch": 2, "n_epochs": 2}, 4),
            ({}, None),
            ({"n_epochs": 2}, None),
        ],
    )
    def test_expected_steps_without_a_length(
        self, training: dict[str, Any], expected: int | None
    ) -> None:
        trainer = TinyTrainer(config(**training), Stream(batches(5)))
        trainer.fit()
        assert trainer.expected_steps == expected

    def test_a_stream_is_not_read_past_the_limit(self) -> None:
        stream = Stream(batches(9))
        TinyTrainer(config(train_steps_per_epoch=4), stream).fit()
        assert stream.given == 4

    def test_a_generator_goes_on_where_the_last_epoch_stopped(self) -> None:
        data = batches(6)
        trainer = Counting(config(train_steps_per_epoch=3, n_epochs=2), (batch for batch in data))
        seen: list[Batch] = []
        step = trainer.training_step
        trainer.training_step = lambda b, i: (seen.append(b), step(b, i))[1]  # type: ignore[method-assign]
        trainer.fit()
        assert all(a is b for a, b in zip(seen, data, strict=True))

    def test_batch_indices_and_windows(self) -> None:
        trainer = Counting(config(gradient_accumulation_steps=2, n_epochs=2), batches(3))
        trainer.fit()
        epoch = [(0, True), (1, False), (2, False)]
        assert trainer.seen == [(e, *entry) for e in range(2) for entry in epoch]

    @pytest.mark.parametrize("loader", [list, Stream])
    def test_no_batch_at_all(self, loader: Callable[..., Any]) -> None:
        with pytest.raises(RunError) as caught:
            TinyTrainer(config(), loader([])).fit()
        assert (
            str(caught.value)
            == "The training loader gave no batch: it ended with the data, after 0 batches."
        )

    def test_a_generator_that_is_used_up(self) -> None:
        with pytest.raises(RunError, match="gave no batch"):
            TinyTrainer(config(n_epochs=2), (batch for batch in batches(2))).fit()

    def test_a_loader_that_promises_too_much(self) -> None:
        class Boasts(Stream):
            def __len__(self) -> int:
                return 4

        with pytest.raises(RunError) as caught:
            TinyTrainer(config(), Boasts(batches(2))).fit()
        assert str(caught.value) == (
            "The training loader ended after 2 batches, but its len() promised 4. "
            "Correct its __len__, or leave it out."
        )

    def test_why_an_epoch_ended(self) -> None:
        told = {}
        for name, loader, training in [
            ("data", list, {}),
            ("stream", Stream, {}),
            ("limit", list, {"max_steps": 2}),
            ("stream limit", Stream, {"max_steps": 2}),
        ]:
            trainer = TinyTrainer(config(**training), loader(batches(3)))
            trainer.fit()
            told[name] = trainer.epoch_ended
        assert told == {
            "data": "with the data, after 3 batches",
            "stream": "with the data, after 3 batches",
            "limit": "after 2 batches, as configured",
            "stream limit": "after 2 batches, as configured",
        }


def trained_by_hand(start: Model, data: Sequence[Batch], clip: float | None = None) -> Model:
    """The model after one plain step for each of `data`."""
    model = copy.deepcopy(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=TinyTrainer.learning_rate)
    for batch in data:
        F.mse_loss(model(batch["x"]), batch["y"]).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return model


class Starting(TinyTrainer):
    """Keeps a copy of the weights that it began with."""

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.start = copy.deepcopy(self.model)
        del self.start_is_no_model
        return super().configure_optimizers()

    def named_models(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    start_is_no_model = property(lambda self: None, None, lambda self: None)


def assert_equal(model: nn.Module, other: nn.Module) -> None:
    for (name, a), b in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7, msg=name)


class TestAccumulation:
    @pytest.mark.parametrize("loader", [list, Stream])
    @pytest.mark.parametrize("window", [1, 2, 3, 4, 7])
    def test_windows_are_big_batches(self, window: int, loader: Callable[..., Any]) -> None:
        data = batches(7)
        trainer = Starting(config(gradient_accumulation_steps=window), loader(data))
        trainer.fit()
        big = [joined(data[i : i + window]) for i in range(0, 7, window)]
        assert_equal(trainer.model, trained_by_hand(trainer.start, big))

    def test_a_clipped_short_window(self) -> None:
        data = batches(5)
        trainer = Starting(
            config(gradient_accumulation_steps=2, gradient_clip_val=0.01), list(data)
        )
        trainer.fit()
        big = [joined(data[i : i + 2]) for i in range(0, 5, 2)]
        assert_equal(trainer.model, trained_by_hand(trainer.start, big, clip=0.01))

    def test_step_does_nothing_inside_a_window(self) -> None:
        trainer = Counting(
            config(gradient_accumulation_steps=2, gradient_clip_val=1.0), batches(5)
        )
        trainer.fit()
        assert [norm is None for norm in trainer.returned] == [True, False, True, False, False]

    def test_norm_is_that_of_the_big_batch(self) -> None:
        data = batches(3)
        trainer = Counting(config(gradient_accumulation_steps=3, gradient_clip_val=1e9), data)
        trainer.learning_rate = 0.0
        trainer.fit()
        batch = joined(data)
        F.mse_loss(trainer.model(batch["x"]), batch["y"]).backward()
        expected = nn.utils.get_total_norm([p.grad for p in trainer.model.parameters()])
        torch.testing.assert_close(trainer.returned[-1], expected)


class Summing(Starting):
    """A sum over the rows that count, and their number."""

    as_tensor = False

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        loss = self.summed(batch)
        items = batch["counts"].sum() if self.as_tensor else int(batch["counts"].sum())
        self.backward(loss, num_items=items)
        norm = self.step(self.optimizer)
        return {"train/loss": loss / items, "train/grad_norm": norm}

    def summed(self, batch: Batch) -> Tensor:
        errors = (self.model(batch["x"]) - batch["y"]).square().mean(1)
        return (errors * batch["counts"]).sum()


def uneven(number: int) -> list[Batch]:
    data = batches(number, rows=6)
    for index, batch in enumerate(data):
        batch["counts"] = (torch.arange(6) <= index % 5).long()
    return data


class TestNumItems:
    @pytest.mark.parametrize("as_tensor", [False, True])
    @pytest.mark.parametrize("window", [1, 2, 3, 4])
    def test_the_mean_over_the_window(self, window: int, as_tensor: bool) -> None:
        data = uneven(7)
        trainer = Summing(config(gradient_accumulation_steps=window), data)
        trainer.as_tensor = as_tensor
        trainer.fit()
        kept = [
            {key: value[batch["counts"] > 0] for key, value in batch.items()} for batch in data
        ]
        big = [joined(kept[i : i + window]) for i in range(0, 7, window)]
        assert_equal(trainer.model, trained_by_hand(trainer.start, big))

    def test_a_window_without_items_changes_nothing(self) -> None:
        data = uneven(1)
        data[0]["counts"].zero_()
        trainer = Summing(config(), data)
        trainer.fit()
        assert_equal(trainer.model, trainer.start)

    def test_with_two_optimizers(self) -> None:
        class Two(Summing):
            def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
                self.start = copy.deepcopy(self.model)
                first, second = self.model.layers
                self.first = torch.optim.SGD(first.parameters(), lr=self.learning_rate)
                self.second = torch.optim.SGD(second.parameters(), lr=self.learning_rate)
                return {first: self.first, second: self.second}

            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                self.backward(self.summed(batch), num_items=batch["counts"].sum())
                return {"a": self.step(self.first), "b": self.step(self.second)}

        data = uneven(4)
        trainer = Two(config(gradient_accumulation_steps=2), data)
        trainer.fit()
        kept = [
            {key: value[batch["counts"] > 0] for key, value in batch.items()} for batch in data
        ]
        big = [joined(kept[:2]), joined(kept[2:])]
        assert_equal(trainer.model, trained_by_hand(trainer.start, big))

    def test_the_users_number_is_not_changed(self) -> None:
        items = torch.tensor(4)

        class Keeps(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                loss = (self.model(batch["x"]) - batch["y"]).square().sum()
                self.backward(loss, num_items=items)
                self.step(self.optimizer)
                return {}

        Keeps(config(gradient_accumulation_steps=2), batches(4)).fit()
        assert items.item() == 4


class TestStep:
    def test_scheduler_once_per_optimizer_step(self) -> None:
        class Scheduled(Counting):
            def configure_schedulers(self) -> dict[Any, Any]:
                self.rates: list[float] = []
                return {self.optimizer: LambdaLR(self.optimizer, lambda step: 1 / (step + 1))}

            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                self.rates.append(self.optimizer.param_groups[0]["lr"] / self.learning_rate)
                return super().training_step(batch, batch_idx)

        trainer = Scheduled(config(gradient_accumulation_steps=2, n_epochs=2), batches(3))
        trainer.fit()
        assert trainer.rates == pytest.approx([1, 1, 1 / 2, 1 / 3, 1 / 3, 1 / 4])
        scheduler = trainer.schedulers[trainer.optimizer]
        assert scheduler.last_epoch == trainer.global_step == 4

    def test_no_norm_unless_wanted(self) -> None:
        trainer = Counting(config(), batches(3))
        trainer.fit()
        assert trainer.returned == [None, None, None]

    def test_norm_where_it_clips(self) -> None:
        trainer = Counting(config(gradient_clip_val=1.0), batches(3))
        trainer.fit()
        assert all(isinstance(norm, Tensor) and norm.shape == () for norm in trainer.returned)

    def test_norm_where_it_logs(self) -> None:
        logging = LoggingParameters(enabled=False, log_every_n_steps=3)
        trainer = Counting(
            config(callbacks=[callbacks.LoggerCallback()], logging=logging), batches(8)
        )
        trainer.fit()
        logged = [norm is not None for norm in trainer.returned]
        assert logged == [True, False, True, False, False, True, False, True]

    def test_norm_is_not_computed_for_callbacks_that_do_not_log(self) -> None:
        class Silent(callbacks.Callback):
            pass

        trainer = Counting(config(callbacks=[Silent()]), batches(2))
        trainer.fit()
        assert trainer.returned == [None, None]

    @pytest.mark.parametrize("max_norm", [1e-3, 0.3, 1e6])
    def test_clipping_is_torchs(self, max_norm: float) -> None:
        data = batches(4)
        trainer = Starting(config(gradient_clip_val=max_norm), data)
        trainer.fit()
        assert_equal(trainer.model, trained_by_hand(trainer.start, data, clip=max_norm))

    def test_returned_norm_is_before_clipping(self) -> None:
        data = batches(1)
        trainer = Counting(config(gradient_clip_val=1e-3), data)
        trainer.learning_rate = 0.0
        trainer.fit()
        F.mse_loss(trainer.model(data[0]["x"]), data[0]["y"]).backward()
        expected = nn.utils.get_total_norm([p.grad for p in trainer.model.parameters()])
        torch.testing.assert_close(trainer.returned[0], expected)

    def test_gradients_are_cleared(self) -> None:
        trainer = TinyTrainer(config(), batches(1))
        trainer.fit()
        assert all(p.grad is None for p in trainer.model.parameters())

    def test_several_optimizers(self) -> None:
        class Adversaries(TinyTrainer):
            def configure_models(self) -> None:
                self.model, self.critic = Model(), Model()

            def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
                self.starts = copy.deepcopy([self.model, self.critic])
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
                self.critic_optimizer = torch.optim.SGD(self.critic.parameters(), lr=0.5)
                return {self.model: self.optimizer, self.critic: self.critic_optimizer}

            def configure_schedulers(self) -> dict[Any, Any]:
                return {self.critic_optimizer: LambdaLR(self.critic_optimizer, lambda step: 1.0)}

            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                for model, optimizer in [
                    (self.model, self.optimizer),
                    (self.critic, self.critic_optimizer),
                ]:
                    self.backward(F.mse_loss(model(batch["x"]), batch["y"]))
                    self.step(optimizer)
                return {}

        data = batches(5)
        trainer = Adversaries(config(gradient_accumulation_steps=2, gradient_clip_val=0.1), data)
        trainer.fit()
        big = [joined(data[i : i + 2]) for i in range(0, 5, 2)]
        for model, start in zip((trainer.model, trainer.critic), trainer.starts, strict=True):
            assert_equal(model, trained_by_hand(start, big, clip=0.1))
        assert trainer.global_step == 3
        assert trainer.schedulers[trainer.critic_optimizer].last_epoch == 3

    def test_no_gradient(self) -> None:
        class Forgets(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                return {"train/grad_norm": self.step(self.optimizer)}

        with pytest.raises(RunError) as caught:
            Forgets(config(gradient_clip_val=1.0), batches(2)).fit()
        assert str(caught.value) == (
            "No parameter of SGD has a gradient at step 1. Call self.backward(loss) before "
            "self.step(optimizer), on a loss that depends on its parameters, and leave gradient "
            "synchronisation on."
        )

    def test_no_gradient_without_clipping_or_logging(self) -> None:
        class Forgets(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                return {"train/grad_norm": self.step(self.optimizer)}

        with pytest.raises(RunError, match="No parameter of SGD has a gradient at step 1"):
            Forgets(config(), batches(2)).fit()

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_error_if_nonfinite(self, value: float) -> None:
        data = batches(3)
        data[1]["y"].fill_(value)
        trainer = TinyTrainer(config(), data)
        trainer.fit()  # Unless asked for, nothing looks.
        with pytest.raises(RunError) as caught:
            TinyTrainer(config(single(error_if_nonfinite=True)), data).fit()
        assert (
            str(caught.value) == ("The gradient norm is nan at step 2 (error_if_nonfinite=True).")
            or str(caught.value) == "The gradient norm is inf at step 2 (error_if_nonfinite=True)."
        )


class TestEpochs:
    class Part:
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    def test_everyone_is_told_once(self) -> None:
        part = self.Part

        class Data(part, Dataset[Batch]):  # type: ignore[misc, valid-type]
            def __len__(self) -> int:
                return 4

            def __getitem__(self, index: int) -> Batch:
                return batches(1)[0]

        class Sampler(part, SequentialSampler):  # type: ignore[misc, valid-type]
            def __init__(self, data: Any) -> None:
                part.__init__(self)
                SequentialSampler.__init__(self, data)

        class Loader(part, DataLoader[Batch]):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                part.__init__(self)
                DataLoader.__init__(self, *args, **kwargs)

        data = Data()
        plain = Loader(data, sampler=Sampler(data))
        nested = Loader(data, batch_sampler=BatchSampler(Sampler(data), 2, drop_last=False))
        for loader in (plain, nested):
            data.epochs.clear()
            TinyTrainer(config(n_epochs=3), loader).fit()
            sampler = plain.sampler if loader is plain else nested.batch_sampler.sampler  # type: ignore[union-attr]
            for told in (loader, sampler, data):
                assert told.epochs == [0, 1, 2]  # type: ignore[union-attr]

    def test_before_the_loader_is_read(self) -> None:
        class Loader(Stream):
            def set_epoch(self, epoch: int) -> None:
                self.told_at = self.given

        loader = Loader(batches(2))
        TinyTrainer(config(), loader).fit()
        assert loader.told_at == 0


class TestValidation:
    def run(self, number: int = 6, val: Any = 2, **training: Any) -> Counting:
        held_out = batches(val, seed=1) if isinstance(val, int) else val
        trainer = Counting(config(**training), batches(number), held_out)
        trainer.fit()
        return trainer

    @pytest.mark.parametrize(
        ("training", "after"),
        [
            ({"train_steps_per_epoch": 6}, [6]),
            ({"n_epochs": 2}, [6, 12]),
            ({"val_every_n_steps": 2}, [2, 4, 6]),
            ({"val_every_n_steps": 4}, [4, 6]),
            ({"val_every_n_steps": 4, "n_epochs": 2}, [4, 8, 12]),
            ({"val_every_n_steps": 100}, [6]),
            ({"max_steps": 5, "val_every_n_steps": 2}, [2, 4, 5]),
            ({"max_steps": 3}, [3]),
            ({"val_steps_per_epoch": 0}, []),
            ({"num_sanity_val_steps": 1, "val_steps_per_epoch": 0}, [0]),
            ({"gradient_accumulation_steps": 2, "val_every_n_steps": 2}, [2, 3]),
        ],
    )
    def test_when(self, training: dict[str, Any], after: list[int]) -> None:
        assert sorted(set(self.run(**training).validated)) == after
        counts = self.run(**training).validated
        assert all(counts.count(step) == (2 if step else 1) for step in after)

    def test_limits(self) -> None:
        assert self.run(val=5, val_steps_per_epoch=3).validated == [6, 6, 6]
        assert self.run(val=5, num_sanity_val_steps=2).validated == [0, 0, 6, 6, 6, 6, 6]
        assert self.run(val=1, num_sanity_val_steps=2).validated == [0, 6]
        assert self.run(val=Stream(batches(3)), val_steps_per_epoch=2).validated == [6, 6]

    def test_none_without_a_loader_or_a_step(self) -> None:
        class Without(TinyTrainer):
            validation_step = callbacks.Callback.post_fit  # replaced below

        del Without.validation_step
        assert self.run(val=None).validated == []

    def test_a_trainer_without_validation_step(self) -> None:
        class Bare(TinyTrainer):
            validation_step = None  # type: ignore[assignment]

        from dream_trainer.trainer import AbstractTrainer

        Bare.validation_step = AbstractTrainer.validation_step  # type: ignore[method-assign]
        trainer = Bare(config(num_sanity_val_steps=1), batches(2), batches(2))
        trainer.fit()
        assert trainer.global_step == 2

    def test_mean_over_items(self) -> None:
        sizes = (1, 4, 2)
        held_out = [batches(1, rows=rows, seed=rows)[0] for rows in sizes]
        found: list[dict[str, float]] = []

        class Keep(callbacks.Callback):
            def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
                found.append(result)

        trainer = TinyTrainer(config(callbacks=[Keep()]), batches(2), held_out)
        trainer.fit()
        batch = joined(held_out)
        expected = F.mse_loss(trainer.model(batch["x"]), batch["y"]).item()
        assert found == [{"val/loss": pytest.approx(expected, rel=1e-6)}]

    def test_modes_are_restored_module_by_module(self) -> None:
        class Partly(TinyTrainer):
            def configure_models(self) -> None:
                super().configure_models()
                self.model.layers[0].eval()
                self.model.dropout = nn.Dropout()

            def modes(self) -> list[bool]:
                return [module.training for module in self.model.modules()]

            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                train_modes.append(self.modes())
                return super().training_step(batch, batch_idx)

            def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                val_modes.append(self.modes())
                return super().validation_step(batch, batch_idx)

        train_modes: list[list[bool]] = []
        val_modes: list[list[bool]] = []
        Partly(config(val_every_n_steps=1, num_sanity_val_steps=1), batches(3), batches(1)).fit()
        assert train_modes == [[True, True, False, True, True]] * 3
        assert val_modes == [[False] * 5] * 4

    def test_without_gradients(self) -> None:
        class Looks(TinyTrainer):
            def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                loss = super().validation_step(batch, batch_idx)["val/loss"]
                enabled.append(torch.is_grad_enabled() or loss.requires_grad)
                return {"val/loss": loss}

            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                enabled_in_training.append(torch.is_grad_enabled())
                return super().training_step(batch, batch_idx)

        enabled: list[bool] = []
        enabled_in_training: list[bool] = []
        Looks(config(val_every_n_steps=1), batches(2), batches(2)).fit()
        assert enabled == [False] * 4
        assert enabled_in_training == [True] * 2

    def test_a_batch_that_weighs_nothing_does_not_count(self) -> None:
        class Weighs(TinyTrainer):
            def count_items(self, batch: Batch) -> int:
                return int(batch["weight"].sum())

            def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                weight = batch["weight"]
                errors = (self.model(batch["x"]) - batch["y"]).square().mean(1)
                return {"val/loss": (errors * weight).sum() / weight.sum()}

        data, held_out = batches(1), batches(2)
        data[0]["weight"] = torch.ones(2)
        held_out[0]["weight"], held_out[1]["weight"] = torch.ones(2), torch.zeros(2)
        found: list[dict[str, float]] = []

        class Keep(callbacks.Callback):
            def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
                found.append(result)

        trainer = Weighs(config(callbacks=[Keep()]), data, held_out)
        trainer.fit()
        batch = held_out[0]
        expected = F.mse_loss(trainer.model(batch["x"]), batch["y"]).item()
        assert found == [{"val/loss": pytest.approx(expected, rel=1e-6)}]


class TestResults:
    @pytest.mark.parametrize(
        ("result", "kind"), [(None, "NoneType"), (torch.tensor(1.0), "Tensor"), ((1, 2), "tuple")]
    )
    @pytest.mark.parametrize("hook", ["training_step", "validation_step"])
    def test_not_a_dict(self, hook: str, result: Any, kind: str) -> None:
        trainer = type("Wrong", (TinyTrainer,), {hook: lambda self, batch, batch_idx: result})
        with pytest.raises(RunError) as caught:
            trainer(config(), batches(1), batches(1)).fit()
        assert str(caught.value) == (
            f"{hook} returned {kind}, not a dict. "
            'Return what is to be logged: {"train/loss": loss}, or {}.'
        )

    def test_nothing_to_log(self) -> None:
        class Quiet(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                super().training_step(batch, batch_idx)
                return {}

            def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                return {}

        trainer = Quiet(config(callbacks=[callbacks.LoggerCallback()]), batches(2), batches(1))
        trainer.fit()
        assert {key for key in trainer.logged if not key.startswith("perf/")} == set()


class TestPrecision:
    def run(self, **options: Any) -> tuple[TinyTrainer, set[Any]]:
        class Looks(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                logits = self.model(batch["x"])
                loss = F.mse_loss(logits.float(), batch["y"])
                self.backward(loss)
                self.step(self.optimizer)
                dtypes.add(("train", self.model.layers[0](batch["x"]).dtype))
                return {"train/loss": loss}

            def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                dtypes.add(("val", self.model.layers[0](batch["x"]).dtype))
                return {}

        dtypes: set[Any] = set()
        trainer = Looks(config(single(**options)), batches(3), batches(1))
        trainer.fit()
        return trainer, dtypes

    def test_bfloat16_computes_and_float32_keeps(self) -> None:
        trainer, dtypes = self.run(param_dtype="bfloat16")
        assert dtypes == {("train", torch.bfloat16), ("val", torch.bfloat16)}
        assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}

    def test_float32(self) -> None:
        _, dtypes = self.run(param_dtype="float32")
        assert dtypes == {("train", torch.float32), ("val", torch.float32)}

    def test_autocast_ends_with_the_run(self) -> None:
        self.run(param_dtype="bfloat16")
        assert not torch.is_autocast_enabled("cpu")

    def test_a_forward_after_the_step_sees_its_weights(self) -> None:
        class Steps(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                before = self.model(batch["x"])
                self.backward(F.mse_loss(before.float(), batch["y"]))
                self.step(self.optimizer)
                changed.append(not torch.equal(before, self.model(batch["x"])))
                return {}

        changed: list[bool] = []
        Steps(config(single(param_dtype="bfloat16")), batches(2)).fit()
        assert changed == [True, True]
