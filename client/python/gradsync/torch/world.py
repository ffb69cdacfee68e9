# SPDX-License-Identifier: Apache-2.0
"""The job of this process, opened at its first use, and whether the process began with it or came later."""
from __future__ import annotations

import atexit
import contextlib
import os
import sys
import warnings
import weakref
from typing import TYPE_CHECKING

import torch

from .. import _alone
from ..connection import Connection
from ..errors import GradsyncError, InvalidError, StateError
from ..job import Job
from ..memory import Memory
from ..plan import Plan
from ..types import Stall

if TYPE_CHECKING:
    from .distributed import DistributedDataParallel


class World:
    """The data that all modules of a process share that belong to one job.

    newcomer   this process has taken the place of a lost member, and has not got the state of the others yet
    plans      how many plans were made by now: the order of plans is the same on all members
    models     the models that all members have begun together, in their order
    kept       a State goes on after a loss
    failed     an exception has ended a step: if it ends the process, too, the job keeps its place
    left_over  plans of modules that are gone, and their memory
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.newcomer = False
        self.plans = 0
        self.models: list[weakref.ref[DistributedDataParallel]] = []
        self.left_over: list[tuple[Plan | None, Memory]] = []
        self.kept = False
        self.failed = False
        self._met = False

    def meet(self, count: int) -> int:
        """Waits for all members. `count` is 0 while the model is being made, and above that later. Returns
        the count of the members that are ahead."""
        return self.job.sync_state([], count)

    def begin(self) -> None:
        """Finds out, once in a process and before anything else that involves others, whether these are
        training already."""
        if not self._met:
            self.newcomer = self.meet(0) > 0
        self._met = True

    def next_plan(self) -> int:
        """The number of a plan, which says in which order they were made."""
        self.plans += 1
        return self.plans

    def clear_away(self) -> None:
        """Gives back what is left over. Between steps, since it waits for the daemon."""
        for each in list(self.left_over):
            plan, memory = each
            with contextlib.suppress(StateError):   # a step of it is open, and may stay so
                if plan is not None:
                    plan.free()
                memory.unregister()
                self.left_over.remove(each)


def compare_worlds(job: Job, told: bool) -> None:
    """Compares the rank and the world size of torch.distributed with those of the job. `told`: the script has
    said which member this process is. InvalidError if each rank would train alone; a warning if helpers of
    torch.distributed would be wrong about the ranks."""
    distributed = torch.distributed
    there = distributed.is_available() and distributed.is_initialized()
    world = distributed.get_world_size() if there else 0
    if job.world_size == 1 and world > 1 and not told:
        raise InvalidError(f"torch.distributed says rank {distributed.get_rank()} of {world}, but job "
                           f"'{job.name}' has 1 rank: each rank would train a model of its own. Pass "
                           "rank=torch.distributed.get_rank(), world_size=torch.distributed.get_world_size() "
                           "to gradsync.torch.DistributedDataParallel, or start the ranks with gradsyncctl "
                           f"run -n {world}; world_size=1 if it is meant")
    if job.world_size > 1 and job.rank == 0 and world != job.world_size and not _helped:
        state = f"has a world of {world}" if there else "is not initialised"
        warnings.warn(f"torch.distributed {state}: helpers that ask it (get_rank(), is_main_process(), "
                      "save_on_master(), barrier(), torch's DistributedSampler) take every process for "
                      f"{'another one' if there and world > 1 else 'rank 0 of 1'}, and job '{job.name}' has "
                      f"{job.world_size} ranks. Keep the script's init_process_group() beside gradsync, with "
                      "all ranks in it, or, as a script with gradsync.State does, ask "
                      "gradsync.torch.default_job() for rank and world_size", RuntimeWarning, stacklevel=3)


_default: Job | None = None
#: The script has asked default_job(), and so knows its rank.
_helped = False


def world_of(job: Job | None, name: str | None = None, rank: int | None = None,
             world_size: int | None = None) -> World:
    """The world of a job. None: the job of this process, which is joined with the other arguments if need
    be."""
    if job is None:
        job = _get_default(name, rank, world_size)
    elif (name, rank, world_size) != (None, None, None):
        raise TypeError("process_group, or job, rank and world_size")
    if not isinstance(job, Job):
        raise TypeError(f"process_group is {type(job).__name__}: give the gradsync.Job whose members "
                        "average, or None for the one that the environment names")
    world: World = vars(job).setdefault("_torch_world", World(job))
    return world


def _tell_stall(_job: Job | None, stall: Stall) -> None:
    print(f"gradsync: {stall.text}", file=sys.stderr, flush=True)


def default_job(job: str | None = None, rank: int | None = None, world_size: int | None = None) -> Job:
    """The job that the environment names (gradsyncctl run, torchrun, Slurm, Kubernetes), joined once, through
    the daemon that GRADSYNC_DEVICE names, or that of the GPU which this thread uses by then, or the CPU's. It
    is left when the process ends. If an exception ends the process, or sys.exit() with a status in a step of
    State, its place is kept for a process that is started in its stead.

    rank, world_size   for a script that starts its ranks by itself (torch.multiprocessing.spawn). They count
                       instead of the environment's, and only in the first call, in which they may be given
                       here or to DistributedDataParallel. world_size=1 alone: a job of this process
    job                the name of the job. None: GRADSYNC_JOB, or else a name that all processes have in
                       common which multiprocessing has started in this one's parent. Ranks on several hosts,
                       and two jobs whose ranks one process starts at a time, need names

    InvalidError: this process was started by multiprocessing, and nothing says its rank.
    """
    global _helped
    made = _get_default(job, rank, world_size)
    _helped = True
    return made


def _get_default(job: str | None, rank: int | None, world_size: int | None) -> Job:
    global _default
    if _default is not None:
        there = _default.name, _default.rank, _default.world_size
        asked = job, rank, world_size
        if any(one not in (None, known) for one, known in zip(asked, there, strict=True)):
            raise StateError(f"this process has joined job '{_default.name}' already, as rank "
                             f"{_default.rank} of {_default.world_size}: give job, rank and world_size to "
                             "the first call that needs them")
        return _default
    connection = Connection(stall=_tell_stall)
    try:
        # Autograd marks gradients, and finishes steps, in threads of its own while the script's waits.
        _default = connection.join(_name_of(job, rank, world_size), world_size=world_size, rank=rank,
                                   sequential=True)
    except BaseException:
        connection.close()
        raise
    atexit.register(_leave, _default, os.getpid())
    return _default


def _name_of(job: str | None, rank: int | None, world_size: int | None) -> str | None:
    """The name of the job to be joined; None: the environment names it."""
    if (rank is None and world_size != 1) != (world_size is None):
        raise TypeError("rank and world_size are given together; world_size=1 needs no rank")
    if job is not None or world_size is None:
        return job
    if world_size == 1:
        return _alone.name()
    return os.environ.get("GRADSYNC_JOB") or _alone.name_of_siblings()


def _tell_unfinished(model: DistributedDataParallel) -> None:
    """The others wait for the rest of a step that this process does not finish. The next forward pass would
    have raised this."""
    try:
        model._reducer.check_finished()
    except GradsyncError as error:
        print(f"gradsync: the process ends, but {error}", file=sys.stderr, flush=True)


def _leave(job: Job, pid: int) -> None:
    if os.getpid() != pid:
        return
    # Python does not keep the SystemExit of sys.exit(1), which a step of State has seen.
    world = world_of(job)
    failed = getattr(sys, "last_value", None) is not None or world.failed
    if not failed:
        for made in world.models:
            if (model := made()) is not None and model._reducer.open:
                _tell_unfinished(model)
    with contextlib.suppress(GradsyncError, BufferError):
        if not failed:
            job.leave()
    with contextlib.suppress(GradsyncError, BufferError):
        job.connection.close()
