# SPDX-License-Identifier: Apache-2.0
"""The counters of a cluster: connections between daemons, refused ones, and communicators of jobs."""
import os
import signal
import socket

import pytest

from clusters import STAY, helpers, members_of, restart
from exposition import parse, series
from harness import wait_until
from teams import Team, takes_state

pytestmark = pytest.mark.host


def value(served, name, **labels):
    found = parse(served.ctl("metrics")).get(f"gradsync_{name}")
    return None if found is None else found[series(**labels)]


def test_connections_are_counted(cluster):
    it = cluster(settings=STAY)
    for served, count in ((it.coordinator, 2), (it.nodes[0], 1), (it.nodes[1], 1)):
        assert (value(served, "link_connections"), value(served, "link_connects_total")) == (count, count)
    for node in it.nodes:
        assert value(node, "link_sent_bytes_total") > 0 and value(node, "link_received_bytes_total") > 0
    for orderly in (True, False):
        restart(it.coordinator, orderly)
        wait_until(lambda: value(it.coordinator, "link_connections") == 2, "both are connected again")
    assert [value(node, "link_connects_total") for node in it.nodes] == [3, 3]
    restart(it.nodes[0], orderly=True)
    wait_until(lambda: value(it.coordinator, "link_connects_total") == 3, "one is connected again")
    assert value(it.coordinator, "link_connections") == 2


def test_those_turned_away_are_counted_by_the_reason(cluster):
    it = cluster()
    served = it.coordinator
    reasons = ("key", "uid", "version", "identity", "protocol", "late", "many")
    counts = [value(served, "link_refusals_total", reason=reason) for reason in reasons]
    assert counts == [0] * len(reasons)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(it.address.removeprefix("unix:"))
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(64))
        while stranger.recv(4096):
            pass
    wait_until(lambda: value(served, "link_refusals_total", reason="protocol") == 1, "the count")
    counts = [value(served, "link_refusals_total", reason=reason) for reason in reasons]
    assert counts == [0, 0, 0, 0, 1, 0, 0]


def test_a_daemon_without_a_cluster_counts_no_connections(daemon):
    assert value(daemon(), "link_connections") is None


def test_communicators_of_a_job(cluster, member):
    """Another one for the loss of a way between nodes, none for that of a member."""
    mine = {"job_name": "team", "uid": str(os.geteuid())}
    it = cluster(settings=STAY)
    team = Team(members_of(it, member), None, 3)
    assert team.step() == [1, 1, 1]
    stay = [team.members[0], team.members[2]]
    team.kill(1)
    new = team.replace(1)
    takes_state(new, stay, 1)
    assert team.step() == [2, 2, 2]
    for node in it.nodes:
        assert value(node, "communicators_total", **mine) == node.job("team")["communicators"] == 1
    victim, = helpers(1, it.nodes[1])
    os.kill(victim, signal.SIGKILL)
    assert team.step() == [3, 3, 3]
    for node in it.nodes:
        assert value(node, "communicators_total", **mine) == node.job("team")["communicators"] > 1
