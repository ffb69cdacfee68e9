# SPDX-License-Identifier: Apache-2.0
"""Waits in a job that lacks a member: a member waits if it has begun a call that cannot end without it."""
import pytest

from harness import wait_until
from trainers import ask, connected, crew, ending_well


@pytest.fixture(name="member")
def member_that_ends_well(member):
    yield from ending_well(member)


def states(served, name="job"):
    """The states of the members that are there, by rank, once one is lost."""
    job = served.job(name)
    if job is None or job["state"] != "replacing":
        return None
    return {each["rank"]: each["state"] for each in job["members"] if each["state"] != "lost"}


BEGINNINGS = {
    "a step": ("fill 1", "ready", "finish"),
    "a collective": ("barrier",),
    "a collective with data": ("allgather 100",),
    "a plan": ("param more f32 5", "plan"),
}


def begin(member, commands):
    """All of them, without waiting for the last one, which does not come to its end."""
    for command in commands[:-1]:
        ask(member, command)
    member.say(commands[-1])


@pytest.mark.parametrize("commands", BEGINNINGS.values(), ids=list(BEGINNINGS))
@pytest.mark.parametrize("before", (True, False), ids=("before the loss", "after the loss"))
def test_what_cannot_end_is_waited_for(daemon, member, before, commands):
    """Rank 1 has begun it; rank 2 computes, and the daemon does not know whether it will ever need the
    job."""
    served = daemon(settings={"rejoin_grace": "1h"})
    members = crew(member, served, 3)
    if before:
        begin(members[1], commands)
        wait_until(lambda: served.job("job")["waiting_for"], "rank 1 to wait")
    members[0].kill()
    wait_until(lambda: states(served), "the loss")
    if not before:
        begin(members[1], commands)
    wait_until(lambda: states(served)[1] == "waiting", "rank 1 shown as waiting")
    # A step that is void is void for rank 2, too: it waits as soon as it comes to it, without a word.
    assert states(served)[2] == ("waiting" if before and "finish" in commands else "computing")
    members[1].kill()
    members[2].kill()


def test_a_new_generation_is_a_new_beginning(daemon, member):
    """A call that began before a place was filled does not count at the next loss."""
    served = daemon(settings={"rejoin_grace": "1h"})
    members = crew(member, served, 2)
    begin(members[1], BEGINNINGS["a step"])
    wait_until(lambda: served.job("job")["waiting_for"], "rank 1 to wait")
    members[0].kill()
    wait_until(lambda: (states(served) or {}).get(1) == "waiting", "rank 1 shown as waiting")
    successor = connected(member(served), "name=job world=2 rank=0")
    assert members[1].line().startswith("VOID_BEHIND ")
    successor.kill()
    wait_until(lambda: states(served), "the second loss")
    assert states(served)[1] == "computing"
    members[1].kill()
