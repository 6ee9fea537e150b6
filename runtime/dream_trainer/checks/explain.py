"""What torch says of a sharded model used wrongly, in the words of the hooks."""

import traceback
from collections.abc import Mapping
from pathlib import Path

from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..configs import RunError

MIXED = ("got mixed torch.Tensor and DTensor", "no attribute '_local_tensor'")
"""What DTensor says to a plain tensor, and FSDP to a plain parameter."""

CALLS = ("_wrapped_call_impl", "_call_impl", "forward")


def explained(error: BaseException, models: Mapping[str, nn.Module]) -> RunError | None:
    """The `RunError` that says what to change, where torch's own message does not."""
    text = str(error)
    frames = list(traceback.walk_tb(error.__traceback__))
    if "Cannot concatenate overlapping meshes" in text:
        return RunError(
            "apply_fully_shard shards a module inside one that is sharded already. "
            "Shard the blocks first and the root last."
        )
    shards = any(frame.f_code.co_name == "apply_fully_shard" for frame, _ in frames)
    if shards and text.startswith("Invariant encountered: value was None"):
        return RunError(
            "fully_shard got no mesh for a tensor-parallel model. Pass **config to every "
            "fully_shard."
        )
    if not any(words in text for words in MIXED):
        return None
    if "nll_loss" in text:
        return RunError(
            "The logits are sharded over classes, the targets are not. Give the head "
            "output_layouts=Replicate(), or compute the loss within loss_parallel()."
        )
    names = {
        module: f"self.{name}"
        for root, model in models.items()
        for name, module in model.named_modules(prefix=root)
        if any(isinstance(part, FSDPModule) for part in model.modules())
    }
    place = ""
    for frame, line in frames:
        module, method = frame.f_locals.get("self"), frame.f_code.co_name
        if isinstance(module, nn.Module) and module in names:
            return _misuse(names[module], module, method, place)
        place = f"{Path(frame.f_code.co_filename).name}:{line}"
    return None


def _misuse(name: str, module: nn.Module, method: str, place: str) -> RunError | None:
    """What is wrong with the outermost call of a sharded model's part."""
    if method == "load_state_dict":
        return RunError(
            f"{name}.load_state_dict() ({place}) got full tensors for sharded parameters. Use "
            "torch.distributed.checkpoint.state_dict.set_model_state_dict, with "
            "StateDictOptions(full_state_dict=True)."
        )
    if method not in CALLS:
        owner = name if isinstance(module, FSDPModule) else "the module that is sharded"
        return RunError(
            f"{name}.{method}() ({place}) runs outside FSDP's forward hook. In apply_fully_shard "
            f'add register_fsdp_forward_method({owner}, "{method}").'
        )
    if isinstance(module, FSDPModule):
        return None
    return RunError(
        f"{name}(...) ({place}) runs outside FSDP's forward hook. Call the model that is "
        "sharded, or give this module a fully_shard of its own."
    )
