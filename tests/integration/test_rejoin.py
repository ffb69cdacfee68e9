# SPDX-License-Identifier: Apache-2.0
"""A daemon that ends, and members that come back to the next one, frame by frame: what they say of the past is the test's."""
import os
import signal

import pytest

import wire
from harness import restart
from peer import Peer, memfd, small_plan
from returning import Returning, back, enter, go


@pytest.fixture
def gone(daemon, pair):
    """A daemon, and a pair of members of the one before, which was killed."""
    served = daemon()
    old = pair(served)
    restart(served)
    return served, old


def test_a_plan_that_comes_back_is_refused_once(gone, peers):
    """The memory that ends a description is part of the same request: what was refused before it is not refused again."""
    served, old = gone
    made = peers(Returning(served.socket))
    made.rejoin(old[0])
    request = made.plan_send(small_plan(2), commit=False, arena_bytes=1)
    made.send("REJOIN_PLAN", request, fds=[old[0].memory[0]], job=made.job, plan=0, step=0, launched=0)
    heard = [frame.request for frame in made.silent() if frame.kind == "REFUSED"]
    assert heard == [request]


def test_the_latest_generation_that_can_come_back(serve):
    """Generations that follow are counted on from what a member says: there is room for them."""
    served = serve()
    made = served.adopt(Returning(served.path))
    served.others.append(made)
    world = {"job": "late", "min_world": 1, "max_world": 2}
    made.ask("REJOIN", "REJOINED", **world, generation=(1 << 31) - 1, rank=0, local_rank=0, world=1, member=1, wait_ms=60000)
    job, = [job for job in made.status()["STATUS_JOB"] if job.name == "late"]
    made.send("REJOIN_END", job=job.job)
    assert made.expect("RESUMED").generation == 1 << 31
    other = served.peer()
    assert other.ask("JOIN", "JOINED", **world).generation == (1 << 31) + 1
    assert made.expect("NEWGEN").generation == (1 << 31) + 1


@pytest.mark.parametrize("newer", [{"incarnation": 1}, {"generation": 9}])
def test_what_a_newer_job_has_ended_is_not_waited_for(serve, newer):
    """One member is back and another one is awaited when a newer job takes the name: nobody comes back to the old one, so it is
    gone with the last who is in it, and counts towards no quota."""
    served = serve()
    made = Returning(served.path)
    place = {"job": "old", "incarnation": 0, "generation": 3, "rank": 0, "local_rank": 0, "world": 2, "member": 1, "min_world": 2,
             "max_world": 2, "wait_ms": 3600000}
    made.ask("REJOIN", "REJOINED", **place)
    newest = Returning(served.path)
    request = newest.send("REJOIN", **{**place, **newer, "world": 1, "min_world": 1, "max_world": 1, "wait_ms": 0})
    newest.expect("REJOINED", request)
    assert made.expect("LOST").cause == wire.pb.SUPERSEDED
    made.close()
    newest.close()
    served.settled()


@pytest.mark.parametrize("newest_first", [False, True])
def test_one_has_heard_of_the_next_generation(daemon, pair, peers, newest_first):
    """The daemon was killed while it told of a generation: void if it was a new one for who was told, else
    not, whichever of them comes back first.

    Planted: a member that is one generation behind those who are back already is refused (rejoin.c).
    """
    served = daemon()
    old = pair(served)
    for resumed in (False, True):
        restart(served)
        new = [back(peers, served, each, 0, 2, generation=each.generation + each.rank,
                    resumed=resumed and each.rank == 1) for each in (reversed(old) if newest_first else old)]
        new.sort(key=lambda each: each.rank)
        for each in new:
            message = each.expect("RESUMED" if resumed else "NEWGEN")
            assert message.generation == each.generation + 2
            each.generation = message.generation
        old = new


@pytest.mark.parametrize("failed", [False, True], ids=["done", "failed"])
def test_operations_that_had_ended(gone, peers, failed):
    """One has heard how the operation ended: it is so for the other one, too, and the sequence goes on."""
    served, old = gone
    new = [back(peers, served, each, 0, 0, operations=5 - each.rank, operation_failed=failed and each.rank == 0)
           for each in old]
    for each in new:
        resumed = each.expect("RESUMED")
        assert (resumed.operations, resumed.operation_failed) == (5, failed)
        each.generation = resumed.generation
        each.sequence = iter(range(5, 7))
    requests = [each.operation("BARRIER") for each in new]
    for each, request in zip(new, requests):
        each.expect("OPERATION_DONE", request)


def refused(peer, request, code, *words):
    said = peer.refusal(request)
    assert said.code == code, said
    for word in words:
        assert word in said.text, (word, said.text)


def test_places_that_cannot_be(gone, peers):
    """Wrong claims are refused by name, and the job goes on with those who were right."""
    served, old = gone
    liar = peers(Returning(served.socket))
    for changes, code, word in (({"rank": 2}, "INVALID", "rank 2 of 2"), ({"generation": 0}, "INVALID", "generation 0"),
                                ({"generation": 1 << 31}, "INVALID", "generation 2147483648"),
                                ({"world": 0}, "INVALID", "rank"), ({"world": 300, "max_world": 300}, "INVALID", "300"),
                                ({"local_rank": 2}, "INVALID", "local rank 2"), ({"local_rank": 300}, "INVALID", "local rank 300"),
                                ({"operations": (1 << 64) - 1}, "INVALID", "operations cannot have ended"),
                                ({"member": 0}, "INVALID", "member id"), ({"member": 1 << 63}, "INVALID", "member id"),
                                ({"job": "a/b"}, "INVALID", "name"), ({"min_world": 3}, "INVALID", "3")):
        refused(liar, liar.rejoin_send(old[0], **changes), code, word)
    first = back(peers, served, old[0], 0, 0)
    for changes, code, word in (({}, "RANK_TAKEN", f"pid {os.getpid()}"), ({"rank": 1, "max_world": 5}, "INVALID", "2 to 2"),
                                ({"rank": 1, "world": 1, "min_world": 1, "max_world": 1}, "INVALID", "rank 1 of 1"),
                                ({"rank": 0, "world": 1, "min_world": 1, "max_world": 1}, "STALE", "anew"),
                                ({"rank": 1, "token": "other"}, "DENIED", "token")):
        refused(liar, liar.rejoin_send(old[0], **changes), code, word)
    second = back(peers, served, old[1], 0, 0)
    enter([first, second])
    refused(liar, liar.rejoin_send(first, generation=1), "STALE", "gone on without")
    go([first, second], 1)
    stranger = peers(Returning(served.socket))
    refused(stranger, stranger.send("REJOIN_END", job=1), "INVALID", "no member")


def test_memory_that_cannot_be(daemon, pair, peers):
    """The daemon maps nothing that could take its pages away, or that it would be the first to touch."""
    served = daemon()
    old = pair(served)
    size = old[0].plans[0].bytes
    restart(served)
    made = peers(Returning(served.socket))
    made.rejoin(old[0])
    offers = [(memfd(size, 0), "F_SEAL"), (memfd(size - 4096), str(size)), (memfd(size), "touched"),
              (memfd(size + 4096, fill=size + 4096), str(size)),
              (os.open("/dev/null", os.O_RDWR), "memfd")]
    for fd, word in offers:
        request = made.offer(old[0].plans[0], fd, 0, 0, old[0].control[0])
        os.close(fd)
        refused(made, request, "INVALID", word)
    # What it had sent before it heard that is of the same request: it has not told all.
    made.send("PLAN_BEGIN", request, job=made.job, generation=made.generation, plan=1, params=1, buckets=1,
              arena_bytes=wire.PAGE, control_bytes=wire.PAGE, reduce=wire.pb.SUM)
    made.send("REJOIN_END", request, job=made.job)
    request = made.plan_send(old[0].plans[0], commit=False)
    refused(made, made.send("REJOIN_PLAN", request, job=made.job, plan=0, step=0, launched=0), "INVALID", "missing")
    request = made.send("REJOIN_PLAN", fds=[old[0].memory[0]], job=made.job, plan=0, step=0, launched=9)
    refused(made, request, "INVALID", "9 of 2")
    made.offer(old[0].plans[0], old[0].memory[0], 0, 0, old[0].control[0])
    made.take_over(old[0])
    made.told()
    other = back(peers, served, old[1], 0, 0)
    enter([made, other])
    go([made, other], 1)


def test_memory_that_another_member_has_brought(gone, peers):
    """Both would write their gradients there."""
    served, old = gone
    first = back(peers, served, old[0], 0, 0)
    second = peers(Returning(served.socket))
    second.rejoin(old[1])
    request = second.offer(old[1].plans[0], first.memory[0], 0, 0, old[1].control[0])
    refused(second, request, "INVALID", "brought back already")


def test_a_place_that_stays_empty(gone, peers):
    """Whoever does not come back in time is lost as if it had died."""
    served, old = gone
    first = back(peers, served, old[0], 0, 2, wait_ms=5000)    # it has to say by then what it has, itself
    lost = first.expect("LOST")
    assert "restarted" in lost.text
    late = peers(Returning(served.socket))
    late.rejoin(old[1])                # nobody is left: it is a job of its own, which it waits in


def test_a_place_that_an_operator_gives_up(gone, peers):
    served, old = gone
    first = back(peers, served, old[0], 0, 2)
    waits, = served.job("pair")["waiting_for"]
    assert (waits["rank"], waits["what"]) == (1, "join")
    served.ctl("evict", "pair", 1)
    assert "restarted" in first.expect("LOST").text
    served.wait_log("has nobody wait any longer for a member that did not come back to")


def test_who_comes_and_does_not_say_what_it_has(gone, peers):
    served, old = gone
    silent = peers(Returning(served.socket))
    silent.rejoin(old[1], wait_ms=100)
    assert silent.hangup().code == "TIMEOUT"


def test_a_newcomer_takes_the_place_of_the_dead(daemon, pair, peers):
    """A process that was started again comes before or after the survivors: it gets the place, and they are told."""
    served = daemon()
    for before in (True, False):
        name = f"pair{before}"
        old = pair(served, name)
        restart(served)
        fresh = peers(Returning(served.socket))
        if before:
            request = fresh.join_send(name, 2, 1, rejoin_grace_ms=0)
            fresh.silent()
        first = back(peers, served, old[0], 3, 2)
        if not before:
            request = fresh.join_send(name, 2, 1, rejoin_grace_ms=0)
        joined = fresh.joined(request)
        assert (joined.rank, joined.generation, joined.history) == (1, 2, True)
        newgen = first.expect("NEWGEN")
        assert (newgen.generation, newgen.behind) == (2, True)
        for each in (first, fresh):
            each.leave()


def test_a_newcomer_does_not_push_anybody_out(gone, peers):
    served, old = gone
    fresh = peers(Returning(served.socket))
    request = fresh.join_send("pair", 2, 0, rejoin_grace_ms=0)
    fresh.silent()
    new = [back(peers, served, each, 0, 0) for each in old]
    refused(fresh, request, "RANK_TAKEN", "rank 0", f"pid {os.getpid()}")
    for each in new:
        each.expect("RESUMED")


def test_old_clients_end_as_before(daemon, peers):
    """One that does not come back hears why the daemon goes, and its job ends with it."""
    served = daemon()
    made, old = peers(Returning(served.socket)), peers(Peer(served.socket))
    requests = [old.join_send("mixed", 2, 0), made.join_send("mixed", 2, 1)]
    old.joined(requests[0])
    made.joined(requests[1])
    served.signal(signal.SIGTERM)
    assert old.hangup().code == "DAEMON_LOST"
    assert "gradsyncd is ending" in made.expect("LOST").text
    made.expect("RESTARTING")
    assert made.hangup() is None
    assert served.program.wait() == 0
    served.start()


def test_a_plan_that_one_had_freed(daemon, pair, peers):
    """The next daemon knows that it cannot have steps any more, though only the other one brings it back.

    Planted: it waits for the member that has freed it (takeover.c).
    """
    served = daemon()
    old = pair(served)
    old[0].ask("PLAN_DROP", "PLAN_DROPPED", job=old[0].job, plan=0)
    restart(served)
    first = peers(Returning(served.socket))
    first.rejoin(old[0], next_plan=1)
    first.told()
    second = back(peers, served, old[1], 0, 0, next_plan=1)
    enter([first, second])
    second.plans[0].step = 1
    second.ready(second.plans[0], 0)
    reason = second.hangup()
    assert reason.code == "STATE" and "another member has freed" in reason.text, reason
