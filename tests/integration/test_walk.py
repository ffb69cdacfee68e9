# SPDX-License-Identifier: Apache-2.0
"""Clients of two jobs that go on as members do, and between that say whatever a client can say, in an order
from a fixed seed: each request has one answer, a client that has to go is told why, and when all are gone
nothing of them is left. The daemon is killed now and then, and those that were members come back, with more or
less of what they had.

GRADSYNC_TEST_SEEDS sets how many seeds are tried (tests/leaks.sh tries more).
"""
import os
import random

import pytest

import wire
from harness import sanitized, wait_until
from peer import PAGE, Arena, Own, small_plan
from states import ANSWERS, LONGEST, MOST, PLAN, WAITS, Actor, Scene, ask, forget, requests

SEEDS = int(os.environ.get("GRADSYNC_TEST_SEEDS", "8"))
# The worlds of the jobs, from and to: one that has all its members or none, and one that grows and closes ranks.
JOBS = {"red": (2, 2), "blue": (1, 3)}
TURNS, RESTART = 1000, 150
ODD = [0, 1, 64, PAGE, MOST, 1 << 40, 1 << 63, LONGEST - PAGE + 1, LONGEST]
# They may hold much, or so little that they are often refused it.
QUOTAS = [{"jobs_per_uid": 256, "arenas_per_uid": 256}, {"jobs_per_uid": 6, "arenas_per_uid": 24}]


class Walker(Actor):
    """A client that knows what it could sensibly do next."""

    def __init__(self, scene, chance):
        super().__init__(scene.served.path, returns=chance.random() < 0.3)
        self.chance, self.returned, self.past = chance, False, {}
        self.generation, self.rank, self.kept, self.secret = 1, 0, [], bytes(32)
        self.forget_job()
        scene.actor, scene.request = self, None
        self.scene = scene

    def close(self):
        for memory in self.kept:
            memory.close()
        self.kept = []
        super().close()
        self.gone = True

    # -- what it hears

    def note(self, frame):
        message = frame.message
        if frame.kind in ("PLAN_ARENA", "STAGING_ARENA") and self.chance.random() < 0.95:
            self.kept.append(Arena(frame.fds[0], message.bytes))
        super().note(frame)
        if frame.kind in ("JOINED", "NEWGEN", "RESUMED"):
            self.enter(frame.kind, message)
        elif frame.kind == "REJOINED":
            self.job, self.returned = message.job, True
            self.next_plan, self.steps = 0, {}
        elif frame.kind == "LEFT" and message.job == self.job:
            self.forget_job()
        elif frame.kind == "LOST" and message.job == self.job:
            self.forget_job()
            self.say("LEAVE", job=message.job)
        elif frame.kind == "PLAN_ARENA":
            self.say("PLAN_MAPPED", job=message.job, plan=message.plan)
        elif frame.kind == "PLAN_AGREED":
            self.steps[message.plan] = [message.step + 1, 0]
        elif frame.kind == "PLAN_DROPPED":
            self.steps.pop(message.plan, None)
        elif frame.kind == "STEP" and message.outcome != wire.pb.OPEN and message.plan in self.steps:
            self.steps[message.plan] = [message.step + (message.outcome == wire.pb.COMMITTED), 0]
        elif frame.kind == "STAGING_ARENA":
            self.say("STAGING_MAPPED", job=message.job)
        elif frame.kind == "STAGING_READY":
            self.staged = True
        elif frame.kind == "OPERATION_DONE":
            self.called = message.sequence + 1
        elif frame.kind == "REGISTERED":
            self.memory = message.memory

    def enter(self, kind, message):
        self.generation = message.generation
        self.returned = False
        if kind == "JOINED":
            self.forget_job()
            self.job, self.next_plan, self.secret = message.job, message.first_plan, message.secret
        if kind != "RESUMED":
            self.rank = message.rank
        self.called = 0

    def forget_job(self):
        self.job, self.returned = 0, False
        self.next_plan, self.describing, self.steps, self.called, self.staged = 0, [], {}, 0, False
        self.memory = None

    # -- what it says

    def join(self):
        least, most = JOBS[self.scene.name]
        fields = {"job": self.scene.name, "min_world": least, "max_world": most}
        fields.update(self.chance.choice([{}, {}, {}, {"spare": True}, {"rank": self.chance.randrange(most)},
                                          {"rank": self.chance.randrange(most), "instance": self.chance.randrange(4)}]))
        if self.chance.random() < 0.15:
            self.rejoin(self.chance.choice([self.secret, self.chance.randbytes(32)]), self.chance.choice([0, 1, 2, MOST]))
            return
        self.say("JOIN", **fields, timeout_ms=self.chance.choice([0, 0, 0, 5]),
                 rejoin_grace_ms=self.chance.choice([0, 5, 60000, 60000]))

    def rejoin(self, secret, generation):
        self.say("REJOIN", job=self.scene.name, secret=secret, generation=generation,
                 wait_ms=self.chance.choice([0, 10, 60000, 60000]))

    def come_back(self, old):
        """It was that one, at the daemon before."""
        self.secret, self.generation, self.past = old.secret, old.generation, dict(old.steps)
        self.rejoin(old.secret, max(old.generation - (self.chance.random() < 0.1), 0))

    def describe(self):
        """The frames of a plan: they are said one by one, with other things between them."""
        plan = small_plan(2, 256 if self.chance.random() < 0.95 else 512, self.next_plan)
        self.next_plan = (self.next_plan + 1) % (MOST + 1)
        request, address = next(self.requests), {"job": self.job, "plan": plan.ordinal}
        place = {}
        if self.memory and self.chance.random() < 0.5:
            self.scene.own.place(plan)
            place = {"memory": self.memory}
        odd = {}
        if self.chance.random() < 0.05:
            plan.buckets[0][self.chance.randrange(3)] = self.chance.choice(ODD)
        elif self.chance.random() < 0.05:
            odd[self.chance.choice(["arena_bytes", "control_bytes"])] = self.chance.choice(ODD)
        self.asked[request] = PLAN
        self.describing = [
            (request, "PLAN_BEGIN", {**address, "generation": self.generation, "params": 2, "buckets": 2, "reduce": 1,
                                     "arena_bytes": plan.bytes, "control_bytes": plan.control,
                                     "timeout_ms": self.chance.choice([0, 0, 10]), **odd}),
            (request, "PLAN_PARAMS", {**address, "param": [wire.pb.Param(name=name, dtype=1, shape=shape, bucket=bucket)
                                                           for name, shape, bucket in plan.params]}),
            (request, "PLAN_BUCKETS", {**address, "bucket": [
                wire.pb.Bucket(dtype=1, offset=offset, bytes=size, payload=payload, **place)
                for offset, size, payload in plan.buckets]}),
            (request, "REJOIN_PLAN" if self.returned else "PLAN_COMMIT", address)]

    def describe_on(self):
        for _ in range(self.chance.choice([1, 2, 4, 4, 4])):
            if not self.describing:
                return
            request, kind, fields = self.describing.pop(0)
            fds = []
            if kind == "REJOIN_PLAN":
                plan = small_plan(2)
                self.kept += [Own(plan.bytes), Own(plan.control)]
                fds = [memory.fd for memory in self.kept[-2:]]
                heard = self.past.get(fields["plan"], [1])[0] - 1
                fields = {**fields, "step": max(heard + self.chance.choice([0, 0, 0, -1, 1]), 0)}
            payload = wire.message(kind, **fields).SerializeToString()
            self.send_raw(wire.frame(kind, payload, request, len(fds)), fds)
            if request in self.asked and not self.describing:
                self.asked[request] = kind

    def bring(self):
        plan = self.chance.choice(sorted(self.steps))
        step, bucket = self.steps[plan]
        if bucket < 2:
            self.steps[plan][1] += 1
            self.say("READY", 0, job=self.job, generation=self.generation, plan=plan, step=step, bucket=bucket)

    def operate(self):
        if "OPERATION" in self.asked.values():
            return
        if not self.staged and self.chance.random() < 0.3:
            self.say("STAGING", job=self.job)
            return
        self.say("OPERATION", job=self.job, generation=self.generation, sequence=self.called, dtype=1, reduce=1, bytes=64,
                 input=0, output=0, kind=self.chance.choice([1, 5]) if self.staged else 1)

    def punch(self):
        """Gives a page of its memory back, and has another one there before it is missed, or not."""
        self.scene.memfd()
        self.scene.own.punch(0, PAGE)
        self.scene.own.populate(0, PAGE)

    def noise(self):
        """Bytes that are hardly a frame; then it is gone."""
        data = bytearray(wire.frame("STATUS", b"", 5))
        data[self.chance.randrange(len(data))] = self.chance.randrange(256)
        self.send_raw(bytes(data) + self.chance.randbytes(self.chance.choice([0, 0, 1, 100])))
        self.close()
        self.reason = "noise"

    def go_on(self):
        """Does as a member does."""
        what = self.chance.random()
        if self.job == 0:
            if "JOIN" not in self.asked.values():
                self.join()
        elif self.describing:
            self.describe_on()
        elif self.returned and what < 0.5:
            self.say("REJOIN_END", job=self.job, next_plan=self.chance.choice([0, 1, max(self.past, default=0) + 1]))
        elif not self.steps and what < 0.7 or what < 0.04:
            self.describe()
        elif self.steps and what < 0.75:
            self.bring()
        elif what < 0.9:
            self.operate()
        elif what < 0.95:
            self.say("REGISTER", fds=[self.scene.memfd()], job=self.job, offset=0, bytes=2 * PAGE)
        else:
            kind, fields = self.chance.choice([("LEAVE", {}), ("PLAN_DROP", {"plan": 0}), ("UNREGISTER", {"memory": 1})])
            self.say(kind, job=self.job, **fields)

    def act(self):
        try:
            what = self.chance.random()
            if what < 0.002:
                self.noise()
                return
            if what < 0.005:
                self.punch()
            if self.chance.random() < 0.8:
                self.go_on()
            else:
                self.scene.job, self.scene.generation = self.job, self.generation
                kind, fields = self.chance.choice(requests(self.scene))
                # A connection describes one plan at a time.
                if not self.describing or not kind.startswith(("PLAN_", "REJOIN_PLAN")):
                    ask(self.scene, kind, fields)
            if self.chance.random() < 0.7:
                self.check()
        except (BrokenPipeError, ConnectionResetError):
            self.listen()

    def check(self):
        """All that has been said is dealt with: only what waits for others may be open."""
        said = list(self.asked.items())
        self.sync()
        if self.gone:
            assert self.reason is not None, "closed without a reason"
            return
        for request, kind in said:
            if request not in self.asked:
                continue
            if kind == "REJOIN_PLAN" or (kind != PLAN and ANSWERS[kind] is None):
                del self.asked[request]
            else:
                assert kind == PLAN or kind in WAITS, f"{kind} has no answer"


def walker(served, chance):
    scene = Scene(served)
    scene.name = chance.choice(sorted(JOBS))
    return served.adopt(Walker(scene, chance))


def leave(walkers, one):
    walkers.remove(one)
    one.scene.close()
    one.close()


def restart(served, walkers, chance):
    """Another daemon, to which most of the members come back."""
    members = [each for each in walkers if each.job and chance.random() < 0.9]
    for each in list(walkers):
        leave(walkers, each)
    served.restart()
    back = []
    for old in members:
        back.append(walker(served, chance))
        back[-1].scene.name = old.scene.name
        back[-1].come_back(old)
    return back


@pytest.mark.parametrize("seed", range(SEEDS))
def test_members_that_say_anything(serve, build, seed):
    settings = {"stall_notice": "20ms", **QUOTAS[seed % 2]}
    served = serve(settings=settings)
    chance = random.Random(seed)
    walkers = []
    for turn in range(TURNS):
        if turn % RESTART == RESTART - 1:
            walkers = restart(served, walkers, chance)
        for one in [each for each in walkers if each.gone or chance.random() < 0.002]:
            leave(walkers, one)
        if len(walkers) < 6:
            walkers.append(walker(served, chance))
        chance.choice(walkers).act()
        if turn % 100 == 0:
            served.go(1)
    # No step of the healthy job is open now: the deadline strikes the others, wherever they are.
    served.daemon.change(**settings, step_deadline="10ms")
    witness = served.healthy.peers[0]
    wait_until(lambda: "step" not in [wait.what for wait in witness.status().get("STATUS_WAIT", [])],
               "an end of all open steps")
    served.daemon.change(**settings)
    for each in walkers:
        each.check()
    if not sanitized(build):
        assert served.daemon.anonymous() < 20 << 20
    for each in list(walkers):
        leave(walkers, each)
    forget(served)
