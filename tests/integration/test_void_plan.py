# SPDX-License-Identifier: Apache-2.0
"""Plans that end with their generation (void_on_loss): a member is lost while others make one, or are about
to, and its successor knows nothing of the plan."""
import signal

import pytest

from harness import wait_until
from trainers import ask, fields, together

RENEWED = "param renewed f32 500"
VOID = "plan void=1"


def waits_for(it, *ranks):
    wait_until(lambda: sorted(each["rank"] for each in it.status()["waiting_for"]) == list(ranks),
               "the plan to wait")


def is_void(member, generation=2):
    name, _, rest = member.line().partition(" ")
    assert name == "VOID_BEHIND", (name, rest)
    for said in ("plan is void", f"generation {generation}", "gradsync_sync_state"):
        assert said in rest, rest


def on_slot(members, slot):
    for each in members:
        ask(each, f"slot {slot}")


def made_together(it, slot=1):
    """All make the plan, the newcomer too, and then step with it."""
    on_slot(it.members, slot)
    for each in it.members:
        ask(each, RENEWED)
    together(it.members, VOID)
    return it.step()


@pytest.mark.parametrize("begun", [(), (0,), (0, 2)], ids=["by-none", "by-one", "by-both"])
@pytest.mark.parametrize("freed", [False, True], ids=["second", "only"])
def test_it_is_as_if_it_had_never_been_begun(team, begun, freed):
    """On all members alike, however far each of them was; the ordinals of plans go on without a gap."""
    it = team()
    it.step()
    if freed:
        together(it.members, "plan_free")
    stay = [it.members[0], it.members[2]]
    on_slot(stay, 1)
    for rank in begun:
        ask(it.members[rank], RENEWED)
        it.members[rank].say(VOID)
    if begun:
        waits_for(it, *({0, 1, 2} - set(begun)))
    it.kill(1)
    new = it.fresh()
    ask(new, it.join_line(1))
    it.members[1] = new
    for rank in {0, 2} - set(begun):
        ask(it.members[rank], RENEWED)
        it.members[rank].say(VOID)
    for each in stay:
        is_void(each)
    if not freed:
        it.register(new)
        ask(new, "plan")
    ask(new, f"state {it.state} 99")
    assert [fields(rest)["value"] for rest in together(it.members, "sync 1")] == ["1"] * 3
    assert made_together(it) == [1, 1, 1]
    if not freed:
        on_slot(it.members, 0)
        assert it.step() == [2, 2, 2]


def test_it_is_lost_again(team):
    """The successor dies before it has made it, and the next one does."""
    it = team()
    it.step()
    stay = [it.members[0], it.members[2]]
    on_slot(stay, 1)
    for attempt in range(2):
        for each in stay:
            ask(each, RENEWED)
            each.say(VOID)
        waits_for(it, 1)
        it.kill(1)
        it.replace(1)
        for each in stay:
            is_void(each, 2 + attempt)
        together(it.members, "sync 1")
    assert made_together(it) == [1, 1, 1]


def test_agreed_before_the_loss(team):
    """The plan is not void then: the successor makes it, as any other plan."""
    it = team()
    it.step()
    on_slot(it.members, 1)
    for each in it.members:
        ask(each, RENEWED)
    together(it.members, VOID)
    it.kill(1)
    on_slot([it.members[0], it.members[2]], 0)
    it.replace(1)
    on_slot(it.members, 1)
    ask(it.members[1], RENEWED)
    ask(it.members[1], VOID)
    together(it.members, "sync 1")
    assert it.step() == [1, 1, 1]


def test_members_that_differ_in_it(team):
    """No member waits for a plan that others have given up."""
    it = team()
    on_slot(it.members, 1)
    for each in it.members:
        ask(each, RENEWED)
    it.members[0].say(VOID)
    it.members[1].say("plan")
    it.members[2].say(VOID)
    for each in it.members:
        line = each.line()
        assert line.startswith("PLAN_MISMATCH ") and "void_on_loss" in line, line
    assert made_together(it) == [1, 1, 1]


def test_nobody_comes(team):
    """The job is over: that is what they are told."""
    it = team(settings={"rejoin_grace": "50ms"})
    stay = [it.members[0], it.members[2]]
    on_slot(stay, 1)
    for each in stay:
        ask(each, RENEWED)
        each.say(VOID)
    waits_for(it, 1)
    it.kill(1)
    for each in stay:
        assert each.line().startswith("MEMBER_LOST ")


def test_the_daemon_is_restarted(team):
    """The restart is orderly: the plan goes on, since no member is lost."""
    it = team()
    it.step()
    on_slot(it.members, 1)
    for each in it.members:
        ask(each, RENEWED)
    for each in it.members[:2]:
        each.say(VOID)
    waits_for(it, 2)
    it.served.signal(signal.SIGTERM)
    assert it.served.program.wait() == 0, it.served.log
    it.served.start()
    ask(it.members[2], VOID)
    for each in it.members[:2]:
        assert each.line().startswith("OK ")
    assert it.step() == [1, 1, 1]
    on_slot(it.members, 0)
    assert it.step() == [2, 2, 2]
