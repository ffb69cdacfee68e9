# SPDX-License-Identifier: Apache-2.0
"""All users share descriptors and the daemon's own memory. Many users that take all they may leave room for a
user with a running job, and for root."""
import os

import pytest

import harness
from peer import Refused, small_plan

ALICE, FIRST = 61001, 70000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


def fill(served, uid, key):
    """Connects until that is refused, as a share that is spent; how many there were."""
    for n in range(1000):
        peer = served.peer(uid=uid, hello=False)
        try:
            peer.ask("HELLO", "WELCOME", minor=0)
        except (Refused, BrokenPipeError, ConnectionResetError) as problem:
            reason = problem if isinstance(problem, Refused) else peer.hangup()
            assert reason.code == "QUOTA" and f"uid {uid} holds" in reason.text, reason
            assert "its share is" in reason.text and key in reason.text, reason
            return n
    raise AssertionError(f"uid {uid} had 1000 connections")


def all_get_in(served, uids, key):
    """Some users fill what they may; then Alice, who has a running job, and root come."""
    alice = served.crew("hers", 1, uid=ALICE)
    alice.go(2)
    held = [fill(served, FIRST + n, key) for n in range(uids)]
    assert held[0] > held[-1] > 0, held             # each finds some, the first ones more
    guest = served.peer(uid=ALICE)
    guest.joined(guest.join_send("also hers", 1))
    for ordinal in range(2):
        plan = small_plan(1, ordinal=ordinal)
        guest.expect("PLAN_AGREED", guest.plan_arena(plan, guest.plan_send(plan)))
    alice.plan(lambda ordinal: small_plan(2, ordinal=ordinal))
    alice.go(2, ordinal=1)
    told = served.peer().status()["STATUS_DAEMON"][0]
    assert told.clients > sum(held)
    assert "hers" in served.daemon.ctl("status")
    assert fill(served, FIRST, key) == 0
    return told


def test_descriptors(serve):
    served = serve(nofile=600, settings={"socket_mode": "0666", "uids": 40, "clients_per_uid": 1000,
                                         "fds_per_uid": 1000})
    told = all_get_in(served, 37, "LimitNOFILE")
    assert told.refused_fds == 37 and told.process_max_fds == 600


def test_the_daemons_own_memory(serve):
    served = serve(settings={"socket_mode": "0666", "uids": 16, "clients_per_uid": 1000,
                             "daemon_bytes": "64M"})
    told = all_get_in(served, 13, "daemon_bytes")
    assert told.refused_own == 13 and 0 < told.own_bytes < 64 << 20
    mine = served.peer(uid=ALICE).status()["STATUS_DAEMON"][0]
    assert 0 < mine.own_bytes < told.own_bytes and not mine.HasField("refused_own")


def test_it_can_be_raised(serve):
    """A user is told its share again with each request, and has more of it when there is more."""
    served = serve(settings={"socket_mode": "0666", "daemon_bytes": "8M"})
    before = fill(served, FIRST, "daemon_bytes")
    served.daemon.change(socket_mode="0666", daemon_bytes="64M", clients_per_uid=1000)
    assert fill(served, FIRST, "daemon_bytes") > before


def test_what_a_user_holds_is_given_back(serve):
    """Connections, jobs, plans and steps: the daemon's own memory is as it was when they are gone."""
    served = serve(settings={"socket_mode": "0666"})
    crew = served.crew("guest", 2, uid=ALICE)
    crew.go(3)
    crew.peers[0].staging().close()
    assert served.holdings()["own"] > served.before["own"]


@pytest.mark.cgroup
def test_a_low_limit_of_memory_is_told(group, daemon, program):
    """At the start, and by --check: of the group in which the daemon runs."""
    limit = group.path / ("memory.max" if group.usage.name == "memory.current" else "memory.limit_in_bytes")

    def check():
        made = program(harness.DAEMON, "--check", "--socket", "/nowhere", "--daemon-bytes", "64M",
                       cgroup=group.path)
        said = made.line()
        assert made.wait() == 0
        return said

    limit.write_text(str(256 << 20))
    served = daemon(settings={"daemon_bytes": "64M"}, cgroup=group.path)
    remedy = "MemoryMax of the service" if os.path.isdir("/run/systemd/system") else "or the container, have"
    served.wait_log(f"may have 256 MiB of memory, and daemon_bytes is 64 MiB.*{remedy}")
    assert check().split("\t")[:2] == ["warn", "memory limit"]
    served.finish()
    served.expect_clean = False         # it has ended
    limit.write_text(str(576 << 20))
    assert check() is None
    served = daemon(settings={"daemon_bytes": "64M"}, cgroup=group.path)
    assert "daemon_bytes" not in served.log
