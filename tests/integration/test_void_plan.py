# SPDX-License-Identifier: Apache-2.0
"""Plans that end with their generation (void_on_loss): a member is lost while others make one, or are about
to, and its successor knows nothing of the plan."""
import signal

import pytest

from harness import wait_until
from trainers import OK, ask, ended, fields, say, together

RENEWED = "param renewed f32 500"
VOID = "plan void=1"


def waits_for(it, *ranks):
    wait_until(lambda: sorted(each["rank"] for each in it.status()["waiting_for"]) == list(ranks),
               "the plan to wait")


def is_void(member, generation=2):
    rest, = ended([member], "VOID_BEHIND")
    for said in ("plan is void", f"generation {generation}", "gradsync_sync_state"):
        assert said in rest, rest


def begin_plan(members):
    """They are in the call that makes the plan."""
    together(members, RENEWED)
    say(members, VOID)


def made_together(it):
    """All make the plan, the newcomer too, and then step with it."""
    together(it.members, "slot 1", RENEWED, VOID)
    return it.step()


@pytest.mark.parametrize("begun", [(), (0,), (0, 2)], ids=["by-none", "by-one", "by-both"])
@pytest.mark.parametrize("freed", [False, True], ids=["second", "only"])
def test_it_is_as_if_it_had_never_been_begun(trio, begun, freed):
    """On all members alike, however far each of them was; the ordinals of plans go on without a gap."""
    trio.step()
    if freed:
        together(trio.members, "plan_free")
    stay = [trio.members[0], trio.members[2]]
    together(stay, "slot 1")
    begin_plan([trio.members[rank] for rank in begun])
    if begun:
        waits_for(trio, *({0, 1, 2} - set(begun)))
    trio.kill(1)
    new = trio.fresh()
    ask(new, trio.join_line(1))
    trio.members[1] = new
    begin_plan([trio.members[rank] for rank in {0, 2} - set(begun)])
    for each in stay:
        is_void(each)
    if not freed:
        trio.register(new)
        ask(new, "plan")
    ask(new, f"state {trio.state} 99")
    assert [fields(rest)["value"] for rest in together(trio.members, "sync 1")] == ["1"] * 3
    assert made_together(trio) == [1, 1, 1]
    if not freed:
        together(trio.members, "slot 0")
        assert trio.step() == [2, 2, 2]


def test_it_is_lost_again(trio):
    """The successor dies before it has made it, and the next one does."""
    trio.step()
    stay = [trio.members[0], trio.members[2]]
    together(stay, "slot 1")
    for attempt in range(2):
        begin_plan(stay)
        waits_for(trio, 1)
        trio.kill(1)
        trio.replace(1)
        for each in stay:
            is_void(each, 2 + attempt)
        together(trio.members, "sync 1")
    assert made_together(trio) == [1, 1, 1]


def test_agreed_before_the_loss(trio):
    """The plan is not void then: the successor makes it, as any other plan."""
    trio.step()
    together(trio.members, "slot 1", RENEWED, VOID)
    trio.kill(1)
    together([trio.members[0], trio.members[2]], "slot 0")
    trio.replace(1)
    together(trio.members, "slot 1")
    together(trio.members[1:2], RENEWED, VOID)
    together(trio.members, "sync 1")
    assert trio.step() == [1, 1, 1]


def test_members_that_differ_in_it(trio):
    """No member waits for a plan that others have given up."""
    together(trio.members, "slot 1", RENEWED)
    trio.members[0].say(VOID)
    trio.members[1].say("plan")
    trio.members[2].say(VOID)
    for rest in ended(trio.members, "PLAN_MISMATCH"):
        assert "void_on_loss" in rest, rest
    assert made_together(trio) == [1, 1, 1]


def test_nobody_comes(team):
    """The job is over: that is what they are told."""
    it = team(settings={"rejoin_grace": "50ms"})
    stay = [it.members[0], it.members[2]]
    together(stay, "slot 1")
    begin_plan(stay)
    waits_for(it, 1)
    it.kill(1)
    ended(stay, "MEMBER_LOST")


def test_the_daemon_is_restarted(trio):
    """The restart is orderly: the plan goes on, since no member is lost."""
    trio.step()
    together(trio.members, "slot 1", RENEWED)
    say(trio.members[:2], VOID)
    waits_for(trio, 2)
    trio.served.signal(signal.SIGTERM)
    assert trio.served.program.wait() == 0, trio.served.log
    trio.served.start()
    ask(trio.members[2], VOID)
    ended(trio.members[:2], OK)
    assert trio.step() == [1, 1, 1]
    together(trio.members, "slot 0")
    assert trio.step() == [2, 2, 2]
