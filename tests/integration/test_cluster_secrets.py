# SPDX-License-Identifier: Apache-2.0
"""What the members of a generation share that is on several hosts, and no one else hears of."""
import os
import pathlib
import signal

import pytest

from clusters import begin, ended, restart, team_on
from teams import takes_state
from trainers import ask, fields, together

pytestmark = pytest.mark.host
SETTINGS = {"rejoin_grace": "60s", "drain_timeout": "60s"}


def secret_of(members):
    """The same for all."""
    secret, = set(together(members, "secret"))
    return secret


def generation_of(member):
    return int(fields(ask(member, "place"))["generation"])


def test_members_on_several_hosts_have_one(cluster, member, scratch):
    it = cluster(["a", "b"], settings=SETTINGS)
    team = team_on(it, member, [0, 1, 1, 0])
    first = secret_of(team.members)
    assert len(bytes.fromhex(first)) == 32 and len(set(first)) > 4
    stay = team.members[:3]
    begin(team, stay)
    team.kill(3)
    new = team.replace(3)
    ended(stay, "VOID_RETRY", "VOID_BEHIND")
    takes_state(new, stay, 1)
    assert team.step() == [2] * 4
    second = secret_of(team.members)
    assert len(second) == len(first) and second != first
    shown = [node.log for node in (it.coordinator, *it.nodes)]
    shown += [node.ctl(*command) for node in it.nodes
              for command in (["status", "--json"], ["trace", "team", "--output", "-"])]
    shown += [path.read_bytes().decode("latin1") for path in pathlib.Path(scratch).rglob("*")
              if path.is_file()]
    for secret in (first, second):
        for form in (secret, bytes.fromhex(secret).decode("latin1")):
            assert not any(form in each for each in shown)


def test_it_is_the_same_where_nothing_is_void(cluster, member):
    """Not all members hear at the same time that the job goes on, and what they had begun goes on with it."""
    it = cluster(["a", "b"], settings=SETTINGS)
    team = team_on(it, member, [0, 1])
    before, generation = secret_of(team.members), generation_of(team.members[0])
    victim, = it.helpers(it.nodes[1])
    os.kill(victim, signal.SIGKILL)
    assert team.step() == [2, 2]
    assert generation_of(team.members[0]) > generation
    assert secret_of(team.members) == before != ""


def test_it_outlives_a_coordinator(cluster, member):
    """The next one has another key."""
    it = cluster(["a", "b"], settings=SETTINGS)
    team = team_on(it, member, [0, 1])
    before, generation = secret_of(team.members), generation_of(team.members[0])
    restart(it.coordinator)
    assert team.step() == [2, 2]
    assert generation_of(team.members[0]) == generation and secret_of(team.members) == before
    stay = team.members[:1]
    begin(team, stay)
    team.kill(1)
    new = team.replace(1)
    ended(stay, "VOID_RETRY", "VOID_BEHIND")
    takes_state(new, stay, 2)
    assert secret_of(team.members) not in ("", before)


def test_on_one_host_there_is_none(cluster, member):
    it = cluster(["a", "a"], settings=SETTINGS)
    assert secret_of(team_on(it, member, [0, 1]).members) == ""
