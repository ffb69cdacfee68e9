# SPDX-License-Identifier: Apache-2.0
"""The data path between daemons: helpers that die, plans that are void with the generation, and the number of
daemons that a job may have."""
import os
import signal

import pytest

from clusters import SWIFT, begin, helpers, members_of, opened, planned, team_on
from harness import wait_until
from teams import Team
from test_void_plan import begin_plan, is_void, made_together
from trainers import OK, ask, crew, ended, join, step, together

pytestmark = pytest.mark.host


def all_go_on(team, beginning):
    """No member was told a sum, and the memory of their inputs is unchanged, so the data are exchanged
    again."""
    for each in team.members:
        line = each.line()
        assert line.startswith(f"OK {beginning}"), line


def test_a_helper_is_killed_in_a_step(cluster, member):
    """Another one is stopped, so that the step cannot end before."""
    it = cluster(3, settings={"rejoin_grace": "60s"})
    team = team_on(it, member, [0, 1, 2, 2])
    halted, = helpers(1, it.nodes[0])
    victim, = helpers(1, it.nodes[1])
    os.kill(halted, signal.SIGSTOP)
    begin(team)
    os.kill(victim, signal.SIGKILL)
    # The others may be faster to say so.
    it.nodes[1].wait_log("the helper process [0-9]+ of Gloo has ended, |the way between its nodes broke")
    all_go_on(team, "step=2 ")
    assert team.step() == [3] * team.world
    assert not {halted, victim} & set(helpers(3, *it.nodes))


def test_a_helper_that_stays_stopped_is_ended(cluster, member):
    """A helper that waits for it in vain is left alone: it answers its daemon."""
    it = cluster(3, settings={"rejoin_grace": "60s"}, times=SWIFT)
    team = team_on(it, member, [0, 1, 2, 2])
    stopped, = helpers(1, it.nodes[1])
    os.kill(stopped, signal.SIGSTOP)
    begin(team)
    it.nodes[1].wait_log(rf"the helper process {stopped} of Gloo \(stopped\) has not answered for [\d.]+ s, "
                         "and is ended")
    all_go_on(team, "step=2 ")
    assert team.step() == [3] * team.world
    assert stopped not in helpers(3, *it.nodes)
    assert not any("and is ended" in node.log for node in (it.nodes[0], it.nodes[2]))


@pytest.mark.parametrize("begun", [(), (0,), (0, 2)], ids=["by-none", "by-one", "by-both"])
def test_a_plan_is_void_with_the_generation(cluster, member, begun):
    """void_on_loss, over several nodes: for all that stay it is as if it had never been begun."""
    it = cluster(3, settings={"rejoin_grace": "60s"})
    team = Team(members_of(it, member, [0, 1, 2, 1]), None, world=3)
    team.served = it.nodes[1]
    assert team.step() == [1, 1, 1]
    before = sorted(helpers(3, *it.nodes))
    stay = [team.members[0], team.members[2]]
    together(stay, "slot 1")
    begin_plan([team.members[rank] for rank in begun])
    team.kill(1)
    new = team.replace(1)
    begin_plan([team.members[rank] for rank in {0, 2} - set(begun)])
    for each in stay:
        is_void(each)
    for rest in together(team.members, "sync 1"):
        assert rest == "step=1 value=1 strange=0"
    assert made_together(team) == [1, 1, 1]
    together(team.members, "slot 0")
    assert team.step() == [2, 2, 2]
    assert sorted(helpers(3, *it.nodes)) == before


# -- how many daemons


FULL = "job 'job' has members of {} daemons, and Gloo, which exchanges data between them, connects no more " \
       "(nodes_per_job in the coordinator's gradsyncd.conf)"


def test_a_job_has_members_of_so_many_daemons(cluster, member):
    """A member of one more is refused by name; on the others there is still room."""
    it = cluster(3, times={**SWIFT, "nodes_per_job": 2})
    first = opened(it, member, 0, 1)
    for rank, each in enumerate(first):
        each.say(f"join name=job world=4 rank={rank}")
    for node in it.nodes[:2]:
        wait_until(lambda node=node: node.status()["jobs"], "the job")
    another, = opened(it, member, 2)
    assert FULL.format(2) in ask(another, "join name=job world=4 rank=2", "JOB_FULL")
    assert FULL.format(2) in ask(another, "join name=job world=4 spare=1", "JOB_FULL")
    for rank in (2, 3):
        first += opened(it, member, rank % 2)
        first[rank].say(f"join name=job world=4 rank={rank}")
    ended(first, OK)
    planned(first)
    assert step(first) == 1
    join([another], name="another")


@pytest.mark.heavy
def test_as_many_daemons_as_are_said_to_work(cluster, member):
    it = cluster(33)
    members = crew(members_of(it, member), None, 32)
    assert step(members) == 1
    assert set(together(members, "allreduce 100000 f32 sum")) == {"right"}
    another, = opened(it, member, 32)
    assert FULL.format(32) in ask(another, "join name=job world=32 spare=1", "JOB_FULL")
