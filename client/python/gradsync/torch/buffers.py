# SPDX-License-Identifier: Apache-2.0
"""Sends buffers (running means and the like) from one rank to all others in one message.

They are matched by name: where a model has registered them in the order of a set, each rank has them in
another order.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch

from ..errors import OperationMismatchError, PlanMismatchError
from ..job import Job
from . import compare
from .compare import Named
from .errors import ModelChangedError

ALIGN = 16
CHUNK = 8 << 20


def pack(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Makes a flat memory with room for all tensors, and a part of it for each."""
    offsets, at = [], 0
    for each in tensors:
        offsets.append(at)
        at += -(-each.numel() * each.element_size() // ALIGN) * ALIGN
    devices = {each.device for each in tensors}
    flat = torch.empty(at, dtype=torch.uint8, device=devices.pop() if len(devices) == 1 else "cpu")
    parts = [flat[offset:offset + each.numel() * each.element_size()].view(each.dtype).view(each.shape)
             for offset, each in zip(offsets, tensors, strict=True)]
    return flat, parts


def chunks(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yields the tensors in order, as many at a time as one message may have; a large one comes alone."""
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


class OtherMarkError(Exception):
    """Rank `root` has sent something else than this rank expects. Nothing was taken of it."""


def broadcast(job: Job, tensors: Sequence[torch.Tensor], root: int, mark: bytes = b"",
              sealed: bool = False) -> None:
    """Copies rank `root`'s values to all members; types and shapes are the same on all. The versions of the
    tensors stay, so that a backward pass that comes later does not notice.

    mark     16 bytes, the same on all members, that travel before the values; empty: none. OtherMarkError if
             rank `root` has sent other ones
    sealed   as in Job.broadcast()
    """
    given = [each.data for each in tensors if each.numel() > 0]
    expected = None
    if mark and tensors:    # also if none of them has an element here
        expected = torch.frombuffer(bytearray(mark), dtype=torch.uint8)
        expected = expected.to(given[0].device if given else expected.device)
    for chunk in chunks(given if expected is None else [expected, *given]):
        if len(chunk) == 1 and chunk[0] is not expected:
            # On other members its elements may lie in another order in memory.
            whole = chunk[0].contiguous()
            job.broadcast(whole, root, sealed=sealed)
            if whole is not chunk[0]:
                chunk[0].copy_(whole)
            continue
        flat, parts = pack(chunk)
        if job.rank == root:
            torch._foreach_copy_(parts, chunk)
        job.broadcast(flat, root, sealed=sealed)
        if job.rank == root:
            continue
        if chunk[0] is expected and not torch.equal(parts[0].to(expected.device), expected):
            raise OtherMarkError
        torch._foreach_copy_(chunk, parts)


class Broadcaster:
    """Gives tensors of a model to the other ranks by name. They may change: a digest of their names, types
    and shapes travels with their values, and a rank that has something else takes nothing."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._mark = b""
        #: the tensors that all ranks had when they compared them; empty before that
        self.agreed: compare.Described = {}

    def agree(self, job: Job, named: Named) -> None:
        """Compares the tensors of all members, which call it at the same point. PlanMismatchError names the
        rank and the tensor that differ."""
        self.agreed = compare.describe(named)
        compare.check(job, self.agreed)

    def adopt(self, job: Job, agreed: compare.Described, named: Named) -> None:
        """In a process that has come late: takes the tensors on which the others have agreed.
        PlanMismatchError if its own model has other ones."""
        self.agreed = agreed
        found = compare.difference(compare.describe(named), agreed, f"rank {job.rank}, which is new",
                                   "the other ranks")
        if found is not None:
            raise PlanMismatchError(f"the models differ: {found[1]}", rank=job.rank, parameter=found[0])

    def broadcast(self, job: Job, named: Named, root: int) -> None:
        """Copies rank `root`'s values. ModelChangedError, or OperationMismatchError, if that rank has other
        tensors than this one."""
        named = sorted(named, key=lambda each: each[1])
        try:
            broadcast(job, [each for _, _, each in named], root, self._mark_of(named))
        except OtherMarkError:
            raise ModelChangedError(f"rank {job.rank}: what rank {root} broadcasts is not what this rank "
                                    f"has: {self._change(named)}", rank=job.rank) from None
        except OperationMismatchError as error:
            raise OperationMismatchError(f"{error}; this rank broadcasts buffers: {self._change(named)}",
                                         rank=error.rank, pid=error.pid) from None

    def _mark_of(self, named: Named) -> bytes:
        key = tuple((name, each.dtype, each.shape) for _, name, each in named)
        if key != self._key:
            self._key, self._mark = key, compare.digest(compare.describe(named))
        return self._mark

    def _change(self, named: Named) -> str:
        """A sentence for people: how the tensors have changed that all ranks had alike."""
        now = compare.describe(named)
        known = {name: each for name, each in self.agreed.items() if name in now or each[0] == "buffer"}
        found = compare.difference(now, known, "this rank", "all ranks when they compared their models")
        if not self.agreed:
            names = ", ".join(sorted(now)[:8])
            what = f"this rank has {len(now)} tensors, the first of which are {names}"
        elif found is not None:
            what = found[1]
        else:
            what = "this rank has what all had when they compared their models, so the other one has changed"
        return f"{what}. Buffers have the same names, types and shapes on all ranks"


class Buffers:
    """The buffers of a module that are not ignored, in the order of their names. The module may put others in
    their place."""

    def __init__(self, module: torch.nn.Module, ignored: Collection[str]) -> None:
        self._module, self._ignored = module, ignored
        self._found: list[tuple[str, dict[str, torch.Tensor | None], str]] = []
        self.look()

    def look(self) -> None:
        """Looks for the buffers again."""
        found: dict[int, tuple[str, dict[str, torch.Tensor | None], str]] = {}
        for prefix, module in self._module.named_modules():
            for name, buffer in module._buffers.items():
                full = f"{prefix}.{name}" if prefix else name
                # A shared buffer has the first of its names, in alphabetical order.
                if buffer is not None and full not in self._ignored and (
                        id(buffer) not in found or full < found[id(buffer)][0]):
                    found[id(buffer)] = full, module._buffers, name
        self._found = sorted(found.values(), key=lambda each: each[0])

    def __bool__(self) -> bool:
        return bool(self._found)

    def named(self) -> Named:
        """The buffers with their names, as they are now."""
        return [("buffer", full, buffer) for full, holder, name in self._found
                if (buffer := holder.get(name)) is not None]

    def tensors(self) -> list[torch.Tensor]:
        """The buffers, as they are now."""
        return [buffer for _, _, buffer in self.named()]
