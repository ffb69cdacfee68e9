# SPDX-License-Identifier: Apache-2.0
"""Memory by its address, for every library that speaks DLPack: without a copy, on a GPU too.

The structures are those of version 0 of DLPack's C header, whose capsules are named "dltensor"
(https://dmlc.github.io/dlpack/latest/c_api.html). A consumer renames the capsule and calls the deleter when
it has no more use for the memory, in any thread.

The deleter is no function of Python. That would lose an exception that is on its way through the consumer,
and could not run at all after the interpreter's end, where tensors may still live. So the deleter is time()
of the C library: it writes the clock over the address of the memory, and settle() finds that. Capsules have
no destructor for the same reason: settle() finds those to which only this module refers any more.
"""
from __future__ import annotations

import ctypes
import gc
import itertools
import sys
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64
from typing import Any, NamedTuple

from .types import DType

CPU, CUDA = 1, 2
_NAME, _INT, _UINT, _FLOAT, _BFLOAT = b"dltensor", 0, 1, 2, 4
_CODES = {DType.F32: _FLOAT, DType.F64: _FLOAT, DType.F16: _FLOAT, DType.BF16: _BFLOAT, DType.I32: _INT,
          DType.I64: _INT, DType.U8: _UINT}


class _Device(Structure):
    _fields_ = [("type", c_int32), ("ordinal", c_int32)]


class _Element(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("dimensions", c_int32), ("dtype", _Element),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("offset", c_uint64)]


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_keep_for_ever = ctypes.pythonapi.Py_IncRef
_keep_for_ever.restype = None
_keep_for_ever.argtypes = [ctypes.py_object]
_deleter = ctypes.cast(ctypes.CDLL(None).time, ctypes.c_void_p).value


class _Export(NamedTuple):
    """Memory that a consumer has, or may take: the structure, its data, and the object that keeps the
    memory."""

    managed: _Managed
    address: int
    shape: ctypes.Array[c_int64]
    keep: Any
    capsule: Any

    def references(self) -> int:
        """The number of references to the capsule."""
        return sys.getrefcount(self.capsule)

    def is_over(self) -> bool:
        """Whether the consumer has called the deleter, or there is no consumer and never will be."""
        return self.managed.tensor.data != self.address or (
            self.references() == _OURS_ALONE and bool(_is_valid(self.capsule, _NAME)))


def _export(address: int, dtype: DType, elements: int, device: tuple[int, int], keep: Any) -> _Export:
    shape = (c_int64 * 1)(elements)
    tensor = _Tensor(address, _Device(*device), 1, _Element(_CODES[dtype], 8 * dtype.itemsize, 1), shape,
                     None, 0)
    managed = _Managed(tensor, None, _deleter)
    return _Export(managed, address, shape, keep, _new_capsule(ctypes.addressof(managed), _NAME, None))


_OURS_ALONE = _export(1, DType.U8, 1, (CPU, 0), None).references()

#: Consumers may have these for longer than the interpreter lives: exports that are left at its end are never
#: freed.
_exports: dict[int, _Export] = {}
_keep_for_ever(_exports)
_numbers = itertools.count(1)


def settle() -> None:
    """Gives back the memory for which no consumer has any use."""
    for number, export in _exports.copy().items():
        if export.is_over():
            _exports.pop(number, None)


def _collected(phase: str, _info: dict[str, int]) -> None:
    """Called when garbage was collected: tensors may have been among it."""
    if _exports and phase == "stop":
        settle()


gc.callbacks.append(_collected)


def capsule(address: int, dtype: DType, elements: int, device: tuple[int, int], keep: Any) -> Any:
    """A capsule of a flat array of `elements` elements. `keep` lives until settle() finds that the consumer
    has no more use for the array. settle() is called here, and whenever garbage has been collected."""
    settle()
    export = _export(address, dtype, elements, device, keep)
    _exports[next(_numbers)] = export
    return export.capsule


class DeviceArray:
    """A flat gradient on a GPU, which torch.from_dlpack(), cupy.from_dlpack() and the like take without a
    copy. It may be read and written whenever the gradient is this process's: the average is complete then,
    for work in any stream."""

    def __init__(self, address: int, dtype: DType, elements: int, device: tuple[int, int],
                 keep: object = None) -> None:
        #: Address on the GPU: no CPU can read there.
        self.address = address
        self.dtype = dtype
        self.elements = elements
        self._device = device
        self._keep = keep

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.dtype.itemsize

    def __copy__(self) -> DeviceArray:
        """Returns the array itself: another object on the same memory would not keep it there."""
        return self

    def __deepcopy__(self, _memo: object) -> DeviceArray:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a gradient on a GPU cannot be pickled: it is an address of this process")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, *, stream: object = None, max_version: object = None, dl_device: object = None,
                   copy: bool | None = None) -> object:
        if copy or dl_device not in (None, self._device):
            raise BufferError("a gradient is lent as it is, where it is: copy what was made of it")
        return capsule(self.address, self.dtype, self.elements, self._device, self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._device[0] != CUDA or self.dtype is DType.BF16:
            raise AttributeError("the interface has no name for bf16: use DLPack")
        kinds = {DType.I32: "i", DType.I64: "i", DType.U8: "u"}
        return {"shape": (self.elements,), "typestr": f"<{kinds.get(self.dtype, 'f')}{self.dtype.itemsize}",
                "data": (self.address, False), "version": 3, "strides": None, "stream": None}

    def __repr__(self) -> str:
        return f"<gradsync.DeviceArray of {self.elements} {self.dtype.name} at {self.address:#x}>"
