# SPDX-License-Identifier: Apache-2.0
"""Which ranks members of a job over several daemons have, at first and later."""
import pytest

from clusters import ended, opened, planned
from harness import wait_until
from trainers import OK, ask, fields, step, together

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


def known(it, n, name="job"):
    """That many members have come, as a daemon shows them."""
    wait_until(lambda: len((it.coordinator.job(name) or {"members": []})["members"]) == n, f"{n} members")


def test_a_rank_is_granted_once(cluster, member):
    """The second process that asks for it, on another daemon, is refused with the first one's pid."""
    it = cluster()
    one, two, other = opened(it, member, 0, 1, 1)
    one.say("join name=job world=2 rank=1")
    known(it, 1)
    text = ask(two, "join name=job world=2 rank=1", "RANK_TAKEN")
    assert f"rank 1 is held by pid {one.pid}" in text, text
    other.say("join name=job world=2 rank=0")
    assert [joined(each)[0] for each in (one, other)] == [1, 0]
    text = ask(two, "join name=job world=2 rank=1", "RANK_TAKEN")   # nor is one of the job that has formed
    assert f"rank 1 is held by pid {one.pid}" in text, text
    assert step(planned([other, one])) == 1


def test_ranks_go_by_host_device_and_slot(places, member):
    """Of members that ask for none. The host that came first is the first one."""
    it = places(("alpha", "cpu:2"), ("beta", "cpu:0"), ("alpha", "cpu:1"))
    # Node, and local rank asked for; in the order in which they come.
    wanted = ((1, None), (0, 3), (2, None), (0, 0), (1, None))
    members = opened(it, member, *(node for node, _ in wanted))
    for number, ((_, slot), each) in enumerate(zip(wanted, members), 1):
        each.say("join name=job world=5" + (f" local_rank={slot}" if slot is not None else ""))
        if number < len(wanted):
            known(it, number)
    # alpha cpu:1, alpha cpu:2 slots 0 and 3, beta in the order of arrival
    assert [joined(each) for each in members] == [(3, 0), (2, 3), (0, 1), (1, 0), (4, 1)]
    planned(members)
    members.sort(key=lambda each: place(each)[0])
    assert set(together(members, "allgather 1000")) == {"right"}


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
    for each in members[1:]:
        ask(each, "state 100 1")
    together(members, "sync 1")
    assert [place(each)[0] for each in members] == [0, 1, 2]
    assert [fields(ask(each, "place"))["member"] for each in members] == ids
    assert step(members) == 2
