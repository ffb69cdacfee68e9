# SPDX-License-Identifier: Apache-2.0
"""One exception class per result of libgradsync.

Each carries the text of the library (what happened, to whom, what to do) and, where they are known, the
member and the parameter that it is about.
"""
from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .types import Info


class Result(enum.IntEnum):
    """The result of a call of libgradsync (enum gradsync_result)."""

    OK = 0
    AGAIN = 1
    INTERRUPTED = 2
    TIMEOUT = 3
    VOID_RETRY = 10
    VOID_BEHIND = 11
    INVALID = 20
    STATE = 21
    NO_MEMORY = 22
    FORKED = 23
    UNSUPPORTED = 24
    QUOTA = 25
    SYSTEM = 26
    PLAN_MISMATCH = 30
    OPERATION_MISMATCH = 31
    RANK_TAKEN = 32
    JOB_FULL = 33
    STALE = 34
    MEMBER_LOST = 35
    DEADLOCK = 36
    NO_DAEMON = 40
    DENIED = 41
    VERSION = 42
    PROTOCOL = 43
    DAEMON_LOST = 44


class GradsyncError(Exception):
    """A call that failed.

    result     the library's result; an int if this package does not know it
    rank       the rank of the member that caused it, or None
    pid        the pid of that member's process on its own host, or None
    parameter  the name of the parameter that it is about, or None
    """

    result: Result | int = Result.SYSTEM

    def __init__(self, text: str = "", *, result: Result | int | None = None, rank: int | None = None,
                 pid: int | None = None, parameter: str | None = None) -> None:
        super().__init__(text)
        if result is not None:
            self.result = result
        self.rank = rank
        self.pid = pid
        self.parameter = parameter


class Again(GradsyncError):
    """The connection does not block and the call has not finished: see Connection.fileno()."""

    result = Result.AGAIN


class TimedOutError(GradsyncError, TimeoutError):
    """Others did not come in time; the text names them."""

    result = Result.TIMEOUT


class VoidStep(GradsyncError):
    """A member was lost: the step, or the collective, is void on all members.

    Its gradients are undefined and nothing was committed anywhere. `info` describes the step if finish() has
    raised this; otherwise it is None.
    """

    info: Info | None = None


class VoidRetry(VoidStep):
    """Compute the step again, with the rank and the world size that hold now."""

    result = Result.VOID_RETRY


class VoidBehind(VoidStep):
    """A member is new and has no state: call Job.sync_state(), then compute the step again."""

    result = Result.VOID_BEHIND


class InvalidError(GradsyncError, ValueError):
    """An argument is wrong."""

    result = Result.INVALID


class StateError(GradsyncError):
    """Right arguments at the wrong moment: for example marked twice, finished before all is marked, or closed
    already."""

    result = Result.STATE


class NoMemoryError(GradsyncError, MemoryError):
    """There was not enough memory."""

    result = Result.NO_MEMORY


class ForkedError(GradsyncError):
    """The object belongs to the parent process."""

    result = Result.FORKED


class UnsupportedError(GradsyncError):
    """This version of the library, or of the daemon, cannot do it."""

    result = Result.UNSUPPORTED


class QuotaError(GradsyncError):
    """More than the daemon grants this user."""

    result = Result.QUOTA


class SystemCallError(GradsyncError):
    """A system call failed; the text names it."""

    result = Result.SYSTEM


class PlanMismatchError(GradsyncError):
    """Members named different parameters; `rank` and `parameter` say which."""

    result = Result.PLAN_MISMATCH


class OperationMismatchError(GradsyncError):
    """Members made different calls; the text names a rank and both calls."""

    result = Result.OPERATION_MISMATCH


class RankTakenError(GradsyncError):
    """Another process has the rank."""

    result = Result.RANK_TAKEN


class JobFullError(GradsyncError):
    """The job has all its members."""

    result = Result.JOB_FULL


class StaleError(GradsyncError):
    """This process is older than the one that has its rank, or than the job."""

    result = Result.STALE


class MemberLostError(GradsyncError):
    """The job is over: it has lost a member that it cannot do without."""

    result = Result.MEMBER_LOST


class DeadlockError(GradsyncError):
    """The job is over: members waited for each other in a circle. The text says which, and each in what."""

    result = Result.DEADLOCK


class NoDaemonError(GradsyncError):
    """No daemon listens; the text names every socket that was tried."""

    result = Result.NO_DAEMON


class DeniedError(GradsyncError):
    """No permission."""

    result = Result.DENIED


class VersionError(GradsyncError):
    """Daemon and library have no version of the protocol in common."""

    result = Result.VERSION


class ProtocolError(GradsyncError):
    """The daemon, or another member, sent something that makes no sense, or that was changed on its way."""

    result = Result.PROTOCOL


class DaemonLostError(GradsyncError):
    """The daemon has ended the connection, or is gone and no other one came in time."""

    result = Result.DAEMON_LOST


CLASSES: dict[int, type[GradsyncError]] = {
    int(each.result): each
    for each in (Again, TimedOutError, VoidRetry, VoidBehind, InvalidError, StateError, NoMemoryError,
                 ForkedError, UnsupportedError, QuotaError, SystemCallError, PlanMismatchError,
                 OperationMismatchError, RankTakenError, JobFullError, StaleError, MemberLostError,
                 DeadlockError, NoDaemonError, DeniedError, VersionError, ProtocolError, DaemonLostError)
}
