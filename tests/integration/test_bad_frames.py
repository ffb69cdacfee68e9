# SPDX-License-Identifier: Apache-2.0
"""Bytes that are no frames, frames at the wrong moment, fds that nobody asked for, and peers that never
listen.

In every case the offender gets a reason and a hang-up, a healthy job on the same daemon goes on, and nothing
leaks (fixture `serve`).
"""
import array
import os
import random
import select
import socket

import pytest

import wire
from harness import sanitized, wait_until
from peer import connect, header, rejected, small_plan

@pytest.mark.parametrize("greeted", [False, True], ids=["before-hello", "after-hello"])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 64, 4096, 65536])
def test_garbage(serve, size, greeted):
    data = random.Random(size).randbytes(size)
    peer = serve().peer(hello=greeted)
    peer.send_raw(data)
    rejected(peer, "PROTOCOL", "VERSION")


BROKEN = {
    "magic": header(magic=0x4753),
    "flags": header(kind=50, flags=1),
    "truncated": header(kind=50, length=10) + b"\x0a\x02",
    "trailing": header(kind=50, length=0) + b"xyz",
    "longest-length": header(kind=50, length=0xFFFFFFFF),
    "too-long": header(kind=50, length=65536 - 16 + 1) + bytes(65536 - 16 + 1),
    "short": header(kind=50)[:15],
    "announced-fds": header(kind=50, fds=1),
    "announced-many-fds": header(kind=50, fds=0xFFFF),
    "unknown-type": header(kind=999),
    "type-zero": header(kind=0),
    "type-of-the-daemon": header(kind=2),
    "tag-without-value": wire.frame("HELLO", b"\x08"),
    "length-beyond-the-end": wire.frame("HELLO", b"\x0a\xff\xff\xff\xff\x0f"),
    "endless-tag": wire.frame("HELLO", b"\xff" * 11),
    "unknown-encoding": wire.frame("HELLO", b"\x0b\x0b\x0b"),
}


@pytest.mark.parametrize("greeted", [False, True], ids=["before-hello", "after-hello"])
@pytest.mark.parametrize("what", sorted(BROKEN))
def test_broken_frame(serve, what, greeted):
    peer = serve().peer(hello=greeted)
    peer.send_raw(BROKEN[what])
    rejected(peer)


def test_oversized_packet(serve):
    """Longer than any frame may be, so that the daemon's buffer cannot take it."""
    served = serve()
    for size in (65537, 100000, 200000):
        peer = served.peer()
        peer.send_raw(header(kind=50, length=size - 16) + bytes(size - 16))
        rejected(peer)


def test_empty_packet(serve):
    """A packet of no bytes looks like the end of the connection, and is treated as one."""
    peer = serve().peer()
    peer.send_raw(b"")
    peer.hangup()


@pytest.mark.parametrize("major", [0, 2, 255])
def test_wrong_major_version(serve, major):
    peer = serve().peer(hello=False)
    peer.send_raw(header(major=major))
    reason = rejected(peer, "VERSION")
    assert str(wire.MAJOR) in reason.text and str(major) in reason.text


@pytest.mark.parametrize("name", [b"", b"a/b", b"x" * 256, b"\xff\xfe", b"a\nb", b"a\x1b[2Jb", b"\xc0\x80",
                                  b"\xed\xa0\x80", b"a\x00b", b"\xc2\x9b1m"],
                         ids=["empty", "slash", "long", "no-utf8", "newline", "escape", "overlong",
                              "surrogate", "nul", "c1"])
def test_bad_job_name(serve, name):
    peer = serve().peer()
    fields = wire.message("JOIN", min_world=1, max_world=1).SerializeToString()
    peer.send_raw(wire.frame("JOIN", b"\x0a" + wire.varint(len(name)) + name + fields, request=9))
    assert peer.refusal(9).code in ("INVALID", "PROTOCOL")


@pytest.mark.parametrize("fields", [
    {"min_world": 0, "max_world": 0}, {"min_world": 3, "max_world": 2}, {"min_world": 257, "max_world": 257},
    {"min_world": 1, "max_world": 0xFFFFFFFF}, {"min_world": 2, "max_world": 2, "rank": 2},
    {"min_world": 2, "max_world": 2, "rank": 0xFFFFFFFF},
    {"min_world": 2, "max_world": 2, "slot": 0xFFFFFFFF},
])
def test_bad_world(serve, fields):
    peer = serve().peer()
    request = peer.send("JOIN", job="odd", **fields)
    assert peer.refusal(request).code == "INVALID"
    assert peer.status()["STATUS_DAEMON"][0].jobs == 1          # and the connection goes on


# -- fds

def spare_fds(count):
    return [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(count)]


def send_with(peer, data, fds):
    peer.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


@pytest.mark.parametrize("announced, sent", [(0, 1), (1, 2), (2, 1), (2, 2), (3, 3), (253, 253), (0, 253)])
def test_fds_nobody_asked_for(serve, announced, sent):
    """A STATUS takes no fd. However many come, all are closed."""
    served = serve()
    fds = spare_fds(sent)
    try:
        for _ in range(5):
            peer = served.peer()
            send_with(peer, header(kind=50, fds=announced), fds)
            rejected(peer)
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("what", ["/dev/null", "/proc/self/mem", "/", "another process"])
def test_hello_with_something_else_than_its_own_pidfd(serve, program, what):
    """Neither a file nor the end of an unrelated process says anything of this client."""
    if what == "another process":
        fd = os.pidfd_open(program("/bin/cat").pid)
    else:
        fd = os.open(what, os.O_RDONLY | os.O_CLOEXEC)
    peer = serve().peer(hello=False)
    peer.send("HELLO", fds=[fd], minor=0, program="liar")
    os.close(fd)
    rejected(peer, "INVALID")


def test_control_data_cut_by_the_open_files_limit(serve):
    """With no room for the fds of a message the kernel cuts its control data. That connection ends; nothing
    leaks."""
    limit = 48
    served = serve(nofile=limit, settings={"clients_per_uid": 200, "fds_per_uid": 1000})
    crowd = []
    try:
        while len(served.daemon.fds()) < limit - 1 and len(crowd) < limit:
            sock = connect(served.path)
            crowd.append(sock)
            try:
                sock.send(wire.frame("HELLO", wire.message("HELLO", minor=0).SerializeToString(), request=1))
                if not sock.recv(4096):
                    break
            except (BrokenPipeError, ConnectionResetError):
                break
        fds = spare_fds(2)
        for sock in crowd[:4]:
            try:
                sock.sendmsg([header(kind=50, fds=2)],
                             [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
                while sock.recv(4096):
                    pass
            except (BrokenPipeError, ConnectionResetError):     # closed already
                continue
        for fd in fds:
            os.close(fd)
        served.go()
    finally:
        for sock in crowd:
            sock.close()
    served.settled()
    served.peer()                       # and there is room again


def test_more_connections_than_open_files(serve):
    """Whoever comes when no fd is left is turned away or waits; those inside go on, and later there is room
    again."""
    served = serve(nofile=40, settings={"clients_per_uid": 1000, "fds_per_uid": 1000})
    crowd = []
    for _ in range(100):
        sock = socket.socket(socket.AF_UNIX,
                             socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        crowd.append(sock)
        try:
            sock.connect(served.path)
        except BlockingIOError:         # the queue of the listener is full
            break
    served.go()
    for sock in crowd:
        sock.close()
    served.admitted()


# -- time

def test_handshake_deadline(serve):
    served = serve()
    served.daemon.change(handshake_timeout="100ms")
    spoken = served.admitted()          # one who speaks in time stays, however long it is silent afterwards
    silent = [served.peer(hello=False) for _ in range(5)]
    for peer in silent:
        rejected(peer, "TIMEOUT", "PROTOCOL")
    assert spoken.status()["STATUS_DAEMON"]
    served.daemon.change()


# -- flood

def test_a_peer_that_never_reads(serve, build):
    """It is not read from any more once it does not take its answers; memory stays bounded, and nothing is
    lost."""
    served = serve()
    flood = served.peer()
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
            served.go(5)                # time for the daemon to read, if it still does
    assert sent < 200000, "no back-pressure"
    if not sanitized(build):
        assert served.daemon.anonymous() < 20 << 20
    flood.sock.setblocking(True)
    ends = 0
    while ends < sent:
        if flood.receive().kind == "STATUS_END":
            ends += 1


def test_a_flood_of_answered_requests(serve):
    """Someone who asks without end takes turns with the others."""
    served = serve()
    flood = served.peer()
    for _ in range(20):
        requests = [flood.send("STATUS") for _ in range(20)]
        served.go(1)
        done = []
        while len(done) < len(requests):
            frame = flood.receive()
            if frame.kind == "STATUS_END":
                done.append(frame.request)
        assert done == requests


def test_a_member_that_never_reads_its_notices(serve):
    """A member that sends READY and never takes its STEP frames ends up stalling its own job, which says so.
    Once it reads, all that was sent to it is there and its job goes on."""
    served = serve()
    deaf = served.crew("deaf", 2, lambda ordinal: small_plan(2, ordinal=ordinal))
    talker, listener = deaf.peers
    mine, other = deaf.plans[0]

    def told():
        if select.select([listener.sock], [], [], 0)[0]:
            return "step"
        waits = [wait for wait in served.healthy.peers[0].status().get("STATUS_WAIT", [])
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
    served.go()
    taken, mine.step = mine.step, 1
    while mine.step < taken:
        assert talker.outcome(mine)[0] == "COMMITTED"
    if other.step < taken:
        assert listener.outcome(other)[0] == "COMMITTED"
    deaf.go(3)


def test_two_jobs_of_one_connection(serve):
    """One connection may be a member of several jobs; leaving one keeps the other."""
    peer = serve().peer()
    first = peer.joined(peer.join_send("one", 1))
    second = peer.joined(peer.join_send("two", 1))
    assert first.job != second.job
    peer.ask("LEAVE", "LEFT", job=first.job)

    def left():
        return {job.name for job in peer.status()["STATUS_JOB"]} == {"two", "healthy"}

    wait_until(left, "the end of job 'one'")  # it goes as the loop pass ends, after the answer
