# SPDX-License-Identifier: Apache-2.0
"""Memory by its address, for whatever speaks DLPack: without a copy, on a GPU too.

The structures are those of version 0 of DLPack's C header, whose capsules are named "dltensor"
(https://dmlc.github.io/dlpack/latest/c_api.html). A consumer renames the capsule and calls the deleter when
it has no more use for the memory, in any thread.
"""
from __future__ import annotations

import ctypes
import itertools
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64
from typing import Any

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


_Deleter = CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# The destructor has an object without references: as an address, nothing counts any.
_is_ours = ctypes.pythonapi.PyCapsule_IsValid
_is_ours.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

#: What consumers have: the structure, its shape, and what keeps the memory.
_lent: dict[int, tuple[Any, ...]] = {}
_numbers = itertools.count(1)


def _give_back(address: int) -> None:
    _lent.pop(_Managed.from_address(address).context, None)


def _drop(capsule: int) -> None:
    """Of a capsule that nobody has consumed."""
    if _is_ours(capsule, _NAME):
        _give_back(_pointer_of(capsule, _NAME))


# Kept as long as the module: capsules live longer than calls.
_deleter = _Deleter(_give_back)
_destructor = PYFUNCTYPE(None, ctypes.c_void_p)(_drop)


def capsule(address: int, dtype: DType, elements: int, device: tuple[int, int], keep: Any) -> Any:
    """A flat array of so many elements. `keep` lives until the consumer has no more use for it."""
    number = next(_numbers)
    shape = (c_int64 * 1)(elements)
    tensor = _Tensor(address, _Device(*device), 1, _Element(_CODES[dtype], 8 * dtype.itemsize, 1), shape,
                     None, 0)
    managed = _Managed(tensor, number, _deleter)
    _lent[number] = managed, shape, keep
    return _new_capsule(ctypes.addressof(managed), _NAME, ctypes.cast(_destructor, ctypes.c_void_p))


class DeviceArray:
    """A gradient on a GPU, flat: what torch.from_dlpack(), cupy.from_dlpack() and the like take without a
    copy. It may be read and written whenever the gradient is this process's: the average is complete then,
    for work in any stream."""

    def __init__(self, address: int, dtype: DType, elements: int, device: tuple[int, int],
                 keep: object = None) -> None:
        #: On the GPU: no CPU can read there.
        self.address = address
        self.dtype = dtype
        self.elements = elements
        self._device = device
        self._keep = keep

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.elements * self.dtype.itemsize

    def __copy__(self) -> DeviceArray:
        """It is where it is: another object would not keep it there."""
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
