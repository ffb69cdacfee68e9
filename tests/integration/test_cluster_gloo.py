# SPDX-License-Identifier: Apache-2.0
"""The data path between daemons: strangers on its ports, helpers that die in each phase, several plans, and
the number of daemons that a job may have."""
import os
import re
import signal
import socket
import struct

import pytest

from clusters import SWIFT, Gate, begin, ended, listeners_of, members_of, opened, planned, team_on
from harness import wait_until
from teams import Team
from test_void_plan import RENEWED, VOID, is_void, made_together, on_slot
from trainers import OK, ask, crew, join, step, together

pytestmark = pytest.mark.host

PORTS = 8      # of a node for another one: the streams of all lanes


def header(kind, slot, length):
    """Gloo's: bytes, kind, slot, offset, length, offset there."""
    return struct.pack("<6Q", 48 + length, kind, slot, 0, length, 0)


GARBAGE = bytes((i * 2654435761 >> 13) & 255 for i in range(4096))
STRANGERS = {
    "garbage": [GARBAGE],
    "oversized": [header(1, 0, 1 << 62)],
    "too-much": [header(1, (1 << 64) - 2, 1 << 40)],
    "half-a-header": [b"1234567"],
    "zeros": [bytes(65536)],
    "leaving": [None],
    "flood": [GARBAGE, b"", None] * 40,
}

MET = re.compile("job 0/late/[^ ]*: (Gloo does not reach node [12]: |Gloo: it has given up: "
                 "|the helper process [0-9]+ of Gloo does not answer: )")


def visit(port, words):
    """Connections to that port, as many as take place; each says its word, or leaves."""
    made = []
    for word in words:
        try:
            made.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            if word is None:
                made.pop().close()
            else:
                made[-1].sendall(word)
        except OSError:
            continue
    return made


def own_helpers(it, node, others):
    return [pid for pid in it.helpers(node) if pid not in others]


def awaited_ports(it, node, others):
    """Where the new helper of that daemon listens, once it does for each stream of each lane."""
    def ports():
        return [port for pid in own_helpers(it, node, others) for _, port in listeners_of(pid)]
    wait_until(lambda: len(ports()) == PORTS, "the helper to listen")
    return ports()


@pytest.fixture
def gated(cluster, build, scratch):
    """Two daemons, the helper of the second one behind a gate."""
    gate = Gate(build, scratch)
    it = cluster(1, times=SWIFT, settings={"rejoin_grace": "60s"})
    it.gate = gate
    it.nodes.append(it.add(gloo_helper=gate.program, death="3s"))
    return it


def late(it, member):
    """Two members of a job that does not form before the gate is open."""
    members = opened(it, member, 0, 1)
    for rank, each in enumerate(members):
        each.say(f"join name=late world=2 rank={rank}")
    return members


def goes_on(members):
    """It has formed after all, with a later communicator."""
    for rank, said in enumerate(ended(members, OK)):
        assert said.startswith(f"name=late rank={rank}") and "generation=1 " not in said, said
    planned(members, "a f32 50000")
    assert [step(members) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_while_a_communicator_is_made(gated, member, kind):
    """That job says what Gloo met: a daemon that it does not reach, something that it cannot read, or a
    helper without an answer. It forms after all. Another job of the same daemons does not notice."""
    other = crew(members_of(gated, member), None, 2)
    assert step(other) == 1
    known = gated.helpers()
    gated.gate.close()
    members = late(gated, member)
    ports = awaited_ports(gated, gated.nodes[0], known)
    strangers = [each for port in ports for each in visit(port, STRANGERS[kind])]
    assert step(other) == 2
    gated.gate.open()
    goes_on(members)
    assert any(MET.search(node.log) for node in gated.nodes)
    assert step(other) == 3
    assert not any("job 0/job/" in node.log for node in gated.nodes), "the other job was disturbed"
    assert set(known) <= set(gated.helpers())
    for each in strangers:
        each.close()


# -- helpers that end


def test_a_helper_is_killed_while_it_connects(gated, member):
    """It is a failure of that node, with a name; then the job forms."""
    gated.gate.close()
    members = late(gated, member)
    awaited_ports(gated, gated.nodes[0], [])
    victim, = gated.helpers(gated.nodes[0])
    os.kill(victim, signal.SIGKILL)
    gated.nodes[0].wait_log("job 0/late/.*: the helper process [0-9]+ of Gloo has ended, by signal 9")
    gated.gate.open()
    goes_on(members)


def all_go_on(team, beginning):
    """Nobody was told of a sum, and nothing was written to what members gave: it is exchanged again."""
    for each in team.members:
        line = each.line()
        assert line.startswith(f"OK {beginning}"), line


def test_a_helper_is_killed_in_a_step(cluster, member):
    """Another one is stopped, so that the step cannot end before."""
    it = cluster(3, settings={"rejoin_grace": "60s"})
    team = team_on(it, member, [0, 1, 2, 2])
    halted, = it.helpers(it.nodes[0])
    victim, = it.helpers(it.nodes[1])
    os.kill(halted, signal.SIGSTOP)
    begin(team)
    os.kill(victim, signal.SIGKILL)
    # The others may be faster to say so.
    it.nodes[1].wait_log("the helper process [0-9]+ of Gloo has ended, |the way between its nodes broke")
    all_go_on(team, "step=2 ")
    assert team.step() == [3] * team.world
    assert not {halted, victim} & set(it.helpers())
    assert len(it.helpers()) == 3


def test_a_helper_is_killed_in_an_operation(cluster, member):
    it = cluster(2, settings={"rejoin_grace": "60s"})
    team = team_on(it, member, world=2)
    halted, = it.helpers(it.nodes[0])
    victim, = it.helpers(it.nodes[1])
    os.kill(halted, signal.SIGSTOP)
    for each in team.members:
        each.say("allreduce 500000 f32 sum")
    os.kill(victim, signal.SIGKILL)
    all_go_on(team, "right")
    assert team.step() == [2] * team.world
    assert set(together(team.members, "allreduce 500000 f32 sum")) == {"right"}


# -- what members of several nodes call or offer differently, before any of it moves


@pytest.mark.parametrize("one, two", [
    ("allreduce 1000 f32 sum", "allreduce 1000 i32 sum"),
    ("allreduce 1000 f32 sum", "allreduce 1000 f32 max"),
    ("allreduce 1000 f32 sum", "allreduce 1001 f32 sum"),
    ("allreduce 1000 f32 sum", "reduce_scatter 1000 f32 sum"),
    ("broadcast 1000 0", "broadcast 1000 1"),
    ("allgather 8", "barrier"),
])
def test_different_calls_are_a_mismatch_for_all(cluster, member, one, two):
    """Not for Gloo: it is the same process afterwards."""
    it = cluster()
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    before = sorted(it.helpers())
    members[0].say(one)
    members[1].say(two)
    assert [each.line().split(" ")[0] for each in members] == 2 * ["OPERATION_MISMATCH"]
    assert set(together(members, "allreduce 1000 f32 sum")) == {"right"}
    assert step(members) == 2
    assert sorted(it.helpers()) == before


# -- several plans


def sizes_of(slot):
    """Of plan 0 one bucket, of the others several."""
    return [("a", 5)] if slot == 0 else [(f"p{slot}.{i}", 1000 + 100000 * i + slot) for i in range(3)]


def with_plans(members, plans):
    for slot in range(1, plans):
        for each in members:
            ask(each, f"slot {slot}")
            for name, elements in sizes_of(slot):
                ask(each, f"param {name} f32 {elements}")
        together(members, "plan bucket=300000")
    return members


def step_all(members, orders, number):
    """Each member marks and finishes the plans in its own order; rank r brings r + 1 and ten times the
    plan."""
    for rank, each in enumerate(members):
        for slot in orders[rank]:
            each.say(f"slot {slot}")
            each.say(f"fill {rank + 1 + 10 * slot}")
            each.say("ready")
        for slot in orders[rank]:
            each.say(f"slot {slot}")
            each.say("finish")
            each.say(f"check {(len(members) + 1) / 2 + 10 * slot}")
    for rank, each in enumerate(members):
        for _ in range(3 * len(orders[rank])):
            assert each.line().split(" ")[0] == "OK"
        for slot in orders[rank]:
            assert each.line().startswith("OK")
            assert each.line().startswith(f"OK step={number}"), slot
            assert each.line() == "OK right", (rank, slot)


@pytest.mark.parametrize("plans, world", [(2, 2), (4, 4)])
def test_several_plans_in_opposite_orders(cluster, member, plans, world):
    """The first two have lanes of their own, those after them share one."""
    it = cluster()
    team = Team(members_of(it, member), None, world=world)
    members = with_plans(team.members, plans)
    for number in range(1, 5):
        orders = [[(slot + number) % plans for slot in range(plans)][::-1 if rank % 2 else 1]
                  for rank in range(world)]
        step_all(members, orders, number)
        assert set(together(members, f"allreduce {70001 * number} f32 sum")) == {"right"}
        assert set(together(members, f"broadcast 3001 {number % world}")) == {"right"}
        assert set(together(members, "allgather 777")) == {"right"}
        assert set(together(members, "reduce_scatter 501 i64 max")) == {"right"}
        together(members, "barrier")
        for rest in together(members, f"sync {plans * number}"):
            assert rest == f"step={plans * number} value=1 strange=0"


def test_a_member_is_replaced_among_several_plans(cluster, member):
    """All plans go on, with the same communicator."""
    it = cluster(settings={"rejoin_grace": "60s"})
    team = Team(members_of(it, member), None, world=2)
    with_plans(team.members, 3)
    step_all(team.members, [[0, 1, 2], [2, 1, 0]], 1)
    before = sorted(it.helpers())
    survivor = team.members[0]
    ask(survivor, "slot 2")
    ask(survivor, "fill 21")
    ask(survivor, "ready")
    survivor.say("finish")
    team.kill(1)
    new = team.replace(1)
    with_plans([new], 3)
    name, _, rest = survivor.line().partition(" ")
    assert name.startswith("VOID"), (name, rest)
    survivor.say("sync 3")
    assert ask(new, "sync 0") == "step=3 value=1 strange=0"
    assert survivor.line() == "OK step=3 value=1 strange=0"
    step_all(team.members, [[2, 0, 1], [1, 0, 2]], 2)
    assert sorted(it.helpers()) == before


@pytest.mark.parametrize("begun", [(), (0,), (0, 2)], ids=["by-none", "by-one", "by-both"])
def test_a_plan_is_void_with_the_generation(cluster, member, begun):
    """void_on_loss, over several nodes: for all that stay it is as if it had never been begun."""
    it = cluster(3, settings={"rejoin_grace": "60s"})
    team = Team(members_of(it, member, [0, 1, 2, 1]), None, world=3)
    team.served = it.nodes[1]
    assert team.step() == [1, 1, 1]
    before = sorted(it.helpers())
    stay = [team.members[0], team.members[2]]
    on_slot(stay, 1)
    for rank in begun:
        ask(team.members[rank], RENEWED)
        team.members[rank].say(VOID)
    team.kill(1)
    new = team.replace(1)
    for rank in {0, 2} - set(begun):
        ask(team.members[rank], RENEWED)
        team.members[rank].say(VOID)
    for each in stay:
        is_void(each)
    for rest in together(team.members, "sync 1"):
        assert rest == "step=1 value=1 strange=0"
    assert made_together(team) == [1, 1, 1]
    on_slot(team.members, 0)
    assert team.step() == [2, 2, 2]
    assert sorted(it.helpers()) == before


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
