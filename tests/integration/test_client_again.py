# SPDX-License-Identifier: Apache-2.0
"""Calls of libgradsync that return before they are done, for a signal or in a loop of the caller, and are called again."""
import signal

import pytest

from harness import process_state, wait_until
from trainers import ask, ending_well, fill, opened, script, together


@pytest.fixture(name="member")
def member_that_ends_well(member):
    yield from ending_well(member)

# --- interruption


def interrupt(served, member, command, waiting):
    """Runs a call that waits, interrupts it twice, and leaves it waiting."""
    for _ in range(2):
        before = int(ask(member, "signals"))
        member.say(command)
        wait_until(waiting, f"{command} to wait")
        wait_until(lambda: process_state(member.pid) == "S", "the member to sleep")
        line = None
        while line is None:                         # a signal that comes before the call sleeps is no interruption
            member.signal(signal.SIGUSR1)
            try:
                line = member.line(0.2)
            except AssertionError:
                continue
        assert line.startswith("INTERRUPTED "), line
        assert int(ask(member, "signals")) > before


def test_interrupted_calls_go_on(served, member):
    members = opened(member, served, 2)

    first = "join name=job world=2 rank=0"
    interrupt(served, members[0], first, lambda: served.job("job"))
    members[0].say(first)
    ask(members[1], "join name=job world=2 rank=1")
    assert members[0].line().startswith("OK ")

    together(members, "param p f32 3")
    interrupt(served, members[0], "plan", lambda: served.job("job")["waiting_for"])
    members[0].say("plan")
    ask(members[1], "plan")
    assert members[0].line().startswith("OK ")

    fill(members)
    ask(members[0], "ready")
    interrupt(served, members[0], "finish", lambda: served.job("job")["waiting_for"])
    members[0].say("finish")
    script(members[1], "ready", "finish")
    assert members[0].line().startswith("OK ")
    assert ask(members[0], "check 1.5") == "right"

    for command in ("barrier", "broadcast 100 1", "allgather 100", "allreduce 100 f32 sum"):
        interrupt(served, members[0], command, lambda: served.job("job")["waiting_for"])
        members[0].say(command)
        ask(members[1], command)
        line = members[0].line()
        assert line in ("OK ", "OK right"), line


# --- a caller's own loop


def test_nonblocking_members(daemon, member):
    served = daemon(settings={"staging_bytes": "1MiB"})
    members = opened(member, served, 2, options="nonblocking=1")
    ask(members[0], "join name=job world=2 rank=0", "AGAIN")
    members[0].say("poll join name=job world=2 rank=0")
    ask(members[1], "poll join name=job world=2 rank=1")
    assert members[0].line().startswith("OK ")
    for each in members:
        for i in range(300):
            ask(each, f"param p{i} f32 {i % 5 + 1}")
    together(members, "poll plan first=64 bucket=64")
    for number in range(5):
        fill(members)
        ask(members[0], "ready")
        ask(members[0], "finish", "AGAIN")
        ask(members[1], "ready")
        together(members, "poll finish")
        assert set(together(members, "check 1.5")) == {"right"}
    together(members, "poll barrier")
    assert all(rest.startswith("right") for rest in together(members, "poll broadcast 5000001 1"))
    assert all(rest.startswith("right") for rest in together(members, "poll reduce_scatter 1000001 f32 sum"))
    together(members, "poll plan_free")
    ask(members[0], "poll leave")


def test_what_one_call_receives_may_end_another(served, member):
    """The caller's loop hears of it, though nothing is left in the socket."""
    members = opened(member, served, 1, options="nonblocking=1") + opened(member, served, 1)
    for k in range(2):
        for rank, each in enumerate(members):
            ask(each, f"job {k}")
            each.say(f"{'' if rank else 'poll '}join name=job{k} world=2 rank={rank}")
        assert all(each.line().startswith("OK ") for each in members)
        ask(members[0], "barrier", "AGAIN")
    for k in range(2):
        script(members[1], f"job {k}", "barrier")
    script(members[0], "job 0", "barrier")
    assert ask(members[0], "readable") == "1"
    script(members[0], "job 1", "poll barrier")
