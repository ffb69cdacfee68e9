# SPDX-License-Identifier: Apache-2.0
"""libgradsync as it is: where the library is found, its structures and its functions.

Functions release the interpreter lock while they run, except for those that neither wait nor work (`quick`):
gradsync_ready() is called from backward, where giving the lock away costs more than the call.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_int, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)
from typing import Any

VARIABLE = "GRADSYNC_LIBRARY"
SONAME = "libgradsync.so.0"
#: Where a wheel keeps the programs and their libraries.
BUNDLE = pathlib.Path(__file__).resolve().parent / "_bundle"


class StallStruct(Structure):
    """struct gradsync_stall"""

    _fields_ = [("size", c_size_t), ("step", c_uint64), ("rank", c_uint32), ("pid", c_int32),
                ("process_state", c_char_p), ("bucket", c_uint32), ("parameter", c_char_p), ("since_ms",
                                                                                             c_uint64),
                ("text", c_char_p), ("host", c_char_p)]


StallFunction = CFUNCTYPE(None, c_void_p, c_void_p, POINTER(StallStruct))


class DeviceStruct(Structure):
    """struct gradsync_device"""

    _fields_ = [("size", c_size_t), ("name", c_char_p), ("uuid", c_char_p), ("ordinal", c_int64)]


class OptionsStruct(Structure):
    """struct gradsync_options"""

    _fields_ = [("size", c_size_t), ("socket", c_char_p), ("device", c_char_p), ("program", c_char_p),
                ("reconnect_timeout_ms", c_int64), ("nonblocking", c_bool), ("stall", StallFunction),
                ("stall_data", c_void_p)]


class JoinOptionsStruct(Structure):
    """struct gradsync_join_options"""

    _fields_ = [("size", c_size_t), ("name", c_char_p), ("min_world", c_uint32), ("max_world", c_uint32),
                ("rank", c_int64), ("local_rank", c_int64), ("incarnation", c_int64), ("timeout_ms", c_int64),
                ("last_call_ms", c_int64), ("rejoin_grace_ms", c_int64), ("token", c_char_p), ("instance",
                                                                                               c_int64),
                ("spare", c_int64), ("scope", c_char_p), ("sequential", c_bool)]


class PlanOptionsStruct(Structure):
    """struct gradsync_plan_options"""

    _fields_ = [("size", c_size_t), ("reduce", c_int), ("first_bucket_bytes", c_uint64),
                ("bucket_bytes", c_uint64), ("void_on_loss", c_bool)]


class InfoStruct(Structure):
    """struct gradsync_info"""

    _fields_ = [("size", c_size_t), ("step", c_uint64), ("norm", c_double), ("nonfinite", c_uint64),
                ("nonfinite_rank", c_int64), ("bytes", c_uint64), ("exposed_s", c_double), ("elapsed_s",
                                                                                            c_double),
                ("lost_rank", c_uint32), ("lost_pid", c_int32), ("cause", c_char * 256)]


class BucketStatsStruct(Structure):
    """struct gradsync_bucket_stats"""

    _fields_ = [("size", c_size_t), ("norm", c_double), ("nonfinite", c_uint64)]


class CulpritStruct(Structure):
    """struct gradsync_culprit"""

    _fields_ = [("size", c_size_t), ("rank", c_int64), ("pid", c_int32), ("parameter", c_char_p)]


class StateStruct(Structure):
    """struct gradsync_state"""

    _fields_ = [("data", c_void_p), ("bytes", c_uint64)]


STRUCTURES: dict[str, type[Structure]] = {
    "gradsync_stall": StallStruct,
    "gradsync_options": OptionsStruct,
    "gradsync_join_options": JoinOptionsStruct,
    "gradsync_plan_options": PlanOptionsStruct,
    "gradsync_info": InfoStruct,
    "gradsync_bucket_stats": BucketStatsStruct,
    "gradsync_state": StateStruct,
    "gradsync_culprit": CulpritStruct,
    "gradsync_device": DeviceStruct,
}

# Each function with its result and its arguments. Objects of the library are c_void_p; NULL is None.
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "gradsync_open": (c_int, [POINTER(c_void_p), POINTER(OptionsStruct)]),
    "gradsync_close": (None, [c_void_p]),
    "gradsync_fd": (c_int, [c_void_p]),
    "gradsync_dispatch": (c_int, [c_void_p]),
    "gradsync_device": (c_int, [c_void_p, POINTER(DeviceStruct)]),
    "gradsync_error": (c_char_p, []),
    "gradsync_culprit": (c_int, [POINTER(CulpritStruct)]),
    "gradsync_result_name": (c_char_p, [c_int]),
    "gradsync_version": (c_char_p, []),
    "gradsync_join": (c_int, [c_void_p, POINTER(JoinOptionsStruct), POINTER(c_void_p)]),
    "gradsync_leave": (c_int, [c_void_p]),
    "gradsync_rank": (c_uint32, [c_void_p]),
    "gradsync_local_rank": (c_uint32, [c_void_p]),
    "gradsync_world_size": (c_uint32, [c_void_p]),
    "gradsync_generation": (c_uint32, [c_void_p]),
    "gradsync_member_id": (c_uint64, [c_void_p]),
    "gradsync_job_name": (c_char_p, [c_void_p]),
    "gradsync_param": (c_int, [c_void_p, c_char_p, c_int, c_uint32, POINTER(c_uint64)]),
    "gradsync_register": (c_int, [c_void_p, c_int, c_uint64, c_uint64, c_void_p, POINTER(c_void_p)]),
    "gradsync_register_device": (c_int, [c_void_p, c_void_p, c_uint64, POINTER(c_void_p)]),
    "gradsync_unregister": (c_int, [c_void_p]),
    "gradsync_memory_address": (c_void_p, [c_void_p]),
    "gradsync_param_at": (c_int, [c_void_p, c_char_p, c_int, c_uint32, POINTER(c_uint64), c_void_p,
                                  c_uint64]),
    "gradsync_plan": (c_int, [c_void_p, POINTER(c_void_p)]),
    "gradsync_plan_with": (c_int, [c_void_p, POINTER(PlanOptionsStruct), POINTER(c_void_p)]),
    "gradsync_plan_free": (c_int, [c_void_p]),
    "gradsync_plan_params": (c_uint32, [c_void_p]),
    "gradsync_plan_buckets": (c_uint32, [c_void_p]),
    "gradsync_plan_bytes": (c_uint64, [c_void_p]),
    "gradsync_plan_bucket_of": (c_uint32, [c_void_p, c_uint32]),
    "gradsync_gradient": (c_void_p, [c_void_p, c_uint32]),
    "gradsync_ready": (c_int, [c_void_p, c_uint32]),
    "gradsync_absent": (c_int, [c_void_p, c_uint32]),
    "gradsync_ready_on": (c_int, [c_void_p, c_uint32, c_void_p]),
    "gradsync_absent_on": (c_int, [c_void_p, c_uint32, c_void_p]),
    "gradsync_accumulate": (c_int, [c_void_p, c_bool]),
    "gradsync_divisor": (c_int, [c_void_p, c_uint32]),
    "gradsync_wait": (c_int, [c_void_p, c_uint32]),
    "gradsync_finish": (c_int, [c_void_p, POINTER(InfoStruct)]),
    "gradsync_unused": (c_bool, [c_void_p, c_uint32]),
    "gradsync_bucket_stats": (c_int, [c_void_p, c_uint32, c_int64, POINTER(BucketStatsStruct)]),
    "gradsync_barrier": (c_int, [c_void_p]),
    "gradsync_broadcast": (c_int, [c_void_p, c_void_p, c_size_t, c_uint32]),
    "gradsync_broadcast_sealed": (c_int, [c_void_p, c_void_p, c_size_t, c_uint32]),
    "gradsync_allgather": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "gradsync_allgather_sealed": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "gradsync_reduce_scatter": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int]),
    "gradsync_allreduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int]),
    "gradsync_sync_state": (c_int, [c_void_p, POINTER(StateStruct), c_uint32, POINTER(c_uint64)]),
}

# These neither wait nor call back, so they keep the interpreter lock.
QUICK = frozenset({
    "gradsync_fd", "gradsync_error", "gradsync_culprit", "gradsync_result_name", "gradsync_version",
    "gradsync_rank",
    "gradsync_local_rank", "gradsync_world_size", "gradsync_generation", "gradsync_member_id",
    "gradsync_job_name", "gradsync_param", "gradsync_memory_address", "gradsync_param_at",
    "gradsync_plan_params", "gradsync_plan_buckets", "gradsync_plan_bytes", "gradsync_plan_bucket_of",
    "gradsync_gradient", "gradsync_ready", "gradsync_ready_on", "gradsync_accumulate", "gradsync_divisor",
    "gradsync_unused",
    "gradsync_bucket_stats",
})


class LibraryNotFoundError(ImportError):
    """libgradsync cannot be loaded; the text names every place that was tried."""


class Library:
    """The functions of libgradsync, each an attribute of its name without the prefix, with prototypes set."""

    def __init__(self, path: str) -> None:
        waiting, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
        self.path = path
        for name, (result, arguments) in PROTOTYPES.items():
            try:
                function = getattr(quick if name in QUICK else waiting, name)
            except AttributeError:
                raise LibraryNotFoundError(f"{path} is too old: it has no {name}(); install the libgradsync "
                                           "that "
                                           "belongs to this package") from None
            function.restype = result
            function.argtypes = arguments
            setattr(self, name.removeprefix("gradsync_"), function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"libgradsync has no function {name}")


def _candidates() -> list[str]:
    named = os.environ.get(VARIABLE)
    if named:
        return [named]
    bundled = BUNDLE / "lib" / SONAME
    return [str(bundled)] if bundled.exists() else [SONAME]


def load() -> Library:
    """Loads the library that GRADSYNC_LIBRARY names, else the wheel's, else the one that the loader finds."""
    tried = []
    for path in _candidates():
        try:
            return Library(path)
        except OSError as problem:
            tried.append(str(problem))
    raise LibraryNotFoundError(f"libgradsync cannot be loaded: {'; '.join(tried)}. Install it, or the wheel "
                               "that carries "
                               f"it, or name it by {VARIABLE}")


_loaded: Library | None = None


def library() -> Library:
    """The library, loaded at the first call."""
    global _loaded
    if _loaded is None:
        _loaded = load()
    return _loaded
