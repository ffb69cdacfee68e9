# SPDX-License-Identifier: Apache-2.0
"""Two releases in one cluster: upgraded and downgraded daemon by daemon under load, and left as they are."""
import os

import pytest

from clusters import HELPER, members_of, restart
from harness import wait_until
from releases import replace
from teams import Team, Training, takes_state
from trainers import crew, step, together

RANKS = [0, 0, 1, 1]                    # their daemons
# Of the coordinator and of two nodes; True is the earlier release.
MIXED = [(True, False, False), (False, True, False), (False, False, True), (True, True, False)]


def some_of(member, earlier):
    """member() for members_of(): the ranks in `earlier` have the library of the earlier release."""
    ranks = iter(range(100))
    return lambda served, **options: member(served, earlier=next(ranks) in earlier, **options)


@pytest.mark.parametrize("first", ["the coordinator", "the nodes"])
@pytest.mark.parametrize("down", [False, True], ids=["up and down", "down and up"])
def test_daemons_are_replaced_under_load(cluster, member, build, previous, scratch, first, down):
    """No trainer ends, and none sees a void step; of which release its own library is does not matter."""
    it = cluster(*[not down] * 3)
    team = Team(members_of(it, some_of(member, {1, 3}), RANKS), None, world=len(RANKS))
    training = Training(it, team.members, scratch / "stop", collect=True)
    order = [it.nodes[1], it.nodes[0]]
    order.insert(0 if first == "the coordinator" else 2, it.coordinator)
    for release in (previous, build) if down else (build, previous):
        for served in order:
            training.go_on()
            replace(served, release)
    training.go_on()
    assert [each["void"] for each in training.end()] == [0] * len(RANKS)
    for node in it.nodes:
        for helper in it.helpers(node):
            assert os.readlink(f"/proc/{helper}/exe") == str(node.build / HELPER)


@pytest.mark.parametrize("releases", MIXED)
def test_a_job_that_begins_in_a_mixed_cluster(cluster, member, releases):
    """Small buckets and those of several pieces; all collectives."""
    it = cluster(*releases)
    members = crew(members_of(it, some_of(member, {0, 3}), RANKS), None, len(RANKS),
                   params=("a f32 3000001", "b f32 7", "c f64 1000003"))
    for number in range(1, 4):
        assert step(members) == number
    for size in (0, 1, 3000001):
        assert set(together(members, f"broadcast {size} 3")) == {"right"}
        assert set(together(members, f"allgather {size}")) == {"right"}
    for dtype, reduce in (("f32", "sum"), ("i64", "max")):
        assert set(together(members, f"allreduce 70001 {dtype} {reduce}")) == {"right"}
        assert set(together(members, f"reduce_scatter 1001 {dtype} {reduce}")) == {"right"}
    together(members, "barrier")
    assert step(members) == 4


@pytest.mark.parametrize("releases", MIXED)
def test_losses_in_a_mixed_cluster(cluster, member, releases):
    """A member is killed and replaced, a daemon is killed and started again, and so is the coordinator."""
    it = cluster(*releases)
    team = Team(members_of(it, some_of(member, {0, 3}), RANKS), None, world=len(RANKS))
    assert team.step() == [1] * len(RANKS)
    stay = team.members[:3]
    team.bring(stay)
    for each in stay:
        each.say("finish")
    wait_until(lambda: it.nodes[0].job("team")["waiting_for"], "the step waits for rank 3")
    team.kill(3)
    team.start = members_of(it, member, [1])
    new = team.replace(3)
    for each in stay:
        name, _, rest = each.line().partition(" ")
        assert name in ("VOID_RETRY", "VOID_BEHIND"), (name, rest)
    takes_state(new, stay, 1)
    assert team.step() == [2] * len(RANKS)
    for number, served in enumerate((it.nodes[1], it.coordinator, it.nodes[0]), 3):
        restart(served, orderly=False)
        assert team.step() == [number] * len(RANKS)
    together(team.members, "barrier")
    assert [{each["rank"] for each in node.job("team")["members"]} for node in it.nodes] == [{0, 1, 2, 3}] * 2
