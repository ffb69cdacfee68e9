# SPDX-License-Identifier: Apache-2.0
"""Waiting: signals, threads, the stall callback, and connections that do not block."""
import asyncio
import concurrent.futures
import contextlib
import ctypes
import os
import selectors
import signal
import threading

import pytest

import gradsync
import harness
from gradsync import DType

ONE = [("weight", DType.F32, (2,))]
TRAINER = """
    import signal, sys
    import gradsync
    from gradsync import DType
    with gradsync.Connection() as gs, gs.join("signals", world_size=2, rank=int(sys.argv[1])) as job:
        plan = job.plan([("weight", DType.F32, (2,))])
        if job.rank == 0:
            plan.ready(0)
        %s
"""


def state_of(pid):
    return harness.process_state(pid)


def asleep_in_a_step(served, rank, pid):
    """The daemon has this member's bucket, and the member sleeps."""
    def waiting():
        job = served.job("signals")
        done = [each for each in job["members"] if each["rank"] == rank] if job else []
        return done and done[0]["state"] == "waiting" and state_of(pid) == "S"
    harness.wait_until(waiting, "a member that waits in finish()")


def test_signals_in_a_wait(daemon, script):
    """A handler that raises ends it, as that of Ctrl-C, and the same call goes on where it was; after another
    handler the wait goes on."""
    served = daemon()
    made = [script(TRAINER % text, rank, socket=served.socket) for rank, text in enumerate(("""
        signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
        while True:
            try:
                print("finish", flush=True)
                info = plan.finish()
                break
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        print("committed", info.step)
""", """
        sys.stdin.readline()
        plan.ready(0)
        plan.finish()
"""))]
    assert made[0].line() == "finish"
    for number, told in ((signal.SIGINT, ["interrupted", "finish"]), (signal.SIGUSR1, ["handled"])) * 3:
        asleep_in_a_step(served, 0, made[0].pid)
        made[0].signal(number)
        assert [made[0].line() for _ in told] == told
    made[1].say("")
    assert made[0].line() == "committed 1"
    assert [each.wait() for each in made] == [0, 0], made[0].err


def test_a_wait_lets_other_threads_run(crew):
    """While one thread is in finish(), others of this process compute."""
    made = crew(2)
    plans = made.plan([*ONE, ("bias", DType.F32, ())])
    plans[0].ready(0), plans[0].ready(1)
    waits = made.begin(0, lambda _: plans[0].finish())
    counted = 0
    for _ in range(100000):             # all of this while that thread waits
        counted += 1
    assert counted == 100000 and not waits.done()
    plans[1].ready(0), plans[1].ready(1)
    assert plans[1].finish().step == waits.result(harness.DEADLINE).step == 1


def in_a_thread_of_others(function):
    """Runs a function in a thread that Python has not started, such as autograd's for a GPU. Returns a
    function that waits for the thread's end."""
    called = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: function() and None)
    thread, libc = ctypes.c_ulong(), ctypes.CDLL(None)
    assert libc.pthread_create(ctypes.byref(thread), None, called, None) == 0
    return lambda: (libc.pthread_join(thread, None), called)


def in_a_thread_of_python(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread.join


@pytest.mark.parametrize("begin", [in_a_thread_of_python, in_a_thread_of_others])
def test_a_connection_is_not_closed_under_a_thread(crew, begin):
    made = crew(2)
    plans, steps = made.plan(ONE), []
    plans[0].ready(0)
    wait = begin(lambda: steps.append(plans[0].finish().step))
    harness.wait_until(lambda: made.connections[0]._inside._threads, "a thread in finish()")
    with pytest.raises(gradsync.StateError, match="a thread is in a call"):
        made.connections[0].close()
    plans[1].ready(0), plans[1].finish()
    wait()
    assert steps == [1] and not made.connections[0]._inside._threads


@pytest.mark.parametrize("end", [lambda made: made.jobs[0].leave(), lambda made: made.connections[0].close()],
                         ids=["leave", "close"])
def test_nothing_ends_under_a_thread_that_enters_a_call(crew, end):
    """The library, which does not know of the thread yet, would free what the call is about."""
    made = crew(2)
    plans, entered, steps = made.plan(ONE), threading.Event(), []
    go, finish = threading.Event(), plans[0]._c_finish
    plans[0]._c_finish = lambda *arguments: entered.set() or go.wait() and finish(*arguments)
    plans[0].ready(0)
    wait = in_a_thread_of_python(lambda: steps.append(plans[0].finish().step))
    assert entered.wait(harness.DEADLINE)
    with pytest.raises(gradsync.StateError, match="a thread is in a call on this"):
        end(made)
    go.set()
    plans[1].ready(0), plans[1].finish()
    wait()
    assert steps == [1]


def test_a_job_whose_calls_come_one_after_the_other(crew):
    """As autograd finishes steps on GPUs, in a thread of its own: that a circle is seen, the option says."""
    made = crew(2, settings={"stall_notice": "100ms", "deadlock_timeout": "300ms"},
                join={"sequential": True})
    plans = made.plan(ONE)
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        begun = [other.submit(lambda: plans[0].ready(0) or plans[0].finish()),
                 made.begin(1, lambda r: made.jobs[r].barrier())]
        for each in begun:
            with pytest.raises(gradsync.DeadlockError):
                each.result(harness.DEADLINE)


def test_the_stall_callback_names_who_is_waited_for(crew):
    told = []

    def stall(job, what):
        told.append((job, what, job.rank))
    made = crew(2, settings={"stall_notice": "0.2s"}, stall=stall)
    plans = made.plan(ONE)
    plans[0].ready(0)
    waits = made.begin(0, lambda _: plans[0].finish())
    (job, what, rank), *_ = harness.wait_until(lambda: told, "a notice")
    with pytest.raises(gradsync.StateError):
        made.jobs[0].leave()
    plans[1].ready(0), plans[1].finish()
    waits.result(harness.DEADLINE)
    assert job is made.jobs[0] and rank == 0
    assert (what.step, what.rank, what.pid, what.bucket, what.parameter) == (1, 1, os.getpid(), 0, "weight")
    assert "rank 1" in what.text and what.since_ms >= 0
    assert what.process_state in ("running", "sleeping")


def test_what_the_stall_callback_raises_is_raised_by_the_call(crew):
    def stall(job, what):
        if job.rank == 0:
            raised.set()
            raise RuntimeError(f"enough of rank {what.rank}")
    raised = threading.Event()
    made = crew(2, settings={"stall_notice": "0.2s"}, stall=stall)
    plans = made.plan(ONE)
    plans[0].ready(0)
    waits = made.begin(0, lambda _: plans[0].finish())
    assert raised.wait(harness.DEADLINE)
    plans[1].ready(0), plans[1].finish()
    with pytest.raises(RuntimeError, match="enough of rank 1"):
        waits.result(harness.DEADLINE)


def train(gs, rank, name="loop", steps=3):
    """A generator of calls (function, options) that do not block, for any kind of loop; returns the job. That
    is left later: a member that leaves ends it, also for one that has not yet seen the end of a barrier."""
    job = yield gs.join, {"name": name, "world_size": 2, "rank": rank}
    plan = yield job.plan, {"params": ONE}
    for step in range(1, steps + 1):
        plan.gradient(0)[:] = [float(rank * step)] * 2
        plan.ready(0)
        info = yield plan.finish, {}
        assert info.step == step and list(plan.gradient(0)) == [step / 2] * 2
    told = bytearray([rank])
    yield job.broadcast, {"data": told, "root": 1}
    assert told == b"\1"
    yield plan.free, {}
    memory = yield job.memory, {"nbytes": 5000}
    yield memory.unregister, {}
    yield job.barrier, {}
    return job


async def run(gs, calls):
    """Runs a train() as a task."""
    answer = None
    while True:
        try:
            function, options = calls.send(answer)
        except StopIteration as end:
            return end.value
        answer = await asyncio.wait_for(gs.complete(function, **options), harness.DEADLINE)


def test_asyncio(daemon):
    """Both members in one thread, each with several jobs over one connection: nothing blocks, and a task that
    takes what has come for another one wakes it."""
    async def trainers(members):
        jobs = await asyncio.gather(*(run(gs, train(gs, rank, name, 20)) for rank, gs in enumerate(members)
                                      for name in "abc"))
        for job in jobs:
            await job.connection.complete(job.leave)

    served = daemon()
    with contextlib.ExitStack() as stack:
        asyncio.run(trainers([stack.enter_context(gradsync.Connection(served.socket, nonblocking=True))
                              for _ in range(2)]))


def test_a_loop_of_ones_own(daemon):
    """As the documentation of Connection.fileno() shows it."""
    served = daemon()
    with selectors.DefaultSelector() as loop, contextlib.ExitStack() as stack:
        def attempt(rank):
            """Whether the member's next call is over."""
            try:
                wanted[rank] = trains[rank].send(wanted[rank][0](**wanted[rank][1]))
                return True
            except gradsync.Again:
                agains.append(rank)
            except StopIteration:
                wanted.pop(rank)
                return True
            return False

        connections = [stack.enter_context(gradsync.Connection(served.socket, nonblocking=True))
                       for _ in range(2)]
        for gs in connections:
            loop.register(gs, selectors.EVENT_READ, gs)
        trains = [train(gs, rank) for rank, gs in enumerate(connections)]
        wanted = {rank: next(each) for rank, each in enumerate(trains)}
        agains = []
        while wanted:
            if any([attempt(rank) for rank in list(wanted)]):
                continue
            ready = loop.select(harness.DEADLINE)
            assert ready, "nothing comes"
            for key, _ in ready:
                key.data.dispatch()
        assert set(agains) == {0, 1}


def test_another_plan_while_one_is_being_made(daemon):
    served = daemon()
    with gradsync.Connection(served.socket, nonblocking=True) as gs:
        def complete(function, *arguments, **options):
            while True:
                try:
                    return function(*arguments, **options)
                except gradsync.Again:
                    harness.wait_until(lambda: selectable(gs), "something to dispatch")
                    gs.dispatch()
        job = complete(gs.join, "alone", world_size=1)
        with served.at_once():          # no answer meanwhile
            with pytest.raises(gradsync.Again):
                job.plan(ONE)
            with pytest.raises(gradsync.StateError, match="another plan is being made"):
                job.plan([("other", DType.F32, (1,))])
        assert len(complete(job.plan, ONE)) == 1
        complete(job.leave)


def selectable(gs):
    with selectors.DefaultSelector() as loop:
        loop.register(gs, selectors.EVENT_READ)
        return loop.select(0.1)
