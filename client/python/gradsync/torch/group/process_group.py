# SPDX-License-Identifier: Apache-2.0
"""The operations of a group of torch.distributed, on a job of its own."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...job import Job
from .tensors import DTYPES, NAMES, REDUCTIONS, Op, dense, fold, is_native, operation_of, padded
from .work import GroupWork, Performer

Tensors = list[torch.Tensor]
#: Any, since torch declares a second form of many operations, which no caller uses.
_Base: Any = dist.ProcessGroup
NO_MESSAGES = ("gradsync: send and recv between two ranks are not supported: use broadcast() or "
               "all_to_all(), or make a group of another backend for them")


class ProcessGroup(_Base):  # type: ignore[misc]
    """A group whose collectives gradsyncd performs. The ranks of the group are those of its job."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.rank, job.world_size)
        self.job = job
        self._performer = Performer(job.name)
        self._name = self._description = ""
        self.ended = False

    # ---- what torch asks of a group

    def getBackendName(self) -> str:  # noqa: N802
        return "gradsync"

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._description = description

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    @property
    def supports_splitting(self) -> bool:
        return False

    def shutdown(self) -> None:
        """Ends the group, after what has been begun: dist.destroy_process_group() calls it."""
        if not self.ended:
            self._performer.end()
            self.job.leave()
            self.ended = True

    def abort(self) -> None:
        """Ends the group, if nothing is under way; else the end of the process does."""
        if not self._performer.busy:
            self.shutdown()

    # ---- how an operation is performed

    def _begin(self, what: str, opts: Any, result: Tensors, task: Callable[[], None]) -> GroupWork:
        waits = opts is not None and not getattr(opts, "asyncOp", True)
        return self._performer.perform(GroupWork(what, result), task, waits)

    # ---- reductions

    def _reduce_into(self, tensor: torch.Tensor, op: Any) -> None:
        """An allreduce in place."""
        if tensor.layout == torch.sparse_coo:
            self._sum_sparse(tensor, op)
            return
        if tensor.is_complex() and op in (Op.SUM, Op.AVG):
            tensor = torch.view_as_real(tensor)
        whole = dense(tensor)
        if is_native(whole, op):
            self.job.allreduce(whole, DTYPES[whole.dtype], REDUCTIONS[op])
        else:
            whole = fold(self._gathered(whole), op)
        if whole is not tensor:
            tensor.copy_(whole)

    def _sum_sparse(self, tensor: torch.Tensor, op: Any) -> None:
        """The sum of sparse tensors of one shape, each with elements of its own."""
        if op != Op.SUM:
            raise ValueError(f"gradsync: the {NAMES.get(op, op)} of sparse tensors is not supported")
        own = tensor.detach().coalesce()
        counts = [int(count) for count in self._gathered(torch.tensor([own._nnz()]))]

        def joined(flat: torch.Tensor, width: int) -> torch.Tensor:
            parts = self._gathered(padded(flat, max(counts) * width))
            return torch.cat([part[:count * width] for part, count in zip(parts, counts, strict=True)])

        shape = own.values().shape[1:]
        indices = [joined(row, 1) for row in own.indices()]
        values = joined(own.values(), math.prod(shape))
        total = torch.sparse_coo_tensor(torch.stack(indices), values.reshape(-1, *shape), own.shape)
        tensor.copy_(total.coalesce())

    def _gathered(self, tensor: torch.Tensor) -> Tensors:
        """The tensors of all ranks."""
        everyone = torch.empty((self.job.world_size, *tensor.shape), dtype=tensor.dtype)
        self.job.allgather(tensor, everyone)
        return list(everyone.unbind())

    def allreduce(self, tensors: Tensors, opts: Any = None) -> GroupWork:
        op = operation_of(opts.reduceOp) if opts is not None else Op.SUM

        def task() -> None:
            for tensor in tensors:
                self._reduce_into(tensor, op)
        return self._begin(f"all_reduce ({NAMES.get(op, op)})", opts, tensors, task)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Tensors, opts: Any) -> GroupWork:
        op = operation_of(opts.reduceOp)

        def task() -> None:
            for tensor in tensors:
                self._reduce_into(tensor if opts.rootRank == self.job.rank else tensor.clone(), op)
        return self._begin(f"reduce ({NAMES.get(op, op)}) to rank {opts.rootRank}", opts, tensors, task)

    def _scatter_reduced(self, part: torch.Tensor, whole: torch.Tensor, op: Any) -> None:
        """`part`: this rank's share of the sum over all ranks' `whole`."""
        given, place = dense(whole), dense(part)
        if is_native(given, op) and given.dtype == place.dtype:
            self.job.reduce_scatter(given, place, DTYPES[given.dtype], REDUCTIONS[op])
        else:
            own = [each.reshape(self.job.world_size, -1)[self.job.rank] for each in self._gathered(given)]
            place.copy_(fold(own, op).reshape(place.shape))
        if place is not part:
            part.copy_(place)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> GroupWork:
        op = operation_of(opts.reduceOp) if opts is not None else Op.SUM
        even = all(len({each.numel() for each in given}) == 1 for given in inputs)

        def task() -> None:
            for part, given in zip(outputs, inputs, strict=True):
                if even:
                    self._scatter_reduced(part, torch.stack([each.reshape(-1) for each in given]), op)
                else:
                    copies = [each.clone() for each in given]
                    for each in copies:
                        self._reduce_into(each, op)
                    part.copy_(copies[self.job.rank])
        return self._begin("reduce_scatter", opts, outputs, task)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> GroupWork:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                        opts: Any = None) -> GroupWork:
        op = operation_of(opts.reduceOp) if opts is not None else Op.SUM
        for part, whole in zip(outputs, inputs, strict=True):
            if part.numel() * self.job.world_size != whole.numel():
                raise ValueError(f"gradsync: reduce_scatter of {whole.numel()} elements into "
                                 f"{part.numel()}, in a world of {self.job.world_size}")

        def task() -> None:
            for part, whole in zip(outputs, inputs, strict=True):
                self._scatter_reduced(part, whole, op)
        return self._begin("reduce_scatter", opts, outputs, task)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- copies

    def broadcast(self, tensors: Tensors, opts: Any = None) -> GroupWork:
        root = opts.rootRank if opts is not None else 0

        def task() -> None:
            for tensor in tensors:
                whole = dense(tensor)
                self.job.broadcast(whole, root)
                if whole is not tensor and self.job.rank != root:
                    tensor.copy_(whole)
        return self._begin(f"broadcast from rank {root}", opts, tensors, task)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> GroupWork:
        for places, given in zip(outputs, inputs, strict=True):
            if len(places) != self.job.world_size or places[self.job.rank].numel() != given.numel():
                raise ValueError(f"gradsync: all_gather of {given.numel()} elements into tensors of "
                                 f"{[place.numel() for place in places]}, in a world of "
                                 f"{self.job.world_size}")

        def task() -> None:
            for places, given in zip(outputs, inputs, strict=True):
                most = max(place.numel() for place in places)
                for place, part in zip(places, self._gathered(padded(given, most)), strict=True):
                    place.copy_(part[:place.numel()].reshape(place.shape))
        return self._begin("all_gather", opts, [each for places in outputs for each in places], task)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> GroupWork:
        return self.all_gather_single_coalesced([output], [given], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        for whole, given in zip(outputs, inputs, strict=True):
            if given.numel() * self.job.world_size != whole.numel() or given.dtype != whole.dtype:
                raise ValueError(f"gradsync: all_gather of {given.numel()} elements of {given.dtype} into "
                                 f"{whole.numel()} of {whole.dtype}, in a world of {self.job.world_size}")

        def task() -> None:
            for output, given in zip(outputs, inputs, strict=True):
                whole = dense(output)
                self.job.allgather(dense(given), whole)
                if whole is not output:
                    output.copy_(whole)
        return self._begin("all_gather", opts, outputs, task)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> GroupWork:
        return self.allgather([list(places) for places in zip(*outputs, strict=True)], inputs, opts)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> GroupWork:
        def task() -> None:
            everyone = self._gathered(dense(inputs[0]))
            if self.job.rank == opts.rootRank:
                for place, part in zip(outputs[0], everyone, strict=True):
                    place.copy_(part.reshape(place.shape))
        result = list(outputs[0]) if self.job.rank == opts.rootRank else []
        return self._begin(f"gather to rank {opts.rootRank}", opts, result, task)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> GroupWork:
        root, place = opts.rootRank, outputs[0]

        def task() -> None:
            if self.job.rank == root:
                whole = torch.stack([each.reshape(-1) for each in inputs[0]])
            else:
                whole = place.new_empty(self.job.world_size, place.numel())
            self.job.broadcast(whole, root)
            place.copy_(whole[self.job.rank].reshape(place.shape))
        return self._begin(f"scatter from rank {root}", opts, outputs, task)

    def _exchange(self, outgoing: Sequence[torch.Tensor], incoming: Sequence[torch.Tensor]) -> None:
        """Sends outgoing[r] to each rank r, and receives incoming[r] from it: the part that each rank has for
        this one, of what all give to all."""
        sizes = self._gathered(torch.tensor([each.numel() for each in outgoing]))
        given = torch.cat([each.reshape(-1) for each in outgoing])
        most = max(int(row.sum()) for row in sizes)
        rank = self.job.rank
        for place, row, part in zip(incoming, sizes, self._gathered(padded(given, most)), strict=True):
            if int(row[rank]) != place.numel():
                raise ValueError(f"gradsync: all_to_all has {int(row[rank])} elements for rank {rank}, which "
                                 f"expects {place.numel()}")
            place.copy_(part[int(row[:rank].sum()):][:place.numel()].reshape(place.shape))

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        return self._begin("all_to_all", opts, outputs, lambda: self._exchange(inputs, outputs))

    def all_to_all_single(self, output: torch.Tensor, given: torch.Tensor, output_sizes: list[int],
                          input_sizes: list[int], opts: Any = None) -> GroupWork:
        places = self._shares(output.detach(), output_sizes)
        parts = self._shares(given.detach(), input_sizes)
        return self._begin("all_to_all", opts, [output], lambda: self._exchange(parts, places))

    def _shares(self, tensor: torch.Tensor, sizes: list[int]) -> Tensors:
        """Parts of the first dimension, one for each rank."""
        each, rest = divmod(tensor.shape[0], self.job.world_size)
        if not sizes and rest:
            raise ValueError(f"gradsync: all_to_all of {tensor.shape[0]} rows among {self.job.world_size} "
                             "ranks: give the sizes of the parts")
        return list(torch.split(tensor, sizes or [each] * self.job.world_size))

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> GroupWork:
        return self._begin("barrier", opts, [], self.job.barrier)

    # ---- messages

    def send(self, tensors: Tensors, to: int, tag: int) -> GroupWork:
        raise NotImplementedError(NO_MESSAGES)

    def recv(self, tensors: Tensors, source: int, tag: int) -> GroupWork:
        raise NotImplementedError(NO_MESSAGES)

    def recv_anysource(self, tensors: Tensors, tag: int) -> GroupWork:
        raise NotImplementedError(NO_MESSAGES)
