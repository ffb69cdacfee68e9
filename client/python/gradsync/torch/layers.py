# SPDX-License-Identifier: Apache-2.0
"""Layers that exchange data between ranks by themselves, through torch.distributed. With gradsync they would
bypass it, or, without a process group, exchange nothing and not report that."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..errors import UnsupportedError
from ..job import Job
from .sync_batchnorm import SyncBatchNorm

#: Modules of torch.distributed that exchange nothing.
_HARMLESS = ("torch.distributed.algorithms._checkpoint.", "torch.distributed.algorithms.join.",
             "torch.distributed.checkpoint.")


def check(module: nn.Module, parameters: dict[str, torch.Tensor]) -> None:
    """UnsupportedError that names the first layer, or parameter, of a kind that cannot be converted."""
    for name, layer in module.named_modules():
        if (why := _refusal(layer)) is not None:
            raise UnsupportedError(f"{f'layer {name}' if name else 'the module'} is {_kind(layer)}: {why}")
    for name, parameter in parameters.items():
        if _is_distributed(type(parameter)):
            raise UnsupportedError(f"parameter {name} is a {_kind(parameter)}, which torch.distributed "
                                   "spreads over ranks: gradsync averages plain tensors. Give the wrapper a "
                                   "model whose parameters are whole on each rank", parameter=name)


def convert(module: nn.Module, job: Job) -> None:
    """Turns each torch.nn.SyncBatchNorm into one of ours, in place: it keeps its parameters, its buffers and
    its hooks. A layer of ours whose job was not named belongs to this job."""
    for layer in module.modules():
        if type(layer) is nn.SyncBatchNorm:
            layer.__class__ = SyncBatchNorm
            layer.process_group = None
        if isinstance(layer, SyncBatchNorm):
            layer.adopt(job)


def _refusal(layer: nn.Module) -> str | None:
    if isinstance(layer, nn.parallel.DistributedDataParallel):
        return ("it would average its gradients through torch.distributed, and gradsync would average them "
                "again. Give gradsync.torch.DistributedDataParallel its .module")
    if _is_distributed(type(layer)):
        return ("it communicates through torch.distributed by itself, as FSDP and pipelines do. Wrap the "
                "module without it")
    if isinstance(layer, SyncBatchNorm) or not isinstance(layer, nn.SyncBatchNorm):
        return None
    if type(layer) is not nn.SyncBatchNorm:
        return ("a subclass of torch.nn.SyncBatchNorm takes means over ranks through torch.distributed, if "
                "at all. Derive it from gradsync.torch.SyncBatchNorm")
    if not _is_of_all(layer.process_group):
        return ("its process_group is a part of the ranks, which gradsync has no job for. Give it none, or "
                "use gradsync.torch.SyncBatchNorm with the gradsync.Job of these ranks")
    return None


def _is_of_all(group: Any) -> bool:
    """Whether a process group of torch.distributed has all ranks. None: the default one."""
    distributed = torch.distributed
    if group is None:
        return True
    return (distributed.is_available() and distributed.is_initialized()
            and distributed.get_world_size(group) == distributed.get_world_size())


def check_outside(wrapper: nn.Module) -> None:
    """Called in the wrapper's forward pass: UnsupportedError if torch's wrapper would average its gradients
    once more."""
    outer = getattr(nn.parallel.DistributedDataParallel, "_active_ddp_module", None)
    if outer is not None and any(each is wrapper for each in outer.modules()):
        raise UnsupportedError("torch's DistributedDataParallel has wrapped this wrapper: both would average "
                               "the gradients. Use one of them")


def _is_distributed(kind: type) -> bool:
    return any(home.startswith("torch.distributed.") and not home.startswith(_HARMLESS)
               for home in _homes(kind))


def _homes(kind: type) -> Iterator[str]:
    """Modules in which a class and its bases were made."""
    for each in kind.__mro__:
        yield f"{each.__module__}."


def _kind(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
