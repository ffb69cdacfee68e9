# SPDX-License-Identifier: Apache-2.0
"""Memory of this process's own that gradients lie in.

It is mapped by this package and stays mapped for as long as any object refers to it, whatever becomes of the
plan, the job and the connection: a tensor on a gradient never dangles.
"""
from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import weakref
from typing import TYPE_CHECKING, Any

from . import _cuda, _dlpack
from ._dlpack import DeviceArray
from ._native import library
from .errors import InvalidError, NoMemoryError, StateError, SystemCallError
from .types import DType

if TYPE_CHECKING:
    from .job import Job

MADV_DONTFORK = 10
PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _unmap(pid: int, address: int, nbytes: int) -> None:
    """Unmaps memory; does nothing in a child, which does not have the mapping (MADV_DONTFORK)."""
    if os.getpid() == pid:
        _libc.munmap(address, nbytes)


def _failed(what: str) -> Exception:
    number = ctypes.get_errno()
    kind = NoMemoryError if number == errno.ENOMEM else SystemCallError
    return kind(f"{what}: {os.strerror(number)}")


def allocate(nbytes: int) -> tuple[int, ctypes.Array[Any]]:
    """Makes a memfd of at least `nbytes` bytes, with the seals that gradsync asks for, and maps all of it,
    for this process and not for its children. The caller owns the descriptor. The mapping lives as long as
    the array and all objects that were made of it."""
    size = max(-(-nbytes // PAGE) * PAGE, PAGE)
    fd = os.memfd_create("python-gradients", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            raise _failed(f"mapping {size} bytes for gradients")
        if _libc.madvise(address, size, MADV_DONTFORK) < 0:
            problem = _failed("madvise(MADV_DONTFORK)")
            _libc.munmap(address, size)
            raise problem
    except BaseException:
        os.close(fd)
        raise
    whole = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(whole, _unmap, os.getpid(), address, size).atexit = False
    return fd, whole


class Memory:
    """Registered memory, in which parameters of a job's plans can be placed. Made by Job.memory() or
    Job.register(); all offsets and sizes are bytes."""

    def __init__(self, job: Job, handle: int, nbytes: int,
                 whole: ctypes.Array[Any] | _cuda.Allocation | None) -> None:
        self._job = job
        self._handle: int | None = handle
        #: Size in bytes.
        self.nbytes = nbytes
        #: Address at which it is mapped in this process.
        self.address: int = library().memory_address(handle)
        self._whole = whole

    @property
    def buffer(self) -> ctypes.Array[Any]:
        """The whole memory, as a writable buffer of bytes that keeps it mapped. StateError if this package
        has not mapped it (Job.register())."""
        if not isinstance(self._whole, ctypes.Array):
            raise StateError("this memory was mapped by others: use what has mapped it" if self._whole is None
                             else "this memory is on a GPU, and no CPU can read there: use array()")
        return self._whole

    def array(self, dtype: DType, offset: int, elements: int) -> DeviceArray:
        """A part of the memory, if that is on a GPU. The array keeps the whole memory where it is. StateError
        for memory of the host, or memory that this package has not allocated."""
        if not isinstance(self._whole, _cuda.Allocation):
            raise StateError("array() is for memory of a GPU that Job.memory() has made")
        if offset < 0 or elements < 0 or offset + elements * dtype.itemsize > self.nbytes:
            raise InvalidError(f"{elements} elements of {dtype.name} at {offset} are not within "
                               f"{self.nbytes} bytes")
        return DeviceArray(self.address + offset, dtype, elements, (_dlpack.CUDA, self._whole.ordinal),
                           self._whole)

    def unregister(self) -> None:
        """Takes the memory back: the daemon has no access to it any more. It stays mapped here.

        StateError if a plan has parameters in it: free the plan first.
        """
        if self._handle is None:
            return
        self._job._wait(library().unregister, self._handle)
        self._handle = None
        self._job._memories.discard(self)

    def _end(self) -> None:
        """The job has ended: the library does not know this memory any more."""
        self._handle = None

    def __repr__(self) -> str:
        return f"<gradsync.Memory of {self.nbytes} bytes{'' if self._handle else ', unregistered'}>"
