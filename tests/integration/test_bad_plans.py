# SPDX-License-Identifier: Apache-2.0
"""Plans that cannot be, and plans that members disagree on: what the unit tests of descriptions and of
the job layer do not show."""
import fcntl
import os
import re

import pytest

from peer import PAGE, agree, small_plan


# -- one member

ODD = {
    "an ordinal that is skipped": {"plan": 5},
    "no generation": {"generation": 0},
    "a generation that is to come": {"generation": 2},
    "more than an arena may have": {"arena_bytes": (1 << 46) + PAGE},
    "a bucket without a parameter": ("p1", [256], 0),
    "a name that is too long": ("x" * 256, [256], 1),
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_odd_plan(serve, change):
    """Either a field of PLAN_BEGIN is odd, or a parameter. The connection goes on."""
    peer = serve().alone("odd")
    plan = small_plan(3)
    if isinstance(change, tuple):
        plan.params[1], change = change, {}
    answer = peer.refusal(peer.plan_send(plan, **change))
    assert answer.code in ("INVALID", "STATE", "STALE") and answer.text, answer
    assert peer.status()["STATUS_DAEMON"]


def test_arena_is_sealed(serve):
    """A member can neither shrink the arena under the daemon nor grow it."""
    peer = serve().alone("sealed")
    plan = small_plan(2)
    peer.expect("PLAN_ARENA", peer.plan_send(plan))
    fd, control = peer.fds
    try:
        for size in (0, PAGE, plan.bytes + PAGE):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        seals = fcntl.fcntl(fd, 1034)   # F_GET_SEALS
        assert seals & 7 == 7           # SEAL, SHRINK, GROW
    finally:
        os.close(fd)
        os.close(control)


# -- members that disagree

def agree_on_the_next(crew):
    """A proper plan, after one that was not to be."""
    crew.plans = [None, agree(crew.peers, [small_plan(1, ordinal=1) for _ in crew.peers])]


def test_who_comes_too_late_for_a_plan_hears_it_and_makes_the_next_one(serve):
    """A member whose own call failed before the daemon heard of it asks with an ordinal that the others have used up: it is told
    so at once, not after another time-out, and from then on all count alike."""
    crew = serve().crew("late", 2, plan=None)
    early, late = crew.peers
    plan = small_plan(1)
    told = early.refusal(early.plan_arena(plan, early.plan_send(plan, timeout_ms=1000)))
    assert told.code == "TIMEOUT" and re.search(r"\b1\b", told.text), told
    heard = late.refusal(late.plan_send(small_plan(1)))
    assert (heard.code, heard.text) == (told.code, told.text), heard
    agree_on_the_next(crew)
    crew.go(2, ordinal=1)


def test_too_many_plans(serve):
    peer = serve().alone("many")
    for ordinal in range(64):
        plan = small_plan(1, elements=4, ordinal=ordinal)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
    answer = peer.refusal(peer.plan_send(small_plan(1, elements=4, ordinal=64)))
    assert answer.code in ("QUOTA", "INVALID"), answer
    peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=3)
    plan = small_plan(1, elements=4, ordinal=64)
    peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))


def test_requests_need_a_number(serve):
    """0 answers nothing, so it cannot ask."""
    peer = serve().alone("numbered")
    for kind, fields in (("JOIN", {"min_world": 1, "max_world": 1}), ("PLAN_MAPPED", {"plan": 0}),
                         ("OPERATION", {"generation": peer.generation, "sequence": 0, "kind": 1})):
        fields = {"job": "nameless" if kind == "JOIN" else peer.job, **fields}
        peer.send(kind, 0, **fields)
        assert peer.refusal(0).code in ("INVALID", "PROTOCOL", "STATE"), kind


def test_plans_that_wait_for_one_member_are_agreed_when_it_goes(watched):
    """Several of them in the same moment."""
    first, second, third = (watched.peer() for _ in range(3))
    requests = [peer.send("JOIN", job="eager", min_world=2, max_world=3, last_call_ms=60000)
                for peer in (first, second, third)]
    for peer, request in zip((first, second, third), requests):
        peer.joined(request)
    mapped = {peer: [] for peer in (first, second)}
    for peer, asked in mapped.items():
        for plan in (small_plan(ordinal=ordinal) for ordinal in range(5)):
            asked.append(peer.plan_arena(plan, peer.plan_send(plan)))
    third.leave()
    for peer, asked in mapped.items():
        assert peer.expect("NEWGEN").world == 2
        for request in asked:
            peer.expect("PLAN_AGREED", request)
