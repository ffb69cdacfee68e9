# SPDX-License-Identifier: Apache-2.0
"""Jobs over daemons and libraries of several releases, as while a cluster is upgraded host by host."""
import os

import pytest

import harness
from clusters import STAY, Cluster, begin, ended, members_of, restart, team_on
from harness import wait_until
from teams import Team, takes_state
from trainers import ask, fields, together
from translator import ASK, MESSAGE, Translator, first, newer

pytestmark = pytest.mark.host

LANES = 4


@pytest.fixture
def cluster(daemon, build, scratch):
    """cluster(nodes, translate=None) -> a Cluster; with it, one daemon more, which is of another release than
    the coordinator is, as either sees it: `.translator` is between them."""
    made = []

    def start(nodes, translate=None):
        it = Cluster(daemon, build, f"unix:{scratch}/link", nodes, settings=STAY)
        if translate is not None:
            it.translator = Translator(scratch / "translated", scratch / "link", translate)
            made.append(it.translator)
            other = daemon(config=it.config(coordinator=f"unix:{scratch}/translated"), settings=STAY)
            other.wait_log("knows this gradsyncd as node")
            it.nodes.append(other)
        return it

    yield start
    for each in made:
        each.close()


def streams_of(helper):
    """Of each lane of a process of Gloo: a stream has a thread, and its connections have another one."""
    threads = len(os.listdir(f"/proc/{helper}/task")) - 1
    assert threads % (2 * LANES) == 0, threads
    return threads // (2 * LANES)


@pytest.fixture
def mixed(member):
    """mixed(cluster, places, older) -> a Team whose members are on these daemons; those of the ranks in
    `older` have the library of minor version 2."""
    def start(it, places, older):
        binaries = [harness.OLDER_MEMBER if rank in older else harness.MEMBER for rank in range(len(places))]
        order = iter(binaries)

        def one(served, **options):
            return member(served, **{"binary": next(order), **options})
        return Team(members_of(it, one, places), None, world=len(places))
    return start


@pytest.mark.parametrize("translate, streams", [(newer, 2), (first, 1)])
def test_a_daemon_of_another_release(cluster, member, translate, streams):
    """A job with it forms, steps, and outlives its restart: what one of them does not know is skipped,
    whenever it comes, and an answer that does not come is not waited for; all engines speak the latest
    dialect that each of them knows. Bugs planted: a receiver that refuses a minor version above its own, one
    that hangs up on a type that it does not know, and a node whose engine speaks the latest one it knows."""
    it = cluster(1, translate)
    team = team_on(it, member, [0, 1, 1, 1])
    for helper in it.helpers():
        assert streams_of(helper) == streams
    together(team.members, "barrier")
    for orderly, number in ((True, 2), (False, 3)):
        restart(it.nodes[1], orderly)
        assert team.step() == [number] * 4
    assert [node.job("team")["void_steps"] for node in it.nodes] == [0, 0]
    seen = it.translator.seen
    assert MESSAGE in seen["node"] and MESSAGE in seen["coordinator"]
    begin(team, team.members[:3])
    wait_until(lambda: it.nodes[0].job("team")["waiting_for"], "the step waits for rank 3")
    wait_until(lambda: ASK in seen["node"] | seen["coordinator"], "a question of one of them")
    team.bring(team.members[3:])
    team.members[3].say("finish")
    for each in team.members:
        assert each.line().startswith("OK step=4 ")


@pytest.mark.parametrize("places, older", [([0, 0, 0, 1], {3}), ([0, 1, 1, 1], {3})],
                         ids=["alone on its daemon", "beside a newer one"])
@pytest.mark.parametrize("orderly", [True, False])
def test_a_library_that_knows_no_tickets(cluster, mixed, places, older, orderly):
    """It is told that it has to join again when its daemon is restarted, and can. The others go on as they
    are, on both daemons; their open step is void, for its place was lost. Bug planted: a daemon that takes a
    member without a ticket for one of a job of its own."""
    it = cluster(2)
    team = mixed(it, places, older)
    assert team.step() == [1] * 4
    restart(it.nodes[1], orderly)
    text = ask(team.members[3], "barrier", "MEMBER_LOST")
    assert "job 'team'" in text and "library is too old" in text and "join it again" in text, text
    ask(team.members[3], "leave")
    team.members[3].say(team.join_line(3))
    stay, again = team.members[:3], team.members[3]
    begin(team, stay)
    line = again.line()
    assert line.startswith("OK ") and fields(line)["rank"] == "3", line
    team.register(again)
    ask(again, "plan")
    ask(again, f"state {team.state} 99")
    ended(stay, "VOID_BEHIND")
    takes_state(again, stay, 1)
    assert team.step() == [2] * 4
    restart(it.nodes[0], orderly)       # whose members all come back; but one elsewhere knows no RESUMED
    team.bring()
    together(team.members, "finish", "VOID_RETRY")
    assert team.step() == [3] * 4
