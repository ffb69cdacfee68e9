# SPDX-License-Identifier: Apache-2.0
"""Jobs over hosts of their own, with a network between them: a daemon on each host, which meet over TLS."""
import os
import signal

import pytest

from clusters import PATIENT, helpers, members_of, team_on
from harness import wait_until
from hosts import hosts, needed, on_network  # noqa: F401
from namespaces import BOTH, RESET, Routed
from teams import Team
from trainers import OK, ask, bring, crew, ended, say, step
from trainings import digits, kind, same_training, single  # noqa: F401

# No node passes for dead, whatever happens, and no node is waited for that long.
BLUNT = {**PATIENT, "patience": "3s", "death": "300s", "abandon": "600s"}
pytestmark = [pytest.mark.host, needed]


@pytest.mark.heavy
@pytest.mark.parametrize("n, members", [(1, 2), (2, 1), (2, 4), (3, 4), (4, 2)])
def test_any_number_of_hosts_is_the_same_training(hosts, program, single, n, members):  # noqa: F811
    nodes = hosts(n).nodes
    told = digits(nodes, program, members, "--epochs", 10)
    same_training(told, single)
    assert len(kind(told[0], "epoch")) == 10
    took_part = [node for node in nodes if "formed with" in node.log]
    assert len(took_part) == min(n, members), [node.log for node in nodes]


def begin(members):
    """Begins a step whose end no member has heard yet."""
    bring(members)
    say(members, "finish")


def goes_on(members):
    """The step ends, and its result is right."""
    for each in members:
        assert each.line().startswith("OK step=")
        assert ask(each, "check 1.5") == "right"


def wait_refused(it, more):
    """Waits until so many more communicators could not be built."""
    def count():
        return sum(node.log.count("cannot be reached: [") for node in it.nodes)

    before = count()
    wait_until(lambda: count() >= before + more, "a communicator that cannot be built")


def test_a_cable_is_out_for_a_moment(hosts, member):  # noqa: F811
    """The step goes on when it is in again, and nothing is void."""
    it = hosts(2)
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    for _ in range(2):
        it.plug(1, False)
        begin(members)
        it.plug(1, True)
        goes_on(members)
    assert step(members) == 4


@on_network
def test_the_connection_to_the_coordinator_is_reset(hosts, member):  # noqa: F811
    """It is made again; nothing is void."""
    it = hosts(2, Routed)
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    with it.filtered(1, RESET, only="control"):
        it.nodes[1].wait_log("the connection to the coordinator at .* has ended")
        assert step(members) == 2
    wait_until(lambda: it.nodes[1].log.count("connected to the coordinator") == 2, "the next connection")
    assert step(members) == 3


@on_network
@pytest.mark.parametrize("ways", [BOTH, ["in"], ["out"]])
def test_connections_of_the_exchange_are_reset(hosts, member, ways):  # noqa: F811
    """No gradient was written to, so nothing is void, also if one side alone has heard of it. The job goes
    on, also if connections of the next communicator were refused to one side."""
    it = hosts(2, Routed, BLUNT)
    team = team_on(it, member, world=2)
    with it.filtered(1, RESET, ways, "data") as reset:
        begin(team.members)
        wait_until(reset.hits, "a reset connection")
    for each in team.members:
        assert each.line().startswith("OK step=2 ")
    assert team.step() == [3, 3]


@on_network
@pytest.mark.parametrize("what", ["step", "barrier"])
@pytest.mark.parametrize("first", [True, False])
def test_a_successor_comes_while_nodes_do_not_reach_each_other(hosts, member, first, what):  # noqa: F811
    """The generation that it is in first cannot be entered. In the next one all hear that it needs a state,
    whichever node was taken for the culprit, and whatever they had begun without knowing whether that
    goes on."""
    it = hosts(2, Routed, BLUNT)
    team = Team(members_of(it, member, [1, 0, 0] if first else [0, 1, 1]), None, world=2)
    team.served = it.nodes[int(first)]
    assert team.step() == [1, 1]
    if what == "barrier":
        team.members[0].say("barrier")
        wait_until(lambda: team.status()["waiting_for"], "the call")
    with it.filtered(1, RESET, only="data"):
        if what == "step":
            begin(team.members)
        else:
            helper, = helpers(1, it.nodes[0])
            os.kill(helper, signal.SIGKILL)
        wait_refused(it, 1)
        team.kill(1)
        new = team.fresh()
        new.say(team.join_line(1))
        wait_refused(it, 2)
    ended(team.members[:1], "VOID_BEHIND")
    ended([new], OK)
    team.enter(new, 1)
    team.members[0].say("sync 1")
    assert ask(new, "sync 0").startswith("step=1 value=1")
    assert team.members[0].line().startswith("OK step=1 value=1")
    assert team.step() == [2, 2]
