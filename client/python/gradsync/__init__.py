# SPDX-License-Identifier: Apache-2.0
"""gradsync: data-parallel gradient synchronisation as a service.

    import gradsync

    with gradsync.Connection() as gs, gs.join() as job:         # daemon, job and rank from the environment
        plan = job.plan([("weight", gradsync.DType.F32, (512, 512)), ("bias", gradsync.DType.F32, (512,))])
        for step in range(steps):
            for i in reversed(range(len(plan))):
                backward(i, plan.gradient(i))                   # writes into memory shared with the daemon
                plan.ready(i)                                   # never waits
            info = plan.finish()                                # plan.gradient(i) is the average
            optimise(plan)

A call that fails raises a subclass of GradsyncError. A loss of a member raises VoidRetry, or VoidBehind, from
finish(): the step is to be computed again.
"""
from typing import Any

from ._dlpack import DeviceArray
from ._native import LibraryNotFoundError, library as _library
from .connection import Connection
from .errors import (Again, DaemonLostError, DeadlockError, DeniedError, ForkedError, GradsyncError,
                     InvalidError, JobFullError, MemberLostError, NoDaemonError, NoMemoryError,
                     OperationMismatchError, PlanMismatchError, ProtocolError, QuotaError, RankTakenError,
                     Result, StaleError, StateError, SystemCallError, TimedOutError, UnsupportedError,
                     VersionError, VoidBehind, VoidRetry, VoidStep)
from .job import Job
from .memory import Memory
from .plan import Plan
from .types import BucketStats, Device, DType, Info, Param, Raw, Reduce, Stall

__all__ = [
    "Again", "BucketStats", "Connection", "DType", "DaemonLostError", "DeadlockError", "DeniedError",
    "Device", "DeviceArray", "ForkedError",
    "GradsyncError", "Info", "InvalidError", "Job", "JobFullError", "LibraryNotFoundError",
    "MemberLostError", "Memory", "NoDaemonError", "NoMemoryError", "OperationMismatchError", "Param", "Plan",
    "PlanMismatchError", "ProtocolError", "QuotaError", "RankTakenError", "Raw", "Reduce", "Result", "Stall",
    "StaleError", "StateError", "SystemCallError", "TimedOutError", "UnsupportedError", "VersionError",
    "VoidBehind", "VoidRetry", "VoidStep", "library_version",
]


def __getattr__(name: str) -> Any:
    """gradsync.State is that of gradsync.torch, which is not imported before it is asked for."""
    if name == "State":
        from .torch import State
        return State
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def library_version() -> str:
    """The version of the libgradsync that is loaded, such as "0.1.0". LibraryNotFoundError if there is
    none."""
    text: bytes = _library().version()
    return text.decode()
