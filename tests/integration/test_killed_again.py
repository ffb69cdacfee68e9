# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed in rare moments: once more while members come back, or while one of them lags;
and members that bring back something else."""
import os

import pytest

import wire
from clusters import STAY, Cluster
from harness import restart, wait_until
from peer import agree, form, memfd, small_plan
from returning import Returning, back, enter, give, go

HOUR = 3_600_000


@pytest.fixture
def cluster(daemon, build, scratch):
    return Cluster(daemon, build, f"unix:{scratch}/link", 2, settings=STAY)


def formed(peers, served, world=2, grace=HOUR, **plan):
    made = form([peers(Returning(served.socket)) for _ in range(world)], "again", rejoin_grace_ms=grace)
    agree(made, [small_plan(2, **plan) for _ in made])
    return made


def half_done(members):
    """The first bucket of the next step is reduced, in the members' memory."""
    give(members, [0])
    for each in members:
        wait_until(lambda each=each: set(each.read(each.plans[0], 0)) == {3.0}, "the sum")


def test_what_was_void_stays_void(served, peers):
    """The next daemon finds the step void, since a member is missing, and is killed before the next
    generation."""
    old = formed(peers, served, reduce="SUM")
    half_done(old)
    restart(served)
    first = back(peers, served, old[0], wait_ms=0)
    served.wait_log("1 of 2 members here have not come back after the restart; the first one is rank 1")
    restart(served)
    enter([back(peers, served, each) for each in (first, old[1])], "NEWGEN")


def test_a_step_that_is_tried_again(served, peers):
    """The first attempt had one bucket, and the second one had the other: no results of both are there."""
    old, lost = formed(peers, served, reduce="SUM")
    half_done([old, lost])
    lost.close()
    new = peers(Returning(served.socket))
    new.joined(new.join_send("again", 2, 1, rejoin_grace_ms=HOUR))
    enter([old], "NEWGEN")
    agree([new], [small_plan(2, reduce="SUM")])
    give([old, new], [1])
    wait_until(lambda: set(new.read(new.plans[0], 1)) == {3.0}, "the sum")
    restart(served)
    enter([back(peers, served, each) for each in (old, new)], "NEWGEN")


def test_a_member_that_has_missed_two_generations(cluster, peers):
    """Something is void in the first of them, and nothing in the second."""
    nodes = cluster.nodes
    pair = form([peers(Returning(node.socket)) for node in nodes], "again", rejoin_grace_ms=0,
                scope=wire.pb.SCOPE_CLUSTER)
    agree(pair, [small_plan(2, reduce="SUM") for _ in pair])
    half_done(pair)
    restart(nodes[0])
    slow, other = back(peers, nodes[0], pair[0]), pair[1]
    slow.expect("NEWGEN")               # it gets no further: what it says below is of before
    enter([other], "NEWGEN")
    restart(nodes[1])
    other = back(peers, nodes[1], other)
    slow.expect("RESUMED")
    enter([other])
    restart(nodes[0])
    enter([back(peers, nodes[0], slow), other], "NEWGEN")


def test_a_plan_of_another_shape(served, peers):
    """It is refused, also after the right one was refused for another reason; then the right one is taken."""
    old, = formed(peers, served, 1)
    go([old], 1)
    restart(served)
    made = peers(Returning(served.socket))
    made.rejoin(old)
    plan, larger = old.plans[0], small_plan(300, elements=16)
    refused = made.refusal(made.offer(plan, old.memory[0], 99, old.control[0]))
    assert "has 1 committed steps of it, not 99" in refused.text
    memory, control = memfd(larger.bytes, fill=larger.bytes), memfd(larger.control, fill=larger.control)
    refused = made.refusal(made.offer(larger, memory, 1, control))
    assert "has none with 300 parameters and 300 buckets" in refused.text
    for fd in (memory, control):
        os.close(fd)
    made.tell(old, 1)
    enter([made])
    go([made], 2)


def test_what_comes_to_a_job_that_has_ended(served, peers):
    """A newer one has its name, and its room in the journal."""
    old = formed(peers, served)
    restart(served)
    made = peers(Returning(served.socket))
    made.rejoin(old[0])
    newer = peers(Returning(served.socket))
    newer.joined(newer.join_send("again", 1, incarnation=1))
    agree([newer], [small_plan(2)])
    assert made.expect("LOST").cause == wire.pb.SUPERSEDED
    made.tell(old[0], 0)
    assert len({frame.request for frame in made.silent() if frame.kind == "REFUSED"}) <= 1
    go([newer], 1)


def test_a_second_loss_is_not_awaited(served, peers):
    old = formed(peers, served, 3)
    for n, each in enumerate(old[2:0:-1], 1):
        each.close()
        wait_until(lambda n=n: sum(row["state"] == "lost" for row in served.job("again")["members"]) == n,
                   "the loss")
    restart(served)
    for each in old[1:]:
        late = peers(Returning(served.socket))
        assert late.refusal(late.rejoin_send(each)).code == "MEMBER_LOST"
    first = back(peers, served, old[0], wait_ms=HOUR)
    new = [peers(Returning(served.socket)) for _ in range(2)]
    for each, request in [(each, each.join_send("again", 3)) for each in new]:
        each.joined(request)
    enter([first], "NEWGEN")
