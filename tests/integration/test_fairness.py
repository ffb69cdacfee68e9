# SPDX-License-Identifier: Apache-2.0
"""Jobs take turns: with a single worker, a small bucket is done before a large one of another job that came
first.

Order is read off one connection that is a member of both jobs: the daemon's frames come on it in the order in
which it sent them.
"""
import pytest

import wire
from peer import agree, small_plan

LARGE = 128 << 20


def two_in_both(served, small, large=LARGE):
    """Two connections, each a member of the jobs "large" and "small": [{name: (job fields, plan)}]."""
    peers = [served.peer() for _ in range(2)]
    places = [{}, {}]
    for name, size in (("large", large), ("small", small)):
        requests = [peer.join_send(name, 2, rank) for rank, peer in enumerate(peers)]
        plans = [small_plan(1, size // 4) for _ in peers]
        for peer, request, place, plan in zip(peers, requests, places, plans):
            peer.joined(request)
            place[name] = (peer.job, peer.generation, plan)
        agree(peers, plans)
    return peers, places


def ready(peer, place, name):
    job, generation, plan = place[name]
    peer.send("READY", 0, job=job, generation=generation, plan=0, step=plan.step, bucket=0)


def committed(peer, place):
    """The job whose step is committed next, as this peer hears of it."""
    names = {job: name for name, (job, _, _) in place.items()}
    while True:
        message = peer.expect("STEP")
        assert message.outcome != wire.pb.VOID
        if message.outcome == wire.pb.COMMITTED:
            name = names[message.job]
            place[name][2].step += 1
            return name


@pytest.mark.heavy
@pytest.mark.parametrize("small", [4096, 65536])
def test_a_small_bucket_overtakes_a_large_one(serve, small):
    served = serve(settings={"workers": 1})
    peers, places = two_in_both(served, small)
    for _ in range(3):
        with served.daemon.at_once():
            for name in ("large", "small"):
                ready(peers[1], places[1], name)
            for name in ("large", "small"):             # the large one is complete first
                ready(peers[0], places[0], name)
        for peer, place in zip(peers, places):
            assert [committed(peer, place) for _ in range(2)] == ["small", "large"]
