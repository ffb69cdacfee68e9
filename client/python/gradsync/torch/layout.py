# SPDX-License-Identifier: Apache-2.0
"""The parameters of a model, and the places of their gradients.

A gradient lies in shared memory as its parameter does in its own: with the same strides, if these leave no
gaps.
"""
from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from ..memory import Memory
from ..types import DType, Param
from .device import Host
from .errors import GradientKindError

ALIGN = 64
#: Most dimensions of a parameter of a plan.
MOST_DIMENSIONS = 8
#: Longest name of a parameter of a plan, in bytes.
LONGEST_NAME = 255

DTYPES: dict[torch.dtype, DType] = {
    torch.float32: DType.F32, torch.float64: DType.F64, torch.float16: DType.F16, torch.bfloat16: DType.BF16,
    # A complex number is two real ones, and the average of each is that of the whole.
    torch.complex64: DType.F32, torch.complex128: DType.F64,
}


@dataclass(frozen=True, eq=False)
class Slot:
    """A parameter: its name, the strides of its gradient, the type in which that travels, and the parameter's
    own type."""

    name: str
    param: torch.Tensor
    stride: tuple[int, ...]
    wire: torch.dtype
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Size of the gradient as it travels."""
        return self.param.numel() * self.wire.itemsize

    def describe(self) -> Param:
        """The parameter as the plan has it. Strides that are not the usual ones are in its name, so that
        members differ whose parameters have other strides. So it is with shapes that have more dimensions
        than a plan knows."""
        shape = tuple(self.param.shape)
        name = self.name
        if self.stride != torch.empty(shape, device="meta").stride():
            name += f" (strides {', '.join(map(str, self.stride))})"
        if self.wire.is_complex:
            shape += (2,)
        if len(shape) > MOST_DIMENSIONS:
            name += f" (shape {', '.join(map(str, shape))})"
            shape = (math.prod(shape),)
        return Param(_fitting(name), DTYPES[self.wire], shape)


def _fitting(name: str) -> str:
    """The name as a plan can have it. Characters that cannot be printed are escaped. A name that is too long
    loses its beginning, and a hash of the whole name distinguishes it from others."""
    if not name.isprintable():
        name = name.encode("unicode_escape").decode()
    whole = name.encode()
    if len(whole) <= LONGEST_NAME:
        return name
    mark = f"…{hashlib.sha256(whole).hexdigest()[:16]}…"
    return mark + whole[len(mark.encode()) - LONGEST_NAME:].decode(errors="ignore")


def slot_of(name: str, param: torch.Tensor, compressed: torch.dtype | None = None) -> Slot:
    """`compressed`: the type in which f32 and f64 gradients travel, if it is another one."""
    if param.dtype not in DTYPES:
        raise GradientKindError(f"parameter {name} is {param.dtype}: gradsync averages gradients of "
                                f"{', '.join(str(each).removeprefix('torch.') for each in DTYPES)}",
                                parameter=name)
    wire = param.dtype
    if compressed is not None and wire in (torch.float32, torch.float64):
        wire = compressed
    # Parameters with gaps, or that overlap, have dense gradients: torch.empty_like() knows how these lie.
    return Slot(name, param, torch.empty_like(param, device="meta").stride(), wire, param.dtype)


def sparse_names(module: torch.nn.Module) -> dict[str, str]:
    """Parameters whose gradients will be sparse, and the kind of module that makes them so."""
    return {f"{name}.weight" if name else "weight": type(each).__name__
            for name, each in module.named_modules()
            if isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and each.sparse}


def parameters_of(module: torch.nn.Module, ignored: Collection[str]) -> list[tuple[str, torch.Tensor]]:
    """The parameters in the order in which modules have them, shared ones once."""
    return [(name, param) for name, param in module.named_parameters() if name not in ignored]


def lay_out(slots: Sequence[Slot]) -> tuple[list[int], int]:
    """Offsets in one memory, and its size. Slots of a type follow each other without gaps, since a gap ends a
    bucket."""
    offsets, at = [0] * len(slots), 0
    for dtype in dict.fromkeys(DTYPES[slot.wire] for slot in slots):
        for i, slot in enumerate(slots):
            if DTYPES[slot.wire] == dtype:
                offsets[i] = at
                at += -(-slot.nbytes // ALIGN) * ALIGN
    return offsets, at


def views_of(slots: Sequence[Slot], offsets: Sequence[int], memory: Memory, host: Host) -> list[torch.Tensor]:
    """Tensors on that memory, which keep it mapped. Each has a storage of its own: a gradient that a script
    saves or copies does not take all others with it."""
    return [view_of(slot, offset, memory, host) for slot, offset in zip(slots, offsets, strict=True)]


def view_of(slot: Slot, offset: int, memory: Memory, host: Host) -> torch.Tensor:
    """One view, as views_of() makes them."""
    storage = host.storage(memory, offset, slot.nbytes)
    return torch.empty(0, dtype=slot.wire, device=host.device).set_(storage, 0, slot.param.shape, slot.stride)
