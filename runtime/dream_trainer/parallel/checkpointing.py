"""Activation checkpointing: compute the forward pass again instead of keeping its results."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

_aten = torch.ops.aten

COSTLY_OPERATORS = (
    _aten.mm.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
)
"""Matrix products and attention: dear to compute again, for the memory they take."""


def checkpoint_forward(module: nn.Module, *, keep: Sequence[Any] = ()) -> None:
    """Let `module` keep its inputs, and what the operators `keep` return; nothing else.

    The forward is replaced in place: a wrapper would rename every parameter, and a hook
    would enter `fully_shard`'s own hooks a second time.
    """
    options: dict[str, Any] = {"use_reentrant": False}
    if keep:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, list(keep))
    setattr(module, "forward", partial(checkpoint, module.forward, **options))  # noqa: B010
