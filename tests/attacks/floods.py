# SPDX-License-Identifier: Apache-2.0
"""Attacks by number: connections, questions, frames that are wrong, callers of the metrics socket."""
import contextlib
import os
import select
import socket
import subprocess
import time

from attack import ENDS, Attack, Client
from harness import CTL, environment
from hostile import CONTROL, HELLO_FRAME, STATUS, TRACE, Hostile, fields, frame
from peer import Refused, small_plan
from rig import PROBE_UID

EVICT, DRAIN, PAUSE = 1, 2, 3
WAIT_MS = 100                           # for answers
CALLERS = 16                            # on the metrics socket at once, of a process


def timed(counts, what, call):
    """Counts whether call() is true, and keeps the longest time that it took."""
    began = time.monotonic()
    fine = call()
    took = round((time.monotonic() - began) * 1000, 1)
    counts[f"{what}_{'ok' if fine else 'failed'}"] += 1
    counts[f"{what}_worst_ms"] = max(counts[f"{what}_worst_ms"], took)


def root_asks(server, counts):
    """Asks for status and for metrics, as an operator does, and times the answers."""
    command = [server.daemon.build / CTL, "status", "--json"]

    def status():
        asked = subprocess.run(command, env=environment({"GRADSYNC_SOCKET": server.socket}),
                               capture_output=True, check=False)
        return asked.returncode == 0

    timed(counts, "status", status)
    timed(counts, "scrape", lambda: scrape(server.metrics))


def scrape(path):
    out = b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(10)
        caller.connect(path)
        caller.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        while part := caller.recv(1 << 20):
            out += part
    return out.endswith(b"\n\r\n0\r\n\r\n")


class Asking(Attack):
    """Connections that ask the same question again and again, and read the answers."""

    connections, batch = 3, 10
    proof = ("questions", "answers")

    def question(self):
        return frame(STATUS, request=2)

    def prepare(self):
        self.socks = {}                 # by descriptor
        self.answered = select.poll()

    def open(self):
        while len(self.socks) < self.connections:
            sock = self.lasting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            sock.connect(self.socket)
            sock.setblocking(False)
            sock.send(HELLO_FRAME)
            self.socks[sock.fileno()] = sock
            self.answered.register(sock, select.POLLIN)

    def read(self, sock):
        with contextlib.suppress(BlockingIOError):
            for _ in range(1000):       # then other connections take their turn
                if not sock.recv(1 << 17):
                    raise ConnectionResetError
                self.counts["answers"] += 1

    def ask(self, sock):
        with contextlib.suppress(BlockingIOError):
            for _ in range(self.batch):
                sock.send(self.question())
                self.counts["questions"] += 1

    def round(self):
        """Asks again on connections with answers: the target is the daemon, not the processor."""
        self.open()
        for fd, _ in self.answered.poll(WAIT_MS) or [(fd, 0) for fd in self.socks]:
            try:
                self.read(self.socks[fd])
                self.ask(self.socks[fd])
            except OSError:
                self.answered.unregister(fd)
                self.socks.pop(fd).close()
                raise


class StatusFlood(Asking, name="status-150-uids"):
    """150 uids ask for the status all the time, three connections each."""

    users = 150


class StatusOfOne(Asking, name="status-one-uid"):
    """One uid asks for the status all the time, on 250 connections."""

    connections = 250


class ControlFlood(Asking, name="control-denied"):
    """Four uids order, without permission, that members of the probe be evicted, that it pause, and that the
    daemon drain."""

    users = 4
    job = b"%d/probe" % PROBE_UID
    orders = (fields(f1=EVICT, f2=job, f3=0), fields(f1=PAUSE, f2=job), fields(f1=DRAIN))

    def question(self):
        return frame(CONTROL, self.orders[self.counts["questions"] % len(self.orders)], request=2)


class TraceFlood(Asking, name="trace-flood"):
    """The record of a job with 64 buckets in each of 100 steps is asked for all the time, on 50
    connections."""

    connections = 50
    job = b"recorded"

    def question(self):
        return frame(TRACE, fields(f1=self.job), request=2)

    def prepare(self):
        super().prepare()
        peer = self.peer()
        peer.joined(peer.join_send(self.job.decode(), 1))
        plan = small_plan(64)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
        for _ in range(100):
            for bucket in range(64):
                peer.ready(plan, bucket)
                if bucket % 16 == 15:
                    peer.drain()
            peer.outcome(plan)


class Dies(TraceFlood, name="dies-asking"):
    """Processes die with 50 connections full of questions for that record, which the daemon has not read."""

    proof = ("died", "questions")

    def round(self):
        asked, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.die(told)
        os.close(told)
        self.counts["questions"] += len(os.read(asked, 65536))
        os.close(asked)
        os.waitpid(pid, 0)
        self.counts["died"] += 1

    def die(self, told):
        """Runs in a process of its own, which ends without closing anything."""
        try:
            self.open()
            for sock in self.socks.values():
                with contextlib.suppress(BlockingIOError):
                    while sock.send(self.question()):
                        self.counts["questions"] += 1
        finally:
            os.write(told, bytes(min(self.counts["questions"], 65536)))
            os._exit(0)


class FatFrames(Asking, name="fields-nobody-knows"):
    """Questions with 30,000 fields that no message has, as from a release that is to come."""

    connections = 20
    fat = frame(STATUS, b"\x78\x00" * 30000, request=2)

    def question(self):
        return self.fat


class Garbage(Attack, name="garbage"):
    """Connections that begin with packets with which none may begin."""

    way, batch = "garbage", 100

    def round(self):
        hostile = Hostile(self.socket, hold=False)
        getattr(hostile, self.way)(self.batch)
        self.counts["connections"] += hostile.connections
        self.counts["refused"] += hostile.heard[3]


class Lies(Garbage, name="lies"):
    """Sizes that cannot be, in everything that has one."""

    way, batch = "lies", 20


class Slow(Garbage, name="answers-not-read"):
    """Connections that ask until the daemon takes no more, and read nothing."""

    way, batch = "slow", 20


class Churn(Garbage, name="jobs-come-and-go"):
    """Jobs of one member that come and go."""

    way, batch = "churn", 20


class Arenas(Garbage, name="arenas-16m"):
    """Arenas of 16 MiB each, which are never written, and jobs that never form."""

    way, batch = "hog", 60


class Connects(Attack, name="connects"):
    """20 uids connect and leave as fast as they can."""

    users = 20
    proof = ("connects",)

    def round(self):
        for _ in range(50):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.connect(self.socket)
                self.counts["connects"] += 1
                sock.setblocking(False)
                with contextlib.suppress(OSError):
                    self.counts["refused"] += len(sock.recv(1 << 16)) > 0


class Silent(Attack, name="silent-connections"):
    """Four uids connect, as often as they may, and do not say HELLO."""

    users = 4
    proof = ("connects",)

    def round(self):
        socks = []
        for _ in range(250):
            socks.append(self.raw())
            self.counts["connects"] += 1
        time.sleep(0.1)
        for sock in socks:
            with contextlib.suppress(OSError):
                self.counts["refused"] += len(sock.recv(1 << 16)) > 0


class ClientsOfMany(Attack, name="clients-of-20-uids"):
    """20 uids hold as many clients as they may, beside a limit of 10,000 descriptors; root asks for status
    and metrics."""

    users = 20
    nofile = 10000
    proof = ("clients", "status_ok")
    beside = staticmethod(root_asks)

    def round(self):
        time.sleep(0.05)
        self.peer()

    def prepare(self):
        with contextlib.suppress(Refused, *ENDS):
            while True:
                made = Client(self.socket)
                self.lasting.callback(made.close)
                self.counts["clients"] += 1


class HalfRequests(Attack, name="metrics-half-requests"):
    """Five uids send requests to the metrics socket byte by byte, which never end; root asks for metrics
    meanwhile."""

    users = 5
    proof = ("requests", "scrape_ok")
    beside = staticmethod(root_asks)
    begin = b"GET /metrics HTTP/1.1\r\nX: "

    def round(self):
        callers = []
        for _ in range(CALLERS):
            callers.append(self.raw(self.metrics, socket.SOCK_STREAM))
            callers[-1].send(self.begin)
            self.counts["requests"] += 1
        for _ in range(20):
            time.sleep(0.01)
            for caller in callers:
                with contextlib.suppress(OSError):
                    self.counts["bytes"] += caller.send(b"y")


class MetricsUnread(HalfRequests, name="metrics-not-read"):
    """Five uids ask for metrics and do not read them."""

    begin = b"GET /metrics HTTP/1.1\r\n\r\n"


class Scrapes(Attack, name="metrics-scrapes"):
    """20 uids ask for metrics all the time."""

    users = 20
    proof = ("scrapes",)

    def round(self):
        self.counts["scrapes" if scrape(self.metrics) else "hung_up"] += 1
