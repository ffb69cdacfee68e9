# SPDX-License-Identifier: Apache-2.0
"""The memory of the daemon and of the library after many members and many steps, and who touches shared
memory first.

tests/leaks.sh runs the same with 10,000 cycles and 1,000,000 steps (GRADSYNC_TEST_CYCLES,
GRADSYNC_TEST_STEPS).
"""
import os
import pathlib

import pytest

from harness import anonymous_of, wait_until
from peer import PAGE, Arena, Crew, Own, Plan, small_plan
from trainers import join, joined, say, together

CYCLES = int(os.environ.get("GRADSYNC_TEST_CYCLES", "300"))
STEPS = int(os.environ.get("GRADSYNC_TEST_STEPS", "20000"))
ANONYMOUS = 20 << 20
SLACK = 256 << 10                       # of the allocator, whatever the number of cycles
MIB = 1 << 20


def cycle(served, number):
    """One job from attach to detach, in one of the ways in which it can end."""
    crew = Crew(served.path, "passing", 2, lambda ordinal: small_plan(2, elements=5000, ordinal=ordinal))
    crew.go(1)
    if number % 4 == 0:
        crew.leave()
    elif number % 4 == 1:
        crew.peers[0].ready(crew.plans[0][0], 0)
    elif number % 4 == 2:
        crew.peers[1].staging().close()
        crew.peers[1].ask("PLAN_DROP", "PLAN_DROPPED", job=crew.peers[1].job, plan=0)
    else:
        own = crew.peers[0].register(Own(64 * PAGE))
        crew.peers[0].plan_send(own.place(small_plan(2, elements=5000, ordinal=1), 64))
        for frame in crew.peers[0].silent():
            for fd in frame.fds:
                os.close(fd)
        own.close()
    crew.close()
    wait_until(lambda: served.holdings()["jobs"] == 1, "the end of the job")


def tidied(served, before):
    """The daemon gives free memory back to the system after a moment."""
    wait_until(lambda: served.daemon.anonymous() <= before + SLACK, "free memory to be given back")


@pytest.mark.heavy
def test_attaching_and_detaching_leaves_nothing(watched):
    for number in range(40):            # allocator, name caches and the like settle
        cycle(watched, number)
    watched.settled()
    before = watched.daemon.anonymous()
    maps = watched.daemon.maps().count("\n")
    own = len(os.listdir("/proc/self/fd"))
    for number in range(CYCLES):
        cycle(watched, number)
    assert len(os.listdir("/proc/self/fd")) == own      # or what follows in this process would fail for that
    watched.settled()
    tidied(watched, before)
    assert watched.daemon.maps().count("\n") <= maps + 4
    assert watched.daemon.anonymous() < ANONYMOUS


@pytest.mark.heavy
def test_the_library_leaves_nothing_in_its_process(watched, member):
    """Attach, agree, step, operate, detach, again and again in the same two processes."""
    members = [member(watched.daemon) for _ in range(2)]

    def go(cycles):
        for number in range(cycles):
            together(members, "open")
            join(members, "library")
            together(members, "param a f32 5000", "param b f16 3", f"register 0 20480 map={number % 2}",
                     "param_at 0 448 c f32 5000")
            together(members, "plan", "steps 2", "allreduce 100 f32 sum")
            if number % 3 == 0:
                together(members, "plan_free", "unregister 0")
            if number % 3 != 1:
                together(members, "leave")
            together(members, "close")

    def holdings():
        return [(sorted(os.readlink(f"/proc/{each.pid}/fd/{fd}")
                        for fd in os.listdir(f"/proc/{each.pid}/fd")),
                 pathlib.Path(f"/proc/{each.pid}/maps").read_text().count("\n")) for each in members]

    go(20)
    before, anonymous = holdings(), [anonymous_of(each.pid) for each in members]
    go(CYCLES)
    assert holdings() == before
    for each, weight in zip(members, anonymous):
        assert anonymous_of(each.pid) <= weight + SLACK


@pytest.mark.heavy
def test_steps_of_the_library_leave_nothing(watched, member):
    members = joined(member, watched.daemon)
    together(members, "param a f32 100", "plan", "steps 1000")
    pids = [watched.daemon.pid, *(each.pid for each in members)]
    before = [anonymous_of(pid) for pid in pids]
    say(members, f"steps {STEPS}")
    for each in members:
        assert each.line(3600).startswith("OK")
    tidied(watched, before[0])
    for pid, weight in zip(pids[1:], before[1:]):
        assert anonymous_of(pid) <= weight + SLACK
    together(members, "leave", "close")


@pytest.mark.heavy
def test_operations_leave_nothing(watched):
    crew = watched.crew("collective", 2, plan=None)
    memories = [peer.staging() for peer in crew.peers]

    def go(count):
        for _ in range(count):
            crew.operate("ALLREDUCE", dtype=1, reduce=2, bytes=4096, input=0, output=0)

    go(500)
    before = watched.daemon.anonymous()
    go(STEPS // 4)
    tidied(watched, before)
    for memory in memories:
        memory.close()


@pytest.mark.heavy
def test_anonymous_memory_with_much_going_on(watched):
    """30 jobs of 2 with 8 MiB each, and a plan of 20,000 parameters."""
    for number in range(30):
        watched.crew(f"job{number}", 2, lambda ordinal: small_plan(4, elements=512 << 10, ordinal=ordinal))
    large = [(f"some.module.{number}.weight", [4], number % 500) for number in range(20000)]
    watched.crew("large", 2, lambda ordinal: Plan(large, ordinal))
    watched.go()
    assert watched.daemon.anonymous() < ANONYMOUS


# -- who touches first

def blocks(fd):
    """Bytes of a memfd that have memory behind them."""
    return os.fstat(fd).st_blocks * 512


def test_the_daemon_is_never_the_first_to_touch_an_arena(watched):
    """By the memfd's own account: nothing is there when the member gets it, all is when the daemon may use
    it, all from the member."""
    peer = watched.alone("payer")
    plan = small_plan(3, elements=MIB)
    peer.expect("PLAN_ARENA", peer.plan_send(plan))
    fd, control = peer.fds
    os.close(control)
    watched.go()
    assert blocks(fd) == 0
    plan.arena = Arena(fd, plan.bytes, populate=False)
    peer.plans[0] = plan
    plan.arena.populate(0, plan.bytes // 2 // PAGE * PAGE)
    peer.refusal(peer.send("PLAN_MAPPED", job=peer.job, plan=0))        # half of it is not enough,
    assert blocks(fd) == plan.bytes // 2 // PAGE * PAGE                 # and asking has not made it more
    os.close(fd)


def test_the_daemon_is_never_the_first_to_touch_staging(serve):
    peer = serve().alone("payer")
    message = peer.ask("STAGING", "STAGING_ARENA", job=peer.job)
    fd = peer.fds[0]
    assert blocks(fd) == 0
    answer = peer.refusal(peer.send("STAGING_MAPPED", job=peer.job))
    assert answer.code in ("INVALID", "STATE")
    assert blocks(fd) == 0 and message.bytes == 8 * MIB
    os.close(fd)
