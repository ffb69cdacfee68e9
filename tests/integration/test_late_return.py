# SPDX-License-Identifier: Apache-2.0
"""Members that come back to a job after it was judged without them, or go again, and newcomers meanwhile."""
import pytest

from harness import restart, wait_until
from peer import Refused, agree, small_plan
from returning import Returning, back, enter, give, go

HOUR = 3_600_000


def formed(peers, served, n, least, most, grace=0, **plan):
    """A job with one agreed plan, by rank."""
    made = [peers(Returning(served.socket)) for _ in range(n)]
    with served.at_once():              # no other one comes after the last call
        requests = [each.join_send("late", most, min_world=least, rejoin_grace_ms=grace,
                                   last_call_ms=HOUR if n == most else 1) for each in made]
    for each, request in zip(made, requests):
        each.joined(request)
    made.sort(key=lambda each: each.rank)
    agree(made, [small_plan(2, **plan) for _ in made])
    return made


def newcomer(peers, served, least, most, **changes):
    made = peers(Returning(served.socket))
    return made, made.join_send("late", most, min_world=least, **changes)


def refusal(peer, request):
    try:
        return f"joined: {peer.expect('JOINED', request)}"
    except Refused as why:
        return str(why)


@pytest.mark.parametrize("heard", [1, 0], ids=["it had heard", "it had not"])
def test_a_late_member_of_a_committed_step(served, peers, heard):
    """It takes its place if it had heard of the commit. Else it is too late: the others may have gone on."""
    old = formed(peers, served, 2, 2, 2, grace=HOUR)
    go(old, 1)
    restart(served)
    first = back(peers, served, old[0], 1, wait_ms=0)
    first.silent()
    late = back(peers, served, old[1], heard, wait_ms=0)
    if heard:
        enter([first, late], "NEWGEN")
        go([first, late], 2)
    else:
        assert "it has come back too late" in late.refusal().text


def test_a_state_that_went_with_its_member_is_missed(served, peers):
    """A member had come after a step, and had not taken the state yet: it does not go on as if it had one."""
    old = formed(peers, served, 1, 1, 2)
    go(old, 1)
    new = peers(Returning(served.socket))
    assert new.joined(new.join_send("late", 2, min_world=1)).history
    enter(old, "NEWGEN")
    agree([new], [small_plan(2)])
    restart(served)
    first = back(peers, served, old[0], 1, wait_ms=HOUR)
    first.silent()
    first.close()
    second = back(peers, served, new, 1, wait_ms=HOUR)
    assert "no up-to-date rank is left" in second.expect("LOST").text


def test_a_member_that_leaves_on_its_way_is_not_waited_for(served, peers):
    old = formed(peers, served, 2, 1, 2, grace=HOUR)
    restart(served)
    first = back(peers, served, old[0], wait_ms=HOUR)
    first.silent()
    first.leave()
    assert back(peers, served, old[1], wait_ms=HOUR).expect("NEWGEN").world == 1


def test_a_member_that_had_left_is_not_awaited(served, peers):
    old = formed(peers, served, 2, 1, 2, grace=HOUR)
    old[1].leave()
    restart(served)
    assert back(peers, served, old[0], wait_ms=HOUR).expect("NEWGEN").world == 1


def test_a_place_that_was_left_is_not_kept(served, peers):
    """One member is lost and its place kept; another leaves, and then the daemon is killed, twice."""
    old = formed(peers, served, 4, 2, 4, grace=HOUR)
    old[1].close()
    wait_until(lambda: served.job("late")["state"] == "replacing", "the news of the loss")
    old[2].leave()
    restart(served)
    first = back(peers, served, old[0], wait_ms=HOUR)
    first.silent()
    restart(served)
    stay = [back(peers, served, each, wait_ms=HOUR) for each in (first, old[3])]
    new = peers(Returning(served.socket))
    assert new.joined(new.join_send("late", 4, min_world=2, rejoin_grace_ms=HOUR)).world == 3
    agree([new], [small_plan(2)])
    assert [each.expect("NEWGEN").world for each in stay] == [3, 3]
    with pytest.raises(Refused, match="the journal of this one does not have it"):
        back(peers, served, old[2])


def test_a_member_that_leaves_during_a_restart_is_gone_for_the_next_one(served, peers):
    old = formed(peers, served, 3, 1, 3, grace=HOUR)
    restart(served)
    first = back(peers, served, old[0], wait_ms=HOUR)
    first.silent()
    first.leave()
    restart(served)
    stay = [back(peers, served, each, wait_ms=HOUR) for each in old[1:]]
    assert [each.expect("NEWGEN").world for each in stay] == [2, 2]


def test_a_newcomer_waits_no_longer_than_it_wants(served, peers):
    old = formed(peers, served, 3, 2, 4)
    restart(served)
    back(peers, served, old[0], wait_ms=HOUR).silent()
    assert "not all of its members have come back within 0.5 s" in refusal(
        *newcomer(peers, served, 2, 4, timeout_ms=500))


def test_a_newcomer_hears_that_too_few_are_left(served, peers):
    old = formed(peers, served, 2, 2, 3)
    restart(served)
    first, fresh = (peers(Returning(served.socket)) for _ in range(2))
    with served.at_once():              # the first one is given up soon
        first.rejoin_send(old[0], wait_ms=0)
        request = fresh.join_send("late", 3, min_world=2)
    fresh.status()
    first.close()
    assert "too few members are left" in fresh.refusal(request).text


def test_a_newcomer_that_asks_for_another_world(served, peers):
    old = formed(peers, served, 3, 2, 4)
    restart(served)
    back(peers, served, old[0], wait_ms=HOUR).silent()
    for least, most in ((1, 4), (2, 3), (2, 5), (4, 4)):
        assert "is one of 2 to 4 members" in refusal(*newcomer(peers, served, least, most))


def test_a_late_member_may_have_freed_a_plan(served, peers):
    """The other one hears so; it does not wait for a step that can never be complete."""
    old = formed(peers, served, 2, 2, 2, grace=HOUR)
    old[1].ask("PLAN_DROP", "PLAN_DROPPED", job=old[1].job, plan=0)
    restart(served)
    first = back(peers, served, old[0], wait_ms=0)
    first.silent()
    old[1].plans.clear()
    late = back(peers, served, old[1], next_plan=1, wait_ms=0)
    enter([first, late], "NEWGEN")
    first.plans[0].step = 1
    first.ready(first.plans[0], 0)
    assert "another member has freed" in first.hangup().text


def test_a_member_had_gone_before_the_daemon(served, peers):
    """The daemon is killed while a place is kept. The others come back, and a new process takes it."""
    old = formed(peers, served, 3, 3, 3, grace=HOUR)
    go(old, 1)
    old[1].close()
    for each in (old[0], old[2]):
        give([each], [0])
    wait_until(lambda: served.job("late")["state"] == "replacing", "the news of the loss")
    restart(served)
    stay = [back(peers, served, each, 1) for each in (old[0], old[2])]
    new = peers(Returning(served.socket))
    joined = new.joined(new.join_send("late", 3, rejoin_grace_ms=HOUR))
    assert (joined.rank, joined.history) == (1, True)
    agree([new], [small_plan(2)])
    enter(stay, "NEWGEN")
    go([stay[0], new, stay[1]], 2)
