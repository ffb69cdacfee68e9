# SPDX-License-Identifier: Apache-2.0
"""Many clients that say right and wrong things in no order, from a fixed seed: whatever happens to them, a
healthy job goes on, and when they are gone nothing of them is left.

GRADSYNC_TEST_SEEDS sets how many seeds are tried (tests/soak.sh tries more).
"""
import os
import random
import select

import pytest

import wire
from harness import sanitized, wait_until
from peer import PAGE, Arena, Hangup, Own, Peer, Refused, small_plan

SEEDS = int(os.environ.get("GRADSYNC_TEST_SEEDS", "6"))
NAMES = ["red", "green", "blue"]
NUMBERS = [0, 1, 2, 3, 255, 4096, 65535, (1 << 31) - 1, (1 << 32) - 2]
LONG = [*NUMBERS, 1 << 40, (1 << 63) - 1, (1 << 64) - 1, (1 << 64) - PAGE]


class Wild:
    """One client without manners."""

    def __init__(self, path, chance, own):
        self.chance, self.own = chance, own
        self.memories = {}              # by job: handles
        self.peer = Peer(path, hello=chance.random() < 0.95)
        self.jobs, self.plans, self.began, self.calls, self.fds = [], {}, {}, {}, []
        self.open = True

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        self.peer.close()
        self.open = False

    def take(self):
        """Takes what the daemon says, most of the time."""
        if self.chance.random() < 0.1:
            return
        while self.open and select.select([self.peer.sock], [], [], 0)[0]:
            try:
                frame = self.peer.receive()
            except Hangup:
                self.close()
                return
            self.fds += frame.fds
            if frame.kind == "JOINED":
                self.jobs.append((frame.message.job, frame.message.generation))
            elif frame.kind == "LOST" and self.chance.random() < 0.8:
                self.peer.send("LEAVE", job=frame.message.job)
            elif frame.kind == "LEFT":
                self.jobs = [each for each in self.jobs if each[0] != frame.message.job]
                self.plans = {key: plan for key, plan in self.plans.items() if key[0] != frame.message.job}
            elif frame.kind == "PLAN_ARENA" and self.chance.random() < 0.9:
                self.map(frame)
            elif frame.kind == "REGISTERED":
                self.memories.setdefault(frame.message.job, []).append(frame.message.memory)
            elif frame.kind == "PLAN_AGREED":
                self.plans[frame.message.job, frame.message.plan] = 1
            elif frame.kind == "STEP" and frame.message.outcome == wire.pb.COMMITTED:
                self.plans[frame.message.job, frame.message.plan] = frame.message.step + 1

    def map(self, frame):
        message = frame.message
        memory = Arena(frame.fds[0], message.bytes, populate=self.chance.random() < 0.95)
        memory.close()
        self.peer.send("PLAN_MAPPED", job=message.job, plan=message.plan)

    def job(self):
        """(job, generation), most of the time one of its own."""
        if self.jobs and self.chance.random() < 0.9:
            return self.chance.choice(self.jobs)
        return self.chance.choice(NUMBERS), self.chance.choice(NUMBERS)

    def join(self):
        world = self.chance.choice([1, 2, 2, 2])
        rank = self.chance.choice([None] * 8 + [0, 1, 5])
        self.peer.join_send(self.chance.choice(NAMES), world, rank,
                            incarnation=self.chance.choice([0] * 20 + [1]),
                            timeout_ms=self.chance.choice([0, 20, 1000]))

    def plan(self):
        self.peer.job, self.peer.generation = self.job()
        ordinal = self.began.get(self.peer.job, 0)
        if self.chance.random() < 0.05:
            ordinal = self.chance.choice(NUMBERS)
        self.began[self.peer.job] = (ordinal + 1) % (1 << 32)
        plan = small_plan(2 if self.chance.random() < 0.95 else 1,
                          64 if self.chance.random() < 0.95 else 5000, ordinal)
        if self.memories.get(self.peer.job) and self.chance.random() < 0.5:
            self.own.handle = self.chance.choice([*self.memories[self.peer.job], 1, 2])
            self.own.place(plan, self.chance.randrange(8) * 128 + self.chance.choice([0] * 20 + [32]))
        if self.chance.random() < 0.05:
            plan.buckets[0][self.chance.randrange(3)] = self.chance.choice(LONG)
        changes = {}
        if self.chance.random() < 0.03:
            changes[self.chance.choice(["arena_bytes", "diagnosis_bytes"])] = self.chance.choice(LONG)
        self.peer.plan_send(plan, timeout_ms=self.chance.choice([0, 30]), **changes)

    def ready(self):
        """READY of what comes next, most of the time."""
        if not self.plans or self.chance.random() < 0.02:
            job, generation = self.job()
            self.peer.send("READY", 0, job=job, generation=generation, plan=self.chance.choice(NUMBERS),
                           step=self.chance.choice(LONG),
                           bucket=self.chance.choice(NUMBERS))
            return
        (job, plan), step = self.chance.choice(list(self.plans.items()))
        generation = dict(self.jobs).get(job, 1)
        for bucket in range(2) if self.chance.random() < 0.9 else [self.chance.choice(NUMBERS)]:
            self.peer.send("READY", 0, job=job, generation=generation, plan=plan, step=step, bucket=bucket)
        self.plans[job, plan] = step + 1

    def operation(self):
        job, generation = self.job()
        if self.chance.random() < 0.3:
            self.peer.send(self.chance.choice(["STAGING", "STAGING_MAPPED"]), job=job)
        if self.chance.random() < 0.6:
            self.peer.send("OPERATION", job=job, generation=generation, sequence=self.calls.get(job, 0),
                           kind=1)
            self.calls[job] = self.calls.get(job, 0) + 1
            return
        self.peer.send("OPERATION", job=job, generation=generation, sequence=self.chance.choice([0, 0, 1, 2]),
                       kind=self.chance.randrange(6),
                       dtype=self.chance.randrange(8), reduce=self.chance.randrange(6),
                       root=self.chance.choice([0, 1, 9]),
                       bytes=self.chance.choice([0, 64, 4096, *LONG]),
                       input=self.chance.choice([0, 64, *LONG]),
                       output=self.chance.choice([0, 64, *LONG]))

    def memory(self):
        """All of them bring the same file."""
        job, _ = self.job()
        if self.chance.random() < 0.7:
            offset = self.chance.choice([0] * 90 + [PAGE, 64, *LONG])
            self.peer.send("REGISTER", fds=[self.own.fd] * self.chance.choice([1] * 20 + [0]), job=job, offset=offset,
                           bytes=self.chance.choice([4 * PAGE] * 90 + [PAGE, *LONG]))
        else:
            handles = self.memories.get(job, [])
            self.peer.send("UNREGISTER", job=job, memory=self.chance.choice([*handles, *handles, 1, *NUMBERS]))
        if self.chance.random() < 0.03:
            self.own.punch(0, PAGE)
            self.own.populate(0, self.own.size)

    def end(self):
        job, _ = self.job()
        kind = self.chance.choice(["LEAVE", "PLAN_DROP", "PLAN_DROP", "PLAN_MAPPED"])
        fields = {} if kind == "LEAVE" else {"plan": self.chance.choice([0, 0, 1, 2, *NUMBERS])}
        self.peer.send(kind, job=job, **fields)

    def look(self):
        if self.chance.random() < 0.5:
            self.peer.send("STATUS")
            return
        fields = {"record": self.chance.choice([0, 1, 2, *NUMBERS]), "after": self.chance.choice([0, 1, 5, *LONG]),
                  "until_us": self.chance.choice([0, *LONG]), "nodes": True,
                  "node": self.chance.choice([0, 1, *NUMBERS])}
        chosen = self.chance.sample(sorted(fields), self.chance.randrange(4))
        self.peer.send("TRACE", job=self.chance.choice([*NAMES, "healthy", "", "0/healthy"]),
                       **{key: fields[key] for key in chosen})

    def noise(self):
        data = bytearray(wire.frame("STATUS", b"", 5))
        data[self.chance.randrange(len(data))] = self.chance.randrange(256)
        self.peer.send_raw(bytes(data) + self.chance.randbytes(self.chance.choice([0, 0, 1, 100])))

    def act(self):
        weights = [90, 1, 1, 1, 1, 5, 0.3, 2, 1]
        if self.jobs:
            weights = [10, 20, 60 if self.plans else 1, 15, 6, 6, 0.3, 2, 12]
        what = self.chance.choices([self.join, self.plan, self.ready, self.operation, self.end, self.look,
                                    self.noise, self.close, self.memory], weights)[0]
        try:
            what()
            self.take()
        except (BrokenPipeError, ConnectionResetError, Hangup, Refused):
            self.close()
        except BlockingIOError:         # the daemon does not read from it: it does not read either
            pass


@pytest.mark.parametrize("seed", range(SEEDS))
def test_clients_without_manners(serve, build, seed):
    settings = {"stall_notice": "20ms", "jobs_per_uid": 6, "arenas_per_uid": 24, "clients_per_uid": 16}
    served = serve(settings=settings)
    chance = random.Random(seed)
    own = served.adopt(Own(8 * PAGE))
    wild = []
    for turn in range(1500):
        wild = [each for each in wild if each.open]
        if len(wild) < 8 and chance.random() < 0.3:
            try:
                wild.append(served.adopt(Wild(served.path, chance, own)))
                wild[-1].peer.sock.setblocking(False)
            except (Refused, Hangup, BrokenPipeError, ConnectionResetError):    # too many of them at once
                pass
        if wild:
            chance.choice(wild).act()
        if turn % 50 == 0:
            served.go(1)
    # No step of the healthy job is open now: the deadline strikes the others, wherever they are.
    served.daemon.change(step_deadline="10ms", **settings)
    wait_until(lambda: "step" not in [wait.what for wait in served.healthy.peers[0].status().get("STATUS_WAIT", [])],
               "an end of all open steps")
    served.daemon.change(**settings)
    served.go()
    if not sanitized(build):
        assert served.daemon.anonymous() < 20 << 20
    for each in wild:
        each.close()
    served.settled()
