# SPDX-License-Identifier: Apache-2.0
"""Bytes that are no frames, frames at the wrong moment, fds that the daemon did not ask for, and peers that
never listen.

In every case the offender gets a reason and a hang-up, a healthy job on the same daemon goes on, and nothing
leaks (fixture `serve`).
"""
import array
import os
import select
import socket

import pytest

import wire
from harness import sanitized, wait_until
from peer import header, rejected, small_plan

BROKEN = {
    "magic": header(magic=0x4753),
    "trailing": header(kind=50, length=0) + b"xyz",
    "announced-fds": header(kind=50, fds=1),
    "unknown-type": header(kind=999),
    "type-of-the-daemon": header(kind=2),
    "tag-without-value": wire.frame("HELLO", b"\x08"),
    "one-byte": b"G",
    "noise": b"\x9d" * 4096,
    "longer-than-any-frame": header(kind=50, length=65521) + bytes(65521),
}


@pytest.mark.parametrize("greeted", [False, True], ids=["before-hello", "after-hello"])
@pytest.mark.parametrize("what", sorted(BROKEN))
def test_broken_frame(serve, what, greeted):
    peer = serve().peer(hello=greeted)
    peer.send_raw(BROKEN[what])
    rejected(peer)


# -- fds

def spare_fds(count):
    return [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(count)]


def send_with(peer, data, fds):
    peer.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


@pytest.mark.parametrize("announced, sent", [(0, 1), (1, 2), (2, 1), (2, 2), (3, 3), (253, 253), (0, 253)])
def test_fds_nobody_asked_for(watched, announced, sent):
    """A STATUS takes no fd. However many come, all are closed."""
    fds = spare_fds(sent)
    try:
        for _ in range(5):
            peer = watched.peer()
            send_with(peer, header(kind=50, fds=announced), fds)
            rejected(peer)
    finally:
        for fd in fds:
            os.close(fd)


# -- time

def test_handshake_deadline(watched):
    watched.daemon.change(handshake_timeout="100ms")
    spoken = watched.admitted()          # one who speaks in time stays, however long it is silent afterwards
    silent = [watched.peer(hello=False) for _ in range(5)]
    for peer in silent:
        rejected(peer, "TIMEOUT", "PROTOCOL")
    assert spoken.status()["STATUS_DAEMON"]
    watched.daemon.change()


# -- flood

def test_a_peer_that_never_reads(watched, build):
    """It is not read from any more once it does not take its answers; memory stays bounded, and nothing is
    lost."""
    flood = watched.peer()
    flood.sock.setblocking(False)
    frame = header(kind=50)
    sent = 0
    idle = 0
    while idle < 3 and sent < 200000:
        try:
            flood.sock.send(frame)
            sent += 1
            idle = 0
        except BlockingIOError:
            idle += 1
            watched.go(5)                # time for the daemon to read, if it still does
    assert sent < 200000, "no back-pressure"
    if not sanitized(build):
        assert watched.daemon.anonymous() < 20 << 20
    flood.sock.setblocking(True)
    ends = 0
    while ends < sent:
        if flood.receive().kind == "STATUS_END":
            ends += 1


def test_a_member_that_never_reads_its_notices(watched):
    """A member that sends READY and never takes its STEP frames ends up stalling its own job, which says so.
    Once it reads, all that was sent to it is there and its job goes on."""
    deaf = watched.crew("deaf", 2, lambda ordinal: small_plan(2, ordinal=ordinal))
    talker, listener = deaf.peers
    mine, other = deaf.plans[0]

    def told():
        if select.select([listener.sock], [], [], 0)[0]:
            return "step"
        waits = [wait for wait in watched.healthy.peers[0].status().get("STATUS_WAIT", [])
                 if wait.rank == talker.rank]
        return "stall" if waits and waits[0].since_ms > 300 else None

    steps = 0
    while steps < 5000:
        for peer, plan in zip(deaf.peers, (mine, other)):
            for bucket in range(2):
                peer.ready(plan, bucket)
        steps += 1
        mine.step += 1
        if wait_until(told) == "stall":
            break
        assert listener.outcome(other)[0] == "COMMITTED"
    watched.go()
    taken, mine.step = mine.step, 1
    while mine.step < taken:
        assert talker.outcome(mine)[0] == "COMMITTED"
    if other.step < taken:
        assert listener.outcome(other)[0] == "COMMITTED"
    deaf.go(3)
