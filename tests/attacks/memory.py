# SPDX-License-Identifier: Apache-2.0
"""Attacks on the daemon's memory: pages that are not there when it reads them, and descriptions that it has
to keep."""
import contextlib
import ctypes
import fcntl
import itertools
import os
import struct
import threading
import time

import wire
from attack import Attack, Latecomer, libc, wait_for_memory
from hostile import PLAN_BEGIN, PLAN_BUCKETS, PLAN_COMMIT, PLAN_PARAMS, fields, frame, varint
from peer import PAGE, Crew, Own, punch, small_plan
from rig import GIB, MIB

KEEP_SIZE = 1
NAN, AVERAGE = struct.pack("<f", float("nan")), struct.pack("<f", 1.5)      # of ranks that bring 1 and 2
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
PARAMS, CHUNK = 65536, 128
PIECE = 4 * MIB                         # of a bucket that is punched
LATER_S = 0.001                         # one after the other it is right for any machine
OWN = 250                               # registered memories of a process, below what a uid may have


class NanHoles(Attack, name="holes-after-nan"):
    """Buckets of 64 MiB with a NaN at their end are punched between their reduction and the search for that
    NaN."""

    elements = 16 * MIB                 # f32
    proof = ("punched",)

    def prepare(self):
        self.crews = itertools.count()

    def round(self):
        wait_for_memory(GIB)
        crew = Crew(self.socket, f"holes{next(self.crews)}", plan=None, peer=Latecomer)
        self.adopt(crew)
        plans = crew.plan(lambda ordinal: small_plan(1, self.elements, ordinal))
        self.step(crew.peers, plans)        # the first one of a burst is searched for the value

    def step(self, peers, plans):
        for peer, plan in zip(peers, plans):
            plan.arena.populate(0, plan.bytes)
            plan.arena.map[plan.bytes - 4:plan.bytes] = NAN
            for at in self.marks(plan):
                plan.arena.map[at:at + 4] = struct.pack("<f", 1.0 + peer.rank)
        for peer, plan in zip(peers, plans):
            peer.ready(plan, 0)
        while not all(self.is_reduced(plan) for plan in plans):
            pass
        # When it is over, the reduction looks for holes itself.
        time.sleep(LATER_S * (self.counts["tries"] % 8))
        self.counts["tries"] += 1
        start, size, _ = plans[0].buckets[0]
        for at in range(start + size - PIECE, start, -PIECE):       # the search comes from the other end
            for peer in peers:
                punch(peer.memory[0], at, PIECE)
                self.counts["punched"] += 1
        for peer, plan in zip(peers, plans):
            peer.outcome(plan)
        self.counts["steps"] += 1

    @staticmethod
    def marks(plan):
        """The last values of each MiB before the NaN, which are averages when the reduction is over."""
        return range(plan.bytes - 64, plan.buckets[0][0], -MIB)

    def is_reduced(self, plan):
        return self.over() or all(plan.arena.map[at:at + 4] == AVERAGE for at in self.marks(plan))


class Holes(Attack, name="holes-all-the-time"):
    """Steps go on while a thread punches the arena of their member."""

    processes = 2
    elements = MIB
    proof = ("punched", "steps")

    def round(self):
        peer = self.latecomer()
        peer.joined(peer.join_send(f"holes{self.number}", 1))
        plan = small_plan(1, self.elements)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
        with self.punching(peer.memory[0], plan):
            while not self.over():
                plan.arena.populate(0, plan.bytes)
                peer.ready(plan, 0)
                peer.outcome(plan)
                self.counts["steps"] += 1

    @contextlib.contextmanager
    def punching(self, fd, plan):
        stop = threading.Event()
        thread = threading.Thread(target=self.punch_until, args=(fd, plan.buckets[0], stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def punch_until(self, fd, bucket, stop):
        while not stop.is_set():
            punch(fd, bucket[0], bucket[1])
            self.counts["punched"] += 1


class HiddenHoles(Attack, name="holes-hidden"):
    """
    Holes in 500 registered memories of 2 MiB, hidden by as many pages behind: the other half of each file is
    a hole at first, which pages behind its end stand for, and is filled before the registered half is
    punched.
    """

    processes = 2
    size = 2 * MIB
    proof = ("punched",)

    def memory(self):
        own = self.adopt(Own(2 * self.size, seals=0, populate=False))
        own.populate(0, self.size)
        if libc.fallocate(own.fd, KEEP_SIZE, ctypes.c_long(own.size), ctypes.c_long(self.size)) < 0:
            raise OSError(ctypes.get_errno(), "fallocate")
        fcntl.fcntl(own.fd, fcntl.F_ADD_SEALS, SEALS)
        return own

    def plan_in(self, peer, own, ordinal):
        plan = own.place(small_plan(1, self.size // 4, ordinal))
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
        return plan

    def round(self):
        for start in range(0, OWN, 50):         # a member may have 64 plans
            peer = self.peer()
            peer.joined(peer.join_send(f"hidden{self.number}.{start}", 1))
            for ordinal in range(50):
                own = peer.register(self.memory(), size=self.size)
                plan = self.plan_in(peer, own, ordinal)
                own.populate(self.size, own.size)
                own.punch(0, self.size)
                self.counts["punched"] += 1
                peer.ready(plan, 0)
                peer.outcome(plan)
                self.counts["steps"] += 1


class Descriptions(Attack):
    """Plans of 65,536 parameters."""

    prefix = "p"

    def prepare(self):
        self.chunks = self.parameters(PARAMS - 1, "last")

    def parameters(self, last, name):
        """The parameters as bytes; the one at `last` has that name."""
        chunks = []
        for start in range(0, PARAMS, CHUNK):
            names = [f"{self.prefix}{number}" if number != last else name
                     for number in range(start, start + CHUNK)]
            chunks.append(b"".join(fields(f3=fields(f1=each.encode(), f2=1, f3=varint(1), f4=0))
                                   for each in names))
        return chunks

    def describe(self, peer, ordinal, chunks, commit=True):
        """Returns the request; the arena has 64 bytes for each parameter, the control memory their bits."""
        request = next(peer.requests)
        bits = (64 + PARAMS // 8 + PAGE - 1) // PAGE * PAGE
        address = fields(f1=peer.job, f2=ordinal)
        begin = fields(f1=peer.job, f2=peer.generation, f3=ordinal, f4=PARAMS, f5=1, f6=64 * PARAMS,
                       f7=bits, f8=1)
        place = fields(f1=1, f2=0, f3=64 * (PARAMS - 1) + 4, f4=4 * PARAMS)
        self.send(peer, frame(PLAN_BEGIN, begin, request))
        for chunk in chunks if commit else chunks[:-1]:
            self.send(peer, frame(PLAN_PARAMS, address + chunk, request))
        if commit:
            self.send(peer, frame(PLAN_BUCKETS, address + fields(f3=place), request))
            self.send(peer, frame(PLAN_COMMIT, address, request))
        return request

    def send(self, peer, packet):
        peer.send_raw(packet)
        self.counts["frames"] += 1

    def arena(self, peer, request):
        """Its memory is of no interest."""
        peer.expect("PLAN_ARENA", request)
        for fd in peer.fds:
            os.close(fd)


class HundredPlans(Descriptions, name="plans-65536"):
    """100 plans of 65,536 parameters, then the death of their process."""

    proof = ("plans",)

    def round(self):
        for job in range(2):
            peer = self.peer()
            peer.joined(peer.join_send(f"plans{self.number}.{job}", 1))
            for ordinal in range(50):
                self.arena(peer, self.describe(peer, ordinal, self.chunks))
                self.counts["plans"] += 1


class CommonPrefix(HundredPlans, name="names-long-prefix"):
    """The same with names that differ in their last characters only, after 240 that are the same."""

    prefix = "x" * 240


class LastDiffers(Descriptions, name="plans-differ-last"):
    """Two members whose plans of 65,536 parameters differ in the last one."""

    prefix = "x" * 200
    proof = ("refused_PLAN_MISMATCH",)

    def prepare(self):
        super().prepare()
        self.others = self.parameters(PARAMS - 1, "another")

    def round(self):
        members = [self.peer() for _ in range(2)]
        requests = [peer.join_send(f"differ{self.number}", 2, rank) for rank, peer in enumerate(members)]
        for peer, request in zip(members, requests):
            peer.joined(request)
        for peer, chunks in zip(members, (self.chunks, self.others)):
            self.mapped(peer, self.describe(peer, 0, chunks))
        for peer in members:
            raise peer.refusal()

    def mapped(self, peer, request):
        peer.expect("PLAN_ARENA", request)
        for fd in peer.fds:
            os.posix_fallocate(fd, 0, os.fstat(fd).st_size)
            os.close(fd)
        peer.send("PLAN_MAPPED", job=peer.job, plan=0)


class NeverComplete(Descriptions, name="plans-never-complete"):
    """60 members each send all of a plan of 65,536 parameters but its last chunk, and wait."""

    proof = ("frames",)

    def round(self):
        for number in range(60):
            peer = self.peer()
            peer.joined(peer.join_send(f"never{self.number}.{number}", 1))
            self.describe(peer, 0, self.chunks, commit=False)
            peer.drain()


class LastClose(Attack, name="arena-last-close"):
    """An arena of 1 GiB whose last descriptor, and last mapping, are the daemon's, is dropped."""

    proof = ("dropped",)

    def round(self):
        wait_for_memory(2 * GIB)
        peer = self.peer()
        peer.joined(peer.join_send(f"large{self.number}", 1))
        plan = small_plan(1, GIB // 4)
        request = peer.plan_send(plan)
        peer.expect("PLAN_ARENA", request)
        os.posix_fallocate(peer.fds[0], 0, plan.bytes)
        for fd in peer.fds:
            os.close(fd)
        peer.ask("PLAN_MAPPED", "PLAN_AGREED", job=peer.job, plan=0)
        peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=0)
        self.counts["dropped"] += 1


class Registers(Attack, name="register-flood"):
    """Memories of 64 MiB are registered and given up again, as fast as it goes."""

    proof = ("registered",)

    def round(self):
        peer = self.peer()
        peer.joined(peer.join_send(f"registers{self.number}", 1))
        own = self.adopt(Own(64 * MIB))
        while not self.over():
            peer.register(own)
            self.counts["registered"] += 1
            peer.ask("UNREGISTER", "UNREGISTERED", job=peer.job, memory=own.handle)


class Hog(Attack, name="staging-hog"):
    """64 jobs of one uid with staging memory, of which half is written, and collectives over all of it."""

    proof = ("collectives",)

    def round(self):
        peer = self.peer()
        for number in range(60):
            peer.joined(peer.join_send(f"hog{self.number}.{number}", 1))
            memory = peer.staging()
            self.stack.callback(memory.close)
            peer.sequence = iter(range(1 << 30))
            half = memory.size // 2
            request = peer.operation("ALLREDUCE", dtype=wire.pb.F32, reduce=wire.pb.SUM, bytes=half, input=0,
                                     output=half)
            peer.expect("OPERATION_DONE", request)
            self.counts["collectives"] += 1
            memory.map.madvise(9)       # MADV_REMOVE: its pages go back to the kernel
