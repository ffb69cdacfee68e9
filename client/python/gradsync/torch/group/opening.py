# SPDX-License-Identifier: Apache-2.0
"""Makes the groups of the backend "gradsync": each is a job of its own."""
from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import sys
import weakref
from typing import Any

from ...connection import Connection
from ...errors import DaemonLostError, GradsyncError
from ..world import _tell_stall
from .process_group import ProcessGroup

#: A connection can be a member of so many jobs.
MOST_JOBS = 64


class _Link:
    """A connection, and the groups that have their jobs on it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.connection = Connection(stall=_tell_stall)
        self.groups: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()

    def live(self) -> list[ProcessGroup]:
        return [group for group in self.groups if not group.ended]


#: Links of this process, or of the one from which it was forked.
_links: list[_Link] = []


def _free_link() -> _Link:
    """A connection on which there is room for one more group."""
    for link in _links:
        if link.pid == os.getpid() and len(link.live()) < MOST_JOBS:
            return link
    made = _Link()
    if not any(link.pid == made.pid for link in _links):
        atexit.register(_leave, made.pid)
    _links.append(made)
    return made


def _base() -> str:
    """The first part of the name of a job: the launcher's, where it has one."""
    for variable in ("GRADSYNC_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        if (value := os.environ.get(variable)) and value != "none":
            return value[:128]
    return "group"


def _name(group: str) -> str:
    """A name that no other group has."""
    name = f"{_base()}-{secrets.token_hex(4)}.{group[:64]}"
    return re.sub(r"[^A-Za-z0-9._:-]", "-", name)


def create(options: Any) -> ProcessGroup:
    """Joins the job of a group. Rank 0 chooses its name and its token; the others find them in the store.
    `options`: torch's _DistributedBackendOptions."""
    store, rank = options.store, options.group_rank
    if rank == 0:
        store.set("gradsync", f"{_name(str(options.group_id))} {secrets.token_hex(16)}")
    name, token = store.get("gradsync").decode().split(" ")
    link = _free_link()
    try:
        job = link.connection.join(name, rank=rank, world_size=options.group_size, token=token,
                                   timeout=options.timeout.total_seconds(), sequential=True)
    except DaemonLostError:
        _links.remove(link)             # the next group may find another daemon
        raise
    if rank == 0:
        store.delete_key("gradsync")    # all have read it: a group that is made anew finds its own
    made = ProcessGroup(job)
    link.groups.add(made)
    return made


def _leave(pid: int) -> None:
    """The process ends. Groups that it has not destroyed are left, unless an exception ends it, or an
    operation is under way: then the other ranks see the loss of this one."""
    if os.getpid() != pid:
        return
    failed = getattr(sys, "last_value", None) is not None
    for link in [link for link in _links if link.pid == pid]:
        with contextlib.suppress(GradsyncError, BufferError):
            if not failed:
                for group in link.live():
                    group.abort()
            link.connection.close()
