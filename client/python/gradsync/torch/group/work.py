# SPDX-License-Identifier: Apache-2.0
"""The result of an operation of a group: a Work of torch, which is done at once, or later."""
from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ...errors import StateError

#: The value that torch passes for a time-out when the caller gives none.
NO_TIMEOUT = timedelta(0)


class _Callbacks:
    """Threads that complete futures. Callbacks run there, and may wait for other operations: there are as
    many threads as callbacks that run at a time."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """In a child process, which has none of the threads."""
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        self._guard = threading.Lock()

    def run(self, task: Callable[[], None]) -> None:
        with self._guard:
            if self._idle > 0:
                self._idle -= 1
                self._tasks.put(task)
                return
        threading.Thread(target=self._run_all, args=(task,), name="gradsync-callbacks", daemon=True).start()

    def _run_all(self, task: Callable[[], None]) -> None:
        while True:
            task()
            with self._guard:
                self._idle += 1
            del task                    # it has tensors
            task = self._tasks.get()


_callbacks = _Callbacks()
os.register_at_fork(after_in_child=_callbacks.begin_anew)


class GroupWork(dist.Work):
    """An operation of a group. wait() raises what has gone wrong."""

    def __init__(self, what: str, result: list[torch.Tensor]) -> None:
        super().__init__()
        self.what, self._result = what, result
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._end: torch.futures.Future[None] | None = None
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None
        self._guard = threading.Lock()

    def finish(self, error: BaseException | None = None) -> None:
        """The operation has ended, well or with an error."""
        with self._guard:
            self._error = error
            self._over.set()
            end = self._end
        if end is not None:
            _callbacks.run(lambda: end.set_result(None))

    def is_completed(self) -> bool:
        return self._over.is_set()

    def is_success(self) -> bool:
        return self._over.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        seconds = timeout.total_seconds()
        if not self._over.wait(seconds if seconds > 0 else None):
            raise RuntimeError(f"gradsync: {self.what} has not ended within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return True

    def _outcome(self, _end: torch.futures.Future[None]) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._result

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """The error of a future that fails in a callback is one for torch's C++ code, too. That takes what
        Future.set_exception() sets for a value."""
        with self._guard:
            if self._future is None:
                self._end = torch.futures.Future()
                self._future = self._end.then(self._outcome)
                if self._over.is_set():
                    self._end.set_result(None)
            return self._future


class Performer:
    """Performs the operations of a group one after the other, in the order in which they are begun: in the
    caller's thread if it will wait at once and none is under way, else in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[tuple[GroupWork, Callable[[], None]] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._order = threading.Lock()          # held by the thread that performs
        self._count = threading.Lock()
        self._thread: threading.Thread | None = None
        self._broken = ""
        weakref.finalize(self, self._tasks.put, None)

    @property
    def busy(self) -> bool:
        """Operations have been begun, and have not ended."""
        return self._waiting > 0 or self._order.locked()

    def perform(self, work: GroupWork, task: Callable[[], None], waits: bool) -> GroupWork:
        """`waits`: the caller will wait at once."""
        if self._broken:
            raise StateError(f"gradsync: {self._broken} was interrupted, and may have ended on other ranks: "
                             "this group can do nothing more; destroy it")
        if waits and self._waiting == 0 and self._order.acquire(blocking=False):
            try:
                with torch.no_grad():
                    task()
            except Exception:
                raise
            except BaseException:               # Ctrl-C: its memory is in use until the job is left
                self._broken = work.what
                raise
            finally:
                self._order.release()
            work.finish()
            return work
        with self._count:
            self._waiting += 1
        if self._thread is None:
            self._thread = threading.Thread(target=_perform_all, args=(weakref.ref(self), self._tasks),
                                            name=f"gradsync-{self._name}", daemon=True)
            self._thread.start()
        self._tasks.put((work, task))
        return work

    def one(self, work: GroupWork, task: Callable[[], None]) -> None:
        error: BaseException | None = None
        with self._order:
            try:
                with torch.no_grad():
                    task()
            except Exception as problem:
                trace = problem.__traceback__
                error = problem.with_traceback(trace.tb_next if trace is not None else None)
        with self._count:
            self._waiting -= 1
        work.finish(error)

    def end(self) -> None:
        """Waits for operations that have been begun; the thread ends."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None


def _perform_all(performer: weakref.ref[Performer], tasks: queue.SimpleQueue[Any]) -> None:
    while (each := tasks.get()) is not None:
        made = performer()
        if made is None:
            return
        made.one(*each)
        del made, each
