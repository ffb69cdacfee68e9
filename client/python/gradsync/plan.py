# SPDX-License-Identifier: Apache-2.0
"""Plans: the parameters that are averaged together in a step, and the memory of their gradients."""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _dlpack
from ._dlpack import DeviceArray
from ._call import failure
from ._native import BucketStatsStruct, InfoStruct, library
from .errors import GradsyncError, StateError, VoidStep
from .memory import Memory
from .types import BucketStats, DType, Info, Param, Reduce

if TYPE_CHECKING:
    from .job import Job

_ELEMENTS: dict[DType, Any] = {
    DType.F32: ctypes.c_float, DType.F64: ctypes.c_double, DType.F16: ctypes.c_uint16,
    DType.BF16: ctypes.c_uint16, DType.I32: ctypes.c_int32, DType.I64: ctypes.c_int64,
    DType.U8: ctypes.c_uint8,
}


def _info_of(raw: InfoStruct) -> Info:
    return Info(step=raw.step, norm=raw.norm, nonfinite=raw.nonfinite,
                nonfinite_rank=raw.nonfinite_rank if raw.nonfinite_rank >= 0 else None, bytes=raw.bytes,
                exposed_s=raw.exposed_s, elapsed_s=raw.elapsed_s, lost_rank=raw.lost_rank,
                lost_pid=raw.lost_pid, cause=raw.cause.decode("utf-8", "replace"))


class Plan:
    """Made by Job.plan(). Parameters are numbered in the order in which they were given, from 0.

    A gradient is this process's from finish() until ready(), and gradsync's from ready() until finish().
    finish() leaves the average in it. Nothing is cleared between steps: a backward pass that adds must clear
    first.
    """

    def __init__(self, job: Job, handle: int, params: Sequence[Param], reduce: Reduce,
                 places: Sequence[tuple[Memory, int] | None], own: Memory | None) -> None:
        self._job = job
        self._handle: int | None = handle
        self._own = own
        self._places = places
        lib = library()
        # Bound once: this is the hot path.
        self._c_ready = lib.ready
        self._c_ready_on = lib.ready_on
        self._c_absent = lib.absent
        self._c_absent_on = lib.absent_on
        self._c_finish = lib.finish
        self._c_wait = lib.wait
        #: Names, types and shapes.
        self.params: tuple[Param, ...] = tuple(params)
        self.reduce = reduce
        #: Payload in bytes: all parameters, without padding.
        self.nbytes: int = lib.plan_bytes(handle)
        #: The number of buckets; they are numbered in the order in which they are launched.
        self.buckets: int = lib.plan_buckets(handle)
        self._addresses: list[int] = [lib.gradient(handle, i) for i in range(len(self.params))]
        self._bucket_of: list[int] = [lib.plan_bucket_of(handle, i) for i in range(len(self.params))]
        self._info = InfoStruct(size=ctypes.sizeof(InfoStruct))
        self._lent: list[weakref.ref[Any]] = []

    def __len__(self) -> int:
        return len(self.params)

    def __repr__(self) -> str:
        return (f"<gradsync.Plan of {len(self.params)} parameters, {self.nbytes} bytes, {self.buckets} "
                "buckets"
                f"{'' if self._handle else ', freed'}>")

    def _failure(self, result: int) -> GradsyncError:
        if self._handle is None:
            return StateError("the plan has been freed, or its job has been left")
        return failure(result)

    @property
    def alive(self) -> bool:
        """True until the plan is freed, or its job is left."""
        return self._handle is not None

    def bucket_of(self, param: int) -> int:
        """The bucket in which the parameter lies."""
        return self._bucket_of[param]

    def address(self, param: int) -> int:
        """Where the parameter's gradient lies: a dense array in row-major order, aligned to 64 bytes, at the
        same place until the plan is freed."""
        return self._addresses[param]

    def gradient(self, param: int) -> Any:
        """The parameter's gradient as a writable buffer: a flat ctypes array of its elements (of c_uint16 for
        F16 and BF16); or a DeviceArray, if the daemon serves a GPU.

        torch.frombuffer(plan.gradient(i), dtype=…).view(shape) and numpy.frombuffer(plan.gradient(i), …) lie
        on it without a copy. The memory stays mapped for as long as the array, or anything made of it, lives.
        """
        self._check()
        ordinal = self._job._connection.device.ordinal
        if ordinal is not None:
            return self._lend_device(param, (_dlpack.CUDA, ordinal))
        return self._lend(param, _ELEMENTS[self.params[param].dtype] * self.params[param].elements)

    def _lend_device(self, param: int, device: tuple[int, int]) -> DeviceArray:
        given = self.params[param]
        place = self._places[param]
        lent = DeviceArray(self._addresses[param], DType(given.dtype), given.elements, device,
                           place[0]._whole if place is not None else None)
        if place is None:
            self._lent.append(weakref.ref(lent))
        return lent

    def _lend(self, param: int, kind: Any) -> ctypes.Array[Any]:
        place = self._places[param]
        if place is not None and isinstance(place[0]._whole, ctypes.Array):
            lent: ctypes.Array[Any] = kind.from_buffer(place[0]._whole, place[1])
            return lent
        lent = kind.from_address(self._addresses[param])
        if place is None:
            self._lent.append(weakref.ref(lent))
        return lent

    def _check(self) -> None:
        if self._handle is None:
            raise self._failure(0)

    def _refuse_lent(self, what: str) -> None:
        """Memory of the daemon's is unmapped with the plan: BufferError if something still refers to it."""
        _dlpack.settle()
        alive = [each for each in self._lent if each() is not None]
        self._lent = alive
        if alive:
            raise BufferError(f"{what}: {len(alive)} gradients of the plan are in use (plan.gradient()), and "
                              "they lie in "
                              "the daemon's memory, which would be unmapped; drop them first, or make the "
                              "plan without "
                              "arena=True")

    def ready(self, param: int) -> None:
        """The parameter's gradient is complete and gradsync's from now on. Never waits; any thread.

        StateError if the parameter is marked already in this step.
        """
        result = self._c_ready(self._handle, param)
        if result:
            raise self._failure(result)

    def absent(self, param: int) -> None:
        """This member has no gradient for the parameter in this step: it counts as zero, and the divisor
        stays the same. Never waits; any thread.

        InvalidError for MIN, MAX and PROD; StateError if the parameter is marked already in this step.
        """
        result = self._c_absent(self._handle, param)
        if result:
            raise self._failure(result)

    def ready_on(self, param: int, stream: int) -> None:
        """As ready(), on a GPU: the gradient is complete when all work that has been put into the stream so
        far has ended. `stream` is a cudaStream_t as a number, for example
        torch.cuda.current_stream().cuda_stream; 0 is the default stream.

        UnsupportedError if the stream is being captured into a graph; InvalidError if the daemon serves no
        GPU.
        """
        result = self._c_ready_on(self._handle, param, stream)
        if result:
            raise self._failure(result)

    def absent_on(self, param: int, stream: int) -> None:
        """As absent(), on a GPU: the gradient is cleared in this stream."""
        result = self._c_absent_on(self._handle, param, stream)
        if result:
            raise self._failure(result)

    def accumulate(self, on: bool) -> None:
        """While it is on, ready() and absent() do nothing. On before the first backward of a step, off before
        the last. StateError when parameters are marked already."""
        result = library().accumulate(self._handle, on)
        if result:
            raise self._failure(result)

    def divisor(self, divisor: int) -> None:
        """Sets the number that AVG divides by in the step that is open or begins next; 0: the world size. All
        members set the same. StateError if a bucket of the step is on its way already."""
        result = library().divisor(self._handle, divisor)
        if result:
            raise self._failure(result)

    def wait(self, param: int) -> None:
        """Waits until the parameter's average is there. It is provisional until finish() has returned.
        VoidStep if the step is void; call finish() then."""
        self._check()
        self._job._wait(self._c_wait, self._handle, param)

    def finish(self) -> Info:
        """Ends the step: waits for its outcome, and returns its figures.

        VoidRetry, VoidBehind   a member was lost; `.info` says which one, and why
        StateError              parameters are neither ready nor absent; mark them and call again
        """
        self._check()
        try:
            self._job._wait(self._c_finish, self._handle, self._info)
        except VoidStep as void:
            void.info = _info_of(self._info)
            raise
        return _info_of(self._info)

    def unused(self, param: int) -> bool:
        """Whether, in the last step that was committed, all members called absent() for the parameter."""
        return bool(library().unused(self._handle, param))

    def bucket_stats(self, bucket: int, rank: int | None = None) -> BucketStats:
        """Statistics of one bucket in the last step that was committed: of one rank's input, or of the result
        (None)."""
        raw = BucketStatsStruct(size=ctypes.sizeof(BucketStatsStruct))
        result = library().bucket_stats(self._handle, bucket, -1 if rank is None else rank, raw)
        if result:
            raise self._failure(result)
        return BucketStats(norm=raw.norm, nonfinite=raw.nonfinite)

    def free(self) -> None:
        """Frees the plan between steps; waits for the daemon. All members free a plan at the same point.
        Gradients that are in use stay mapped.

        StateError    a step is open, or another thread waits for it
        BufferError   gradients in the daemon's memory (arena=True) are in use
        """
        if self._handle is not None:
            self._refuse_lent("Plan.free()")
            self._job._wait(library().plan_free, self._handle)
            self._handle = None
            self._job._plans.discard(self)
        if self._own is not None:
            self._own.unregister()
            self._own = None

    def _end(self) -> None:
        """The job has ended, and the plan with it."""
        self._handle = self._own = None

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Frees the plan, unless an exception is on its way: a step may be open then, and leaving the job
        ends it."""
        if kind is None:
            self.free()
