# SPDX-License-Identifier: Apache-2.0
"""Attacks with descriptors whose release takes long, wherever a client can leave them."""
import contextlib
import socket
import time

from attack import Attack, close_fds, frame, inotify, memfd
from awkward import Lingering
from hostile import STATUS
from rig import GIB, MIB

PACKET = 250                            # descriptors of one packet; the kernel passes 253
MOST_INOTIFY = 112                      # of one uid; the kernel's default is 128
MOST_CLIENTS = 256                      # of one uid: the daemon's default


class Unread(Attack):
    """Descriptors that lie unread in a connection when everything is closed."""

    proof = ("rounds", "descriptors")

    def fds(self):
        raise NotImplementedError

    def round(self):
        fds = self.fds()
        try:
            sock = self.deaf()
            self.hand_over(sock, fds)
        finally:
            close_fds(fds)


class UnreadMemfd1(Unread, name="unread-memfd-1g"):
    """A connection is closed with a memfd of 1 GiB unread in it."""

    size = GIB

    def fds(self):
        return [memfd(self.size)]


class UnreadMemfd4(UnreadMemfd1, name="unread-memfd-4g"):
    """A connection is closed with a memfd of 4 GiB unread in it."""

    size = 4 * GIB


class UnreadInotify(Unread, name="unread-inotify-120"):
    """A connection is closed with 112 inotify descriptors unread in it."""

    def fds(self):
        made = []
        with contextlib.suppress(OSError):      # not all of the round before are released yet
            while len(made) < MOST_INOTIFY:
                made.append(inotify())
        if not made:
            time.sleep(0.01)
        return made

    def round(self):
        fds = self.fds()
        try:
            sock = self.deaf()
            for start in range(0, len(fds), PACKET):
                self.hand_over(sock, fds[start:start + PACKET])
        finally:
            close_fds(fds)


class UnreadInotifyMany(UnreadInotify, name="unread-inotify-1000"):
    """Nine uids leave 112 inotify descriptors each unread, which the kernel allows to one."""

    users = 9


class UnreadLinger(Unread, name="unread-linger"):
    """Connections are closed with a socket unread in them that lingers for hours."""

    def prepare(self):
        self.things = []
        self.lasting.callback(lambda: [thing.other.close() for thing in self.things])

    def fds(self):
        self.things.append(Lingering())
        return [self.things[-1].sock.detach()]


class LingerCrowd(UnreadLinger, name="linger-40-uids"):
    """40 uids leave lingering sockets, so that all threads that close something wait."""

    users = 40


class TurnedAway(Attack, name="turned-away"):
    """A client beyond clients_per_uid sends 112 inotify descriptors and a memfd of 256 MiB, which the daemon
    does not read."""

    proof = ("refused_QUOTA", "descriptors")

    def prepare(self):
        for _ in range(MOST_CLIENTS):
            self.peer()

    def round(self):
        fds = UnreadInotify.fds(self) + [memfd(256 * MIB)]
        try:
            sock = self.raw()
            self.hand_over(sock, fds)
        finally:
            close_fds(fds)
        late = self.peer(hello=False)
        raise late.refusal()


class MetricsDescriptors(Attack, name="metrics-descriptors"):
    """Callers of the metrics socket send inotify descriptors and a memfd of 256 MiB, and leave."""

    proof = ("rounds", "descriptors")

    def round(self):
        fds = UnreadInotify.fds(self) + [memfd(256 * MIB)]
        try:
            sock = self.raw(self.metrics, socket.SOCK_STREAM)
            socket.send_fds(sock, [b"GET /metrics HTTP/1.1\r\n"], fds)
            self.counts["descriptors"] += len(fds)
        finally:
            close_fds(fds)


class ReadDescriptors(Attack, name="unwanted-descriptors"):
    """Frames that may carry no descriptor carry two inotify descriptors each, and the daemon reads them."""

    proof = ("descriptors",)

    def round(self):
        peer = self.peer()
        fds = UnreadInotify.fds(self)
        try:
            for start in range(0, len(fds), 2):
                self.hand_over(peer.sock, fds[start:start + 2])
        finally:
            close_fds(fds)
        raise peer.refusal()


class Garbage(Attack, name="sockets-in-sockets"):
    """Sockets that only hold each other: each close of one makes the kernel search for such cycles."""

    users = 3
    proof = ("descriptors",)

    def round(self):
        for _ in range(100):
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                for _ in range(10):
                    socket.send_fds(ends[0], [b"x"], [ends[1].fileno()] * 100)
                    self.counts["descriptors"] += 100
            except OSError:             # more than the kernel lets one user have under way
                self.counts["too_many"] += 1
            finally:
                for end in ends:
                    end.close()
        sock = self.greeted()
        sock.send(frame(STATUS))
