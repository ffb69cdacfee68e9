# SPDX-License-Identifier: Apache-2.0
"""Members that wait for each other, on one daemon and on several: the job ends, and each is told why."""
import json
import os

import pytest

from clusters import members_of, planned
from harness import wait_until
from traced import Traced
from trainers import OK, ask, crew, ended, joined, script, step, together

SHORT = {"stall_notice": "100ms", "deadlock_timeout": "300ms"}
HEAD = "job '{}': its members wait for each other: "
TAIL = ". All members have to make the same calls in the same order"


def circle(*links, name="job"):
    """The text of an error. A link is: rank, pid, host, call, the next rank, and what that rank has to do."""
    said = [f"rank {rank} (pid {pid}){host} is {call}, for which rank {other} has to {due}"
            for rank, pid, host, call, other, due in links]
    return HEAD.format(name) + "; ".join(said) + TAIL


def enter(member, number):
    """The member is at the end of a step that lacks others."""
    script(member, f"fill {number}", "ready")
    member.say("finish")


def end_another(served, member):
    """A circle of two members of another job, from its beginning to its end."""
    other = joined(member, served, name="other")
    planned(other)
    enter(other[0], 1)
    other[1].say("barrier")
    ended(other, "DEADLOCK")


def answers(members):
    """The answer to the members' calls: the code and the text are the same for all."""
    told = {each.line() for each in members}
    assert len(told) == 1, told
    code, _, text = told.pop().partition(" ")
    return code, text


def test_a_step_and_a_barrier(daemon, member):
    served = daemon(settings=SHORT)
    members = crew(member, served, 2)
    assert step(members) == 1
    enter(members[0], 1)
    members[1].say("barrier")
    code, text = answers(members)
    assert code == "DEADLOCK"
    assert text == circle((0, members[0].pid, "", "at the end of step 2", 1, 'give its gradients, "a" first'),
                          (1, members[1].pid, "", "in operation 0, barrier", 0, "make the same call"))
    for each in members:
        assert ask(each, "barrier", code="DEADLOCK") == text
        assert ask(each, "finish", code="DEADLOCK") == text
    assert served.log.count("wait for each other") == 1
    together(members, "leave")
    ended, = wait_until(lambda: json.loads(served.ctl("list", "jobs", "--ended", "--json"))["ended_jobs"],
                        "the end")
    assert (ended["reason"], ended["text"]) == ("given up", text.removeprefix("job 'job': ")), ended
    again = crew(member, served, 2)
    assert step(again) == 1


def test_it_is_not_ended_while_it_is_switched_off(daemon, member):
    """It is ended as soon as a reload switches that on."""
    served = daemon(settings={**SHORT, "deadlock_timeout": "0"})
    members = crew(member, served, 2)
    enter(members[0], 1)
    members[1].say("barrier")
    served.wait_log(r"step 1: waiting .* for rank 1")
    served.wait_log(r"operation 0, barrier: waiting .* for rank 0")
    assert "wait for each other" not in served.log
    assert served.job("job")["state"] == "stalled"
    served.change(**SHORT)
    assert answers(members)[0] == "DEADLOCK"


@pytest.mark.skipif(os.geteuid() != 0, reason="traces another process")
def test_a_debugger_may_hold_one_of_them(daemon, member):
    served = daemon(settings=SHORT)
    members = crew(member, served, 2)
    enter(members[0], 1)
    held = Traced(members[0].pid)
    members[1].say("barrier")
    served.wait_log(r"operation 0, barrier: waiting .* for rank 0")
    end_another(served, member)
    assert served.job("job")["state"] == "stalled"
    held.release()
    assert answers(members)[0] == "DEADLOCK"


@pytest.mark.host
@pytest.mark.parametrize("late", [0, 1])
def test_over_two_daemons(cluster, member, late):
    """Each daemon has one of the two, and knows from the other daemon what that one is in."""
    it = cluster(("alpha", "beta"), settings=SHORT)
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    enter(members[1 - late], 1)
    members[late].say("barrier")
    told = [each.line().partition(" ") for each in members]
    assert [code for code, _, _ in told] == ["DEADLOCK", "DEADLOCK"], told
    for rank, (_, _, text) in enumerate(told):
        far = 1 - rank
        place = {rank: "", far: f" on host {('alpha', 'beta')[far]}"}
        in_step, in_call = 1 - late, late
        links = [(in_step, members[in_step].pid, place[in_step], "at the end of step 2", in_call,
                  'give its gradients, "a" first'),
                 (in_call, members[in_call].pid, place[in_call], "in operation 0, barrier", in_step,
                  "make the same call")]
        assert text == circle(*(links if links[0][0] == rank else links[::-1])), text
    for each in members:
        assert ask(each, "barrier", code="DEADLOCK")
    assert any("wait for each other" in node.log for node in it.nodes)


@pytest.mark.host
def test_a_member_that_computes_is_waited_for_over_daemons(cluster, member):
    it = cluster(settings=SHORT)
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    enter(members[0], 1)
    end_another(it.nodes[0], members_of(it, member))
    script(members[1], "fill 2", "ready")
    members[1].say("finish")
    ended(members, OK)
