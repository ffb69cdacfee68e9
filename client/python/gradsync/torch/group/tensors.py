# SPDX-License-Identifier: Apache-2.0
"""Tensors as gradsyncd takes them, and the reductions that it lacks."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...types import DType, Reduce

#: Torch declares an enumeration without its members.
Op: Any = dist.ReduceOp.RedOpType
DTYPES = {torch.float32: DType.F32, torch.float64: DType.F64, torch.float16: DType.F16,
          torch.bfloat16: DType.BF16, torch.int32: DType.I32, torch.int64: DType.I64, torch.uint8: DType.U8}
REDUCTIONS = {Op.SUM: Reduce.SUM, Op.AVG: Reduce.AVG, Op.MIN: Reduce.MIN, Op.MAX: Reduce.MAX,
              Op.PRODUCT: Reduce.PROD}
NAMES = {Op.SUM: "sum", Op.AVG: "average", Op.MIN: "minimum", Op.MAX: "maximum", Op.PRODUCT: "product",
         Op.BAND: "bitwise and", Op.BOR: "bitwise or", Op.BXOR: "bitwise exclusive or"}

BITWISE = {Op.BAND, Op.BOR, Op.BXOR}
FOLDINGS = {Op.MIN: torch.minimum, Op.MAX: torch.maximum, Op.BAND: torch.bitwise_and,
            Op.BOR: torch.bitwise_or, Op.BXOR: torch.bitwise_xor}


def operation_of(reduce: Any) -> Any:
    """The operation of a ReduceOp, or of a plain one."""
    return getattr(reduce, "op", reduce)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a copy whose elements follow one another."""
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"gradsync: a tensor of layout {tensor.layout}: give a dense one")
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def padded(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """The elements of the tensor, in one dimension, and as many more as make `count`."""
    flat = tensor.reshape(-1)
    if flat.numel() == count:
        return dense(flat)
    whole = flat.new_zeros(count)
    whole[:flat.numel()] = flat
    return whole


def is_native(tensor: torch.Tensor, op: Any) -> bool:
    """Whether gradsyncd reduces that by itself."""
    return tensor.dtype in DTYPES and op in REDUCTIONS and (op != Op.AVG or tensor.is_floating_point())


def _folding(op: Any, dtype: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """How two tensors of that type are reduced to one."""
    if op in BITWISE and (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"gradsync: the {NAMES[op]} of {dtype} is not defined")
    if op == Op.AVG and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"gradsync: the average of {dtype} is not defined")
    if op in (Op.MIN, Op.MAX) and dtype.is_complex:
        raise ValueError(f"gradsync: the {NAMES[op]} of {dtype} is not defined")
    if op in (Op.SUM, Op.AVG):
        return torch.logical_or if dtype == torch.bool else torch.add
    if op == Op.PRODUCT:
        return torch.logical_and if dtype == torch.bool else torch.mul
    if op not in FOLDINGS:
        raise ValueError(f"gradsync: the reduction {op} is not supported")
    return FOLDINGS[op]


def fold(parts: list[torch.Tensor], op: Any) -> torch.Tensor:
    """Reduces tensors of one shape, in their order."""
    folding = _folding(op, parts[0].dtype)
    found = functools.reduce(folding, parts[1:], parts[0].clone())
    return found / len(parts) if op == Op.AVG else found
