# SPDX-License-Identifier: Apache-2.0
"""Who waits for a place in a running job has none: whatever it says there is refused, and counts for nobody."""
import pytest

from peer import Crew, Own, Peer, small_plan

WAITS = {"spare": {"spare": True}, "for-the-next-generation": {"max_world": 3}}


class Elastic(Crew):
    """Two members in a job in which others can wait."""

    def __init__(self, path, max_world):
        self.peers = [Peer(path, minor=1) for _ in range(2)]
        for peer, request in [(peer, join(peer, max_world=max_world)) for peer in self.peers]:
            peer.joined(request)
        self.plans, self.committed = [], 0
        self.plan(small_plan)


def join(peer, max_world=2, **fields):
    return peer.send("JOIN", job="waited for", min_world=2, max_world=max_world, last_call_ms=1, **fields)


def waiting(served, fields):
    """The members, and one that waits; a step is open, so that nobody comes in."""
    crew = served.adopt(Elastic(served.path, fields.get("max_world", 2)))
    served.others.append(crew)
    crew.go()
    crew.peers[0].ready(crew.plans[0][0], 0)
    crew.peers[0].status()
    made = served.peer(minor=1)
    join(made, **fields)
    made.status()
    made.job, made.generation, made.rank = crew.peers[0].job, crew.peers[0].generation, 0
    return crew, made


def finish(crew):
    """The step that was open."""
    crew.peers[1].ready(crew.plans[0][1], 0)
    for peer, plan in zip(crew.peers, crew.plans[0]):
        assert peer.outcome(plan)[0] == "COMMITTED"


def bring_own(served, made):
    own = served.adopt(Own(4096))
    return made.send("REGISTER", fds=[own.fd], job=made.job, offset=0, bytes=4096)


REQUESTS = {
    "staging": lambda served, made: made.send("STAGING", job=made.job),
    "staging-mapped": lambda served, made: made.send("STAGING_MAPPED", job=made.job),
    "barrier": lambda served, made: made.operation("BARRIER"),
    "plan": lambda served, made: made.plan_send(small_plan(ordinal=1)),
    "mapped": lambda served, made: made.send("PLAN_MAPPED", job=made.job, plan=0),
    "drop": lambda served, made: made.send("PLAN_DROP", job=made.job, plan=0),
    "register": bring_own,
    "unregister": lambda served, made: made.send("UNREGISTER", job=made.job, memory=1),
}


@pytest.mark.parametrize("fields", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("what", sorted(REQUESTS))
def test_what_only_a_member_may_ask(serve, what, fields):
    served = serve()
    crew, made = waiting(served, fields)
    answer = made.refusal(REQUESTS[what](served, made))
    assert answer.code == "STATE" and "no place in it yet" in answer.text, answer
    barriers = [peer.operation("BARRIER") for peer in crew.peers[:1]]
    assert not [frame for frame in crew.peers[0].silent() if frame.kind == "OPERATION_DONE"]
    barriers.append(crew.peers[1].operation("BARRIER"))
    for peer, request in zip(crew.peers, barriers):
        peer.expect("OPERATION_DONE", request)
    finish(crew)


@pytest.mark.parametrize("fields", WAITS.values(), ids=WAITS)
def test_a_bucket_of_somebody_else(serve, fields):
    """There is no reply to be refused with: it goes, as for every wrong READY."""
    served = serve()
    crew, made = waiting(served, fields)
    made.ready(crew.plans[0][1], 0)
    assert made.hangup().code == "STATE"
    finish(crew)
