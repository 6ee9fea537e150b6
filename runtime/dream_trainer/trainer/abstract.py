"""The hooks of a trainer, in the order in which the runtime calls them."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from .. import data
from ..configs import AbstractTrainerConfig
from ..contract import HOOKS
from ..metrics import is_metric
from ..world import World


class AbstractTrainer:
    """What you override. `contract.py` says when each hook is called."""

    config: AbstractTrainerConfig
    world: World
    """Ranks, device and mesh; there from `configure_models` on."""

    item = "samples"
    """What `count_items` counts, as throughput is to be named: "tokens", "images"."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def configure_models(self) -> None:
        """Assign every model to an attribute. Runs on the meta device: shapes only."""
        raise NotImplementedError

    def apply_pipeline_parallel(self, pp_mesh: DeviceMesh) -> Any:
        """Cut the models into stages."""
        raise NotImplementedError

    def apply_tensor_parallel(self, tp_mesh: DeviceMesh) -> None:
        """Apply each model's plan: `parallelize_module(self.model, tp_mesh, plan)`."""
        raise NotImplementedError

    def context_parallel_buffers(self, batch: Any) -> list[tuple[Tensor, int]]:
        """What is split along the sequence, each with its sequence dim: called for every batch.

        Inputs, labels and masks of the batch, and the model's tables of positions.
        """
        raise NotImplementedError

    def apply_activation_checkpointing(self) -> None:
        """Make blocks recompute their activations in the backward pass."""
        raise NotImplementedError

    def apply_compile(self) -> None:
        """Compile in place, block by block: `layer.compile()`."""
        raise NotImplementedError

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        """`fully_shard(module, **config)` on blocks first, on each model last."""
        raise NotImplementedError

    def apply_replicate(self, dp_replicate_mesh: DeviceMesh) -> None:
        """`replicate(self.model, device_mesh=dp_replicate_mesh)` for each model."""
        raise NotImplementedError

    def init_weights(self) -> None:
        """Fill every parameter and buffer; they hold garbage until then.

        By default each module resets itself by its `reset_parameters`, children first.
        """
        for model in self.named_models().values():
            for module in reversed(list(model.modules())):
                if callable(reset := getattr(type(module), "reset_parameters", None)):
                    reset(module)

    def configure_optimizers(self) -> dict[nn.Module, Optimizer]:
        """Build the optimizers over the models' parameters: `{self.model: self.optimizer}`."""
        raise NotImplementedError

    def configure_schedulers(self) -> dict[Optimizer, LRScheduler]:
        """Learning-rate schedulers; each advances once per step of its optimizer."""
        return {}

    def configure_dataloaders(self) -> tuple[Iterable[Any], Iterable[Any] | None]:
        """The training and validation loaders of this rank's share of the data.

        Use `self.world.dp_rank` and `self.world.dp_size`. A loader with `state_dict` and
        `load_state_dict` can be resumed; one with `set_epoch` is told the epoch.
        """
        raise NotImplementedError

    def configure_metrics(self) -> None:
        """Assign metrics of torchmetrics as attributes; the steps `update` them."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Forward, `self.backward(loss)`, `self.step(optimizer)`; return what to log."""
        raise NotImplementedError

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Values of one batch; they are averaged over all items of all ranks."""
        raise NotImplementedError

    def count_items(self, batch: Any) -> int:
        """How much a batch weighs in validation means and throughput. By default its rows."""
        return data.count_rows(batch)

    def model_state_dict(self, **_: Any) -> dict[str, Any]:
        """The state of every model, as DCP reads and writes it on any mesh."""
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        return {name: get_model_state_dict(model) for name, model in self.named_models().items()}

    def hugging_face_layout(self) -> tuple[dict[str, str], dict[str, Any]] | None:
        """How safetensors name the weights, and what their config.json says.

        (own name, without the attribute of the model -> Hugging Face name; the contents of
        config.json). None: the names are one's own, and there is no config.json.
        """
        return None

    def named_models(self) -> dict[str, nn.Module]:
        """Every module but metrics that is an attribute of this trainer, by attribute name."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, nn.Module) and not is_metric(value)
        }

    def named_optimizers(self) -> dict[str, Optimizer]:
        """Every optimizer that is an attribute of this trainer, by attribute name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Optimizer)}

    @classmethod
    def defined_hooks(cls) -> set[str]:
        """The hooks that a subclass overrides."""
        return {
            hook.name
            for hook in HOOKS
            if getattr(cls, hook.name, None) is not getattr(AbstractTrainer, hook.name)
        }
