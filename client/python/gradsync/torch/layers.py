# SPDX-License-Identifier: Apache-2.0
"""Layers that exchange something between ranks by themselves, through torch.distributed. Beside gradsync they
would do so through another way, or, without a process group, not at all and without a word."""
from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from ..errors import UnsupportedError
from ..job import Job
from .sync_batchnorm import SyncBatchNorm

#: Modules of torch.distributed that exchange nothing.
_HARMLESS = ("torch.distributed.algorithms._checkpoint.",)


def check(module: nn.Module, parameters: dict[str, torch.Tensor]) -> None:
    """UnsupportedError that names the first layer, or parameter, of a kind that cannot be converted."""
    for name, layer in module.named_modules():
        if (why := _refusal(layer)) is not None:
            raise UnsupportedError(f"layer {name or 'module'} is {_kind(layer)}: {why}")
    for name, parameter in parameters.items():
        if _is_distributed(type(parameter)):
            raise UnsupportedError(f"parameter {name} is a {_kind(parameter)}, of which each rank has a "
                                   "part: gradsync averages whole parameters. Give the wrapper a model whose "
                                   "parameters are whole on each rank", parameter=name)


def convert(module: nn.Module, job: Job) -> None:
    """Each torch.nn.SyncBatchNorm becomes one of ours, where it is: it keeps its parameters, its buffers and
    its hooks. Those of ours that name no job belong to this one."""
    for layer in module.modules():
        if type(layer) is nn.SyncBatchNorm:
            layer.__class__ = SyncBatchNorm
            layer.process_group = None
        if isinstance(layer, SyncBatchNorm) and layer.process_group is None:
            layer.process_group = job


def _refusal(layer: nn.Module) -> str | None:
    if isinstance(layer, nn.parallel.DistributedDataParallel):
        return ("it would average its gradients through torch.distributed, and gradsync would average them "
                "again. Give gradsync.torch.DistributedDataParallel its .module")
    if _is_distributed(type(layer)):
        return "it has an exchange of its own. Wrap the module without it"
    if isinstance(layer, SyncBatchNorm) or not isinstance(layer, nn.SyncBatchNorm):
        return None
    if type(layer) is not nn.SyncBatchNorm:
        return ("a subclass of torch.nn.SyncBatchNorm takes means over ranks through torch.distributed, if "
                "at all. Derive it from gradsync.torch.SyncBatchNorm")
    if layer.process_group not in (None, _world_group()):
        return ("its process_group is a part of the ranks, which gradsync has no job for. Give it none, or "
                "use gradsync.torch.SyncBatchNorm with the gradsync.Job of these ranks")
    return None


def _world_group() -> object:
    distributed = torch.distributed
    return distributed.group.WORLD if distributed.is_available() and distributed.is_initialized() else None


def _is_distributed(kind: type) -> bool:
    return any(home.startswith("torch.distributed.") and not home.startswith(_HARMLESS)
               for home in _homes(kind))


def _homes(kind: type) -> Iterator[str]:
    """Modules in which a class and its bases were made."""
    for each in kind.__mro__:
        yield f"{each.__module__}."


def _kind(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
