# SPDX-License-Identifier: Apache-2.0
"""A job's token, where its members are on several daemons."""
import os
import signal

import pytest

from clusters import SWIFT, members_of
from test_cluster import cluster  # noqa: F401
from harness import wait_until
from trainers import ask, step, together

pytestmark = pytest.mark.host


def opened(it, member, places):
    members = [members_of(it, member, [place])() for place in places]
    for each in members:
        ask(each, "open")
    return members


def say_join(each, rank, token, world=2):
    each.say(f"join name=job world={world} rank={rank}" + (f" token={token}" if token else ""))


def test_members_with_the_token_form_a_job(cluster, member):  # noqa: F811
    members = opened(cluster(), member, (0, 1))
    for rank, each in enumerate(members):
        say_join(each, rank, "secret")
    for each in members:
        assert each.line().startswith("OK ")
        ask(each, "param a f32 5")
    together(members, "plan")
    assert step(members) == 1


@pytest.mark.parametrize("first, second", [("secret", "guess"), ("secret", None), (None, "secret")])
def test_a_member_elsewhere_needs_the_job_s_token(cluster, member, first, second):  # noqa: F811
    """The one without it is refused by name, and does not disturb the job."""
    it = cluster()
    one, strange, two = opened(it, member, (0, 1, 1))
    say_join(one, 0, first)
    wait_until(lambda: it.nodes[0].status()["jobs"], "the job")
    one_more, = opened(it, member, (0,))
    text = ask(one_more, f"join name=job world=2 rank=1{f' token={second}' if second else ''}", "DENIED")
    assert "has another token" in text, text
    say_join(strange, 1, second)
    code, _, rest = strange.line().partition(" ")
    assert code == "DENIED", (code, rest)
    assert "job 'job' of uid" in rest and "has another token on other daemons" in rest, rest
    assert "secret" not in rest and "guess" not in rest
    say_join(two, 1, first)
    for each in (one, two):
        assert each.line().startswith("OK ")
        ask(each, "param a f32 5")
    together([one, two], "plan")
    assert step([one, two]) == 1
    say_join(strange, 1, second)                    # nor later, and not by a later start of the job
    assert strange.line().startswith("DENIED ")
    strange.say("join name=job world=2 rank=1 incarnation=7" + (f" token={second}" if second else ""))
    assert strange.line().startswith("DENIED ")
    assert step([one, two]) == 2


def test_the_next_coordinator_knows_the_token(cluster, member):  # noqa: F811
    it = cluster(settings={"rejoin_grace": "60s"}, times=SWIFT)
    one, two, strange = opened(it, member, (0, 1, 1))
    for rank, each in enumerate((one, two)):
        say_join(each, rank, "secret")
    for each in (one, two):
        assert each.line().startswith("OK ")
        ask(each, "param a f32 5")
    together([one, two], "plan")
    it.coordinator.program.kill()
    it.coordinator.start()
    for node in it.nodes:
        wait_until(lambda node=node: node.log.count("connected to") == 2, "the connection")
    assert step([one, two]) == 1
    third = it.add()
    it.nodes.append(third)
    late, = opened(it, member, (2,))
    say_join(late, 1, None)
    assert late.line().startswith("DENIED ")
    os.kill(two.pid, signal.SIGKILL)
    two.wait()
    say_join(strange, 1, "guess")                   # its place is vacant now
    assert strange.line().startswith("DENIED ")
