# SPDX-License-Identifier: Apache-2.0
"""A member made of single frames: what a test needs to say the right thing, the wrong thing, or nothing at a
chosen moment.

A Peer lives in the test's own process, so a test decides the order of everything. Several of them form a
Crew, a whole job that goes on step by step; a Crew beside the trouble of a test shows that other jobs do not
notice.
"""
import contextlib
import ctypes
import fcntl
import itertools
import mmap
import os
import select
import signal
import socket
import struct
import time

import wire
from harness import DEADLINE
from octets import send_packet

PAGE = 4096
MADV_POPULATE_WRITE = 23
libc = ctypes.CDLL(None, use_errno=True)
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
NOTICES = ("LOST", "NEWGEN", "PLAN_STEP", "RESTARTING", "RESUMED", "STALL", "STEP")


@contextlib.contextmanager
def as_uid(uid):
    """Effective uid (and gid) `uid` inside: what a socket's peer credentials will say."""
    if uid is None:
        yield
        return
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def connect(path, uid=None):
    """A connected socket, nothing said on it yet."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        with as_uid(uid):
            sock.connect(path)
    except BaseException:
        sock.close()
        raise
    sock.settimeout(DEADLINE)
    return sock


class Refused(Exception):
    """The daemon said no."""

    def __init__(self, message):
        self.code = wire.pb.Code.Name(message.code)
        self.text = message.text
        self.rank = message.rank if message.HasField("rank") else None
        self.pid = message.pid if message.HasField("pid") else None
        super().__init__(f"{self.code}: {self.text}")


class Hangup(Exception):
    """The daemon closed the connection."""


class Frame:
    """One frame as received."""

    def __init__(self, kind, request, message, fds):
        self.kind, self.request, self.message, self.fds = kind, request, message, fds

    def __repr__(self):
        return f"<{self.kind} request {self.request} {str(self.message)!r} fds {self.fds}>"


class Arena:
    """The shared memory of one plan, mapped here and populated."""

    def __init__(self, fd, size, populate=True):
        self.size = size
        self.map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        if populate:
            self.populate(0, size)

    def populate(self, start, end):
        for page in range(start, end, PAGE):
            self.map[page] = self.map[page]

    def close(self):
        self.map.close()


def memfd(size, seals=SEALS, fill=0, hidden=0, name="offered"):
    """Shared memory with so many bytes of pages in it, and with pages after its end, which no seal takes
    away."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if fill:
        os.posix_fallocate(fd, 0, fill)
    if hidden:
        assert libc.fallocate(fd, 1, ctypes.c_long(size), ctypes.c_long(hidden)) == 0       # KEEP_SIZE
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class Own(Arena):
    """Memory of a member's own: a memfd, sealed and populated as asked. Plans lie in it after place()."""

    def __init__(self, size, seals=SEALS, populate=True):
        self.fd = memfd(size, seals, name="own")
        self.handle = None
        super().__init__(self.fd, size, populate)

    def place(self, plan, at=0):
        """The plan's buckets are in this memory, one after the other from `at`."""
        shift = at
        for bucket, place in enumerate(plan.buckets):
            for param, (_, _, mine) in enumerate(plan.params):
                if mine == bucket:
                    plan.places[param] = (plan.places[param][0] - place[0] + shift, plan.places[param][1])
            place[0] = shift
            shift += (place[1] + 63) // 64 * 64
        plan.memory, plan.bytes = self, 0
        return plan

    def blocks(self):
        """Bytes of pages that are there."""
        return os.fstat(self.fd).st_blocks * 512

    def punch(self, offset=0, size=None):
        punch(self.fd, offset, self.size if size is None else size)

    def close(self):
        super().close()
        os.close(self.fd)


def punch(fd, offset, size):
    """Gives pages of a file back to the kernel."""
    if libc.fallocate(fd, 3, ctypes.c_long(offset), ctypes.c_long(size)) < 0:  # PUNCH_HOLE | KEEP_SIZE
        raise OSError(ctypes.get_errno(), "fallocate")


class Plan:
    """Shapes, offsets and, once agreed, the memory of a plan of f32 parameters: params[i] = (name, shape,
    bucket)."""

    def __init__(self, params, ordinal=0, dtype="F32", reduce="AVG", element=4):
        self.params, self.ordinal = params, ordinal
        self.dtype, self.reduce, self.element = dtype, reduce, element
        self.arena = None
        self.memory = None              # an Own that holds its buckets, in place of the arena
        self.step = 1
        self.buckets = []               # [offset, bytes, payload]
        self.places = [None] * len(params)
        self.page = None                # the control memory
        self.control = (64 + (len(params) + 7) // 8 + PAGE - 1) // PAGE * PAGE
        members = [[] for _ in range(max(param[2] for param in params) + 1)]
        for index, (_, shape, bucket) in enumerate(params):
            members[bucket].append((index, self.size_of(shape)))
        at = 0
        for inside in members:
            start, payload = at, 0
            for index, size in inside:
                at = (at + 63) // 64 * 64
                self.places[index] = (at, size)
                at += size
                payload += size
            self.buckets.append([start, at - start, payload])
            at = (at + PAGE - 1) // PAGE * PAGE
        self.bytes = at

    def size_of(self, shape):
        elements = 1
        for extent in shape:
            elements *= extent
        return elements * self.element


def small_plan(buckets=1, elements=256, ordinal=0, **options):
    """One parameter of `elements` f32 in each bucket, launched in the order of buckets."""
    return Plan([(f"p{number}", [elements], number) for number in range(buckets)], ordinal, **options)


class Peer:
    """One connection, at the level of frames."""

    minor = wire.MINOR
    suffix = b""                        # behind the payload of each message

    def __init__(self, path, uid=None, hello=True, program="peer", pidfd=False):
        self.sock = connect(path, uid)
        self.requests = itertools.count(1)
        self.early = []                 # notices that came while something else was awaited
        self.job = self.rank = self.generation = self.world = self.secret = None
        self.plans = {}
        self.sequence = itertools.count(0)
        if hello:
            fds = [os.pidfd_open(os.getpid())] if pidfd else []
            self.welcome = self.ask("HELLO", "WELCOME", fds=fds, minor=self.minor, program=program,
                                    library="peer", pid=os.getpid())
            for fd in fds:
                os.close(fd)

    def close(self):
        for plan in self.plans.values():
            for memory in {plan.arena, plan.page} - {None}:
                memory.close()
            plan.arena = plan.page = None
        self.plans = {}
        self.sock.close()

    # -- frames

    def send_raw(self, data, fds=()):
        send_packet(self.sock, data, fds)

    def send(self, kind, /, request=None, fds=(), **fields):
        """Sends one message built from `fields`; returns its request id."""
        if request is None:
            request = next(self.requests)
        payload = wire.message(kind, **fields).SerializeToString() + self.suffix
        self.send_raw(wire.frame(kind, payload, request, len(fds)), fds)
        return request

    def receive(self, deadline=DEADLINE):
        """The next frame, whatever it is."""
        if self.early:
            return self.early.pop(0)
        return self._receive(deadline)

    def _receive(self, deadline):
        if not select.select([self.sock], [], [], deadline)[0]:
            raise AssertionError(f"no frame within {deadline:.0f} s")
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, 1 << 17, 16)
        except ConnectionResetError:
            # The daemon closed without having read all of ours; its own words come after this error.
            data, fds, _, _ = socket.recv_fds(self.sock, 1 << 17, 16)
        if not data:
            raise Hangup("closed")
        header, message = wire.parse(data)
        assert header.fds == len(fds), (header, fds)
        return Frame(wire.pb.MessageType.Name(header.type), header.request, message, fds)

    def expect(self, kind, request=None, deadline=DEADLINE):
        """The next frame of this kind (and request); others must be notices, which are kept for later.
        REFUSED raises Refused."""
        for index, frame in enumerate(self.early):
            if frame.kind == kind and request in (None, frame.request):
                return self.early.pop(index).message
        end = time.monotonic() + deadline
        while True:
            frame = self._receive(max(end - time.monotonic(), 0))
            if frame.kind == kind and request in (None, frame.request):
                self.fds = frame.fds
                return frame.message
            if frame.kind == "REFUSED" and frame.request in (0, request):
                raise Refused(frame.message)
            assert frame.kind in NOTICES, f"{frame} instead of {kind}"
            self.early.append(frame)

    def ask(self, kind, reply, /, fds=(), **fields):
        return self.expect(reply, self.send(kind, fds=fds, **fields))

    def refusal(self, request=None):
        """The REFUSED that must come next (notices aside)."""
        try:
            frame = self.expect("REFUSED", request)
        except Refused as refused:
            return refused
        return Refused(frame)

    def hangup(self, deadline=DEADLINE):
        """The daemon must close this connection; returns the refusal that it gave as the reason, or None."""
        reason = None
        end = time.monotonic() + deadline
        while True:
            try:
                frame = self._receive(max(end - time.monotonic(), 0))
            except Hangup:
                return reason
            if frame.kind == "REFUSED":
                reason = Refused(frame.message)

    def drain(self):
        """Takes what has come, for later: a peer that sends much and never reads is not read from any
        more."""
        while select.select([self.sock], [], [], 0)[0]:
            self.early.append(self._receive(DEADLINE))

    def silent(self):
        """Nothing has been sent to this peer that was not taken: a status query answered first proves that
        there was time."""
        request = self.send("STATUS")
        extra = []
        while True:
            frame = self.receive()
            if frame.request != request:
                extra.append(frame)
            elif frame.kind == "STATUS_END":
                return extra

    def status(self):
        """{kind: [message]} of one snapshot, however many pieces it has."""
        found, place = {}, {}
        while place is not None:
            request = self.send("STATUS", **place)
            kind = None
            while kind != "STATUS_END":
                frame = self._receive(DEADLINE)
                if frame.request != request:
                    self.early.append(frame)
                    continue
                kind = frame.kind
                found.setdefault(kind, []).append(frame.message)
            place = {"from": frame.message.next} if frame.message.HasField("next") else None
        return found

    # -- a member's life

    def register(self, own, offset=0, size=None):
        """Registers an Own's memory; its handle is known then."""
        message = self.ask("REGISTER", "REGISTERED", fds=[own.fd], job=self.job, offset=offset,
                           bytes=own.size - offset if size is None else size)
        own.handle = message.memory
        return own

    def join_send(self, name, world, rank=None, incarnation=0, timeout_ms=0, **fields):
        if rank is not None:
            fields["rank"] = rank
        fields.setdefault("min_world", world)
        return self.send("JOIN", job=name, max_world=world, incarnation=incarnation, timeout_ms=timeout_ms,
                         **fields)

    def joined(self, request):
        message = self.expect("JOINED", request)
        self.job, self.generation = message.job, message.generation
        self.rank, self.world = message.rank, message.world
        self.secret = message.secret if message.HasField("secret") else None
        return message

    def plan_send(self, proposal, /, timeout_ms=0, commit=True, **changes):
        """All chunks of a plan; `changes` overrides fields of PLAN_BEGIN. Returns the request."""
        request = next(self.requests)
        begin = {"job": self.job, "generation": self.generation, "plan": proposal.ordinal,
                 "params": len(proposal.params),
                 "buckets": len(proposal.buckets), "arena_bytes": proposal.bytes,
                 "control_bytes": proposal.control,
                 "reduce": wire.pb.Reduce.Value(proposal.reduce), "timeout_ms": timeout_ms, **changes}
        self.send("PLAN_BEGIN", request, **begin)
        address = {"job": self.job, "plan": proposal.ordinal}
        dtype = wire.pb.Dtype.Value(proposal.dtype)
        for start in range(0, len(proposal.params), 128):
            chunk = [wire.pb.Param(name=name, dtype=dtype, shape=shape, bucket=bucket)
                     for name, shape, bucket in proposal.params[start:start + 128]]
            self.send("PLAN_PARAMS", request, param=chunk, **address)
        for start in range(0, len(proposal.buckets), 128):
            place = {"memory": proposal.memory.handle} if proposal.memory else {}
            chunk = [wire.pb.Bucket(dtype=dtype, offset=offset, bytes=size, payload=payload, **place)
                     for offset, size, payload in proposal.buckets[start:start + 128]]
            self.send("PLAN_BUCKETS", request, bucket=chunk, **address)
        if commit:
            self.send("PLAN_COMMIT", request, **address)
        return request

    def plan_arena(self, plan, request, populate=True):
        message = self.expect("PLAN_ARENA", request)
        self.keep(plan)
        sizes = [plan.bytes, plan.control] if plan.bytes else [plan.control]
        assert message.bytes == plan.bytes and len(self.fds) == len(sizes)
        maps = [Arena(fd, size, populate) for fd, size in zip(self.fds, sizes)]
        for fd in self.fds:
            os.close(fd)
        plan.arena = maps[0] if plan.bytes else None
        plan.page = maps[-1]
        self.plans[plan.ordinal] = plan
        return self.send("PLAN_MAPPED", job=self.job, plan=plan.ordinal)

    def keep(self, plan):
        """A subclass that needs the descriptors of a plan's memory copies them here."""

    def write(self, plan, param, values):
        at, size = plan.places[param]
        data = struct.pack(f"<{len(values)}f", *values)
        assert len(data) == size
        (plan.memory or plan.arena).map[at:at + size] = data

    def read(self, plan, param):
        at, size = plan.places[param]
        return struct.unpack(f"<{size // 4}f", (plan.memory or plan.arena).map[at:at + size])

    def ready(self, plan, bucket, **changes):
        fields = {"job": self.job, "generation": self.generation, "plan": plan.ordinal, "step": plan.step,
                  "bucket": bucket, **changes}
        self.send("READY", 0, **{key: value for key, value in fields.items() if value is not None})

    def outcome(self, plan, deadline=DEADLINE):
        """Waits for the end of the open step of a plan: ("COMMITTED" or "VOID", last message, {bucket:
        result})."""
        results = {}
        while True:
            message = self.expect("STEP", deadline=deadline)
            assert (message.plan, message.step) == (plan.ordinal, plan.step), message
            results.update((result.bucket, result) for result in message.result)
            if message.outcome != wire.pb.OPEN:
                plan.step += 1
                return wire.pb.Outcome.Name(message.outcome), message, results

    def leave(self):
        self.ask("LEAVE", "LEFT", job=self.job)

    def mark(self, plan, params):
        """Sets the bits of these parameters in the control memory, as the library does when they become
        ready."""
        plan.page.map[16:24] = struct.pack("<Q", plan.step)
        for param in params:
            plan.page.map[64 + param // 8] |= 1 << param % 8

    def staging_with_fd(self):
        """Maps the member's staging memory, and keeps its fd."""
        message = self.ask("STAGING", "STAGING_ARENA", job=self.job)
        fd = self.fds[0]
        memory = Arena(fd, message.bytes)
        self.ask("STAGING_MAPPED", "STAGING_READY", job=self.job)
        return memory, fd

    def staging(self):
        """Maps the member's staging memory."""
        memory, fd = self.staging_with_fd()
        os.close(fd)
        return memory

    def operation(self, kind, /, **fields):
        """Sends one operation; returns its request."""
        return self.send("OPERATION", job=self.job, generation=self.generation, sequence=next(self.sequence),
                         kind=wire.pb.OperationKind.Value(kind), **fields)


class Child:
    """A member in a process of its own, forked from the test: something that can be stopped and killed.

    `script(peer, turn)` runs in the child with a greeted Peer. It calls turn() to say that it has come so far
    and to wait until the test lets it go on; the test calls reached() and proceed(). When the script returns,
    the child waits to be killed.
    """

    def __init__(self, path, script, grandchildren=0, uid=None):
        to_child, self.go = os.pipe()
        self.came, from_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.go)
            os.close(self.came)
            self._run(path, script, to_child, from_child, grandchildren, uid)
        os.close(to_child)
        os.close(from_child)
        self.over = False

    @staticmethod
    def _run(path, script, to_child, from_child, grandchildren, uid):
        def turn():
            os.write(from_child, b".")
            if not os.read(to_child, 1):
                os._exit(3)

        try:
            peer = Peer(path, uid, program="child", pidfd=True)
            for _ in range(grandchildren):
                if os.fork() == 0:
                    # It holds the socket, does nothing, and ends when the test closes its end of the pipe.
                    os.close(from_child)
                    while os.read(to_child, 1):
                        pass
                    os._exit(0)
            script(peer, turn)
            turn()
        except BaseException as problem:
            os.write(2, f"child {os.getpid()}: {type(problem).__name__}: {problem}\n".encode())
            os.write(from_child, b"!")
        os._exit(2)

    def reached(self, deadline=DEADLINE):
        """Waits until the script has come to its next turn()."""
        if not select.select([self.came], [], [], deadline)[0]:
            raise AssertionError(f"the child did not come to its turn within {deadline:.0f} s")
        assert os.read(self.came, 1) == b".", "the child failed"

    def proceed(self):
        os.write(self.go, b".")

    def signal(self, number):
        os.kill(self.pid, number)

    def stop(self):
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def kill(self):
        self.signal(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.over = True

    def close(self):
        if not self.over:
            self.kill()
        for fd in (self.go, self.came):
            os.close(fd)
        self.go = self.came = -1
        self.close = lambda: None


def form(peers, name, **fields):
    """These are all members of a job, by rank."""
    requests = [peer.join_send(name, len(peers), rank, **fields) for rank, peer in enumerate(peers)]
    for peer, request in zip(peers, requests):
        peer.joined(request)
    return peers


def agree(peers, plans):
    """Members agree on a plan, of which each has its own."""
    requests = [peer.plan_send(plan) for peer, plan in zip(peers, plans)]
    mapped = [peer.plan_arena(plan, request) for peer, plan, request in zip(peers, plans, requests)]
    for peer, request in zip(peers, mapped):
        peer.expect("PLAN_AGREED", request)
    return plans


class Crew:
    """A whole job of Peers that go on in lockstep."""

    def __init__(self, path, name, world=2, plan=small_plan, uid=None, peer=Peer, **join):
        self.name = name
        self.peers = [peer(path, uid, program=name) for _ in range(world)]
        form(self.peers, name, **join)
        self.plans = []
        if plan:
            self.plan(plan)
        self.committed = 0

    def plan(self, make):
        """Agrees on a plan: `make(ordinal=n)` builds one for each member."""
        self.plans.append(agree(self.peers, [make(ordinal=len(self.plans)) for _ in self.peers]))
        return self.plans[-1]

    def go(self, steps=1, ordinal=0):
        """Whole steps of one plan, results checked: rank r gives r + 1 everywhere, so the average is
        known."""
        plans = self.plans[ordinal]
        world = len(self.peers)
        expected = (world + 1) / 2
        for _ in range(steps):
            for peer, plan in zip(self.peers, plans):
                for param, (_, shape, _) in enumerate(plan.params):
                    peer.write(plan, param, [peer.rank + 1.0] * (plan.size_of(shape) // 4))
            for bucket in range(len(plans[0].buckets)):
                for peer, plan in zip(self.peers, plans):
                    peer.ready(plan, bucket)
                    if bucket % 32 == 31:
                        peer.drain()
            for peer, plan in zip(self.peers, plans):
                outcome, message, results = peer.outcome(plan)
                assert outcome == "COMMITTED", message
                assert sorted(results) == list(range(len(plan.buckets)))
                for param in range(len(plan.params)):
                    values = peer.read(plan, param)
                    assert set(values) == {expected}, (peer.rank, param, set(values))
            self.committed += 1

    def open(self, rank=0, bucket=0, ordinal=0):
        """One member brings its part of a bucket, and the daemon has read that."""
        self.peers[rank].ready(self.plans[ordinal][rank], bucket)
        self.peers[rank].status()

    def call(self, kind, **fields):
        """All call an operation. Returns what answered() waits for."""
        return [(peer, peer.operation(kind, **fields)) for peer in self.peers]

    @staticmethod
    def answered(calls):
        """The operation ends well for all."""
        for peer, request in calls:
            peer.expect("OPERATION_DONE", request)

    def operate(self, kind, **fields):
        self.answered(self.call(kind, **fields))

    def silent(self):
        """None of them is told anything."""
        assert all(peer.silent() == [] for peer in self.peers)

    def commits(self, ordinal=0):
        """The open step of a plan ends well for all."""
        for peer, plan in zip(self.peers, self.plans[ordinal]):
            outcome, message, _ = peer.outcome(plan)
            assert outcome == "COMMITTED", message

    def leave(self):
        for peer in self.peers:
            peer.leave()

    def close(self):
        for peer in self.peers:
            peer.close()


def header(kind=1, fds=0, length=0, request=7, **wrong):
    return wire.header(kind, length, request, fds, **wrong)


def rejected(peer, *codes):
    """The daemon says one of `codes` and hangs up."""
    reason = peer.hangup()
    assert reason is not None, "closed without a reason"
    assert reason.code in (codes or ("PROTOCOL",)), reason
    assert reason.text
    return reason


def align(value, to=64):
    return (value + to - 1) // to * to
