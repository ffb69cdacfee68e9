# SPDX-License-Identifier: Apache-2.0
"""The way that every call takes: a call that a signal has interrupted is repeated, failures become
exceptions, and buffers become addresses."""
from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ._native import CulpritStruct, library
from .errors import CLASSES, GradsyncError, Result, StateError
from .types import Raw

INTERRUPTED = int(Result.INTERRUPTED)


def failure(result: int) -> GradsyncError:
    """The exception for the result of this thread's last call."""
    lib = library()
    text: bytes = lib.error()
    whom = CulpritStruct(size=ctypes.sizeof(CulpritStruct))
    lib.culprit(whom)
    return CLASSES.get(result, GradsyncError)(
        text.decode("utf-8", "replace"), result=None if result in CLASSES else result,
        rank=whom.rank if whom.rank >= 0 else None, pid=whom.pid or None,
        parameter=whom.parameter.decode("utf-8", "replace") or None)


def check(result: int) -> None:
    """Raises the exception for a result, if it is one. For calls that never wait."""
    if result:
        raise failure(result)


class Inside:
    """The threads that are in a waiting call on a connection or a job. It must not be ended meanwhile."""

    def __init__(self, of: str, outer: Inside | None = None) -> None:
        self._of = of
        self._outer = outer
        self._threads: set[int] = set()
        self._ending = False
        #: The exception of a stall callback, for the call in which it ran.
        self.raised: dict[int, BaseException] = {}

    def wait(self, function: Any, *arguments: Any) -> None:
        """Calls a function that may wait. Signal handlers of Python run in between, so that Ctrl-C ends the
        wait with KeyboardInterrupt; the same call, made again, goes on where it was."""
        me = threading.get_ident()
        nested = me in self._threads
        self._threads.add(me)
        try:
            if self._ending and not nested:
                raise StateError(f"the {self._of} is being ended")
            if self._outer is not None:
                return self._outer.wait(function, *arguments)
            while True:
                result = function(*arguments)
                if result != INTERRUPTED:
                    break
            error = failure(result) if result else None
        finally:
            if not nested:
                self._threads.discard(me)
        if self.raised and not nested and (raised := self.raised.pop(me, None)) is not None:
            raise raised
        if error is not None:
            try:
                raise error
            finally:
                del error               # it refers to this frame, and so to all objects that the callers hold

    def end(self, call: str) -> None:
        """No thread enters from now on. StateError if a thread that lives is inside: also one that Python has
        not started, as autograd's for a GPU."""
        if self._ending:
            raise StateError(f"{call}: the {self._of} is being ended")
        self._ending = True
        if self._threads & sys._current_frames().keys():
            self._ending = False
            raise StateError(f"{call}: a thread is in a call on this {self._of}, or this is its stall "
                             "callback; let the call return first")

    def go_on(self) -> None:
        """Threads may enter again: the connection or the job was not ended."""
        self._ending = False

    def forget(self) -> None:
        """Forgets all threads, in a child process, which has one."""
        self._threads.clear()
        self._ending = False


class _PyBuffer(ctypes.Structure):
    """Py_buffer, which is a part of the stable ABI."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None
_SIMPLE, _WRITABLE = 0, 1


def _raw_of_tensor(thing: Any, gpu: bool) -> Raw:
    if thing.device.type == "cuda" and gpu:
        # The library copies in a stream of its own, which does not wait for the work in the tensor's stream.
        sys.modules["torch"].cuda.current_stream(thing.device).synchronize()
    elif thing.device.type != "cpu":
        raise ValueError(f"a tensor on {thing.device}: only memory of the host"
                         f"{', or of a GPU,' if gpu else ''} can be given to this daemon")
    if not thing.is_contiguous():
        raise ValueError("a tensor that is not contiguous: give its .contiguous() copy")
    return Raw(thing.data_ptr(), thing.numel() * thing.element_size())


@contextlib.contextmanager
def memory_of(thing: Any, writable: bool, gpu: bool = False) -> Iterator[Raw]:
    """Address and size of a contiguous buffer, a tensor, or Raw; a buffer cannot be resized meanwhile. `gpu`:
    memory of a GPU can be given, too."""
    if isinstance(thing, Raw):
        yield thing
        return
    if hasattr(thing, "data_ptr"):
        yield _raw_of_tensor(thing, gpu)
        return
    view = _PyBuffer()
    _get_buffer(thing, ctypes.byref(view), _WRITABLE if writable else _SIMPLE)
    try:
        yield Raw(view.buf or 0, view.len)
    finally:
        _release_buffer(ctypes.byref(view))
