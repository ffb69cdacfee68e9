# SPDX-License-Identifier: Apache-2.0
"""The control memory of a plan: the diagnosis pages in a memfd of their own, beside the arena."""
import fcntl
import functools
import os
import struct

import pytest

from harness import restart, wait_until
from peer import PAGE, Own, Peer, Plan, memfd, punch, small_plan
from returning import Returning, back, enter, go

ours = functools.partial(Plan, [("a", [256], 0), ("b", [256], 0)])


class Keeper(Peer):
    """Keeps the descriptor of the control memory."""

    control = None

    def keep(self, plan):
        self.control = os.dup(self.fds[-1])

    def blocks(self):
        return os.fstat(self.control).st_blocks

    def close(self):
        if self.control is not None:
            os.close(self.control)
            self.control = None
        super().close()


def keepers(served, plan=ours):
    """A crew of two that keep it."""
    return served.crew("keepers", plan=plan, peer=Keeper)


def parameter(peer):
    """The one that the only wait of its job is about."""
    wait, = peer.status()["STATUS_WAIT"]
    return wait.parameter


def controls(fds):
    return fds.count("/memfd:gradsync-control (deleted)")


def open_step(crew, done):
    """Member 0 is ready; member 1 has done these parameters. Returns the parameter that it lacks, by
    status."""
    crew.peers[0].ready(crew.plans[0][0], 0)
    crew.peers[1].mark(crew.plans[0][1], done)
    return parameter(crew.peers[0])


def end_step(crew):
    crew.peers[1].ready(crew.plans[0][1], 0)
    crew.commits()


def test_what_is_missing_is_named(serve):
    crew = serve().crew("ours", plan=ours)
    crew.go()
    assert open_step(crew, [0]) == "b"
    crew.peers[1].mark(crew.plans[0][1], [1])
    assert parameter(crew.peers[0]) == ""
    end_step(crew)
    crew.go()


def test_what_it_costs(watched):
    """One descriptor and its bytes for each member and plan, and no mapping in the daemon."""
    crew = watched.crew("ours", plan=ours)
    before, after = watched.before, watched.steady()
    assert controls(after["fds"]) - controls(before["fds"]) == 2
    assert after["arenas"] - before["arenas"] == 2
    assert 0 <= after["bytes"] - before["bytes"] - 2 * (PAGE + PAGE) < 1024
    assert "gradsync-control" not in watched.daemon.maps()
    for peer in crew.peers:
        peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=0)
    wait_until(lambda: controls(watched.daemon.fds()) == controls(before["fds"]), "an end of the pages")


@pytest.mark.parametrize("touch", [True, False])
def test_pages_are_never_the_daemons(watched, touch):
    """Neither one that its member has never touched, nor one that it has given back, is allocated by a look
    at it; and a member that gives back what the daemon does not use is not evicted."""
    crew = keepers(watched)
    if not touch:
        for peer in crew.peers:
            punch(peer.control, 0, PAGE)
    for _ in range(3):
        assert open_step(crew, [0] if touch else []) == ("b" if touch else "a")
        for peer in crew.peers:
            punch(peer.control, 0, PAGE)
        assert parameter(crew.peers[0]) == "a"
        assert [peer.blocks() for peer in crew.peers] == [0, 0]
        end_step(crew)
        members = crew.peers[0].status()["STATUS_MEMBER"]
        assert [each.exposed for each in members if each.job == crew.peers[0].job] == [0, 0]
        assert [peer.blocks() for peer in crew.peers] == [0, 0]


def test_the_member_may_leave_it_untouched(watched):
    """The daemon does not map this memory, so its pages need not be there, as those of an arena must be."""
    crew = keepers(watched, plan=None)
    plans = [ours() for _ in crew.peers]
    for peer, plan in zip(crew.peers, plans):
        request = peer.plan_send(plan)
        frame = peer.expect("PLAN_ARENA", request)
        arena, peer.control = peer.fds
        os.posix_fallocate(arena, 0, frame.bytes)
        os.close(arena)
    requests = [peer.send("PLAN_MAPPED", job=peer.job, plan=0) for peer in crew.peers]
    for peer, request in zip(crew.peers, requests):
        peer.expect("PLAN_AGREED", request)
        assert peer.blocks() == 0
    crew.peers[0].ready(plans[0], 0)
    assert parameter(crew.peers[0]) == "a"
    assert crew.peers[1].blocks() == 0


@pytest.mark.parametrize("version, known", [(0, "b"), (1, "b"), (2, ""), (1 << 63, "")])
def test_a_layout_that_is_not_known(serve, version, known):
    crew = serve().crew("ours", plan=ours)
    crew.plans[0][1].page.map[24:32] = struct.pack("<Q", version)
    assert open_step(crew, [0]) == known
    end_step(crew)


def test_members_with_and_without_an_arena(watched):
    """The plan is the same, wherever the buckets of each member lie."""
    crew = watched.crew("mixed", 2, plan=None)
    own = watched.adopt(Own(16 * PAGE))
    crew.peers[1].register(own)
    plans = [small_plan(2), own.place(small_plan(2))]
    assert plans[1].bytes == 0
    for order in ([0, 1], [1, 0]):
        for plan in plans:
            plan.ordinal, plan.step = len(crew.plans), 1
        mapped = [None] * 2
        for rank in order:
            mapped[rank] = crew.peers[rank].plan_arena(plans[rank], crew.peers[rank].plan_send(plans[rank]))
        for peer, request in zip(crew.peers, mapped):
            peer.expect("PLAN_AGREED", request)
        crew.plans.append(plans)
        crew.go(2, len(crew.plans) - 1)
        crew.peers[0].ready(plans[0], 0)
        for done, lacks in (([], "p0"), ([0], "")):
            crew.peers[1].mark(plans[1], done)
            waits = [wait for wait in crew.peers[0].status()["STATUS_WAIT"] if wait.job == crew.peers[0].job]
            assert [(wait.rank, wait.parameter) for wait in waits] == [(1, lacks)]
        for peer, plan in zip(crew.peers, plans):
            for bucket in range(peer.rank == 0, 2):
                peer.ready(plan, bucket)
        for peer, plan in zip(crew.peers, plans):
            assert peer.outcome(plan)[0] == "COMMITTED"
            peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=plan.ordinal)


def test_after_a_restart(served, pair, peers):
    """It is offered with the arena again, and says what it said before."""
    old = pair(served)
    go(old, 1)
    restart(served)
    new = [back(peers, served, each, 1) for each in old]
    enter(new)
    for each in new:
        each.plans[0].step = 2
    for bucket in range(2):
        new[0].ready(new[0].plans[0], bucket)
    new[1].mark(new[1].plans[0], [])
    assert parameter(new[0]) == "p0"
    new[1].mark(new[1].plans[0], [0])
    assert parameter(new[0]) == ""
    assert controls(served.fds()) == 2
    for bucket in range(2):
        new[1].ready(new[1].plans[0], bucket)
    for each in new:
        assert each.outcome(each.plans[0])[0] == "COMMITTED"
    go(new, 3)


def test_what_is_offered_after_a_restart(served, pair, peers, tmp_path):
    """Nothing is taken that could make the daemon wait, or that is not what was described. New memory that
    is as good as the former one is taken."""
    old = pair(served)
    restart(served)
    made = peers(Returning(served.socket))
    made.rejoin(old[0])
    plan, arena = old[0].plans[0], old[0].memory[0]
    (tmp_path / "file").write_bytes(bytes(PAGE))
    offers = [(memfd(PAGE, fcntl.F_SEAL_GROW), "F_SEAL_SHRINK"),
              (memfd(PAGE, hidden=64 << 20), "without room behind its end"),
              (memfd(0), "do not lie"),
              (os.open(tmp_path / "file", os.O_RDWR), "memfd"),
              *((end, "pipe") for end in os.pipe()),
              (os.open("/dev/zero", os.O_RDWR), "memfd")]
    for fd, word in offers:
        refusal = made.refusal(made.offer(plan, arena, 0, fd))
        os.close(fd)
        assert refusal.code == "INVALID" and word in refusal.text, refusal
    wait_until(lambda: "/memfd:offered (deleted)" not in served.fds(), "an end of what was refused")
    with os.fdopen(memfd(PAGE)) as fresh:
        made.offer(plan, arena, 0, fresh.fileno())
    made.take_over(old[0])
    made.told(1)
    members = [made, back(peers, served, old[1])]
    enter(members)
    go(members, 1)
