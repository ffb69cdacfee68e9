# SPDX-License-Identifier: Apache-2.0
"""One trace of a job over several daemons, from any of them."""
import collections
import json
import os
import re
import time

import pytest

from clusters import members_of
from harness import CTL, Program, wait_until
from peer import Peer
from test_trace import check
from trainers import crew, step
from wire import pb

pytestmark = pytest.mark.host
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root makes time namespaces, and has several uids")

ALICE = 61001


def five_steps(it, member, world):
    members = crew(members_of(it, member), None, world)
    assert [step(members) for _ in range(5)] == [1, 2, 3, 4, 5]
    for served in (*it.nodes, it.coordinator):
        wait_until(lambda served=served: len(served.job("job")["members"]) == world, "all nodes")
    return members


@pytest.fixture
def spread(cluster, member):
    """A job of three members on three daemons that has done five steps: (cluster, members)."""
    it = cluster(("alpha", "beta", "gamma"))
    return it, five_steps(it, member, 3)


def trace(served, job="job", **options):
    """The trace that gradsyncctl writes when it is shown that daemon alone."""
    return check(json.loads(served.ctl("trace", job, "-o", "-", **options)))


def by_step(found, process):
    return {event["args"]["step"]: (event["ts"], event["ts"] + event["dur"])
            for event in found.steps() if event["pid"] == process}


def test_every_daemon_has_the_trace_of_all(spread):
    it, members = spread
    for at, served in enumerate(it.nodes):
        found = trace(served)
        others = [name for index, name in enumerate(("alpha", "beta", "gamma")) if index != at]
        uid = f"job, uid {os.geteuid()}, "
        names = sorted(found.processes.values())
        assert [name for name in names if f"{uid}{served.socket}" == name], names
        assert [name.rpartition(", node ")[0] for name in names if "host " in name] == [
            f"{uid}host {name}" for name in others]
        for process in found.processes:
            assert sorted(by_step(found, process)) == [1, 2, 3, 4, 5]
        for rank, each in enumerate(members):
            assert len(found.on("i", f"rank {rank} (pid {each.pid})")) == 5


def test_the_coordinator_has_it_too(spread):
    it, _ = spread
    found = trace(it.coordinator)
    assert sorted(name.split(", ")[2] for name in found.processes.values()) == [
        "host alpha", "host beta", "host gamma"]
    assert len(found.steps()) == 15


def test_daemons_that_are_asked_themselves_are_not_asked_for(spread, scratch):
    """Two on the same host, which are found by themselves, and the third one by way of these."""
    it, _ = spread
    for number, served in enumerate(it.nodes[:2]):
        folder = scratch / f"run/gradsync/cpu:{number}"
        folder.mkdir(parents=True)
        (folder / "socket").symlink_to(served.socket)
    asked = Program(it.build / CTL, "trace", "job", "-o", "-", env={"XDG_RUNTIME_DIR": scratch / "run"})
    assert asked.wait() == 0, asked.err
    found = check(json.loads(asked.out))
    assert len(found.steps()) == 15 and len(found.processes) == 3, found.processes


def labelled(served):
    """The trace that this daemon has of the job, and its labels of clocks, if there are any."""
    document = json.loads(served.ctl("trace", "job", "-o", "-"))
    labels = [event["args"]["labels"] for event in document["traceEvents"]
              if event["name"] == "process_labels"]
    return labels and (document, labels)


@needs_root
@pytest.mark.parametrize("sign", [1, -1])
def test_times_are_on_the_clock_of_the_daemon_that_is_asked(cluster, member, sign):
    """One host's clock is far from the others', and not before 0, which a host that has just begun is near.
    All nodes have a step open at the same time before they commit it."""
    seconds = sign * min(1000, int(time.monotonic()) // 2)
    apart = ("unshare", "--time", "--monotonic", seconds)
    it = cluster(("alpha",))
    it.nodes.append(it.add(host_id="beta", prefix=apart))
    five_steps(it, member, 2)
    for served, ahead in ((it.nodes[0], -seconds), (it.nodes[1], seconds)):
        document, labels = wait_until(lambda served=served: labelled(served), "the other node's clock")
        found = check(document)
        told = re.fullmatch(r"clock ([+-][\d.]+) ms, exact to ([\d.]+) ms", labels[0])
        assert abs(float(told[1]) - 1000 * ahead) <= float(told[2]) + 0.01, labels
        inexact = 1000 * float(told[2]) + 1
        of = [by_step(found, process) for process in found.processes]
        for number in range(1, 6):
            assert max(each[number][0] for each in of) <= min(each[number][1] for each in of) + inexact, of


def test_a_daemon_that_is_stopped_is_named(spread):
    it, _ = spread
    it.nodes[2].program.stop()
    asked = Program(it.build / CTL, "trace", "job", "-o", "-", socket=it.nodes[0].socket)
    assert asked.wait() == 0
    assert len(check(json.loads(asked.out)).steps()) == 10
    it.nodes[2].program.resume()


@pytest.fixture
def asker(peers):
    """asker(daemon) -> a client of it."""
    return lambda served: peers(Peer(served.socket))


def node_of(client, host):
    end = client.ask("TRACE", "TRACE_END", job="job", nodes=True)
    found, = (each.node for each in end.node if each.host == host)
    return found


def test_a_client_has_a_few_questions_open(spread, asker):
    """A client asks two hundred questions at once, and one about another node. Some are refused, and the
    others are answered, each with the whole record."""
    it, members = spread
    client = asker(it.nodes[0])
    beta, gamma = node_of(client, "beta"), node_of(client, "gamma")
    ends, steps, refused = {}, collections.Counter(), {}

    def hear():
        frame = client.receive()
        if frame.kind == "TRACE_STEP":
            steps[frame.request] += 1
        else:
            {"TRACE_END": ends, "REFUSED": refused}[frame.kind][frame.request] = frame.message

    with it.nodes[2].at_once():         # it answers nothing before there are too many
        asked = [client.send("TRACE", job="job", node=gamma) for _ in range(200)]
        asked.append(client.send("TRACE", job="job", node=beta))
        hear()
        assert refused
    while len(ends) + len(refused) < len(asked):
        hear()
    assert len(ends) >= 8 and sorted([*refused, *ends]) == asked
    assert all(end.found for end in ends.values()) and set(steps.values()) == {5}
    for message in refused.values():
        assert message.code == pb.QUOTA and "8 requests of this client wait for other nodes" in message.text
    assert step(members) == 6


def test_a_client_that_leaves_takes_its_questions_along(spread, asker):
    it, members = spread
    for _ in range(3):
        client = asker(it.nodes[0])
        gamma = node_of(client, "gamma")
        for _ in range(5):
            client.send("TRACE", job="job", node=gamma)
        client.close()
    assert len(trace(it.nodes[0]).steps()) == 15
    assert step(members) == 6


def test_a_node_that_is_none_is_not_found(spread, asker):
    it, _ = spread
    for client in (asker(it.nodes[0]), asker(it.coordinator)):
        assert not client.ask("TRACE", "TRACE_END", job="job", node=4000).found
        assert not client.ask("TRACE", "TRACE_END", job="other", nodes=True).found


def test_a_silent_coordinator_is_not_waited_for(spread, asker):
    it, _ = spread
    client = asker(it.nodes[0])
    gamma = node_of(client, "gamma")
    it.coordinator.program.stop()
    assert not client.ask("TRACE", "TRACE_END", job="job", node=gamma).found
    it.coordinator.program.resume()


@needs_root
def test_other_users_have_no_part_of_it(cluster, member):
    it = cluster(settings={"socket_mode": "0666"})
    five_steps(it, member, 2)
    for served in (*it.nodes, it.coordinator):
        assert len(trace(served, "0/job").steps()) == 10
        for job in ("job", "0/job"):
            served.ctl("trace", job, "-o", "-", uid=ALICE, code=4)
