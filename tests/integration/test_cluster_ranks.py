# SPDX-License-Identifier: Apache-2.0
"""Which ranks members of a job over several daemons have, at first and later."""
import pytest

from clusters import opened, planned
from trainers import OK, ask, ended, fields, step, together

pytestmark = pytest.mark.host


@pytest.fixture
def places(cluster):
    """places((host, device), ...) -> a Cluster with a daemon on each of them."""
    def start(*wanted):
        it = cluster(0, settings={"rejoin_grace": "60s"})
        it.nodes = [it.add(host_id=host, device=device) for host, device in wanted]
        return it
    return start


def joined(each):
    """(rank, local_rank) of the answer to its join."""
    said, = map(fields, ended([each], OK))
    return int(said["rank"]), int(said["local_rank"])


def place(each):
    said = fields(ask(each, "place"))
    return int(said["rank"]), int(said["local_rank"])


@pytest.mark.parametrize("ranks", [True, False], ids=["asked for", "given"])
def test_a_member_that_returns_on_another_host_has_its_rank(places, member, ranks):
    """The others keep theirs, too, though the hosts are in another order now. So does its member id."""
    it = places(("alpha", "cpu"), ("beta", "cpu"), ("gamma", "cpu"))
    members = opened(it, member, 0, 1, 2)
    for rank, each in enumerate(members):
        each.say("join name=job world=3" + (f" rank={rank}" if ranks else ""))
    assert [joined(each)[0] for each in members] == [0, 1, 2]
    ids = [fields(ask(each, "place"))["member"] for each in members]
    assert step(planned(members)) == 1
    members[0].kill()
    new, = opened(it, member, 2)
    answer = fields(ask(new, "join name=job world=3" + (" rank=0" if ranks else "")))
    assert (answer["rank"], answer["local_rank"], answer["member"]) == ("0", "1", ids[0])
    members[0] = new
    planned([new])
    ask(new, "state 100 1")
    together(members[1:], "state 100 1")
    together(members, "sync 1")
    assert [place(each)[0] for each in members] == [0, 1, 2]
    assert [fields(ask(each, "place"))["member"] for each in members] == ids
    assert step(members) == 2
