# SPDX-License-Identifier: Apache-2.0
"""Connections to a daemon."""
from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar

from . import _alone
from ._call import Inside, check, failure
from ._native import DeviceStruct, JoinOptionsStruct, OptionsStruct, StallFunction, library
from .errors import (Again, GradsyncError, InvalidError, NoDaemonError, RankTakenError, StateError,
                     UnsupportedError)
from .job import Job, _encode
from .types import Device, Stall

P = ParamSpec("P")
T = TypeVar("T")


def _milliseconds(seconds: float | None, default: int = 0) -> int:
    """Seconds as the library's milliseconds: there 0 is the default, and -1 means never, or for ever."""
    if seconds is None:
        return default
    return -1 if seconds < 0 else max(1, round(seconds * 1000))


def _text(value: str | os.PathLike[str] | None) -> bytes | None:
    return None if value is None else _encode(os.fspath(value))


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


class Connection:
    """A connection to one daemon. Opens at once, in 10 s at most, and is a context manager that closes.

    socket             path of the daemon's socket; None: GRADSYNC_SOCKET, else the default places of `device`
    device             None: GRADSYNC_DEVICE, else that of the GPU whose context is current in this thread, if
                       a daemon serves it, else "cpu"
    program            name in `gradsyncctl status`; None: the process's own
    reconnect_timeout  seconds to wait for a daemon that is lost; negative: not at all; None:
                       GRADSYNC_RECONNECT_TIMEOUT, else 30 s
    nonblocking        calls that would wait raise Again: see fileno()
    stall              called as stall(job, Stall), once per stall, in a thread that is in a waiting call or
                       in dispatch(): it says whom that call waits for. It may make any call except leave() of
                       that job and close(). An exception of the callback is raised by the call when that
                       returns. The job is None while it is being joined

    Opening raises NoDaemonError, DeniedError, VersionError, QuotaError or UnsupportedError.

    Threads: Plan.ready(), absent() and wait() from any; one thread at a time for the other calls on a job.
    Waiting calls release the interpreter lock.

    Signals: a waiting call runs Python's signal handlers and goes on. An exception of a handler, such as
    KeyboardInterrupt at Ctrl-C, ends the wait; the same call, made again, goes on where it was.

    Fork: a child inherits neither the connection nor the memory of gradients; its calls raise ForkedError.
    """

    def __init__(self, socket: str | os.PathLike[str] | None = None, *, device: str | None = None,
                 program: str | None = None, reconnect_timeout: float | None = None,
                 nonblocking: bool = False, stall: Callable[[Job | None, Stall], None] | None = None) -> None:
        self._handle: int | None = None
        self._inside = Inside("connection")
        self._jobs: set[Job] = set()
        self._pid = os.getpid()
        self._stall = stall
        self._device: Device | None = None
        self._waiters: list[asyncio.Future[None]] = []
        #: Kept for as long as the library may call it.
        self._callback = StallFunction(self._stalled) if stall is not None else StallFunction()
        self.nonblocking = nonblocking
        options = OptionsStruct(ctypes.sizeof(OptionsStruct), _text(socket), _text(device), _text(program),
                                _milliseconds(reconnect_timeout), nonblocking, self._callback, None)
        handle = ctypes.c_void_p()
        result = library().open(handle, options)
        if result:
            raise failure(result)
        self._handle = handle.value

    def _stalled(self, _data: int | None, address: int | None, told: Any) -> None:
        try:
            stall = told.contents
            job = next((each for each in list(self._jobs) if each._handle == address), None)
            assert self._stall is not None
            self._stall(job, Stall(step=stall.step, rank=stall.rank, pid=stall.pid,
                                   process_state=stall.process_state.decode("utf-8", "replace"),
                                   bucket=stall.bucket, parameter=stall.parameter.decode("utf-8", "replace"),
                                   since_ms=stall.since_ms, text=stall.text.decode("utf-8", "replace"),
                                   host=stall.host.decode("utf-8", "replace")))
        except BaseException as raised:  # no exception passes through the library
            self._inside.raised[threading.get_ident()] = raised

    def __repr__(self) -> str:
        return f"<gradsync.Connection{'' if self._handle else ', closed'}>"

    def _check(self) -> None:
        if self._handle is None:
            raise StateError("the connection has been closed")

    @property
    def _is_gpu(self) -> bool:
        return self._handle is not None and self.device.ordinal is not None

    @property
    def device(self) -> Device:
        """The device that the daemon serves. UnsupportedError if that is a GPU which this process does not
        see or cannot use."""
        if self._device is None:
            self._check()
            raw = DeviceStruct(ctypes.sizeof(DeviceStruct), b"", b"", -1)
            check(library().device(self._handle, raw))
            self._device = Device(raw.name.decode("utf-8", "replace"), raw.uuid.decode(),
                                  raw.ordinal if raw.ordinal >= 0 else None)
        return self._device

    def join(self, name: str | None = None, *, world_size: int | None = None, min_world: int | None = None,
             max_world: int | None = None, rank: int | None = None, local_rank: int | None = None,
             incarnation: int | None = None, timeout: float | None = None, last_call: float | None = None,
             rejoin_grace: float | None = None, token: str | None = None, instance: int | None = None,
             spare: bool | None = None, scope: Literal["host", "cluster"] | None = None,
             sequential: bool = False) -> Job:
        """Becomes a member of a job; waits until it has formed. An argument that is None comes from the
        environment: from `gradsyncctl run`, torchrun, Slurm or Kubernetes (gradsync.h, WHICH JOB AM I IN?).
        Times are seconds.

        world_size            the number of members; or min_world and max_world, between which it may change
        rank, local_rank      granted or refused, never replaced
        incarnation           counts restarts of the whole job
        timeout               of join and plan; negative: none; default 5 min
        last_call             once min_world is reached, how long to wait for more; default 2 s
        rejoin_grace          how long a lost member's place is kept; negative: not at all
        token                 a secret that all members bring
        instance              which process of its rank this is: 1 for the first; negative: none
        spare                 if the job is full, wait for the place of a lost member
        scope                 "host": all members are on this daemon; "cluster": on any of its coordinator
        sequential            calls on the job come one after the other, whichever threads they come from: see
                              DEADLOCKS in gradsync.h. Without it that is known of a single thread only

        Without a daemon, a name and a launcher the process is a job of its own, and says so on stderr. A
        child of multiprocessing is refused, since its siblings would be jobs of their own, too.

        TimedOutError (the text names the ranks that are missing), RankTakenError, JobFullError, StaleError,
        QuotaError, DeniedError, MemberLostError, NoDaemonError, InvalidError, StateError.
        """
        self._check()
        if world_size is not None and (min_world is not None or max_world is not None):
            raise TypeError("world_size, or min_world and max_world")
        options = JoinOptionsStruct(
            ctypes.sizeof(JoinOptionsStruct), _text(name), _or(min_world, _or(world_size, 0)),
            _or(max_world, _or(world_size, 0)), _or(rank, -1), _or(local_rank, -1), _or(incarnation, -1),
            _milliseconds(timeout), _milliseconds(last_call), _milliseconds(rejoin_grace), _text(token),
            _or(instance, 0), 0 if spare is None else 1 if spare else -1, _text(scope),
            sequential)
        handle = ctypes.c_void_p()
        asked = (name, world_size, min_world, max_world, rank) != (None,) * 5
        try:
            self._inside.wait(library().join, self._handle, options, handle)
        except (InvalidError, NoDaemonError, RankTakenError) as error:
            if _alone.is_spawned() and (not asked or isinstance(error, NoDaemonError)):
                raise _alone.explained(error, asked) from None
            raise
        assert handle.value is not None
        job = Job(self, handle.value)
        self._jobs.add(job)
        if not asked:
            self._look_whether_alone(job)
        return job

    def _look_whether_alone(self, job: Job) -> None:
        """Says on stderr that the job is a world of one that the caller has not asked for, or refuses it."""
        if job.world_size > 1:
            return
        served, spawned = self._is_served(), _alone.is_spawned()
        if served and not spawned:
            return
        if spawned:
            with contextlib.suppress(GradsyncError):
                job.leave()
            raise _alone.refusal(served)
        _alone.tell("no gradsyncd is reachable, and no launcher has named a job. To train in several "
                    "processes: gradsyncctl run -n N -- …")

    def _is_served(self) -> bool:
        """Whether there is a daemon. If this process cannot use its GPU, that shows later, when it has to."""
        try:
            return self.device.name != ""
        except UnsupportedError:
            return True

    def fileno(self) -> int:
        """A descriptor that is readable when dispatch() has something to do; -1 in a child process. With it,
        a connection that does not block fits into any loop:

            with gradsync.Connection(nonblocking=True) as gs, selectors.DefaultSelector() as loop:
                loop.register(gs, selectors.EVENT_READ)
                def complete(function, *arguments):
                    while True:
                        try:
                            return function(*arguments)     # the same call, until it does not raise Again
                        except gradsync.Again:
                            loop.select()
                            gs.dispatch()
                job = complete(gs.join)

        With asyncio: job = await gs.complete(gs.join).
        """
        return int(library().fd(self._handle))

    def dispatch(self) -> None:
        """Takes what the daemon has sent and sends what is due, without waiting; runs the stall callback. If
        the connection is over, raises the reason."""
        self._check()
        self._inside.wait(library().dispatch, self._handle)

    async def complete(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Calls a function of a connection that does not block, and again whenever the daemon has sent
        something, until it does not raise Again:

            async def train():
                with gradsync.Connection(nonblocking=True) as gs:
                    job = await gs.complete(gs.join)
                    plan = await gs.complete(job.plan, params)
                    ...
                    info = await gs.complete(plan.finish)
                    await gs.complete(job.leave)

        A task that is cancelled leaves the call where it was.
        """
        while True:
            try:
                return function(*arguments, **options)
            except Again:
                await self._looked()

    async def _looked(self) -> None:
        """Waits until the daemon has sent something. Several tasks may wait, each for a call of its own: a
        message may be for any of them."""
        loop, fd = asyncio.get_running_loop(), self.fileno()
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiters:
            loop.add_reader(fd, self._look)
        self._waiters.append(future)
        try:
            await future
        finally:
            if future in self._waiters:
                self._waiters.remove(future)
            if not self._waiters:
                loop.remove_reader(fd)

    def _look(self) -> None:
        """Takes the messages that have come, once, and lets all tasks make their calls again: these raise
        errors, if there are any."""
        waiters, self._waiters = self._waiters, []
        asyncio.get_running_loop().remove_reader(self.fileno())
        raised: BaseException | None = None
        try:
            self.dispatch()
        except GradsyncError:
            pass
        except Exception as error:      # raised by the stall callback
            raised = error
        for waiter in waiters:
            if waiter.done():
                continue
            if raised is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(raised)
                raised = None

    def close(self) -> None:
        """Ends the connection and everything that was made through it. The other members of a job that was
        not left see this one as lost. Gradients that are in use stay mapped. Never waits.

        StateError    a thread is in a call on this connection, or the caller is its stall callback
        BufferError   gradients in the daemon's memory (arena=True) are in use
        """
        if self._handle is None:
            return
        if os.getpid() != self._pid:
            self._inside.forget()
        for job in self._jobs:
            for plan in job._plans:
                plan._refuse_lent("Connection.close()")
        self._inside.end("Connection.close()")
        handle, self._handle = self._handle, None
        for job in list(self._jobs):
            job._end()
        library().close(handle)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and os.getpid() == self._pid:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
            with contextlib.suppress(StateError, BufferError):
                self.close()
