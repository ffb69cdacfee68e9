# SPDX-License-Identifier: Apache-2.0
"""A job's token, where its members are on several daemons."""
import pytest

from clusters import SWIFT, opened, planned, reconnecting, restart
from harness import wait_until
from trainers import OK, ask, ended, step

pytestmark = pytest.mark.host


def say_join(each, rank, token, world=2):
    each.say(f"join name=job world={world} rank={rank}" + (f" token={token}" if token else ""))


@pytest.mark.parametrize("first, second", [("secret", "guess"), ("secret", None), (None, "secret")])
def test_a_member_elsewhere_needs_the_job_s_token(cluster, member, first, second):
    """The one without it is refused by name, and does not disturb the job."""
    it = cluster()
    one, strange, two = opened(it, member, 0, 1, 1)
    say_join(one, 0, first)
    wait_until(lambda: it.nodes[0].status()["jobs"], "the job")
    one_more, = opened(it, member, 0)
    text = ask(one_more, f"join name=job world=2 rank=1{f' token={second}' if second else ''}", "DENIED")
    assert "has another token" in text, text
    say_join(strange, 1, second)
    rest, = ended([strange], "DENIED")
    assert "job 'job' of uid" in rest and "has another token on other daemons" in rest, rest
    assert "secret" not in rest and "guess" not in rest
    say_join(two, 1, first)
    ended((one, two), OK)
    planned((one, two))
    assert step([one, two]) == 1
    say_join(strange, 1, second)                    # nor later, and not by a later start of the job
    assert strange.line().startswith("DENIED ")
    strange.say("join name=job world=2 rank=1 incarnation=7" + (f" token={second}" if second else ""))
    assert strange.line().startswith("DENIED ")
    assert step([one, two]) == 2


def test_the_next_coordinator_knows_the_token(cluster, member):
    it = cluster(settings={"rejoin_grace": "60s"}, times=SWIFT)
    one, two, strange = opened(it, member, 0, 1, 1)
    for rank, each in enumerate((one, two)):
        say_join(each, rank, "secret")
    ended((one, two), OK)
    planned((one, two))
    with reconnecting(*it.nodes):
        restart(it.coordinator, orderly=False)
    assert step([one, two]) == 1
    it.nodes.append(it.add())
    late, = opened(it, member, 2)
    say_join(late, 1, None)
    assert late.line().startswith("DENIED ")
    two.kill()
    say_join(strange, 1, "guess")                   # its place is vacant now
    assert strange.line().startswith("DENIED ")
