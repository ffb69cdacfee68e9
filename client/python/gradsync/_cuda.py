# SPDX-License-Identifier: Apache-2.0
"""Memory of a GPU that this process allocates and shares: made by the driver's functions for virtual memory,
so that it goes to other processes as a descriptor, whichever user they run as.

Functions of the driver return a CUresult; those that are used here are there since CUDA 12.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Iterator
from ctypes import (POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64,
                    c_ulonglong, c_void_p)
from typing import Any

from .errors import NoMemoryError, SystemCallError, UnsupportedError

_PINNED = _DEVICE = _DESCRIPTOR = _RECOMMENDED = _LEGACY_STREAM = 1
_READ_WRITE = 3
_OUT_OF_MEMORY = 2


class _Location(Structure):
    """CUmemLocation"""

    _fields_ = [("type", c_uint), ("id", c_int)]


class _Properties(Structure):
    """CUmemAllocationProp"""

    _fields_ = [("type", c_uint), ("handle_types", c_uint), ("location", _Location), ("win32", c_void_p),
                ("flags", c_ubyte * 8)]


class _Access(Structure):
    """CUmemAccessDesc"""

    _fields_ = [("location", _Location), ("flags", c_uint)]


# Each function with the version at which it is asked for, and its arguments.
_FUNCTIONS: dict[str, tuple[int, list[Any]]] = {
    "cuInit": (2000, [c_uint]),
    "cuGetErrorName": (6000, [c_int, POINTER(c_char_p)]),
    "cuMemGetAllocationGranularity": (10020, [POINTER(c_size_t), POINTER(_Properties), c_uint]),
    "cuMemCreate": (10020, [POINTER(c_uint64), c_size_t, POINTER(_Properties), c_ulonglong]),
    "cuMemRelease": (10020, [c_uint64]),
    "cuMemAddressReserve": (10020, [POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_ulonglong]),
    "cuMemAddressFree": (10020, [c_uint64, c_size_t]),
    "cuMemMap": (10020, [c_uint64, c_size_t, c_size_t, c_uint64, c_ulonglong]),
    "cuMemUnmap": (10020, [c_uint64, c_size_t]),
    "cuMemSetAccess": (10020, [c_uint64, c_size_t, POINTER(_Access), c_size_t]),
    "cuCtxSynchronize": (2000, []),
    "cuCtxGetCurrent": (4000, [POINTER(c_void_p)]),
    "cuCtxSetCurrent": (4000, [c_void_p]),
    "cuDevicePrimaryCtxRetain": (7000, [POINTER(c_void_p), c_int]),
    "cuDevicePrimaryCtxRelease": (11000, [c_int]),
}


class Driver:
    """The functions above, each an attribute that raises an exception if the driver reports a failure."""

    def __init__(self) -> None:
        name = os.environ.get("GRADSYNC_CUDA_DRIVER") or "libcuda.so.1"
        try:
            library = ctypes.CDLL(name)
            find = library.cuGetProcAddress_v2
        except (OSError, AttributeError) as problem:
            raise UnsupportedError(f"there is no NVIDIA driver that can be used: {problem}") from None
        for function, (version, arguments) in _FUNCTIONS.items():
            address, found = c_void_p(), c_int()
            if find(function.encode(), byref(address), version, c_uint64(_LEGACY_STREAM), byref(found)):
                raise UnsupportedError(f"the driver {name} lacks {function}")
            bound = ctypes.CFUNCTYPE(c_int, *arguments)(address.value or 0)
            setattr(self, function, self._checked(function, bound))
        self.cuInit(0)

    def _checked(self, name: str, function: Any) -> Any:
        def call(*arguments: Any) -> None:
            result = function(*arguments)
            if result:
                kind = NoMemoryError if result == _OUT_OF_MEMORY else SystemCallError
                raise kind(f"{name}: {self._name_of(result)}")
        return call

    def _name_of(self, result: int) -> str:
        text = c_char_p()
        try:
            self.cuGetErrorName(result, byref(text))
        except (SystemCallError, RecursionError):
            return f"CUDA error {result}"
        return (text.value or b"?").decode()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the driver has no function {name}")


class Allocation:
    """A range of addresses of the GPU with the memory there. It is freed when nothing refers to it any more,
    and keeps the GPU's primary context until then."""

    def __init__(self, driver: Driver, ordinal: int, nbytes: int) -> None:
        self.ordinal = ordinal
        with _context(driver, ordinal):
            properties = _Properties(_PINNED, _DESCRIPTOR, _Location(_DEVICE, ordinal))
            unit = c_size_t()
            driver.cuMemGetAllocationGranularity(byref(unit), byref(properties), _RECOMMENDED)
            self.nbytes = -(-max(nbytes, 1) // unit.value) * unit.value
            self.address = _make(driver, properties, self.nbytes)
            driver.cuDevicePrimaryCtxRetain(byref(c_void_p()), ordinal)
        weakref.finalize(self, _free, driver, os.getpid(), ordinal, self.address, self.nbytes).atexit = False


@contextlib.contextmanager
def _context(driver: Driver, ordinal: int) -> Iterator[None]:
    """Within it, the GPU's primary context is current in this thread."""
    context, before = c_void_p(), c_void_p()
    driver.cuCtxGetCurrent(byref(before))
    driver.cuDevicePrimaryCtxRetain(byref(context), ordinal)
    try:
        driver.cuCtxSetCurrent(context)
        yield
    finally:
        driver.cuCtxSetCurrent(before)
        driver.cuDevicePrimaryCtxRelease(ordinal)


def _make(driver: Driver, properties: _Properties, nbytes: int) -> int:
    handle, address = c_uint64(), c_uint64()
    driver.cuMemCreate(byref(handle), nbytes, byref(properties), 0)
    try:
        driver.cuMemAddressReserve(byref(address), nbytes, 0, 0, 0)
        try:
            driver.cuMemMap(address, nbytes, 0, handle, 0)
            access = _Access(properties.location, _READ_WRITE)
            driver.cuMemSetAccess(address, nbytes, byref(access), 1)
        except BaseException:
            _unmap(driver, address.value, nbytes)
            raise
    finally:
        driver.cuMemRelease(handle)         # the mapping keeps the memory
    return address.value


def _unmap(driver: Driver, address: int, nbytes: int) -> None:
    for function in (driver.cuMemUnmap, driver.cuMemAddressFree):
        with contextlib.suppress(SystemCallError):      # it was never mapped, or the GPU has failed
            function(address, nbytes)


def _free(driver: Driver, pid: int, ordinal: int, address: int, nbytes: int) -> None:
    """Frees an allocation; does nothing in a child, where the driver is of no use."""
    if os.getpid() != pid:
        return
    with contextlib.suppress(SystemCallError), _context(driver, ordinal):
        with contextlib.suppress(SystemCallError):
            driver.cuCtxSynchronize()       # kernels that use it may be under way
        _unmap(driver, address, nbytes)
        driver.cuDevicePrimaryCtxRelease(ordinal)


_driver: Driver | None = None


def allocate(ordinal: int, nbytes: int) -> Allocation:
    """Allocates at least `nbytes` bytes, with undefined contents, on the GPU of this number."""
    global _driver
    if _driver is None:
        _driver = Driver()
    return Allocation(_driver, ordinal, nbytes)
