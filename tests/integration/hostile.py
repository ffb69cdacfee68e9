# SPDX-License-Identifier: Apache-2.0
"""A client without manners, as a program of its own: hostile.py [--uid UID] [--seconds S] SOCKET ATTACK=COUNT...

Each attack is told on a line when it is over; "held" is told while connections are kept open, until a line comes on
standard input. With --seconds the attacks take turns for so long, or until SIGTERM, and nothing is held. The last line is a
JSON object with the CPU time that all this took. Frames are built by hand: only Python's own library is used.
"""
import argparse
import array
import collections
import errno
import itertools
import json
import os
import random
import resource
import signal
import socket
import sys
import time

from octets import HEADER, varint

HELLO, JOIN, LEAVE, STATUS, TRACE, CONTROL = 1, 10, 12, 50, 60, 70
PLAN_BEGIN, PLAN_PARAMS, PLAN_BUCKETS, PLAN_COMMIT, PLAN_MAPPED, READY, OPERATION = 20, 21, 22, 23, 25, 30, 44
BATCH = 100
MOST = (1 << 64) - 1
LOST = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EAGAIN, errno.ETOOMANYREFS, None)      # None: a time-out


def fields(**numbered):
    """A payload: f1=3 is field 1 as a number, f2=b"x" field 2 as a string or message."""
    out = b""
    for key, value in numbered.items():
        field = int(key[1:])
        if isinstance(value, bytes):
            out += varint(field << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(field << 3) + varint(value)
    return out


def frame(kind, payload=b"", request=1, fds=0, length=None, magic=0x5347, major=1, flags=0):
    return HEADER.pack(magic, major, flags, kind, fds, len(payload) if length is None else length, request) + payload


HELLO_FRAME = frame(HELLO, fields(f1=0, f2=b"hostile"))


def garbage_packets():
    """Packets that no connection may begin with, the same ones in each run with one GRADSYNC_TEST_SEED."""
    rng = random.Random(int(os.environ.get("GRADSYNC_TEST_SEED", "1")))
    yield from (rng.randbytes(size) for size in (1, 15, 16, 17, 100, 4096, 65536))
    yield from (frame(HELLO, rng.randbytes(size)) for size in (1, 40, 1000, 60000))
    yield from (frame(kind, b"") for kind in (0, 2, 99, 65535, READY, JOIN, OPERATION))
    yield frame(HELLO, magic=0x4753)
    yield frame(HELLO, major=9)
    yield frame(HELLO, flags=255)
    yield frame(HELLO, b"x" * 10, length=11)
    yield frame(HELLO, fds=2)
    yield HELLO_FRAME + b"behind"


class Hostile:
    """The attacks. Each is a method that takes how many times."""

    def __init__(self, path, hold):
        self.path, self.hold = path, hold
        self.connections = 0
        self.heard = collections.Counter()      # types of frames
        self.names = itertools.count()

    def connect(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        sock.connect(self.path)         # waits while the daemon has too many to accept
        sock.settimeout(10)
        self.connections += 1
        return sock

    def keep(self, socks):
        if self.hold:
            print("held", flush=True)
            sys.stdin.readline()
        for sock in socks:
            sock.close()

    @staticmethod
    def say(sock, *packets, fds=()):
        """Sends packets. Returns False if the daemon has hung up, which is fine."""
        try:
            for packet in packets:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
                sock.sendmsg([packet], ancillary)
        except OSError as problem:      # ETOOMANYREFS: the kernel's own limit of fds on their way
            if problem.errno not in LOST:
                raise
            return False
        return True

    def hear(self, sock):
        """(type, payload) of the next frame; (0, b"") at the end. Its fds are closed."""
        try:
            data, fds, _, _ = socket.recv_fds(sock, 1 << 17, 8)
        except (ConnectionResetError, socket.timeout):
            return 0, b""
        for fd in fds:
            os.close(fd)
        kind, payload = (HEADER.unpack_from(data)[3], data[HEADER.size:]) if len(data) >= HEADER.size else (0, b"")
        self.heard[kind] += 1
        return kind, payload

    def garbage(self, count):
        packets = list(garbage_packets())
        for start in range(0, count, BATCH):
            batch = [self.connect() for _ in range(min(BATCH, count - start))]
            for number, sock in enumerate(batch):
                self.say(sock, packets[(start + number) % len(packets)])
            for sock in batch:
                sock.close()

    def idle(self, count):
        self.keep([self.connect() for _ in range(count)])

    def fds(self, count):
        """Descriptors with frames that may carry none, another number than announced, or more than any may."""
        pipe = os.pipe()
        for number in range(count):
            sock = self.connect()
            self.say(sock, HELLO_FRAME)
            for announced, sent in ((0, 2), (2, 2), (1, 200), (2, 253))[number % 4:]:
                self.say(sock, frame(STATUS, fds=announced), fds=[pipe[0]] * sent)
            sock.close()
        for fd in pipe:
            os.close(fd)

    def halves(self, count):
        """A whole greeting, then frames that end too early."""
        for number in range(count):
            sock = self.connect()
            self.say(sock, HELLO_FRAME, frame(JOIN, fields(f1=b"half"), 2)[:1 + number % 20])
            sock.close()

    def member(self, job, world=1):
        """A greeted connection that has joined a job of its own: (socket, handle)."""
        sock = self.connect()
        self.say(sock, HELLO_FRAME, frame(JOIN, fields(f1=job, f2=world, f3=world), 2))
        if world > 1:
            return sock, 0
        kind, payload = self.hear(sock)
        kind, payload = self.hear(sock) if kind == HELLO + 1 else (kind, payload)
        handle = 0
        for place, byte in enumerate(payload[1:] if kind == JOIN + 1 else b""):         # the first field, a varint
            handle |= (byte & 0x7f) << 7 * place
            if byte < 0x80:
                break
        return sock, handle

    def lies(self, count):
        """Sizes that cannot be, in everything that has one."""
        for number in range(count):
            sock, job = self.member(b"liar%d" % next(self.names))
            huge = (MOST, 1 << 63, 1 << 47, (1 << 32) - 1, 4095)[number % 5]
            self.say(sock,
                     frame(PLAN_BEGIN, fields(f1=job, f2=1, f3=0, f4=huge, f5=huge, f6=huge, f7=huge, f8=1), 3),
                     frame(PLAN_BEGIN, fields(f1=job, f2=1, f3=1, f4=65536, f5=16384, f6=1 << 46, f7=12288, f8=1), 4),
                     frame(PLAN_PARAMS, fields(f1=job, f2=1, f3=fields(f1=b"p", f2=1, f3=varint(huge) * 8, f4=0)), 4),
                     frame(OPERATION, fields(f1=job, f2=1, f3=0, f4=5, f5=1, f6=2, f8=huge, f9=huge, f10=huge), 5),
                     frame(READY, fields(f1=job, f2=1, f3=huge & 0xffffffff, f4=huge, f5=huge & 0xffffffff), 0))
            sock.close()

    def slow(self, count):
        """Asks and never reads, until the daemon takes no more."""
        socks = []
        for _ in range(count):
            sock = self.connect()
            sock.settimeout(0)
            self.say(sock, HELLO_FRAME)
            while self.say(sock, *[frame(STATUS, request=2)] * 20):
                pass
            socks.append(sock)
        self.keep(socks)

    def chatter(self, count):
        """Asks on all connections at once for what is longest to answer, and reads it: `count` times."""
        socks = [self.connect() for _ in range(BATCH)]
        for sock in socks:
            sock.settimeout(0)
            self.say(sock, HELLO_FRAME)
        for _ in range(count):
            for sock in socks:
                self.say(sock, *[frame(STATUS, request=2)] * 20)
            for sock in socks:
                try:
                    while sock.recv(1 << 16):
                        pass
                except OSError:
                    continue
        for sock in socks:
            sock.close()

    def hog(self, count):
        """As much memory as it is given: arenas of 16 MiB each in one job, and jobs that never form."""
        socks = [self.member(b"never%d" % next(self.names), world=2)[0] for _ in range(min(count, BATCH))]
        sock, job = self.member(b"hog%d" % next(self.names))
        elements = 4 << 20
        for plan in range(count):
            size = fields(f1=1, f2=0, f3=4 * elements, f4=4 * elements)
            self.say(sock,
                     frame(PLAN_BEGIN, fields(f1=job, f2=1, f3=plan, f4=1, f5=1, f6=4 * elements, f7=4096, f8=1), 9),
                     frame(PLAN_PARAMS, fields(f1=job, f2=plan, f3=fields(f1=b"p", f2=1, f3=varint(elements), f4=0)), 9),
                     frame(PLAN_BUCKETS, fields(f1=job, f2=plan, f3=size), 9),
                     frame(PLAN_COMMIT, fields(f1=job, f2=plan), 9))
            self.hear(sock)
        self.keep([sock, *socks])

    def churn(self, count):
        """Jobs that come and go: each is news for the log."""
        for number in range(count):
            sock, job = self.member(b"brief%d" % next(self.names))
            if number % 2:
                self.say(sock, frame(LEAVE, fields(f1=job), 3))
                self.hear(sock)
            sock.close()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("socket")
    parser.add_argument("attacks", nargs="+", metavar="ATTACK=COUNT")
    return parser.parse_args()


def main():
    options = arguments()
    most = max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 8192 if os.geteuid() == 0 else 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.uid is not None:
        os.setgroups([])
        os.setgid(options.uid)
        os.setuid(options.uid)
    attacks = [(name, int(count)) for name, count in (word.split("=") for word in options.attacks)]
    hostile = Hostile(options.socket, hold=options.seconds is None)
    began, cpu = time.monotonic(), time.process_time()
    told_to_end = []
    if options.seconds:
        signal.signal(signal.SIGTERM, lambda *_: told_to_end.append(True))
        print("began", flush=True)
    for name, count in itertools.cycle(attacks) if options.seconds else attacks:
        getattr(hostile, name)(count)
        if options.seconds is None:
            print(name, flush=True)
        elif told_to_end or time.monotonic() - began >= options.seconds:
            break
    print(json.dumps({"connections": hostile.connections, "heard": hostile.heard, "cpu_s": time.process_time() - cpu,
                      "wall_s": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
