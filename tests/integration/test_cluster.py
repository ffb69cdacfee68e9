# SPDX-License-Identifier: Apache-2.0
"""Jobs over several daemons: real daemons that meet over a Unix socket or TLS, and exchange by Gloo."""

import pytest

from clusters import (HELPER, PATIENT, SWIFT, begin, cluster_text, members_of, planned, reconnecting, restart,
                      team_on)
from harness import wait_until
from teams import SHORT, Team, leave_plans, take_plans, takes_state
from trainers import OK, ask, connected, crew, ended, join, say, step, together

pytestmark = pytest.mark.host


@pytest.mark.parametrize("nodes, world", [(2, 2), (2, 3), (3, 4)])
def test_all_collectives(cluster, member, nodes, world):
    members = crew(members_of(cluster(nodes), member), None, world)
    for number in range(1, 4):
        assert step(members) == number
    for size in (0, 1, 1000, 3000001):
        assert set(together(members, f"broadcast {size} {world - 1}")) == {"right"}
        assert set(together(members, f"allgather {size}")) == {"right"}
    for dtype, reduce in (("f32", "sum"), ("f64", "max"), ("i32", "sum"), ("i64", "prod"), ("u8", "min")):
        assert set(together(members, f"allreduce 70001 {dtype} {reduce}")) == {"right"}
        assert set(together(members, f"reduce_scatter 1001 {dtype} {reduce}")) == {"right"}
    together(members, "barrier")
    assert step(members) == 4


@pytest.mark.parametrize("nodes, world", [(2, 2), (2, 4), (3, 4)])
def test_buckets_of_several_pieces(cluster, member, nodes, world):
    """They are larger than what goes between nodes at once."""
    members = crew(members_of(cluster(nodes), member), None, world,
                   params=("a f32 3000001", "b f32 7", "c f64 1000003"))
    for number in range(1, 5):
        assert step(members) == number


@pytest.mark.parametrize("place", [1, 2])
def test_a_successor_alone_on_its_daemon_makes_the_plans_that_are_left(cluster, member, place):
    """On the daemon of the lost one, or on one that had no member, no other member knows which these are."""
    it = cluster(3, settings={"rejoin_grace": "60s"})
    team = Team(members_of(it, member), None, world=2)
    leave_plans(team.members)
    assert team.step() == [1, 1]
    team.lose(1)
    team.start = members_of(it, member, [place])
    new = team.replace(1)
    ended(team.members[:1], "VOID_RETRY", "VOID_BEHIND")
    takes_state(new, team.members[:1], 1)
    for slot in take_plans(new, team.members):
        together(team.members, f"slot {slot}")
        team.step()


def test_a_node_is_lost_with_its_members(cluster, member):
    """The others go on without it, in a smaller world, with a new communicator. (Averages of 4 and of
    2 are exact, whatever the order of their additions.)"""
    it = cluster(3, settings=SHORT, times=SWIFT)
    team = team_on(it, member, [0, 1, 2, 2], least=2, ranks=False)
    begin(team, team.members[:2])
    it.nodes[2].expect_clean = False
    it.nodes[2].program.kill()
    ended(team.members[:2], "VOID_RETRY", "VOID_BEHIND")
    for _ in range(2):
        team.members.pop().destroy()
    for rest in together(team.members, "sync 1"):
        assert rest.startswith("step=1 value=1")
    assert team.step() == [2, 2]


@pytest.mark.parametrize("world", [2, 9])
def test_the_coordinator_is_killed_and_comes_back(cluster, member, world):
    """The daemons tell the restarted coordinator, one after the other, all that it has to know, and none of
    them gives its generation up. Afterwards members are replaced as before."""
    it = cluster(settings={"rejoin_grace": "60s"}, times={"abandon": "1h"})
    team = team_on(it, member, world=world)
    with reconnecting(*it.nodes):
        restart(it.coordinator, orderly=False)
    for number in range(2, 6):
        assert team.step() == [number] * world
    team.kill(1)
    new = team.replace(1)
    others = [each for each in team.members if each is not new]
    say(others, "sync 5")
    assert ask(new, "sync 0").startswith("step=5 value=1")
    for each in others:
        assert each.line().startswith("OK step=5")
    assert team.step() == [6] * world


def test_members_wait_for_a_coordinator_that_is_not_there_yet(daemon, build, scratch, member):
    config = cluster_text(coordinator=f"unix:{scratch}/link", gloo_helper=build / HELPER)
    nodes = [daemon(config=config) for _ in range(2)]
    members = [member(node) for node in nodes]
    for rank, each in enumerate(members):
        ask(each, "open")
        each.say(f"join name=job world=2 rank={rank}")
    for node in nodes:
        wait_until(lambda node=node: node.status()["jobs"], "the job")
        node.wait_log("no connection to the coordinator at unix:.*: No such file")
    daemon(device="none", config=cluster_text(listen=f"unix:{scratch}/link", **PATIENT))
    ended(members, OK)
    planned(members)
    assert step(members) == 1


def test_a_host_job_needs_no_coordinator(cluster, member):
    it = cluster()
    it.coordinator.expect_clean = False
    it.coordinator.program.kill()
    members = crew(lambda served: member(served, env={"GRADSYNC_SCOPE": "host"}), it.nodes[0], 2)
    assert step(members) == 1


def test_the_scope_is_an_option_of_the_join(cluster, member, daemon):
    """It goes before the environment, and is the same for all members of a job."""
    it = cluster()
    here = [member(it.nodes[0], env={"GRADSYNC_SCOPE": "cluster"}) for _ in range(2)]
    together(here, "open")
    join(here, options="scope=host")
    assert it.nodes[0].job("job")["world_size"] == 2
    other = connected(member(it.nodes[0]))
    assert "has the scope 'host' here, and this process asks for 'cluster'" in \
        ask(other, "join name=job world=2 rank=0 scope=cluster", "INVALID")
    assert "the join option scope=planet is neither 'host' nor 'cluster'" in \
        ask(other, "join name=job world=2 rank=0 scope=planet", "INVALID")
    spread = members_of(it, member)
    spread = [spread(env={"GRADSYNC_SCOPE": "host"}) for _ in range(2)]
    together(spread, "open")
    join(spread, "spread", options="scope=cluster")
    alone = connected(member(daemon()))
    assert "no coordinator" in ask(alone, "join name=j world=1 rank=0 scope=cluster", "UNSUPPORTED")
    ask(alone, "join name=j world=1 rank=0 scope=host")
