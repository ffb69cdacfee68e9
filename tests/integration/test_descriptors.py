# SPDX-License-Identifier: Apache-2.0
"""Descriptors that clients send although they are not theirs to offer, or whose close() waits, for hours if
need be: the daemon goes on, whichever way they came, and they cost their senders alone. A socket lingers for
the process that closes it last, so the daemon is stopped until no other process can be that one."""
import array
import contextlib
import os
import pathlib
import resource
import socket

import pytest

import awkward
from harness import wait_until
from peer import PAGE, Crew, Own, header, rejected, small_plan

MALLORY = 4711


@pytest.fixture
def thing(request):
    made = request.param()
    yield made
    made.release()


KINDS = pytest.mark.parametrize("thing", awkward.kinds(), indirect=True, ids=lambda kind: kind.__name__.lower())


def rights(fds):
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]


def send(sock, data, fds):
    sock.sendmsg([data], rights(fds))


def as_memory(served, thing):
    crew = served.crew("other", 1, uid=MALLORY)
    peer = crew.peers[0]
    with served.daemon.at_once():
        sent = [peer.send("REGISTER", fds=[thing.fd], job=peer.job, offset=0, bytes=4096) for _ in range(3)]
        thing.sent()
    for request in sent:
        refused = peer.refusal(request)
        assert refused.code == "INVALID" and "is a" in refused.text
    peer.status()                       # the connection stays


def as_pidfd(served, thing):
    peer = served.peer(hello=False, uid=MALLORY)
    with served.daemon.at_once():
        peer.send("HELLO", fds=[thing.fd], minor=0, program="peer", library="peer", pid=os.getpid())
        thing.sent()
    rejected(peer, "INVALID")


def unexpected(served, thing):
    peer = served.peer(uid=MALLORY)
    with served.daemon.at_once():
        peer.send("STATUS", fds=[thing.fd, thing.fd])
        thing.sent()
    rejected(peer)


def in_surplus(served, thing):
    peer = served.peer(uid=MALLORY)
    with served.daemon.at_once():
        send(peer.sock, header(kind=50, fds=2), [thing.fd] * 200)
        thing.sent()
    rejected(peer)


def behind_a_mistake(served, thing):
    """Never read: closed by the kernel when the connection is."""
    peer = served.peer(uid=MALLORY)
    with served.daemon.at_once():
        peer.send_raw(header(kind=999))
        for _ in range(5):
            send(peer.sock, header(kind=50, fds=1), [thing.fd] * 3)
        thing.sent()
    rejected(peer)


def of_somebody_turned_away(served, thing):
    crowd = [served.peer(uid=MALLORY) for _ in range(4)]
    with served.daemon.at_once():
        late = served.peer(uid=MALLORY, hello=False)
        send(late.sock, header(kind=1, fds=1), [thing.fd])
        thing.sent()
    assert "clients_per_uid" in rejected(late, "QUOTA").text
    for peer in crowd:
        peer.status()


def on_the_metrics_socket(served, thing):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.connect(str(served.daemon.directory / "metrics"))
        with served.daemon.at_once():
            send(caller, b"GET / HTTP/1.0\r\n\r\n", [thing.fd] * 3)
            thing.sent()
        with contextlib.suppress(ConnectionResetError):
            assert caller.recv(1) == b""        # a scraper that sends descriptors is not heard


def unheard(served, thing):
    """By the daemon, which cannot answer what came before."""
    peer = served.peer(uid=MALLORY)
    with served.daemon.at_once():
        for _ in range(5):
            peer.send("STATUS")
        send(peer.sock, b"x", [thing.fd])
        thing.sent()
        peer.close()


BATCH = 16                              # packets that are read at once, at most
SLACK = 16
WAYS = [as_memory, as_pidfd, unexpected, in_surplus, behind_a_mistake, of_somebody_turned_away, on_the_metrics_socket]


@KINDS
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_other_jobs_go_on(serve, scratch, thing, way):
    served = serve("--socket-mode", "0666", settings={"clients_per_uid": 4, "metrics_socket": scratch / "d0/metrics"})
    way(served, thing)
    served.go(3)
    thing.release()                     # and all that is left is closed: see the end of `serve`


def releasing(daemon):
    """Whether a thread of it is in close(2) now."""
    call = {"x86_64": "3", "aarch64": "57"}[os.uname().machine]
    for task in pathlib.Path(f"/proc/{daemon.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            name, called = (task / "comm").read_text(), (task / "syscall").read_text().split()[0]
            if name == "gs-closer\n" and called == call:
                return True
    return False


@pytest.mark.parametrize("way", [behind_a_mistake, of_somebody_turned_away, unheard],
                         ids=lambda way: way.__name__)
def test_what_lies_unread_is_not_released_by_the_event_thread(serve, way):
    """The kernel releases it when the connection is closed, and waits for that."""
    served = serve("--socket-mode", "0666", settings={"clients_per_uid": 4})
    thing = awkward.Lingering()
    way(served, thing)
    wait_until(lambda: releasing(served.daemon), "the release")
    served.go(100)
    assert releasing(served.daemon)
    thing.release()


@KINDS
def test_a_user_with_too_many_is_heard_no_more(serve, thing):
    """The descriptors stay on their sender's account. A user that sends more of them than the account can
    take is told, on all connections, and other users notice nothing."""
    served = serve("--socket-mode", "0666", settings={"fds_per_uid": 30})
    other = served.peer(uid=MALLORY)
    crew = served.crew("other", 1, uid=MALLORY)
    peer = crew.peers[0]
    plain = os.pipe()

    def offer(fd):
        peer.send("REGISTER", fds=[fd], job=peer.job, offset=0, bytes=4096)

    with served.daemon.at_once():
        offer(thing.fd)
        thing.sent()
    for _ in range(300):
        try:
            offer(plain[0])
        except (BrokenPipeError, ConnectionResetError):
            break
    reason = peer.hangup()
    assert reason.code == "QUOTA" and "fds_per_uid" in reason.text, reason
    # what fits the account, what it may be overdrawn by, one batch of packets that were read before it was looked at again, and the
    # clients' own
    assert len(served.daemon.fds()) < len(served.before["fds"]) + 30 + SLACK + BATCH + 20

    other.send("STATUS")
    assert "neither a memfd nor a pidfd" in rejected(other, "QUOTA").text
    late = served.peer(uid=MALLORY, hello=False)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):    # turned away before it could say anything
        late.send("STATUS")
    rejected(late, "QUOTA")
    served.peer(uid=MALLORY + 1).status()
    served.go()
    served.daemon.wait_log(rf"client pid \d+, uid {MALLORY} is disconnected: descriptors that it, or others of this uid, sent")

    thing.release()
    for fd in plain:
        os.close(fd)
    served.admitted(uid=MALLORY).status()


def test_memory_of_a_daemon_is_no_memory_of_ones_own(serve):
    """Arenas and staging memory are shared already, and another plan in them would share them once more; also if they are the memory
    of another daemon, as after a restart."""
    served, elsewhere = serve(), serve()
    peer, stranger = served.crew("own", 1, plan=None).peers[0], elsewhere.crew("own", 1, plan=None).peers[0]

    def refused(who, fd, size):
        """Through any descriptor of it."""
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        for offer in (fd, again):
            told = who.refusal(who.send("REGISTER", fds=[offer], job=who.job, offset=0, bytes=size))
            assert told.code == "INVALID" and "that a gradsyncd has made" in told.text, told
        os.close(again)

    plan = small_plan()
    message = peer.expect("PLAN_ARENA", peer.plan_send(plan))
    fd, control = peer.fds
    os.close(control)
    os.posix_fallocate(fd, 0, message.bytes)
    refused(peer, fd, message.bytes)
    refused(stranger, fd, message.bytes)
    os.close(fd)
    peer.ask("PLAN_MAPPED", "PLAN_AGREED", job=peer.job, plan=0)
    message = peer.ask("STAGING", "STAGING_ARENA", job=peer.job)
    fd = peer.fds[0]
    os.posix_fallocate(fd, 0, message.bytes)
    refused(peer, fd, message.bytes)
    os.close(fd)
    own = peer.register(Own(4 * PAGE))          # what is one's own still can be
    own.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")
def test_more_in_flight_than_the_kernel_allows(daemon, peers):
    """While others of the daemon's user have too many descriptors under way it can send none. It says so; the client has not gone."""
    served = daemon(uid=MALLORY, settings={"socket_mode": "0666"})
    crew = peers(Crew(served.socket, "own", 2, plan=None))
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(MALLORY)
            os.setuid(MALLORY)
            resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (100, 100))
            send(ends[0], b"x", [ends[0].fileno()] * 200)
            os._exit(0)
        finally:
            os._exit(1)                 # not a second process that goes on with the tests
    assert os.waitpid(child, 0)[1] == 0
    crew.peers[0].plan_send(small_plan())
    served.wait_log("nothing can be sent to it, or read from it: Too many references")
    served.wait_log("lost rank 0 .*: it was evicted: nothing can be sent to it, or read from it: Too many")
    for end in ends:
        end.close()
