# SPDX-License-Identifier: Apache-2.0
"""Losses, as a trainer in Python sees them: a void step names who was lost, and the job goes on."""
import concurrent.futures
import signal

import pytest

import gradsync
import harness
from gradsync import DType

ONE = [("weight", DType.F32, (2,))]
VICTIM = """
    import sys
    import gradsync
    with gradsync.Connection() as gs, gs.join("loss", world_size=2, rank=1) as job:
        plan = job.plan([("weight", gradsync.DType.F32, (2,))])
        state = bytearray(4)
        step = job.sync_state([state], 0)
        print("at", step, state.decode(), flush=True)
        for line in sys.stdin:
            plan.ready(0)
            print("finished", plan.finish().step, flush=True)
"""


@pytest.fixture
def survivor(daemon, script):
    """(daemon, its first member, its job, its plan, the process of the second member)."""
    def start(settings=None):
        served = daemon(settings=settings)
        victim = script(VICTIM, socket=served.socket)
        gs = gradsync.Connection(served.socket)
        opened.append(gs)
        job = gs.join("loss", world_size=2, rank=0)
        plan = job.plan(ONE)
        assert job.sync_state([bytearray(b"zero")], 0) == 0
        assert victim.line() == "at 0 zero"
        return served, job, plan, victim
    opened = []
    yield start
    for gs in opened:
        gs.close()


def test_a_loss_that_ends_the_job(survivor):
    _, job, plan, victim = survivor()
    plan.ready(0)
    assert victim.kill() == -signal.SIGKILL
    with pytest.raises(gradsync.VoidRetry) as raised:
        plan.finish()
    error = raised.value
    assert isinstance(error, gradsync.VoidStep) and error.result is gradsync.Result.VOID_RETRY
    assert (error.rank, error.pid) == (error.info.lost_rank, error.info.lost_pid) == (1, victim.pid)
    assert error.info.cause and str(victim.pid) in str(error)
    with pytest.raises(gradsync.MemberLostError) as raised:
        plan.ready(0)
    assert (raised.value.rank, raised.value.pid) == (1, victim.pid)
    job.leave()


def waits_in_a_step(served, job, plan):
    plan.ready(0)
    plan.finish()


def waits_in_a_collective(served, job, plan):
    job.barrier()


def waits_for_a_plan(served, job, plan):
    """No member has it, and the next try counts on."""
    job.plan([("later", DType.F32, (3,))], void_on_loss=True)


@pytest.mark.parametrize("waits", [waits_in_a_step, waits_in_a_collective, waits_for_a_plan])
def test_a_member_that_comes_back(survivor, script, waits):
    """The new process gets the state, and the step is computed again."""
    served, job, plan, victim = survivor(settings={"rejoin_grace": "60s"})
    generation = job.generation
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        call = thread.submit(waits, served, job, plan)
        harness.wait_until(lambda: served.job("loss")["waiting_for"], "a call that waits")
        assert victim.kill() == -signal.SIGKILL
        heir = script(VICTIM, socket=served.socket)
        with pytest.raises(gradsync.VoidBehind) as raised:
            call.result(harness.DEADLINE)
    assert (raised.value.info is None) == (waits is not waits_in_a_step)
    if waits is not waits_in_a_collective:
        assert (raised.value.rank, raised.value.pid) == (1, victim.pid)
    assert job.generation > generation and job.world_size == 2
    state = bytearray(b"four")
    assert job.sync_state([state], 4) == 4
    assert heir.line() == "at 4 four"
    plan.ready(0)
    heir.say("")
    assert plan.finish().step == 1
    assert heir.line() == "finished 1"
    heir.process.stdin.close()
    assert heir.wait() == 0, heir.err


def test_the_daemon_is_lost(daemon):
    served = daemon()
    served.expect_clean = False
    with gradsync.Connection(served.socket, reconnect_timeout=-1) as gs:
        job = gs.join("lost", world_size=1)
        plan = job.plan(ONE)
        harness.kill(served)
        with pytest.raises(gradsync.DaemonLostError) as raised:
            plan.ready(0)               # or, if it has not been noticed yet,
            plan.finish()
        assert "no other one has answered" not in str(raised.value)     # none was waited for
        with pytest.raises(gradsync.DaemonLostError):
            job.leave()
        job.leave()                     # it is gone
