# SPDX-License-Identifier: Apache-2.0
"""Attacks by members of jobs, within their own jobs, and on jobs of others that they try to take."""
import os
import time

import wire
from attack import SMALL, Attack
from floods import root_asks
from peer import small_plan
from rig import MIB, PROBE_UID

JOBS = 64                               # of a uid: the daemon's default
PLACES = 256                            # of a job on one daemon
GUESSES = 64                            # between two answers that are waited for
RESTART_S = 1
STUCK_S = 1                             # a step of a member that is not read from any more


class WrongReady(Attack, name="ready-wrong"):
    """Members mark buckets of another generation, and then one that their plan has not."""

    processes = 4
    proof = ("marks", "refused_INVALID")

    def round(self):
        peer = self.peer()
        peer.joined(peer.join_send(f"wrong{self.number}", 1))
        plan = small_plan(4)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
        for _ in range(200):
            peer.ready(plan, 1, generation=peer.generation - 1)
            self.counts["marks"] += 1
        peer.ready(plan, 4)
        raise peer.refusal()


class JoinBomb(Attack, name="joins-of-one-job"):
    """Eight processes of one uid join one job of 256, 30 times each, leave all at once, and come again."""

    processes = 8
    proof = ("joins",)

    def round(self):
        for _ in range(30):
            peer = self.peer()
            peer.join_send("bomb", PLACES)
            self.counts["joins"] += 1


class Deaf(Attack, name="members-do-not-read"):
    """A member takes part in steps of 64 buckets, and reads nothing of what the daemon says."""

    processes = 2
    proof = ("steps",)

    def round(self):
        pair = [self.peer() for _ in range(2)]
        requests = [peer.join_send(f"deaf{self.number}", 2, rank) for rank, peer in enumerate(pair)]
        for peer, request in zip(pair, requests):
            peer.joined(request)
        plans = [small_plan(64) for _ in pair]
        mapped = [peer.plan_arena(plan, peer.plan_send(plan)) for peer, plan in zip(pair, plans)]
        for peer, request in zip(pair, mapped):
            peer.expect("PLAN_AGREED", request)
        while not self.over():
            self.step(pair, plans)

    def step(self, pair, plans):
        for bucket in range(64):
            for peer, plan in zip(pair, plans):
                peer.ready(plan, bucket)
            if bucket % 8 == 7:
                pair[0].drain()
        outcome, _, _ = pair[0].outcome(plans[0], STUCK_S)
        if outcome != "COMMITTED":
            raise ConnectionResetError
        plans[1].step += 1
        self.counts["steps"] += 1


class ManyJobs(Attack, name="jobs-64-reduce"):
    """64 jobs of one uid reduce buckets of 8 MiB all the time, beside a probe with such buckets."""

    probe_bytes = bucket = 8 * MIB
    proof = ("steps",)

    def prepare(self):
        self.pair = [self.peer() for _ in range(2)]
        self.jobs = [self.form(f"reduces{number}") for number in range(JOBS)]
        self.number_of_step = 0

    def form(self, name):
        """[(job, generation)] of both members."""
        requests = [peer.join_send(name, 2, rank) for rank, peer in enumerate(self.pair)]
        for peer, request in zip(self.pair, requests):
            peer.joined(request)
        plans = [small_plan(1, self.bucket // 4) for _ in self.pair]
        requests = [peer.plan_send(plan) for peer, plan in zip(self.pair, plans)]
        mapped = [peer.plan_arena(plan, request) for peer, plan, request in zip(self.pair, plans, requests)]
        for peer, request in zip(self.pair, mapped):
            peer.expect("PLAN_AGREED", request)
        return [(peer.job, peer.generation) for peer in self.pair]

    def round(self):
        self.number_of_step += 1
        for job in self.jobs:
            for peer, (handle, generation) in zip(self.pair, job):
                peer.send("READY", 0, job=handle, generation=generation, plan=0, step=self.number_of_step,
                          bucket=0)
        for peer in self.pair:
            for _ in self.jobs:
                while peer.expect("STEP").outcome != wire.pb.COMMITTED:
                    pass
        self.counts["steps"] += len(self.jobs)


class ManySmallJobs(ManyJobs, name="jobs-64-small"):
    """64 jobs of one uid take steps of 4 KiB as fast as they go."""

    probe_bytes, bucket = SMALL, 4096


class ManyArenas(Attack, name="arenas-1000"):
    """A process with 960 arenas of 16 KiB dies."""

    proof = ("plans",)

    def round(self):
        peer = self.peer()
        for job in range(16):
            peer.joined(peer.join_send(f"arenas{self.number}.{job}", 1))
            for ordinal in range(60):
                plan = small_plan(4, ordinal=ordinal)
                peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
                self.counts["plans"] += 1


class ManyPlaces(Attack, name="places-3-uids"):
    """Three uids begin 64 jobs of 256 places each, and no other member comes; root asks for status and
    metrics."""

    users = 3
    proof = ("joined", "status_ok", "scrape_ok")
    beside = staticmethod(root_asks)

    def prepare(self):
        self.first = self.peer()

    def round(self):
        if self.counts["joined"] < JOBS:
            self.first.join_send(f"wide{self.counts['joined']}", PLACES)
            self.counts["joined"] += 1
        else:
            time.sleep(0.05)


class MorePlaces(ManyPlaces, name="places-9-uids"):
    """The same with nine uids."""

    users = 9


class Guesses(Attack, name="rejoins-guessed"):
    """Processes of the probe's uid come back to its job with guessed secrets, as fast as they can."""

    uid = PROBE_UID
    processes = 3
    proof = ("guesses",)
    needs_probe = True

    def prepare(self):
        self.guesser = self.latecomer()

    def round(self):
        requests = [claim(self.guesser) for _ in range(GUESSES)]
        for request in requests:
            assert self.guesser.refusal(request).code == "MEMBER_LOST"
        self.counts["guesses"] += len(requests)


class Thieves(Attack, name="rejoin-without-secret"):
    """The daemon is killed every second, and processes of the probe's uid, without its token and secrets,
    come before its members: two of them to its places, and one with a job of that name."""

    uid = PROBE_UID
    processes = 3
    token = "a secret of the probe's members"
    proof = ("claims", "restarts")
    needs_probe = True

    @staticmethod
    def beside(server, counts):
        if time.monotonic() - counts["restarted_at"] > RESTART_S:
            server.restart()
            counts["restarts"] += 1
            counts["restarted_at"] = time.monotonic()

    def over(self):
        """Goes on until it has claimed a place: all of its time may pass while the daemon is restarted."""
        return super().over() and self.counts["claims"] > 0

    def round(self):
        peer = self.latecomer()
        self.counts["claims"] += 1
        if self.number % self.processes == 0:
            peer.joined(peer.join_send("probe", 1))
            peer.expect("LOST", deadline=0.2)
        else:
            assert peer.refusal(claim(peer)).code == "MEMBER_LOST"


def claim(peer):
    """Asks for some place of the probe's; returns the request."""
    return peer.send("REJOIN", job="probe", secret=os.urandom(32), generation=1, wait_ms=60000)
