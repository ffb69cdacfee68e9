# SPDX-License-Identifier: Apache-2.0
"""Memory that members bring: plans on it beside plans in arenas, what is refused, and what it costs a member
that gives pages back which the daemon uses. Peers speak single frames; members are trainers on the public API."""
import os
import threading

import pytest

import wire
from harness import guarded, sanitized, wait_until
from peer import PAGE, Hangup, Own, Plan, Refused, agree, memfd, punch, small_plan
from teams import GRACE, Team, takes_state, void_behind
from trainers import script, together

MIB = 1 << 20


# -- peers


def several(ordinal=0):
    """Parameters of odd sizes in two buckets."""
    return Plan([("a", [5], 1), ("b", [3, 7], 1), ("c", [1], 0), ("d", [1000], 0)], ordinal)


def buckets_of(elements, n):
    """So many buckets of so many elements."""
    return lambda ordinal: small_plan(n, elements=elements, ordinal=ordinal)


def mixed(served, crew, make=several, at=0, room=64 * PAGE):
    """One more plan for a crew: rank 0's lies in memory of its own from `at`, the others' in arenas."""
    ordinal = len(crew.plans)
    own = crew.peers[0].register(served.adopt(Own(room)))
    plans = [make(ordinal) for _ in crew.peers]
    own.place(plans[0], at)
    agree(crew.peers, plans)
    crew.plans.append(plans)
    return own, plans


def test_large_buckets(watched):
    """Reduced by workers, in memory that is given back by a thread of its own."""
    crew = watched.crew("large", 2, plan=None)
    own, _ = mixed(watched, crew, buckets_of(MIB // 4, n=3), at=64, room=4 * MIB)
    crew.go(2)
    crew.peers[0].ask("PLAN_DROP", "PLAN_DROPPED", job=crew.peers[0].job, plan=0)
    crew.peers[0].ask("UNREGISTER", "UNREGISTERED", job=crew.peers[0].job, memory=own.handle)
    wait_until(lambda: "memfd:own" not in watched.daemon.maps(), "no mapping of the memory")


# -- what the daemon refuses


WRONG_FILES = {
    "unsealed": (lambda: memfd(4 * PAGE, seals=0, fill=4 * PAGE), "lacks the seals F_SEAL_SHRINK F_SEAL_GROW"),
    "short": (lambda: memfd(PAGE, fill=PAGE), "do not lie in a memory of 4096"),
    "untouched": (lambda: memfd(4 * PAGE), "only 0 of them were touched"),
    "room-behind": (lambda: memfd(4 * MIB, hidden=8 * MIB), "room behind its end"),
    "device": (lambda: os.open("/dev/zero", os.O_RDWR | os.O_CLOEXEC), "is a file, directory or device"),
}


def test_wrong_files(watched):
    """Each file is refused by name, and the job goes on."""
    crew = watched.crew("wrong", 1)
    peer = crew.peers[0]
    for name, (make, why) in WRONG_FILES.items():
        fd = make()
        refused = peer.refusal(peer.send("REGISTER", fds=[fd], job=peer.job, offset=0, bytes=4 * PAGE))
        os.close(fd)
        assert refused.code == "INVALID" and why in refused.text, (name, refused)
        assert "rank 0 of job 'wrong' cannot register" in refused.text
        crew.go()
    assert "without the memory" in peer.refusal(peer.send("REGISTER", job=peer.job, bytes=PAGE)).text
    assert peer.refusal(peer.send("UNREGISTER", job=peer.job, memory=0)).code == "INVALID"
    assert "has registered no memory 7" in peer.refusal(peer.send("UNREGISTER", job=peer.job, memory=7)).text
    assert peer.refusal(peer.send("UNREGISTER", job=peer.job + 1, memory=1)).code == "INVALID"
    crew.go()
    watched.settled()


def test_another_users_plan_is_not_named(serve):
    """The bytes belong to another user's plan already, and the refusal does not name it."""
    served = serve(settings={"socket_mode": "0666"})
    own = served.adopt(Own(4 * PAGE))
    first, second = (served.crew(f"job{uid}", 1, plan=None, uid=uid).peers[0] for uid in (1001, 1002))
    plan = first.register(own).place(small_plan())
    first.expect("PLAN_AGREED", first.plan_arena(plan, first.plan_send(plan)))
    refused = second.refusal(second.plan_send(second.register(own).place(small_plan())))
    assert "belong to another user's plan" in refused.text and "job1001" not in refused.text, refused


def test_unregistering_what_a_plan_uses(watched):
    crew = watched.crew("used", 2, plan=None)
    peer = crew.peers[0]
    own, plans = mixed(watched, crew)
    refusal = peer.refusal(peer.send("UNREGISTER", job=peer.job, memory=own.handle))
    assert refusal.code == "STATE" and f"memory {own.handle} holds gradients of plan 0" in refusal.text
    crew.go()
    peer.ready(plans[0], 0)
    assert peer.refusal(peer.send("UNREGISTER", job=peer.job, memory=own.handle)).code == "STATE"
    for bucket in range(2):
        crew.peers[1].ready(plans[1], bucket)
    peer.ready(plans[0], 1)
    for member, plan in zip(crew.peers, plans):
        assert member.outcome(plan)[0] == "COMMITTED"
    for member in crew.peers:
        member.ask("PLAN_DROP", "PLAN_DROPPED", job=member.job, plan=0)
    peer.ask("UNREGISTER", "UNREGISTERED", job=peer.job, memory=own.handle)
    assert "memfd:own" not in watched.daemon.maps()
    wait_until(lambda: "/memfd:own (deleted)" not in watched.daemon.fds(), "an end of what was given back")


# -- pages that are given back


def watch(peer, plans, own, others):
    """A member whose pages are gone hears why, and the others of its job hear of the loss."""
    refusal = peer.hangup()
    assert refusal is not None and "holes were punched" in refusal.text and f"rank {peer.rank}" in refusal.text, refusal
    for other, plan in zip(others, plans):
        outcome, message, _ = other.outcome(plan)
        assert outcome == "VOID" and message.rank == peer.rank and message.cause == wire.pb.EVICTED
        assert other.expect("LOST").rank == peer.rank


HOLES = {
    "of all pages, between steps": (2, 8 * MIB, 0, 8 * MIB),
    "of one page, while a step waits": (1, 4 * MIB, MIB, PAGE),
    "of one page, which no bucket has": (1, 8 * MIB, 6 * MIB, PAGE),     # only pages as a whole can be counted
}


@pytest.mark.parametrize("name", HOLES)
def test_punched_pages(serve, name):
    buckets, room, at, size = HOLES[name]
    served = serve()
    crew = served.crew("punch", 3, plan=None)
    own, plans = mixed(served, crew, buckets_of(MIB, n=buckets), room=room)
    crew.go()
    if "waits" in name:
        crew.peers[0].ready(plans[0], 0)
        served.go()
    own.punch(at, size)
    for peer, plan in zip(crew.peers["waits" in name:], plans["waits" in name:]):
        peer.ready(plan, 0)
    watch(crew.peers[0], plans[1:], own, crew.peers[1:])
    assert own.blocks() == own.size - size, "the daemon has touched nothing"
    served.daemon.wait_log(rf"rank 0 \(pid \d+\) is evicted: {size} of the {room} bytes of shared memory were")


def test_pages_of_small_buckets(watched):
    """Each use of them finds it; without the guard they are looked at once a mebibyte of them was used."""
    crew = watched.crew("punch", 2, plan=None)
    own, plans = mixed(watched, crew, buckets_of(8192, n=1), room=32 << 10)
    crew.go()
    own.punch()
    steps = 0
    try:
        while steps < 100:
            for peer, plan in zip(crew.peers, plans):
                peer.ready(plan, 0)
            assert crew.peers[1].outcome(plans[1])[0] == "COMMITTED"
            crew.peers[0].outcome(plans[0])
            own.punch()
            steps += 1
    except (AssertionError, BrokenPipeError, ConnectionResetError):
        pass
    assert steps == 0 if guarded() else 16 < steps < 32
    assert "holes were punched" in crew.peers[0].hangup().text


class Puncher(threading.Thread):
    """Punches all of a file, again and again, until it is told to stop."""

    def __init__(self, fd, size):
        super().__init__()
        self.fd, self.size, self.over = fd, size, threading.Event()
        self.start()

    def run(self):
        while not self.over.is_set():
            punch(self.fd, 0, self.size)

    def stop(self):
        self.over.set()
        self.join()


def steps_until_hangup(crew, plans):
    """Steps without touching memory, until rank 0 is thrown out. Its last words."""
    peer = crew.peers[0]
    for _ in range(500):
        try:
            for each, plan in zip(crew.peers, plans):
                for bucket in range(len(plan.buckets)):
                    each.ready(plan, bucket)
            outcomes = [each.outcome(plan)[0] for each, plan in zip(crew.peers, plans)]
            assert outcomes[0] == "COMMITTED"
        except Refused as refused:
            peer.hangup()
            return refused
        except (Hangup, BrokenPipeError, ConnectionResetError):
            return peer.hangup()
    raise AssertionError("nobody has looked for 500 steps")


@pytest.mark.parametrize("buckets, bucket", [(8, 2 * MIB), (1, 32 * MIB)], ids=["small", "large"])
@pytest.mark.parametrize("registered", [True, False], ids=["registered", "arena"])
def test_pages_punched_all_the_time(serve, build, registered, buckets, bucket):
    """By a thread that does nothing else: the daemon allocates no more than what its workers are at, and the others go on."""
    served = serve("--workers", "2")
    crew = served.crew("punch", 2, plan=None)
    room = buckets * bucket
    make = buckets_of(bucket // 4, n=buckets)
    if registered:
        own, plans = mixed(served, crew, make, room=room)
        fd = os.dup(own.fd)
    else:
        kept = []
        crew.peers[0].keep = lambda plan: kept.append(os.dup(crew.peers[0].fds[0]))
        plans = agree(crew.peers, [make(0) for _ in crew.peers])
        fd, room = kept[0], plans[0].bytes
    anonymous = served.daemon.anonymous()
    puncher = Puncher(fd, room)
    try:
        refusal = steps_until_hangup(crew, plans)
    finally:
        puncher.stop()
    assert refusal is not None and "holes were punched" in refusal.text, refusal
    assert os.fstat(fd).st_blocks * 512 <= (0 if guarded() else min(2 * bucket, 8 * MIB))
    assert sanitized(build) or served.daemon.anonymous() <= anonymous + MIB
    assert crew.peers[1].expect("LOST").rank == 0
    served.go()
    os.close(fd)


# -- loss


@pytest.mark.parametrize("moment", ["registered", "described", "mapped", "agreed", "ready", "unregistered"])
def test_death_leaves_nothing(watched, moment):
    """kill -9 of a member with memory of its own."""
    def script(peer, turn):
        peer.joined(peer.join_send("dying", 1))
        own = peer.register(Own(9 * MIB))
        plan = own.place(small_plan(4, elements=512 << 10), 64)
        if moment == "registered":
            return
        request = peer.plan_send(plan)
        if moment == "described":
            peer.silent()
            return
        mapped = peer.plan_arena(plan, request)
        if moment == "mapped":
            return
        peer.expect("PLAN_AGREED", mapped)
        if moment == "ready":
            for bucket in range(3):
                peer.ready(plan, bucket)
        if moment == "unregistered":
            peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=0)
            peer.send("UNREGISTER", job=peer.job, memory=own.handle)

    child = watched.child(script)
    child.reached()
    child.kill()
    watched.settled()
    assert "memfd:own" not in watched.daemon.maps()


def test_a_large_memory_of_a_member_that_dies_in_a_reduction(watched):
    crew = watched.crew("dying", 2, plan=None)
    _, plans = mixed(watched, crew, buckets_of(2 * MIB, n=8), room=64 * MIB)
    for bucket in range(8):
        for peer, plan in zip(crew.peers, plans):
            peer.ready(plan, bucket)
    crew.peers[0].sock.close()
    crew.peers[1].outcome(plans[1])             # void, or committed if all READYs were read before the end of file
    watched.settled()
    wait_until(lambda: "memfd:own" not in watched.daemon.maps(), "no mapping of the memory")


class Placed(Team):
    """Its members' gradients lie in memory of their own."""

    @staticmethod
    def register(each):
        script(each, "register 0 65536 map=1", "param_at 0 128 weight f32 300", "param_at 0 1344 bias f32 7")


def test_a_successor_brings_its_own(daemon, member):
    """Plans on registered memory stay, the lost member's is replaced by the successor's."""
    served = daemon(settings=GRACE)
    it = Placed(member, served, world=2)
    assert [it.step(), it.step()] == [[1, 1], [2, 2]]
    victim, stay = it.lose(1)
    new = it.replace(1)
    void_behind(stay, 1, victim.pid)
    takes_state(new, stay, 2)
    assert it.step() == [3, 3]
    together(it.members, "leave")
    wait_until(lambda: "memfd:own" not in served.maps(), "no mapping of the memory")
