# SPDX-License-Identifier: Apache-2.0
"""Memory that members bring, when the daemon ends and another one takes its place: it is offered again, with the plans that lie
in it."""
import pytest

from harness import kill, stop, wait_until
from trainers import ask, joined, restart, script, step, together

PLAN = "plan first=64 bucket=64"


def prepare(each):
    """Two parameters in the second memory that this member has registered."""
    script(each, "register 0 4096", "unregister 0",
           "register 0 65536 offset=4096 size=69632 fill=69632 map=1", "param_at 0 128 weight f32 3000",
           "param_at 0 12160 bias f32 40")


@pytest.fixture
def pair(member):
    """pair(daemon) -> a member with memory of its own, and one with an arena. They have done a step."""
    def start(served):
        members = joined(member, served, 2)
        prepare(members[0])
        script(members[1], "param weight f32 3000", "param bias f32 40")
        together(members, PLAN)
        assert step(members) == 1
        return members
    return start


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_between_steps(served, pair, end_daemon):
    members = pair(served)
    addresses = [ask(each, "address 0") for each in members]
    for number in (2, 3):
        restart(served, end_daemon)
        assert step(members) == number
    assert [ask(each, "address 0") for each in members] == addresses
    assert served.job("job")["void_steps"] == 0
    ask(members[0], "unregister 0", "STATE")
    ask(members[0], "slot 1")
    ask(members[0], "register 1 16384")                 # handles go on
    ask(members[0], "param_at 1 0 more f32 64")
    script(members[1], "slot 1", "param more f32 64")
    together(members, "plan")
    assert step(members) == 1
    together(members, "slot 0", "plan_free")
    ask(members[0], "unregister 0")
    wait_until(lambda: served.maps().count("memfd:own") == 1, "one mapping of a member's memory")
    restart(served, end_daemon)
    together(members, "slot 1")
    assert step(members) == 2
    together(members, "leave")
    wait_until(lambda: "memfd:own" not in served.maps() and "/memfd:own (deleted)" not in served.fds(), "nothing of it")


@pytest.mark.parametrize("call", ["register", "unregister"])
def test_in_a_call(served, pair, call):
    """The daemon is killed before it has answered: the call goes on with the next one."""
    members = pair(served)
    if call == "unregister":
        ask(members[0], "register 1 4096")
    served.program.stop()
    members[0].say(f"{call} 1" + (" 4096" if call == "register" else ""))
    members[1].say("barrier")                           # who is in no call does not come back by himself
    restart(served, kill)
    assert members[0].line().startswith("OK")
    ask(members[0], "barrier")
    assert members[1].line().startswith("OK")
    assert step(members) == 2
    expected = 2 if call == "register" else 1
    wait_until(lambda: served.maps().count("memfd:own") == expected, "the mappings that belong there")


def test_pages_given_back_meanwhile(served, pair):
    """A member whose memory is not whole any more has no place, and is told why."""
    members = pair(served)
    kill(served)
    ask(members[0], "punch 0 8192 4096")
    served.start()
    refused = wait_for_loss(members[0])
    assert "does not take this member back" in refused and "touched" in refused, refused


def wait_for_loss(member):
    """The text of the first call that tells of it."""
    while True:
        line = member.ask("barrier")
        if not line.startswith("OK"):
            assert line.startswith("MEMBER_LOST"), line
            return line
