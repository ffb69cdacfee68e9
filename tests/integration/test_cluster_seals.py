# SPDX-License-Identifier: Apache-2.0
"""Sealed collectives of jobs over several hosts, whatever happens to the daemons."""
import os
import signal

import pytest

from clusters import helpers, restart, team_on
from teams import takes_state
from trainers import ask, ended, fields, say, together

pytestmark = pytest.mark.host
SETTINGS = {"rejoin_grace": "60s", "drain_timeout": "60s"}
MIB = 1 << 20


def sealed(members):
    """They bring what was given: of all sizes, also of many operations."""
    for call in ("broadcast 1 0", f"broadcast {20 * MIB + 3} 1", "allgather 5", f"allgather {7 * MIB + 1}"):
        assert set(together(members, f"{call} sealed")) == {"right"}, call


def generation_of(member):
    return int(fields(ask(member, "place"))["generation"])


@pytest.mark.parametrize("hosts", [["a", "b"], ["a", "a"], ["a", "b", "a"]])
def test_they_are_right_on_any_hosts(cluster, member, hosts):
    it = cluster(hosts, settings=SETTINGS)
    sealed(team_on(it, member, [0, 1, len(hosts) - 1, 1]).members)


def test_they_are_right_on_one_node(cluster, member):
    it = cluster(["a", "b"], settings=SETTINGS)
    sealed(team_on(it, member, [0, 0]).members)


def test_they_go_on_after_losses(cluster, member):
    """Seals go on after the loss of a member, of the process that sends, and of the coordinator, whose
    successor has another key."""
    it = cluster(["a", "b"], settings=SETTINGS)
    team = team_on(it, member, [0, 1])
    sealed(team.members)
    generation = generation_of(team.members[0])
    victim, = helpers(1, it.nodes[1])
    os.kill(victim, signal.SIGKILL)
    assert team.step() == [2, 2]
    assert generation_of(team.members[0]) > generation
    sealed(team.members)
    generation = generation_of(team.members[0])
    restart(it.coordinator)
    assert team.step() == [3, 3]
    assert generation_of(team.members[0]) == generation
    sealed(team.members)
    _, stay = team.lose(1)
    new = team.replace(1)
    ended(stay, "VOID_RETRY", "VOID_BEHIND")
    takes_state(new, stay, 3)
    sealed(team.members)
    assert team.step() == [4, 4]


def test_they_go_on_where_the_process_that_sends_is_lost(cluster, member):
    """Wherever they are by then."""
    it = cluster(["a", "b"], settings=SETTINGS)
    members = team_on(it, member, [0, 1]).members
    for call in (f"broadcast {40 * MIB} 0", f"allgather {20 * MIB}", f"broadcast {60 * MIB} 1"):
        say(members, f"{call} sealed")
        victim, = helpers(1, it.nodes[1])
        os.kill(victim, signal.SIGKILL)
        assert [each.line() for each in members] == ["OK right"] * 2


def test_all_seal_it_or_none_does(cluster, member):
    it = cluster(["a", "b"], settings=SETTINGS)
    members = team_on(it, member, [0, 1]).members
    for each, word in zip(members, ("sealed", ""), strict=True):
        each.say(f"broadcast 100 0 {word}")
    said = ended(members, "OPERATION_MISMATCH")
    assert "than the sealed broadcast of 100 bytes from rank 0 that is called here" in said[0]
    assert "than the broadcast of 100 bytes from rank 0 that is called here" in said[1]
    sealed(members)
