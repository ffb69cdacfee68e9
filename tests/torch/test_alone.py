# SPDX-License-Identifier: Apache-2.0
"""Ranks that a script starts by itself (torch.multiprocessing), and processes that are a world of one."""
import sys

import pytest

import gradsync
import harness
from conftest import ENVIRONMENT
from gradsync import _alone
from launch import HERE, TAG, results_of

#: A forked process need not import torch again.
METHODS = [pytest.param("spawn", marks=pytest.mark.heavy), "fork"]
NOWHERE = {"GRADSYNC_DEVICE": "cpu:nowhere"}
TRAINS_ALONE = "trains alone, as rank 0 of 1"


@pytest.fixture
def spawn(processes):
    """spawn(method, count, what each rank says, prefix=(), …) -> spawning.py, at its end."""
    def start(*arguments, prefix=(), **options):
        made = harness.Program(*prefix, sys.executable, HERE / "spawning.py", *arguments,
                               **{"env": {**ENVIRONMENT, **NOWHERE}, **options})
        processes.append(made)
        made.status = made.wait(harness.LONG)
        return made
    return start


def results(made):
    """The ranks' words, by rank."""
    assert made.status == 0, made.told()
    return results_of(made.out)


def check_refused(text, *more):
    """The error names the parent process, the arguments to pass, and the command that gives the ranks a
    daemon."""
    for each in ("was started by multiprocessing in pid",
                 "DistributedDataParallel(model, rank=rank, world_size=n)",
                 "GRADSYNC_RANK", "world_size=1", "gradsyncctl run -n 1 -- python SCRIPT", *more):
        assert each in text, text


@pytest.mark.parametrize("method", METHODS)
def test_a_spawned_process_does_not_train_alone(spawn, method):
    made = spawn(method, 2, "nothing")
    assert made.status == 1 and TAG not in made.out
    check_refused(made.err, "nothing says its rank", f"{method.title()}Process-")


def test_beside_a_daemon_it_is_told_the_same(spawn, daemon):
    made = spawn("fork", 2, "nothing", socket=daemon().socket)
    assert made.status == 1 and TAG not in made.out
    check_refused(made.err, "which job?")


@pytest.mark.parametrize("method", METHODS)
def test_ranks_that_a_script_knows(spawn, daemon, method):
    """Their job has a name that the script has not chosen. A second script, at the same daemon, has another
    one."""
    served = daemon()
    jobs = set()
    for _ in range(2):
        first, second = results(spawn(method, 2, "rank", socket=served.socket))
        assert first["place"] == [0, 2] and second["place"] == [1, 2]
        assert first["job"] == second["job"] and first["sum"] == second["sum"]
        jobs.add(first["job"])
    assert len(jobs) == 2, jobs


def test_a_name_that_a_script_chooses(spawn, daemon):
    assert {each["job"] for each in results(spawn("fork", 2, "name", socket=daemon().socket))} == {"mine"}


def test_run_gives_them_a_daemon(spawn, build):
    """As the error advises."""
    made = spawn("fork", 2, "rank", prefix=(build / harness.CTL, "run", "--private", "-n", "1", "--"))
    first, second = results(made)
    assert first["place"] == [0, 2] and second["place"] == [1, 2] and first["sum"] == second["sum"]
    assert first["job"] == second["job"] and first["job"].startswith("run-")


def test_without_a_daemon_the_advice_fits_the_script(spawn):
    made = spawn("fork", 2, "rank")
    assert made.status == 1 and "wants 2 members, but no gradsyncd is reachable" in made.err
    assert "gradsyncctl run -n 1 -- python SCRIPT" in made.err and "run -n 2" not in made.err


def test_a_rank_that_was_inherited(spawn, build):
    """It is that of the process that has started them, and no rank of theirs."""
    prefix = (build / harness.CTL, "run", "--private", "-n", "1", "--")
    made = spawn("fork", 1, "nothing", prefix=prefix)
    assert made.status == 1 and TAG not in made.out
    check_refused(made.err,
                  "its job and its rank are those of that process, rank 0 of 1: it would train alone")


def test_torch_distributed_knows_of_other_ranks(script):
    """They were started by hand, say, with a process group, and no launcher has told gradsync of them."""
    made = script("""
        import gradsync, torch, gradsync.torch
        from torch.testing._internal.distributed.fake_pg import FakeStore
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
        try:
            gradsync.torch.DistributedDataParallel(torch.nn.Linear(2, 2))
        except gradsync.InvalidError as error:
            print(error, flush=True)
        print(gradsync.torch.DistributedDataParallel(torch.nn.Linear(2, 2), world_size=1).job.world_size)
    """, env=NOWHERE)
    told = made.line(harness.LONG)
    for each in ("torch.distributed says rank 1 of 2", "has 1 rank", "world_size=1 if it is meant",
                 "rank=torch.distributed.get_rank()"):
        assert each in told, told
    assert made.line(harness.LONG) == "1" and made.wait() == 0, made.told()


@pytest.mark.parametrize("served", [False, True], ids=["alone", "daemon"])
def test_jobs_of_one_process_that_are_asked_for(spawn, daemon, served):
    made = spawn("fork", 2, "one", **({"socket": daemon().socket} if served else {}))
    first, second = results(made)
    assert first["place"] == second["place"] == [0, 1] and first["job"] != second["job"]
    assert TRAINS_ALONE not in made.err


def test_a_process_that_is_alone_says_so_once(script):
    made = script("""
        import torch, gradsync, gradsync.torch
        for _ in range(2):
            model = gradsync.torch.DistributedDataParallel(torch.nn.Linear(2, 2))
        with gradsync.Connection() as gs, gs.join() as job:
            print(job.world_size)
    """, env=NOWHERE)
    assert made.line(harness.LONG) == "1" and made.wait() == 0, made.told()
    assert made.err.count(TRAINS_ALONE) == 1 and "gradsyncctl run -n N" in made.err


def test_one_that_has_asked_for_it_does_not(script):
    made = script("""
        import gradsync
        with gradsync.Connection() as gs, gs.join("mine", world_size=1) as job:
            print(job.world_size)
    """, env=NOWHERE)
    assert made.line(harness.LONG) == "1" and made.wait() == 0 and made.err == "", made.told()


def test_what_is_said_too_late(script):
    """Only the first call can say which member this process is."""
    made = script("""
        import gradsync, torch
        from gradsync.torch import DistributedDataParallel, default_job
        def refused(error, function, *arguments, **named):
            try:
                function(*arguments, **named)
            except error as raised:
                return str(raised)
        print(refused(TypeError, default_job, rank=0))
        print(refused(TypeError, default_job, world_size=2))
        job = default_job("mine", world_size=1)
        assert default_job() is default_job("mine", world_size=1) is job
        print(refused(gradsync.StateError, default_job, rank=1, world_size=2))
        print(refused(TypeError, DistributedDataParallel, torch.nn.Linear(2, 2), process_group=job, rank=1,
                      world_size=2))
    """, env=NOWHERE)
    assert made.wait(harness.LONG) == 0, made.told()
    alone, size, late, both = made.out.splitlines()
    assert alone == size == "rank and world_size are given together; world_size=1 needs no rank"
    assert "has joined job 'mine' already, as rank 0 of 1" in late
    assert both == "process_group, or job, rank and world_size"


def test_who_has_no_siblings_has_no_name_of_theirs():
    assert not _alone.is_spawned() and _alone.name_of_siblings() is None
    assert _alone.name() != _alone.name()
    assert isinstance(_alone.refusal(False), gradsync.InvalidError)
