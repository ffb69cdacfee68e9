# SPDX-License-Identifier: Apache-2.0
"""Members that come back to a job after it was judged without them, or go again, and newcomers meanwhile."""
from harness import restart, wait_until
from peer import Refused, agree, small_plan
from returning import Returning, back, enter

HOUR = 3_600_000


def formed(peers, served, n, least, most, grace=0, **plan):
    """A job with one agreed plan, by rank; its daemon is killed and started again."""
    made = [peers(Returning(served.socket)) for _ in range(n)]
    with served.at_once():              # nobody comes after the last call
        requests = [each.send("JOIN", job="late", min_world=least, max_world=most, incarnation=0,
                              timeout_ms=0, rejoin_grace_ms=grace, last_call_ms=HOUR if n == most else 1)
                    for each in made]
    for each, request in zip(made, requests):
        each.name, each.member = "late", each.joined(request).member
    made.sort(key=lambda each: each.rank)
    agree(made, [small_plan(2, **plan) for _ in made])
    return made


def newcomer(peers, served, least, most, **changes):
    made = peers(Returning(served.socket))
    changes = {"timeout_ms": 0, **changes}
    return made, made.send("JOIN", job="late", min_world=least, max_world=most, incarnation=0, **changes)


def refusal(peer, request):
    try:
        return f"joined: {peer.expect('JOINED', request)}"
    except Refused as why:
        return str(why)


def test_nothing_is_resumed_that_was_judged_without_a_member(daemon, peers):
    """Both had sent a READY, one bucket was reduced in place, and only one of them could say so in time."""
    served = daemon()
    old = formed(peers, served, 2, 2, 2, grace=HOUR, reduce="SUM")
    for each in old:
        each.write(each.plans[0], 0, [each.rank + 1.0] * 256)
        each.ready(each.plans[0], 0)
    wait_until(lambda: set(old[0].read(old[0].plans[0], 0)) == {3.0}, "the sum")
    restart(served)
    first = back(peers, served, old[0], 0, 1, asked_rank=False, rejoin_grace_ms=HOUR, wait_ms=0)
    first.silent()
    second = back(peers, served, old[1], 0, 1, asked_rank=False, rejoin_grace_ms=HOUR, wait_ms=0)
    for each in first, second:
        each.expect("NEWGEN")


def test_a_state_that_went_with_its_member_is_missed(daemon, peers):
    """The other member has none: it does not go on as if it had."""
    served = daemon()
    old = formed(peers, served, 2, 1, 2)
    restart(served)
    options = {"asked_rank": False, "min_world": 1, "max_world": 2, "rejoin_grace_ms": 0, "wait_ms": HOUR}
    first = back(peers, served, old[0], 5, 0, history=True, **options)
    first.silent()
    first.close()
    second = back(peers, served, old[1], 5, 0, history=False, **options)
    assert "no up-to-date rank is left" in second.expect("LOST").text


def test_a_member_that_leaves_on_its_way_is_not_waited_for(daemon, peers):
    served = daemon()
    old = formed(peers, served, 2, 1, 2, grace=HOUR)
    restart(served)
    options = {"asked_rank": False, "min_world": 1, "max_world": 2, "rejoin_grace_ms": HOUR, "wait_ms": HOUR}
    first = back(peers, served, old[0], 0, 0, **options)
    first.silent()
    first.leave()
    assert back(peers, served, old[1], 0, 0, **options).expect("NEWGEN").world == 1


def test_a_newcomer_waits_no_longer_than_it_wants(daemon, peers):
    served = daemon()
    old = formed(peers, served, 3, 2, 4)
    restart(served)
    back(peers, served, old[0], 0, 0, asked_rank=False, min_world=2, max_world=4, wait_ms=HOUR).silent()
    assert "not all of its members have come back within 0.5 s" in refusal(
        *newcomer(peers, served, 2, 4, timeout_ms=500))


def test_a_newcomer_hears_that_too_few_are_left(daemon, peers):
    served = daemon()
    old = formed(peers, served, 2, 2, 3)
    restart(served)
    first, fresh = (peers(Returning(served.socket)) for _ in range(2))
    with served.at_once():              # the first one is given up soon
        first.rejoin_send(old[0], asked_rank=False, min_world=2, max_world=3, wait_ms=0)
        request = fresh.send("JOIN", job="late", min_world=2, max_world=3, incarnation=0)
    fresh.status()
    first.close()
    assert "too few members are left" in fresh.refusal(request).text


def test_a_late_member_may_have_freed_a_plan(daemon, peers):
    """The other one hears so; it does not wait for a step that can never be complete."""
    served = daemon()
    old = formed(peers, served, 2, 2, 2, grace=HOUR)
    restart(served)
    options = {"asked_rank": False, "rejoin_grace_ms": HOUR, "next_plan": 1, "wait_ms": 0}
    first = back(peers, served, old[0], 0, 0, **options)
    first.silent()
    old[1].plans.clear()
    late = back(peers, served, old[1], 0, 0, **options)
    enter([first, late], "NEWGEN")
    first.plans[0].step = 1
    first.ready(first.plans[0], 0)
    assert "another member has freed" in first.hangup().text
