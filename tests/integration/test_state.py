# SPDX-License-Identifier: Apache-2.0
"""What a daemon leaves to the next one by way of the service manager: a crash between the end of a step and the news of it costs
nothing. The manager is the test; members are made of single frames, and say what a crash at that moment would have them say."""
import contextlib
import os
import select
import socket

import pytest

import harness
import wire
from peer import Peer
from returning import back, enter, go

NAME = "state"


class Kept(harness.Daemon):
    """A daemon whose listening socket, and what it stores, outlive it."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, prefix=("bash", "-c", 'LISTEN_PID=$$ exec "$@"', "sh"), **options)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.socket)
        self.listener.listen(16)
        self.stored = []                # one fd, if it is as it should be

    def spawn(self):
        passed = [self.listener.fileno(), *self.stored]
        high = [os.dup2(fd, 100 + index) for index, fd in enumerate(passed)]
        self.env.update(LISTEN_FDS=len(passed), LISTEN_FDNAMES=":".join(["socket", *[NAME] * len(self.stored)]))
        self.prefix = ("bash", "-c", " ".join(f"exec {3 + index}<&{fd};" for index, fd in enumerate(high)) + 'LISTEN_PID=$$ exec "$@"', "sh")
        with passing(high):
            super().spawn()
        for fd in high:
            os.close(fd)

    def start(self):
        self.spawn()
        while True:
            assert select.select([self._notify], [], [], harness.DEADLINE)[0], self.log
            data, fds, _, _ = socket.recv_fds(self._notify, 65536, 8)
            lines = data.decode().split("\n")
            if "FDSTOREREMOVE=1" in lines:
                assert f"FDNAME={NAME}" in lines
                self.drop()
            if "FDSTORE=1" in lines:
                assert f"FDNAME={NAME}" in lines and len(fds) == 1
                self.stored += fds
            if "READY=1" in lines:
                assert len(self.stored) == 1
                return self

    def drop(self):
        for fd in self.stored:
            os.close(fd)
        self.stored = []

    def finish(self, deadline=harness.DEADLINE):
        os.unlink(self.socket)
        super().finish(deadline)

    def destroy(self):
        super().destroy()
        self.drop()
        self.listener.close()


@contextlib.contextmanager
def passing(fds):
    """Children inherit these."""
    popen = harness.subprocess.Popen
    harness.subprocess.Popen = lambda *arguments, **options: popen(*arguments, pass_fds=fds, **options)
    try:
        yield
    finally:
        harness.subprocess.Popen = popen


@pytest.fixture
def kept(build, scratch):
    made = Kept(build, scratch / "kept", "--allow-nobody", "yes")
    made.start()
    yield made
    try:
        made.finish()
    finally:
        made.destroy()


def settled(peer):
    """All that the daemon had to say to this peer has come."""
    peer.early += peer.silent()


def reduce_all(served, made):
    """A whole step whose news the test has heard; the members, as they say, have not."""
    for each in made:
        plan = each.plans[0]
        for bucket in range(len(plan.buckets)):
            each.write(plan, bucket, [each.rank + 1.0] * 256)
            each.ready(plan, bucket)
    return [each.outcome(each.plans[0]) for each in made]


@pytest.mark.parametrize("said", [(0, 0), (0, 1), (1, 0)])
def test_all_was_done(kept, pair, peers, said):
    """The step is committed, whoever has heard of it, and those who have not get the same results."""
    old = pair(kept)
    told = reduce_all(kept, old)[0][2]
    harness.restart(kept)
    new = [back(peers, kept, each, said[each.rank], 0 if said[each.rank] else 2) for each in old]
    for each in new:
        results = {}
        each.expect("RESUMED")
        if not said[each.rank]:
            each.plans[0].step, each.generation = 1, 1
            outcome, message, results = each.outcome(each.plans[0])
            assert (outcome, message.generation) == ("COMMITTED", 1)
            for bucket, result in results.items():
                assert result.sum_squares == told[bucket].sum_squares
                assert list(result.rank_sum_squares) == list(told[bucket].rank_sum_squares)
            assert set(results) == set(told)
        else:
            assert not [frame for frame in each.early if frame.kind == "STEP"]
        assert set(each.read(each.plans[0], 0)) == {1.5}
        each.generation = 2
    go(new, 2)
    assert kept.job("pair")["void_steps"] == 0


def test_some_was_done(kept, pair, peers):
    old = pair(kept)
    for each in old:
        each.ready(each.plans[0], 0)
    old[0].ready(old[0].plans[0], 1)
    for each in old:
        each.expect("STEP")
    harness.restart(kept)
    new = [back(peers, kept, each, 0, 2) for each in old]       # rank 1's second READY had not been read
    for each in new:
        assert each.expect("NEWGEN").cause == wire.pb.RESTARTED
        each.generation = 2
    go(new, 1)


def test_nothing_was_begun(kept, pair, peers):
    """An operator had paused the job: all was brought, and nothing of it reduced."""
    old = pair(kept)
    kept.ctl("pause", "pair")
    for each in old:
        each.ready(each.plans[0], 0)
        settled(each)
    harness.restart(kept)
    new = [back(peers, kept, each, 0, 1) for each in old]
    enter(new)
    go(new, 1)


@pytest.mark.parametrize("damage", [(0, b"\0" * 8), (8, b"\xff"), (12, b"\1"), (24, b"\xff" * 8), (16, b"\xff" * 8), None])
def test_a_state_that_cannot_be_read(kept, pair, peers, damage):
    """The members' word is enough, then."""
    old = pair(kept)
    reduce_all(kept, old)
    if damage:
        os.pwrite(kept.stored[0], damage[1], damage[0])
    else:
        os.ftruncate(kept.stored[0], 10)
    harness.restart(kept)
    if damage is None or damage[0] != 24:
        kept.wait_log("another version, or damaged")
    new = [back(peers, kept, each, 1 - each.rank, 2 * each.rank) for each in old]
    assert new[1].expect("PLAN_STEP").step == 1
    for each in new:
        newgen = each.expect("NEWGEN")
        assert newgen.behind
        each.generation = newgen.generation
    go(new, 2)


def test_nothing_is_stored_without_a_manager(daemon):
    served = daemon()
    Peer(served.socket).close()
    assert not [notice for notice in served.notices if "FDSTORE" in notice]
    assert not [name for name in served.fds() if "gradsync-state" in name]


def test_one_that_says_it_brought_less(kept, pair, peers):
    """All had brought all of a step that is committed: one that says otherwise is told no results, and takes
    the state.

    Planted: it is told them (verdict.c).
    """
    old = pair(kept)
    reduce_all(kept, old)
    harness.restart(kept)
    new = [back(peers, kept, each, 0, 2 - each.rank) for each in old]
    assert new[1].expect("PLAN_STEP").step == 1
    new[0].plans[0].step, new[0].generation = 1, 1
    assert new[0].outcome(new[0].plans[0])[0] == "COMMITTED"
    for each in new:
        newgen = each.expect("NEWGEN")
        assert (newgen.cause, newgen.behind) == (wire.pb.RESTARTED, True)
        each.generation = newgen.generation
    assert not [frame for frame in new[1].early if frame.kind == "STEP"]
    go(new, 2)
