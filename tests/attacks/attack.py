# SPDX-License-Identifier: Apache-2.0
"""
The parts of every attack. An attack is a class. Its processes are of one or of several uids; each has an
object of the class, calls prepare() once and round() until its time is over, and counts what it has done.
Everything that a round adopts is closed when the round is over. A round ends when the daemon refuses a
request or hangs up, which is counted.
"""
import collections
import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import termios
import time

from hostile import HELLO_FRAME, STATUS, frame
from peer import Hangup, Peer, Refused
from returning import Returning
from rig import GIB, KIB, Server

libc = ctypes.CDLL(None, use_errno=True)
SMALL = 8 * KIB                         # of a step of the probe
UNREAD_FOR_S = 0.005                    # bytes that stay unread for so long will stay so
SPARE = 2 * GIB                         # of the machine's memory, which no attack takes
PATIENCE_S = 10                         # with an answer
LATE_S = 20                             # more time for an attack that has not begun within its own
ENDS = (Hangup, ConnectionError, FileNotFoundError, PermissionError, TimeoutError, BlockingIOError)

ATTACKS = {}


class Impatient:
    """A client that gives up if the daemon does not answer in time."""

    def _receive(self, deadline):
        if not select.select([self.sock], [], [], min(deadline, PATIENCE_S))[0]:
            raise TimeoutError(f"no answer within {PATIENCE_S} s")
        return super()._receive(deadline)


class Client(Impatient, Peer):
    pass


class Latecomer(Impatient, Returning):
    """A client that can come back after a restart, and keeps the descriptors of its arenas for that."""


class Attack:
    """One kind of attack. The docstring of each says what it does, in one sentence, which --list shows."""

    users = 1                           # uids that take part
    processes = 1                       # of each of these uids
    uid = None                          # in place of uids of their own
    probe_bytes = SMALL
    token = None                        # of the probe's job
    nofile = None                       # of the daemon; None: as of this process
    needs_probe = False                 # it attacks the probe's own job
    server_kind = Server                # the target
    proof = ("rounds",)                 # each must be counted at least once, or it did not attack

    def __init_subclass__(cls, name=None, **options):
        super().__init_subclass__(**options)
        if name:
            cls.name = name
            ATTACKS[name] = cls

    def __init__(self, server, number, seconds):
        self.socket, self.metrics, self.number, self.seconds = server.socket, server.metrics, number, seconds
        self.counts, self.why = collections.Counter(), None
        self.lasting = contextlib.ExitStack()
        self.stack = self.lasting
        self.end = 0

    @staticmethod
    def beside(server, counts):
        """Called by root again and again during the attack, and during the quiet period, too."""

    def prepare(self):
        pass

    def round(self):
        raise NotImplementedError

    def over(self):
        return time.monotonic() >= self.end

    def is_late(self):
        """Whether it goes on after its time, because it has not attacked yet: the processors were busy."""
        attacked = any(self.counts[what] for what in self.proof)
        return not attacked and time.monotonic() < self.end + LATE_S

    def attempt(self):
        try:
            with contextlib.ExitStack() as self.stack:
                self.round()
            self.counts["rounds"] += 1
        except Refused as refused:
            self.counts["refused"] += 1
            self.counts[f"refused_{refused.code}"] += 1
            self.why = str(refused)
        except TimeoutError:
            self.counts["unanswered"] += 1
        except ENDS:
            self.counts["hung_up"] += 1
            time.sleep(0.001)           # the daemon is the target, not the processor

    def run(self, told):
        self.prepare()
        told()
        began, cpu = time.monotonic(), cpu_time()
        self.end = began + self.seconds
        while not self.over() or self.is_late():
            self.attempt()
        self.lasting.close()
        return {"counts": self.counts, "why": self.why, "cpu_s": cpu_time() - cpu}

    # -- what attacks have in common

    def adopt(self, thing):
        """Has the thing closed at the end of the round; if prepare() adopts it, at the end of the attack."""
        self.stack.callback(thing.close)
        return thing

    def peer(self, **options):
        return self.adopt(Client(self.socket, **options))

    def latecomer(self):
        return self.adopt(Latecomer(self.socket))

    def raw(self, path=None, kind=socket.SOCK_SEQPACKET):
        sock = self.adopt(socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC))
        sock.connect(path or self.socket)
        sock.setblocking(False)
        return sock

    def greeted(self):
        """A connection that has said HELLO and reads nothing."""
        sock = self.raw()
        sock.send(HELLO_FRAME)
        return sock

    def deaf(self):
        """A connection from which the daemon has stopped reading, because its answers are not read."""
        sock = self.greeted()
        since = None
        while since is None or time.monotonic() - since < UNREAD_FOR_S:
            if unread(sock) == 0 or since is None:
                with contextlib.suppress(BlockingIOError):
                    sock.send(frame(STATUS))
                since = time.monotonic()
            time.sleep(0.0005)
        return sock

    def hand_over(self, sock, fds):
        """Sends descriptors, which the daemon has to close unless it has refused them."""
        socket.send_fds(sock, [frame(STATUS)], fds)
        self.counts["descriptors"] += len(fds)


def cpu_time():
    """CPU seconds of this process, and of those that it has started and waited for."""
    return time.process_time() + sum(os.times()[2:4])


def unread(sock):
    """How many bytes that were sent on it are unread, as the kernel counts them; 0: none."""
    return struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0]


def wait_for_memory(size):
    """Waits until so much memory is free: the kernel may not have released earlier memory yet."""
    while available() < size + SPARE:
        time.sleep(0.01)


def available():
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) * KIB for line in f if line.startswith("MemAvailable:"))


def memfd(size):
    """A memfd that has all of its pages."""
    wait_for_memory(size)
    fd = os.memfd_create("attack", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.posix_fallocate(fd, 0, size)
    return fd


def inotify():
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    return fd


def close_fds(fds):
    for fd in fds:
        os.close(fd)
