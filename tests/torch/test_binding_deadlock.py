# SPDX-License-Identifier: Apache-2.0
"""Members that wait for each other, and members that only look like it: a thread beside the one that waits
gives the others what they lack. All members of a job are in this process, each with threads of its own."""
import concurrent.futures

import pytest

import gradsync
from gradsync import DType
from harness import DEADLINE, wait_until

ONE = [("weight", DType.F32, (2,))]
TWO = [("a", DType.F32, (2,)), ("b", DType.F32, (2,))]
SHORT = {"stall_notice": "100ms", "deadlock_timeout": "300ms"}


@pytest.fixture
def beside():
    """beside(function, *arguments) -> a future of it in a thread of its own."""
    pools = []

    def start(function, *arguments):
        pools.append(concurrent.futures.ThreadPoolExecutor(1))
        return pools[-1].submit(function, *arguments)

    yield start
    for each in pools:
        each.shutdown()


def step(plan):
    for param in range(len(plan)):
        plan.ready(param)
    return plan.finish().step


def is_waited_for(made, what):
    """The job waits for that; so the calls of which this is said are there."""
    wait_until(lambda: what in [wait["what"] for wait in made.daemon.job("crew")["waiting_for"]], what)


def end_a_circle(crew, served):
    """Another job of that daemon has a circle from its beginning to its end: nothing else may end so long."""
    other = crew(2, served=served, name="circle")
    plans = other.plan(ONE)
    begun = [other.begin(0, lambda _: step(plans[0])), other.begin(1, lambda r: other.jobs[r].barrier())]
    for each in begun:
        with pytest.raises(gradsync.DeadlockError, match="wait for each other: rank 0 .* rank 1 .*barrier"):
            each.result(DEADLINE)


def test_one_thread_each(crew):
    made = crew(2, settings=SHORT)
    end_a_circle(crew, made.daemon)


def test_a_second_thread_gives_the_gradients(crew, beside):
    """Each member has a thread that trains, and one that writes checkpoints and meets the others then."""
    made = crew(2, settings=SHORT)
    plans = made.plan(ONE)
    trained = beside(step, plans[0])
    met = made.begin(1, lambda r: made.jobs[r].barrier())
    is_waited_for(made, "step")
    is_waited_for(made, "operation")
    end_a_circle(crew, made.daemon)
    assert beside(step, plans[1]).result(DEADLINE) == trained.result(DEADLINE) == 1
    made.begin(0, lambda r: made.jobs[r].barrier()).result(DEADLINE)
    met.result(DEADLINE)


def test_a_thread_for_each_plan(crew, beside):
    made = crew(2, settings=SHORT)
    first, second = made.plan(ONE), made.plan(TWO)
    begun = [beside(step, first[0]), beside(step, second[1])]
    wait_until(lambda: len(made.daemon.job("crew")["waiting_for"]) == 2, "both steps")
    end_a_circle(crew, made.daemon)
    begun += [beside(step, second[0]), beside(step, first[1])]
    assert [each.result(DEADLINE) for each in begun] == [1] * 4


def test_a_wait_in_the_middle_of_a_step(crew):
    """The lacking call comes after it."""
    made = crew(3, settings=SHORT)
    plans = made.plan(TWO, first_bucket_bytes=8, bucket_bytes=8)

    def early(rank):
        plans[rank].ready(1)
        if rank == 0:
            plans[rank].wait(1)
        made.jobs[rank].barrier()
        plans[rank].ready(0)
        return plans[rank].finish().step

    begun = [made.begin(rank, early) for rank in (0, 1)]
    is_waited_for(made, "step")
    is_waited_for(made, "operation")
    end_a_circle(crew, made.daemon)
    begun.append(made.begin(2, early))
    assert [each.result(DEADLINE) for each in begun] == [1] * 3


def test_calls_one_after_the_other_in_two_threads(crew, beside):
    """As autograd finishes steps on GPUs: the process says that nothing else goes on, and is counted."""
    made = crew(2, settings=SHORT, join={"sequential": True})
    plans = made.plan(ONE)
    begun = [beside(step, plans[0]), made.begin(1, lambda r: made.jobs[r].barrier())]
    for each in begun:
        with pytest.raises(gradsync.DeadlockError):
            each.result(DEADLINE)


def test_a_third_thread(crew, beside):
    """Then nothing is known of it, whatever it says."""
    made = crew(2, settings=SHORT, join={"sequential": True})
    plans = made.plan(ONE)
    assert [each.result(DEADLINE) for each in [beside(step, plan) for plan in plans]] == [1, 1]
    trained, met = beside(step, plans[0]), beside(made.jobs[1].barrier)
    is_waited_for(made, "step")
    is_waited_for(made, "operation")
    end_a_circle(crew, made.daemon)
    assert beside(step, plans[1]).result(DEADLINE) == trained.result(DEADLINE) == 2
    beside(made.jobs[0].barrier).result(DEADLINE)
    met.result(DEADLINE)
