# SPDX-License-Identifier: Apache-2.0
"""Processes that are a job of their own although others may have been started beside them, children of
multiprocessing above all, and names for jobs that have none."""
from __future__ import annotations

import hashlib
import multiprocessing
import os
import pathlib
import secrets
import sys
from typing import TypeVar

from .errors import GradsyncError, InvalidError, NoDaemonError

E = TypeVar("E", bound=GradsyncError)

_PASS = ("Pass what the script knows: gradsync.torch.DistributedDataParallel(model, rank=rank, "
         "world_size=n), gradsync.torch.default_job(rank=rank, world_size=n), or Connection.join(name, "
         "rank=rank, world_size=n); or set GRADSYNC_JOB, GRADSYNC_RANK and GRADSYNC_WORLD_SIZE in each "
         "process before it joins. For a job of one process pass world_size=1")
_DAEMON = ("A script that starts its ranks by itself is started once, and has a daemon beside it, by: "
           "gradsyncctl run -n 1 -- python SCRIPT")

_told = False


def is_spawned() -> bool:
    """Whether multiprocessing has started this process, so that it may have siblings."""
    return multiprocessing.parent_process() is not None


def refusal(served: bool) -> InvalidError:
    """The exception for a spawned process that would train alone. `served`: a daemon is there, so the
    environment names its parent's job and rank."""
    why = ("its job and its rank are those of that process, rank 0 of 1" if served
           else "nothing says its rank, and no gradsyncd is reachable")
    return InvalidError(f"{_whose()}, and {why}: it would train alone, and so would others like it. {_PASS}. "
                        f"{_DAEMON}")


def explained(error: E, asked: bool) -> E:
    """The exception for a join that has failed in a spawned process. `asked`: the script has said which
    member the process is."""
    # The library's advice is for scripts whose ranks a launcher starts.
    why = str(error).partition(". Start one")[0] if isinstance(error, NoDaemonError) else str(error)
    more = _DAEMON if asked else f"{_PASS}. {_DAEMON}"
    return type(error)(f"{why}. {_whose()}. {more}", rank=error.rank, pid=error.pid)


def _whose() -> str:
    parent = multiprocessing.parent_process()
    return (f"{multiprocessing.current_process().name} (pid {os.getpid()}) was started by multiprocessing "
            f"in pid {parent.pid if parent is not None else None}")


def tell(why: str) -> None:
    """Says on stderr, once in a process, that it is a world of one."""
    global _told
    if not _told:
        _told = True
        print(f"gradsync: pid {os.getpid()} trains alone, as rank 0 of 1: {why}", file=sys.stderr, flush=True)


def name() -> str:
    """The name of a job of one process: no other job has it."""
    return f"alone-{secrets.token_hex(8)}"


def name_of_siblings() -> str | None:
    """The name of a job of the processes that multiprocessing has started in one parent: the same in all of
    them, and in no others, whatever host, boot or container they run in. None where that cannot be known."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return None
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        space = os.stat("/proc/self/ns/pid").st_ino
        # Its start time is field 22. Fields are counted after the name, which may have any characters.
        begun = pathlib.Path(f"/proc/{parent.pid}/stat").read_text("utf-8", "replace").rpartition(")")[2]
    except OSError:
        return None
    text = f"{boot} {space} {parent.pid} {begun.split()[19]}"
    return f"spawned-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
