# SPDX-License-Identifier: Apache-2.0
"""A daemon that ends, and members that come back to the next one, frame by frame: the test says what they have
heard."""
import os

import pytest

import wire
from harness import restart, stop, wait_until
from peer import Crew, Peer, form, memfd, small_plan
from returning import Returning, back, enter, give, go


@pytest.fixture
def gone(served, pair):
    """A daemon, and a pair of members of the one before, which was killed."""
    old = pair(served)
    restart(served)
    return served, old


def all_back(peers, served, old, step=0, kind="RESUMED"):
    new = [back(peers, served, each, step) for each in old]
    enter(new, kind)
    return new


def test_what_a_newer_job_has_ended_is_not_waited_for(daemon, pair, peers):
    """One member is back and another one is awaited when a newer job takes the name: no member comes back to the old one, so it
    is gone with the last that is in it, and counts towards no quota."""
    served = daemon(settings={"jobs_per_uid": 2})
    old = pair(served)
    restart(served)
    made = back(peers, served, old[0], wait_ms=3600000)
    newest = peers(Crew(served.socket, "pair", 1, incarnation=1))
    assert made.expect("LOST").cause == wire.pb.SUPERSEDED
    late = peers(Returning(served.socket))
    refused(late, late.rejoin_send(old[1]), "MEMBER_LOST", "join it again")
    made.close()
    wait_until(lambda: len(served.status()["jobs"]) == 1, "the end of the old job")
    peers(Crew(served.socket, "another", 1)).go()
    newest.go()


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("kind", ["RESUMED", "NEWGEN"])
def test_one_has_heard_of_the_next_generation(gone, peers, newest_first, kind):
    """The daemon was killed while it told of a generation. Something is void if it was so in that one, whichever member comes
    back first.

    Planted: a member that has not heard of the latest generation is refused (rejoin.c).
    """
    served, old = gone
    if kind == "NEWGEN":
        old = all_back(peers, served, old)
        give(old, [0])
        for each in old:
            each.expect("STEP")
        restart(served)
    old = all_back(peers, served, old, kind=kind)
    latest = old[0].generation
    for _ in range(2):
        restart(served)
        new = [back(peers, served, each, generation=latest - each.rank)
               for each in (reversed(old) if newest_first else old)]
        old = sorted(new, key=lambda each: each.rank)
        enter(old, kind)
        latest += 1
        assert {each.generation for each in old} == {latest}
    go(old, 1)


def test_operations_that_had_ended(served, pair, peers):
    """Members that come back hear how many have ended: their sequence goes on."""
    old = pair(served)
    barriers(old, 5)
    restart(served)
    new = [back(peers, served, each) for each in old]
    for each in new:
        resumed = each.expect("RESUMED")
        assert (resumed.operations, resumed.operation_failed) == (5, False)
        each.generation = resumed.generation
        each.sequence = iter(range(5, 7))
    barriers(new, 2)


def test_an_operation_that_differed(served, pair, peers):
    """It was void, and one that comes back may not have heard of that: all begin a new generation, and its sequence."""
    old = pair(served)
    barriers(old, 2)
    for each in old:
        each.staging().close()
    what = {"dtype": wire.pb.F32, "reduce": wire.pb.SUM, "input": 0, "output": 0}
    requests = [each.operation("ALLREDUCE", bytes=64 + 64 * each.rank, **what) for each in old]
    for each, request in zip(old, requests):
        refused(each, request, "OPERATION_MISMATCH")
    restart(served)
    barriers(all_back(peers, served, old, kind="NEWGEN"), 2)


def barriers(members, n):
    for _ in range(n):
        for each, request in [(each, each.operation("BARRIER")) for each in members]:
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
    for changes, code, word in (({"generation": 2}, "INVALID", "latest generation was 1, not 2"),
                                ({"generation": (1 << 32) - 1}, "INVALID", "not 4294967295"),
                                ({"job": "a/b"}, "INVALID", "name"), ({"job": "other"}, "MEMBER_LOST", "join it again")):
        refused(liar, liar.rejoin_send(old[0], **changes), code, word)
    first = back(peers, served, old[0])
    refused(liar, liar.rejoin_send(old[0]), "RANK_TAKEN", f"pid {os.getpid()}")
    second = back(peers, served, old[1])
    enter([first, second])
    refused(liar, liar.rejoin_send(first, generation=1), "STALE", "gone on without")
    go([first, second], 1)
    stranger = peers(Returning(served.socket))
    refused(stranger, stranger.send("REJOIN_END", job=1), "INVALID", "no member")


def test_memory_that_cannot_be(served, pair, peers):
    """The daemon maps nothing that could take its pages away, or that it would be the first to touch."""
    old = pair(served)
    size = old[0].plans[0].bytes
    restart(served)
    made = peers(Returning(served.socket))
    made.rejoin(old[0])
    offers = [(memfd(size, 0), "F_SEAL"), (memfd(size - 4096), str(size)), (memfd(size), "touched"),
              (memfd(size + 4096, fill=size + 4096), str(size)),
              (os.open("/dev/null", os.O_RDWR), "memfd")]
    for fd, word in offers:
        request = made.offer(old[0].plans[0], fd, 0, old[0].control[0])
        os.close(fd)
        refused(made, request, "INVALID", word)
    # It had sent the rest of that request before it heard so: it has not told all.
    made.send("PLAN_BEGIN", request, job=made.job, generation=made.generation, plan=1, params=1, buckets=1,
              arena_bytes=wire.PAGE, control_bytes=wire.PAGE, reduce=wire.pb.SUM)
    made.send("REJOIN_END", request, job=made.job)
    request = made.plan_send(old[0].plans[0], commit=False)
    refused(made, made.send("REJOIN_PLAN", request, job=made.job, plan=0, step=0), "INVALID", "missing")
    request = made.send("REJOIN_PLAN", fds=[old[0].memory[0], old[0].control[0]], job=made.job, plan=0, step=1)
    refused(made, request, "INVALID", "has 0 committed steps of it, not 1")
    request = made.offer(old[0].plans[0], old[0].memory[0], (1 << 64) - 1, old[0].control[0])
    refused(made, request, "INVALID", "has 0 committed steps of it, not 18446744073709551615")
    request = made.offer(small_plan(2, ordinal=2), old[0].memory[0], 0, old[0].control[0])
    refused(made, request, "INVALID", "plan 2 ", "does not have it")
    with os.fdopen(memfd(2 * wire.PAGE)) as control:
        request = made.offer(old[0].plans[0], old[0].memory[0], 0, control.fileno())
    refused(made, request, "INVALID", f"{2 * wire.PAGE} bytes instead of {wire.PAGE}")
    wait_until(lambda: "/memfd:offered (deleted)" not in served.fds(), "an end of what was refused")
    request = made.offer(old[0].plans[0], old[0].memory[0], 0, None)
    refused(made, request, "INVALID", "1 file descriptors came for 2 memories")
    made.offer(old[0].plans[0], old[0].memory[0], 0, old[0].control[0])
    made.take_over(old[0])
    made.told(1)
    other = back(peers, served, old[1])
    enter([made, other])
    go([made, other], 1)
    assert len(served.job("pair")["plans"]) == 1


def test_memory_that_another_member_has_brought(gone, peers):
    """Both would write their gradients there."""
    served, old = gone
    first = back(peers, served, old[0])
    second = peers(Returning(served.socket))
    second.rejoin(old[1])
    request = second.offer(old[1].plans[0], first.memory[0], 0, old[1].control[0])
    refused(second, request, "INVALID", "brought back already")


def test_a_place_that_stays_empty(gone, peers):
    """A member that does not come back in time is lost as if it had died, and the job ends with it."""
    served, old = gone
    first = back(peers, served, old[0], wait_ms=100)
    lost = first.expect("LOST")
    assert "restarted" in lost.text
    late = peers(Returning(served.socket))
    refused(late, late.rejoin_send(old[1]), "MEMBER_LOST", "join it again")


def test_a_place_that_an_operator_gives_up(gone, peers):
    served, old = gone
    first = back(peers, served, old[0])
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


def test_a_newcomer_takes_the_place_of_the_dead(served, pair, peers):
    """A process that was started again comes before or after the survivors: it gets the place, and they are told."""
    for before in (True, False):
        name = f"pair{before}"
        old = pair(served, name)
        go(old, 1)
        restart(served)
        fresh = peers(Returning(served.socket))
        if before:
            request = fresh.join_send(name, 2, 1, rejoin_grace_ms=0)
            fresh.silent()
        first = back(peers, served, old[0], 1)
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
    new = [back(peers, served, each) for each in old]
    refused(fresh, request, "RANK_TAKEN", "rank 0", f"pid {os.getpid()}")
    for each in new:
        each.expect("RESUMED")


def test_a_job_with_a_client_that_does_not_return(served, peers):
    """That client hears why the daemon goes, and the job ends with it."""
    old, made = form([peers(Peer(served.socket)), peers(Returning(served.socket))], "mixed")
    stop(served)
    assert old.hangup().code == "DAEMON_LOST"
    assert "gradsyncd is ending" in made.expect("LOST").text
    made.expect("RESTARTING")
    assert made.hangup() is None
    served.start()


def test_a_plan_that_one_had_freed(served, pair, peers):
    """The next daemon knows that it cannot have steps any more, though only the other one brings it back.

    Planted: it waits for the member that has freed it (takeover.c).
    """
    old = pair(served)
    old[0].ask("PLAN_DROP", "PLAN_DROPPED", job=old[0].job, plan=0)
    restart(served)
    first = peers(Returning(served.socket))
    first.rejoin(old[0])
    first.told(1)
    second = back(peers, served, old[1])
    enter([first, second])
    second.plans[0].step = 1
    second.ready(second.plans[0], 0)
    reason = second.hangup()
    assert reason.code == "STATE" and "another member has freed" in reason.text, reason
