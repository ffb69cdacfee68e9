# SPDX-License-Identifier: Apache-2.0
"""Jobs: this process's membership, its plans, its registered memory, and collectives."""
from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _cuda, _dlpack, memory as _memory
from ._call import Inside, check, memory_of
from ._native import PlanOptionsStruct, StateStruct, library
from .errors import Again, GradsyncError, InvalidError, StateError
from .memory import Memory
from .plan import Plan
from .types import DType, Param, Raw, Reduce

if TYPE_CHECKING:
    from .connection import Connection

ALIGN = 64
MIB = 1 << 20
LARGEST = 1 << 62

Place = tuple[Memory, int]


@dataclass
class _Making:
    """A plan that is being made: a call that was interrupted, or does not block, goes on where it was."""

    key: tuple[Any, ...]
    params: tuple[Param, ...]
    places: list[Place | None]
    own: Memory | None = None
    #: The library has the list of parameters.
    named: bool = False
    #: The library is, or will be, in a call that can go on.
    waiting: bool = False


@dataclass
class _Allocated:
    """Memory of a GPU that is being registered."""

    whole: _cuda.Allocation
    wanted: int


@dataclass
class _Registering:
    """Memory that is being registered."""

    fd: int
    nbytes: int
    whole: ctypes.Array[Any] = field(repr=False)


def _encode(name: str) -> bytes:
    if "\0" in name:
        raise InvalidError(f"{name!r} is no name: it contains a NUL")
    return name.encode("utf-8", "surrogateescape")


def _param(given: Param | tuple[str, DType, Sequence[int]]) -> Param:
    name, dtype, shape = given
    made = Param(name, DType(dtype), tuple(int(n) for n in shape))
    if any(n <= 0 for n in made.shape):
        raise InvalidError(f'parameter "{name}": a dimension of the shape {made.shape} is not positive',
                           parameter=name)
    if made.nbytes > LARGEST:
        raise InvalidError(f'parameter "{name}": {made.elements} elements are more than memory can hold',
                           parameter=name)
    return made


def _round_up(value: int) -> int:
    return -(-value // ALIGN) * ALIGN


def _lay_out(params: Sequence[Param]) -> tuple[list[int], int]:
    """Offsets of all parameters in one memory, and its size. Those of a type follow each other without gaps,
    so that buckets are the same as in a memory that the daemon allocates."""
    offsets, at = [0] * len(params), 0
    for dtype in DType:
        for i, param in enumerate(params):
            if param.dtype == dtype:
                offsets[i] = at
                at = _round_up(at + param.nbytes)
    return offsets, at


class Job:
    """Made by Connection.join(). As a context manager it is left at the end of the block. A step that is open
    then, as after an exception, is not waited for: it is void for the other members."""

    def __init__(self, connection: Connection, handle: int) -> None:
        self._connection = connection
        self._handle: int | None = handle
        self._inside = Inside("job", connection._inside)
        self._wait = self._inside.wait
        self._plans: set[Plan] = set()
        self._memories: set[Memory] = set()
        self._making: _Making | None = None
        self._registering: _Registering | None = None
        self._allocated: _Allocated | None = None
        self._held: object = None

    def __repr__(self) -> str:
        if self._handle is None:
            return "<gradsync.Job, left>"
        return f"<gradsync.Job {self.name!r}, rank {self.rank} of {self.world_size}>"

    def _check(self) -> None:
        if self._handle is None:
            raise StateError("the job has been left, or its connection has been closed")

    # ---- who is here

    @property
    def connection(self) -> Connection:
        """The connection over which the job was joined."""
        return self._connection

    @property
    def rank(self) -> int:
        """0 … world_size - 1. Changes with the generation, as world size and local rank do."""
        return int(library().rank(self._handle))

    @property
    def local_rank(self) -> int:
        """The number of this member among those on this daemon."""
        return int(library().local_rank(self._handle))

    @property
    def world_size(self) -> int:
        """The number of members."""
        return int(library().world_size(self._handle))

    @property
    def generation(self) -> int:
        """The number of the job's membership; grows with each change."""
        return int(library().generation(self._handle))

    @property
    def member_id(self) -> int:
        """The id of this member, the same for as long as the job lives."""
        return int(library().member_id(self._handle))

    @property
    def name(self) -> str:
        """The name of the job."""
        text: bytes = library().job_name(self._handle)
        return text.decode("utf-8", "replace")

    # ---- memory

    def memory(self, nbytes: int) -> Memory:
        """Makes memory of at least `nbytes` bytes (whole pages), mapped and registered; use it by
        Memory.buffer. If the daemon serves a GPU, the memory is there: use it by Memory.array().

        QuotaError, NoMemoryError, UnsupportedError: see gradsync_register() in the manual (gradsync.h).
        """
        self._check()
        if nbytes <= 0:
            raise InvalidError(f"memory of {nbytes} bytes")
        ordinal = self._connection.device.ordinal
        if ordinal is not None:
            return self._memory_on(ordinal, nbytes)
        if self._registering is None:
            fd, whole = _memory.allocate(nbytes)
            self._registering = _Registering(fd, nbytes, whole)
        now = self._registering
        if now.nbytes != nbytes:
            raise StateError(f"other memory ({now.nbytes} bytes) is being registered: call memory() for it "
                             "again until it has finished")
        try:
            made = self._register(now.fd, 0, len(now.whole), ctypes.addressof(now.whole), now.whole)
        except GradsyncError as error:
            if not isinstance(error, Again):
                self._forget_registering()
            raise
        self._forget_registering()
        return made

    def _memory_on(self, ordinal: int, nbytes: int) -> Memory:
        if self._allocated is None:
            _dlpack.settle()        # frees memory that consumers have no more use for
            self._allocated = _Allocated(_cuda.allocate(ordinal, nbytes), nbytes)
        if self._allocated.wanted != nbytes:
            raise StateError(f"other memory ({self._allocated.wanted} bytes) is being registered: call "
                             "memory() for it again until it has finished")
        whole = self._allocated.whole
        try:
            made = self._register_device(whole.address, whole.nbytes, whole)
        except GradsyncError as error:
            if not isinstance(error, Again):
                self._allocated = None
            raise
        self._allocated = None
        return made

    def _forget_registering(self) -> None:
        if self._registering is not None:
            os.close(self._registering.fd)
            self._registering = None

    def register(self, fd: int, offset: int, nbytes: int, address: int | None = None) -> Memory:
        """Registers memory of the caller's own: `nbytes` bytes from `offset` (a multiple of the page size) of
        a memfd with the seals F_SEAL_SHRINK and F_SEAL_GROW. `address` is where they are mapped; if it is
        None, the library maps them, until the memory is unregistered.

        InvalidError says what is wrong with the memfd; QuotaError, NoMemoryError, UnsupportedError.
        """
        self._check()
        return self._register(fd, offset, nbytes, address, None)

    def register_device(self, address: int, nbytes: int) -> Memory:
        """Registers memory of a GPU that this process has allocated: `nbytes` bytes from `address`, all of
        one allocation. The caller owns it, and frees it after Memory.unregister().

        UnsupportedError: this memory cannot be shared, and why. DeniedError: the daemon runs as another user.
        InvalidError, QuotaError.
        """
        self._check()
        return self._register_device(address, nbytes, None)

    def _register_device(self, address: int, nbytes: int, whole: _cuda.Allocation | None) -> Memory:
        handle = ctypes.c_void_p()
        self._wait(library().register_device, self._handle, address, nbytes, handle)
        assert handle.value is not None
        made = Memory(self, handle.value, nbytes, whole)
        self._memories.add(made)
        return made

    def _register(self, fd: int, offset: int, nbytes: int, address: int | None,
                  whole: ctypes.Array[Any] | None) -> Memory:
        handle = ctypes.c_void_p()
        self._wait(library().register, self._handle, fd, offset, nbytes, address, handle)
        assert handle.value is not None
        made = Memory(self, handle.value, nbytes, whole)
        self._memories.add(made)
        return made

    # ---- plans

    def plan(self, params: Iterable[Param | tuple[str, DType, Sequence[int]]], *, reduce: Reduce = Reduce.AVG,
             first_bucket_bytes: int = MIB, bucket_bytes: int = 25 * MIB, arena: bool = False,
             places: Sequence[Place | None] | None = None, void_on_loss: bool = False) -> Plan:
        """Makes a plan; waits until all members have made the same one, at most the time-out of the join.

        params              the parameters in the model's order: buckets are launched from the last to the
                            first
        first_bucket_bytes  the first bucket of each type closes at this payload, the others at bucket_bytes
        arena               gradients lie in memory of the daemon's, which is unmapped when the plan is freed,
                            instead of memory of this process's, which stays for as long as anything refers to
                            it
        places              for each parameter the registered memory in which it lies and the offset there, a
                            multiple of 64; None for a parameter in the arena
        void_on_loss        a loss ends the call, on all members alike: VoidStep. Otherwise they wait for a
                            process that takes the place and makes the same plan

        PlanMismatchError   members differ: the text, `rank` and `parameter` say where
        TimedOutError       the text names the ranks that did not come
        InvalidError, StateError, QuotaError, NoMemoryError
        """
        self._check()
        given = tuple(_param(each) for each in params)
        key = (given, reduce, first_bucket_bytes, bucket_bytes, arena, places and tuple(places), void_on_loss)
        if self._making is not None and self._making.key != key:
            raise StateError("another plan is being made: call plan() for it again until it has finished")
        if self._making is None:
            if places is not None and len(places) != len(given):
                raise InvalidError(f"{len(places)} places for {len(given)} parameters")
            self._making = _Making(key, given, list(places) if places is not None else [None] * len(given))
        options = PlanOptionsStruct(ctypes.sizeof(PlanOptionsStruct), reduce, first_bucket_bytes,
                                    bucket_bytes, void_on_loss)
        try:
            made = self._make(self._making, options, own=not arena and places is None)
        except BaseException as error:
            over = isinstance(error, GradsyncError) and not isinstance(error, Again)
            if over or not self._making.waiting:
                self._drop_making()
            raise
        self._making = None
        self._plans.add(made)
        return made

    def _make(self, making: _Making, options: PlanOptionsStruct, own: bool) -> Plan:
        if own and making.own is None and making.params:
            offsets, size = _lay_out(making.params)
            making.waiting = True
            making.own = self.memory(size)
            making.places = [(making.own, offset) for offset in offsets]
        if not making.named:
            making.waiting = False
            for param, place in zip(making.params, making.places, strict=True):
                self._name(param, place)
            making.named = making.waiting = True
        handle = ctypes.c_void_p()
        self._wait(library().plan_with, self._handle, options, handle)
        assert handle.value is not None
        return Plan(self, handle.value, making.params, Reduce(options.reduce), making.places, making.own)

    def _name(self, param: Param, place: Place | None) -> None:
        shape = (ctypes.c_uint64 * len(param.shape))(*param.shape)
        try:
            name = _encode(param.name)
            if place is None:
                check(library().param(self._handle, name, param.dtype, len(shape), shape))
            else:
                check(library().param_at(self._handle, name, param.dtype, len(shape), shape,
                                         place[0]._handle, place[1]))
        except GradsyncError as error:
            error.parameter = error.parameter or param.name
            raise

    def _drop_making(self) -> None:
        """The plan cannot be made. Drops the library's list of its parameters by a plan with the limits 0,
        which is refused before other members learn of it, and takes the list with it."""
        making, self._making = self._making, None
        if making is None or self._handle is None:
            return
        refused = PlanOptionsStruct(ctypes.sizeof(PlanOptionsStruct), Reduce.AVG, 0, 0)
        none = ctypes.c_void_p()
        library().plan_with(self._handle, refused, none)
        if making.own is not None:
            with contextlib.suppress(GradsyncError):
                making.own.unregister()

    # ---- collectives

    def _collective(self, function: Any, *arguments: Any, held: object) -> None:
        """Makes a collective. `held` has its memory: a call that was interrupted goes on with the next one,
        on the same memory, so that is kept."""
        self._check()
        self._held = held
        self._wait(function, self._handle, *arguments)
        self._held = None

    def _memory_of(self, data: Any, writable: bool) -> contextlib.AbstractContextManager[Raw]:
        return memory_of(data, writable, self._connection._is_gpu)

    def barrier(self) -> None:
        """Returns when all members have called it."""
        self._collective(library().barrier, held=None)

    def broadcast(self, data: Any, root: int = 0, *, sealed: bool = False) -> None:
        """Copies rank `root`'s bytes to all members, in place. `data`: a writable contiguous buffer, a
        tensor, or Raw; if the daemon serves a GPU also a tensor, or Raw, of that GPU. So it is with all
        collectives.

        sealed   data that was changed on its way between hosts is refused: ProtocolError, with the rank that
                 sent it. That takes the daemons about a second per GiB, and nothing on one host. All members
                 give the same. So it is with allgather(), too
        """
        function = library().broadcast_sealed if sealed else library().broadcast
        with self._memory_of(data, True) as raw:
            self._collective(function, raw.address, raw.nbytes, root, held=data)

    def allgather(self, data: Any, out: Any, *, sealed: bool = False) -> None:
        """Gathers `data` of each member, in the order of ranks, in `out` (world × its size)."""
        function = library().allgather_sealed if sealed else library().allgather
        with self._memory_of(data, False) as one, self._memory_of(out, True) as all_of_them:
            self._fits("allgather", all_of_them, one)
            self._collective(function, one.address, all_of_them.address, one.nbytes, held=(data, out))

    def reduce_scatter(self, data: Any, out: Any, dtype: DType, reduce: Reduce = Reduce.SUM) -> None:
        """Reduces `data` (world × the size of `out`) and leaves part `rank` of the result in `out`."""
        with self._memory_of(data, False) as whole, self._memory_of(out, True) as part:
            count = self._count(part, dtype, "reduce_scatter")
            self._fits("reduce_scatter", whole, part)
            self._collective(library().reduce_scatter, whole.address, part.address, count, dtype, reduce,
                             held=(data, out))

    def allreduce(self, data: Any, dtype: DType, reduce: Reduce = Reduce.SUM) -> None:
        """Reduces `data` over all members, in place. AVG divides by the world size."""
        with self._memory_of(data, True) as raw:
            self._collective(library().allreduce, raw.address, self._count(raw, dtype, "allreduce"), dtype,
                             reduce, held=data)

    def _fits(self, what: str, whole: Raw, part: Raw) -> None:
        if whole.nbytes != part.nbytes * self.world_size:
            raise InvalidError(f"{what}: {whole.nbytes} bytes are not {self.world_size} times {part.nbytes}")

    @staticmethod
    def _count(raw: Raw, dtype: DType, what: str) -> int:
        count, rest = divmod(raw.nbytes, DType(dtype).itemsize)
        if rest:
            raise InvalidError(f"{what}: {raw.nbytes} bytes are no whole number of {DType(dtype).name}")
        return count

    def sync_state(self, pieces: Sequence[Any], step: int) -> int:
        """Brings the state of all members to the newest one among them, in place, and returns its count of
        steps.

        pieces   writable buffers, tensors or Raw: parameters, momentum, … the same in number and sizes on all
                 members. Between hosts they are sealed, as in broadcast()
        step     this trainer's count of steps that are in its state; 0 if it has none

        All members call it before the first step and after each VoidBehind. MemberLostError: no state is
        whole any more, restart from a checkpoint.
        """
        with contextlib.ExitStack() as stack:
            raws = [stack.enter_context(self._memory_of(each, True)) for each in pieces]
            state = (StateStruct * len(raws))(*(StateStruct(raw.address, raw.nbytes) for raw in raws))
            count = ctypes.c_uint64(step)
            self._collective(library().sync_state, state, len(raws), count, held=(pieces, state))
            return count.value

    # ---- the end

    def leave(self) -> None:
        """Gives the membership up, and ends plans and memory; waits for the daemon. Gradients that are in use
        stay mapped. The job is gone then, also if an exception is raised, except for Again and StateError.

        StateError    another thread is in a call on this job, or the caller is its stall callback
        BufferError   gradients in the daemon's memory (arena=True) are in use
        """
        if self._handle is None:
            return
        for plan in self._plans:
            plan._refuse_lent("Job.leave()")
        self._inside.end("Job.leave()")
        try:
            self._connection._inside.wait(library().leave, self._handle)
        except BaseException as error:
            if not isinstance(error, GradsyncError) or isinstance(error, (Again, StateError)) \
                    or error.result in (20, 23):
                self._inside.go_on()
            else:
                self._end()
            raise
        self._end()

    def _end(self) -> None:
        self._handle = None
        for plan in self._plans:
            plan._end()
        for memory in self._memories:
            memory._end()
        self._plans.clear()
        self._memories.clear()
        self._making = self._held = self._allocated = None
        self._forget_registering()
        self._connection._jobs.discard(self)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
