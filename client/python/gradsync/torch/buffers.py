# SPDX-License-Identifier: Apache-2.0
"""Buffers (running means and the like): from one rank to all others in one message."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch

from ..job import Job

ALIGN = 16
CHUNK = 8 << 20


def pack(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A flat memory with room for all of them, and a part of it for each."""
    offsets, at = [], 0
    for each in tensors:
        offsets.append(at)
        at += -(-each.numel() * each.element_size() // ALIGN) * ALIGN
    devices = {each.device for each in tensors}
    flat = torch.empty(at, dtype=torch.uint8, device=devices.pop() if len(devices) == 1 else None)
    parts = [flat[offset:offset + each.numel() * each.element_size()].view(each.dtype).view(each.shape)
             for offset, each in zip(offsets, tensors, strict=True)]
    return flat, parts


def chunks(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """In order, so many at a time as one message may have; large ones alone."""
    chunk: list[torch.Tensor] = []
    size = 0
    for each in tensors:
        nbytes = each.numel() * each.element_size()
        if chunk and size + nbytes > CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += nbytes
    if chunk:
        yield chunk


def broadcast(job: Job, tensors: Sequence[torch.Tensor], root: int) -> None:
    """Rank `root`'s values on all members, of tensors of the same types and shapes. A backward pass that
    waits for its turn does not notice: the versions of the tensors stay."""
    for chunk in chunks([each.data for each in tensors if each.numel() > 0]):
        if len(chunk) == 1:
            # The others may have it in another order in memory.
            whole = chunk[0].contiguous()
            job.broadcast(whole, root)
            if whole is not chunk[0]:
                chunk[0].copy_(whole)
            continue
        flat, parts = pack(chunk)
        if job.rank == root:
            torch._foreach_copy_(parts, chunk)
        job.broadcast(flat, root)
        if job.rank != root:
            torch._foreach_copy_(chunk, parts)


class Buffers:
    """Those of a module that are not ignored. A module may put others in their place."""

    def __init__(self, module: torch.nn.Module, ignored: Collection[str]) -> None:
        self._module, self._ignored = module, ignored
        self._found: list[tuple[dict[str, torch.Tensor | None], str]] = []
        self.look()

    def look(self) -> None:
        """Looks for them again."""
        seen: set[int] = set()
        self._found = []
        for prefix, module in self._module.named_modules():
            for name, buffer in module._buffers.items():
                full = f"{prefix}.{name}" if prefix else name
                if buffer is not None and full not in self._ignored and id(buffer) not in seen:
                    seen.add(id(buffer))
                    self._found.append((module._buffers, name))

    def __bool__(self) -> bool:
        return bool(self._found)

    def tensors(self) -> list[torch.Tensor]:
        """As they are now."""
        return [buffer for holder, name in self._found if (buffer := holder.get(name)) is not None]
