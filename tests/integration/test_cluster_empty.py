# SPDX-License-Identifier: Apache-2.0
"""A daemon whose only member of a job is lost stays in the communicator, and gives zeros, until the member
comes back or the communicator is made anew without it."""
import pytest

from clusters import SWIFT, begin, ended, members_of
from harness import wait_until
from teams import Team, takes_state
from trainers import ask, fields, together

pytestmark = pytest.mark.host

KEPT = {"rejoin_grace": "60s"}
SOON = {"rejoin_grace": "6s"}


def team_of(it, member, **options):
    """Ranks 0 to 2, each alone on its daemon; later ones come to the last daemon."""
    team = Team(members_of(it, member, [0, 1, 2, 2, 2]), None, world=3, **options)
    team.served = it.nodes[0]
    assert team.step() == [1, 1, 1]
    return team


def lose_last(team):
    """In the middle of a step, in which all others wait for it. They are told of it as its place is filled,
    or kept no longer."""
    stay = team.members[:2]
    begin(team, stay)
    team.kill(2)
    return stay


def void(stay, name):
    for rest in ended(stay, name):
        assert fields(rest)["lost_rank"] == "2", rest


def generation(each):
    ask(each, "dispatch")
    return int(fields(ask(each, "place"))["generation"])


def test_the_member_comes_back_and_the_communicator_is_the_same(cluster, member):
    it = cluster(3, settings=KEPT)
    team = team_of(it, member)
    helpers = sorted(it.helpers())
    stay = lose_last(team)
    new = team.replace(2)
    void(stay, "VOID_BEHIND")
    takes_state(new, stay, 1)
    assert team.step() == [2, 2, 2]
    assert sorted(it.helpers()) == helpers


def smaller(it, team):
    """The world has shrunk; the daemon without a member is still in the communicator. Returns its helpers."""
    helpers = sorted(it.helpers())
    stay = lose_last(team)
    void(stay, "VOID_RETRY")
    team.members.pop()
    assert [fields(ask(each, "place"))["world"] for each in stay] == ["2", "2"]
    for rest in together(stay, "sync 1"):
        assert rest.startswith("step=1 value=1")
    assert team.step() == [2, 2]                    # of two: zeros change nothing, and are not counted
    assert set(together(stay, "allreduce 1001 i32 sum")) == {"right"}
    if generation(stay[0]) == 2:                    # else the daemon has been left out already
        now = sorted(it.helpers())
        assert generation(stay[0]) != 2 or now == helpers
    return helpers


def test_the_world_shrinks_and_the_member_comes_to_the_empty_daemon(cluster, member):
    """… while that is still in the communicator, or after it."""
    it = cluster(3, settings=SOON, times=SWIFT)
    team = team_of(it, member, ranks=False, least=2)
    smaller(it, team)
    stay = list(team.members)
    new = team.fresh()
    new.say(team.join_line(2))
    answer = new.line()
    assert answer.startswith("OK ") and fields(answer)["rank"] == "2", answer
    team.register(new)
    ask(new, "state 100000 9")
    ask(new, "plan")
    for each in stay:
        wait_until(lambda each=each: ask(each, "dispatch") == "" and "world=3" in ask(each, "place"),
                   "the larger world")
        each.say("sync 2")
    assert ask(new, "sync 0").startswith("step=2 value=1")
    for each in stay:
        assert each.line().startswith("OK step=2 value=1")
    team.members.append(new)
    assert team.step() == [3, 3, 3]


def test_the_empty_daemon_is_left_out(cluster, member):
    """When its place is not even wanted any more, the others have a communicator of their own."""
    it = cluster(3, settings=SOON, times=SWIFT)
    team = team_of(it, member, ranks=False, least=2)
    helpers = smaller(it, team)
    wait_until(lambda: not it.helpers(it.nodes[2]), "the end of its helper")
    wait_until(lambda: it.nodes[2].job("team") is None, "the end of its part in the job")
    for each in team.members:
        wait_until(lambda each=each: generation(each) == 3, "the next generation")
    number = 3
    for each in team.members:                       # the change is reported once
        ask(each, "fill 1")
        ask(each, "ready")
    codes = [each.ask("finish").partition(" ")[0] for each in team.members]
    assert len(set(codes)) == 1
    if codes[0] != "OK":
        assert codes[0] == "VOID_RETRY"
    else:
        number += 1
    assert team.step() == [number, number]
    wait_until(lambda: not set(it.helpers()) & set(helpers), "the end of the helpers before")
    assert len(it.helpers()) >= 2
