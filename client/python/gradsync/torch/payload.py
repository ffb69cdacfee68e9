# SPDX-License-Identifier: Apache-2.0
"""A nested state (state_dict and the like) on its way to members that lack it: a skeleton, pickled, and
tensors."""
from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any

import torch

from ..job import Job
from .buffers import broadcast


@dataclass(frozen=True)
class _Place:
    """Stands for a tensor."""

    index: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    on_host: bool


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, obj: Any) -> _Place | None:
        if not isinstance(obj, torch.Tensor):
            return None
        self.tensors.append(obj.detach())
        return _Place(len(self.tensors) - 1, obj.dtype, tuple(obj.shape),
                      obj.device.type == "cpu")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, device: torch.device) -> None:
        super().__init__(file)
        self.tensors: list[torch.Tensor] = []
        self._device = device

    def persistent_load(self, place: _Place) -> torch.Tensor:
        self.tensors.append(torch.empty(place.shape, dtype=place.dtype,
                                        device="cpu" if place.on_host else self._device))
        return self.tensors[-1]


def take_apart(state: Any) -> tuple[bytes, list[torch.Tensor]]:
    """The skeleton, and the tensors in the order in which it names them."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(state)
    return file.getvalue(), pickler.tensors


def send(job: Job, skeleton: bytes, tensors: list[torch.Tensor]) -> None:
    """From this member to all others, which receive() it."""
    job.broadcast(torch.frombuffer(bytearray(skeleton), dtype=torch.uint8), job.rank)
    broadcast(job, tensors, job.rank)


def put_together(skeleton: bytes, device: torch.device) -> tuple[Any, list[torch.Tensor]]:
    """The state, and its tensors, which hold anything yet. Those that were on a GPU are on this device."""
    unpickler = _Unpickler(io.BytesIO(skeleton), device)
    return unpickler.load(), unpickler.tensors


def receive(job: Job, root: int, size: int) -> Any:
    """What the member `root` sends; `size`: bytes of its skeleton. Tensors of its GPU arrive on this
    member's."""
    skeleton = torch.empty(size, dtype=torch.uint8, device="cpu")
    job.broadcast(skeleton, root)
    ordinal = job.connection.device.ordinal
    device = torch.device("cpu") if ordinal is None else torch.device("cuda", ordinal)
    state, tensors = put_together(skeleton.numpy().tobytes(), device)
    broadcast(job, tensors, root)
    return state
