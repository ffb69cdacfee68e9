# SPDX-License-Identifier: Apache-2.0
"""Hooks that change how gradients travel. gradsync knows them by name, and does their work itself."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import UnsupportedError

_WIRE: dict[str, torch.dtype | None] = {
    "allreduce_hook": None, "fp16_compress_hook": torch.float16, "bf16_compress_hook": torch.bfloat16,
}
_BUILTIN = {"ALLREDUCE": "allreduce_hook", "FP16_COMPRESS": "fp16_compress_hook"}
_TORCHS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"


def allreduce_hook(_state: object, _bucket: object) -> None:
    """For register_comm_hook(): as without a hook."""


def fp16_compress_hook(_state: object, _bucket: object) -> None:
    """For register_comm_hook(): gradients travel as float16."""


def bf16_compress_hook(_state: object, _bucket: object) -> None:
    """For register_comm_hook(): gradients travel as bfloat16."""


def kind_of(hook: Callable[..., Any]) -> tuple[str, torch.dtype | None]:
    """The hook's name, and the type in which f32 and f64 gradients travel; None: their own."""
    if not callable(hook):
        raise TypeError(f"a communication hook must be callable, and {hook!r} is not")
    name, home = getattr(hook, "__name__", repr(hook)), getattr(hook, "__module__", "")
    if name not in _WIRE or home not in (_TORCHS, __name__):
        raise UnsupportedError(f"communication hook {name}: gradsync supports {', '.join(_WIRE)}; others "
                               "would need the buckets in this process")
    return name, _WIRE[name]


def builtin_kind_of(kind: Any) -> tuple[str, torch.dtype | None]:
    """The same, for a torch.distributed.BuiltinCommHookType."""
    name = _BUILTIN[getattr(kind, "name", str(kind))]
    return name, _WIRE[name]
