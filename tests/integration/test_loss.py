# SPDX-License-Identifier: Apache-2.0
"""Members that are lost, at each moment at which one can be; what the others are told, and what the daemon
keeps its hands off.

The law: a step is committed once every bucket of every member was READY, whoever dies later; otherwise it is
void for all.
"""
import signal

import pytest

import harness
import wire
from harness import wait_until
from peer import Hangup, Refused, small_plan


def member_script(name, world, rank, buckets=2, elements=256, steps=1, ready=(0,)):
    """A child that joins, agrees, commits `steps` steps, then sends READY of some buckets and halts."""
    def script(peer, turn):
        peer.joined(peer.join_send(name, world, rank))
        plan = small_plan(buckets, elements)
        mapped = peer.plan_arena(plan, peer.plan_send(plan))
        peer.expect("PLAN_AGREED", mapped)
        for _ in range(steps):
            for bucket in range(buckets):
                peer.ready(plan, bucket)
            assert peer.outcome(plan)[0] == "COMMITTED"
        for bucket in ready:
            peer.ready(plan, bucket)
        peer.status()                   # answered: the daemon has read what came before
        turn()
    return script


class Party:
    """Members in this process, and one in a child (the highest rank), which has halted in the second step."""

    def __init__(self, served, survivors=2, buckets=2, elements=256, ready=(0,), **child):
        world = survivors + 1
        self.rank = survivors
        self.child = served.child(member_script("party", world, self.rank, buckets, elements, 1, ready),
                                  **child)
        self.peers = [served.peer() for _ in range(survivors)]
        requests = [peer.join_send("party", world, rank) for rank, peer in enumerate(self.peers)]
        for peer, request in zip(self.peers, requests):
            peer.joined(request)
        self.plans = [small_plan(buckets, elements) for _ in self.peers]
        mapped = [peer.plan_arena(plan, peer.plan_send(plan)) for peer, plan in zip(self.peers, self.plans)]
        for peer, request in zip(self.peers, mapped):
            peer.expect("PLAN_AGREED", request)
        for peer, plan in zip(self.peers, self.plans):
            for bucket in range(buckets):
                peer.ready(plan, bucket)
        for peer, plan in zip(self.peers, self.plans):
            assert peer.outcome(plan)[0] == "COMMITTED"
        self.child.reached()

    def ready(self, which, buckets):
        for bucket in buckets:
            self.peers[which].ready(self.plans[which], bucket)

    def void(self, cause="EXITED"):
        """Everybody here is told of a void step, and then of the loss."""
        for peer, plan in zip(self.peers, self.plans):
            outcome, message, _ = peer.outcome(plan)
            assert outcome == "VOID", message
            assert (message.rank, message.pid) == (self.rank, self.child.pid)
            assert wire.pb.Cause.Name(message.cause) == cause
            assert f"rank {self.rank}" in message.text and str(self.child.pid) in message.text
        self.lost(cause)

    def lost(self, cause="EXITED"):
        for peer in self.peers:
            message = peer.expect("LOST")
            assert (message.rank, message.pid) == (self.rank, self.child.pid)
            assert wire.pb.Cause.Name(message.cause) == cause
            assert f"rank {self.rank}" in message.text and str(self.child.pid) in message.text

    def at_an_end(self):
        """Whatever is asked of the job now is refused; leaving is not."""
        for peer in self.peers:
            request = peer.plan_send(small_plan(1, ordinal=1))
            answer = peer.refusal(request)
            assert answer.code == "MEMBER_LOST" and f"rank {self.rank}" in answer.text, answer
        for peer in self.peers:
            peer.leave()


def test_killed_in_an_open_step(serve):
    """One survivor has given everything, the other nothing yet: both are told, and the job is at an end."""
    served = serve()
    party = Party(served, ready=(0,))
    party.ready(0, (0, 1))
    party.child.kill()
    party.void()
    party.at_an_end()
    served.go()


def test_who_leaves_behind_its_last_ready_hears_of_the_step(serve):
    served = serve()
    crew = served.crew("brief", 1)
    peer, plan = crew.peers[0], crew.plans[0][0]
    with served.daemon.at_once():
        for bucket in range(len(plan.buckets)):
            peer.ready(plan, bucket)
        request = peer.send("LEAVE", job=peer.job)
    assert peer.outcome(plan)[0] == "COMMITTED"
    peer.expect("LEFT", request)
    served.go()


def test_killed_after_all_were_ready(serve):
    """Everything is in, the reduction may still go on: the step is committed on all survivors, with the dead
    member's share."""
    served = serve(settings={"workers": 1})
    elements = 1 << 20
    party = Party(served, survivors=1, buckets=2, elements=elements, ready=(0, 1))
    peer, plan = party.peers[0], party.plans[0]
    peer.write(plan, 0, [2.0] * elements)
    peer.write(plan, 1, [4.0] * elements)
    party.ready(0, (0, 1))
    wait_until(lambda: not [wait for wait in served.healthy.peers[0].status().get("STATUS_WAIT", [])],
               "all buckets to be ready")
    party.child.kill()
    outcome, message, results = peer.outcome(plan)
    assert outcome == "COMMITTED", message
    assert sorted(results) == [0, 1]
    assert set(peer.read(plan, 0)[::4096]) == {1.0} and set(peer.read(plan, 1)[::4096]) == {2.0}
    party.lost()
    served.go()


def test_killed_though_children_live(serve):
    """They hold copies of its socket; the process is gone all the same."""
    served = serve()
    party = Party(served, ready=(0,), grandchildren=3)
    party.ready(0, (0, 1))
    party.child.kill()
    party.void()
    party.at_an_end()
    served.go()


def test_late_ready_of_a_void_step_is_absorbed(serve):
    """It was on its way when the step became void: nobody's fault, no answer, no effect."""
    served = serve()
    party = Party(served, survivors=2)
    party.ready(0, (0,))
    party.child.kill()
    wait_until(lambda: served.healthy.peers[0].status()["STATUS_DAEMON"][0].clients == 4, "the loss")
    party.ready(1, (0, 1))
    party.void()
    party.at_an_end()
    served.go()


def test_lost_while_a_plan_is_agreed(serve):
    served = serve()

    def script(peer, turn):
        peer.joined(peer.join_send("planning", 2, 1))
        turn()

    child = served.child(script)
    peer = served.peer()
    peer.joined(peer.join_send("planning", 2, 0))
    child.reached()
    plan = small_plan(1)
    mapped = peer.plan_arena(plan, peer.plan_send(plan))
    child.kill()
    answer = peer.refusal(mapped)
    assert answer.code == "MEMBER_LOST" and answer.rank == 1 and answer.pid == child.pid, answer
    assert peer.expect("LOST").pid == child.pid
    served.go()


@pytest.mark.parametrize("workers", [1, 2])
def test_lost_while_an_operation_is_being_done(serve, workers):
    """All have called, the data is on its way: it is done or refused on the survivor, and the memory of the
    dead one is let go only after the last access to it."""
    served = serve(settings={"workers": workers, "staging_bytes": "64M"})
    size = 60 << 20
    for _ in range(3):
        crew = served.crew("operating", 2, plan=None)
        memories = [peer.staging() for peer in crew.peers]
        requests = [peer.operation("ALLREDUCE", dtype=1, reduce=2, bytes=size, input=0, output=0)
                    for peer in crew.peers]
        served.healthy.peers[0].status()
        crew.peers[1].close()
        try:
            crew.peers[0].expect("OPERATION_DONE", requests[0])
        except Refused as refused:
            assert refused.code == "MEMBER_LOST" and refused.rank == 1
        crew.peers[0].expect("LOST")
        for memory in memories:
            memory.close()
        crew.close()
        wait_until(lambda: served.holdings()["jobs"] == 1, "the end of the job")
    served.go()


def test_more_jobs_than_one_connection_may_have(serve):
    served = serve(settings={"jobs_per_uid": 500})
    peer = served.peer()
    refused = None
    for number in range(200):
        try:
            peer.joined(peer.join_send(f"job{number}", 1))
        except Refused as problem:
            refused = problem
            break
    assert refused is not None and refused.code == "QUOTA" and str(number) in refused.text, refused
    served.go()


def test_memory_is_the_members_after_a_void_step(serve):
    """VOID is told after the daemon's last access: what a survivor writes then stays as it is."""
    served = serve(settings={"workers": 1})
    elements = 1 << 20
    for _ in range(3):
        party = Party(served, survivors=1, buckets=2, elements=elements, ready=(0,))
        peer, plan = party.peers[0], party.plans[0]
        peer.write(plan, 0, [1.0] * elements)
        # The first bucket is being reduced when the member dies without the second.
        party.ready(0, (0,))
        party.child.kill()
        assert peer.outcome(plan)[0] == "VOID"
        at, size = plan.places[0]
        pattern = b"\xa5\x5a\xc3\x3c" * elements
        plan.arena.map[at:at + size] = pattern
        served.go(5)
        assert plan.arena.map[at:at + size] == pattern
        party.child.close()
        peer.close()
        wait_until(lambda: served.holdings()["jobs"] == 1, "the end of the job")


# -- the daemon's own end

def test_sigterm_lets_an_open_step_finish(serve):
    served = serve(settings={"drain_timeout": "1h"})
    served.judged = False
    crew = served.crew("last", 2)
    crew.peers[0].ready(crew.plans[0][0], 0)
    crew.peers[0].status()
    served.daemon.signal(signal.SIGTERM)
    served.daemon.wait_notice(lambda text: "STOPPING=1" in text)
    crew.peers[1].ready(crew.plans[0][1], 0)
    for peer, plan in zip(crew.peers, crew.plans[0]):
        assert peer.outcome(plan)[0] == "COMMITTED"
    assert served.daemon.program.wait() == 0
    served.daemon.expect_clean = False
    for peer in crew.peers:
        with pytest.raises((Hangup, BrokenPipeError, ConnectionResetError)):
            while True:
                peer.receive()


@pytest.mark.parametrize("drain, signals", [("200ms", 1), ("1h", 2)], ids=["in time", "before a second signal"])
def test_sigterm_voids_what_does_not_finish(serve, drain, signals):
    served = serve(settings={"drain_timeout": drain})
    served.judged = False
    crew = served.crew("last", 2)
    crew.peers[0].ready(crew.plans[0][0], 0)
    crew.peers[0].status()
    served.daemon.signal(signal.SIGTERM)
    if signals == 2:
        served.daemon.wait_notice(lambda text: "STOPPING=1" in text)
        served.daemon.signal(signal.SIGTERM)
    for peer, plan in zip(crew.peers, crew.plans[0]):
        outcome, message, _ = peer.outcome(plan)
        assert outcome == "VOID" and message.cause == wire.pb.SHUTDOWN, message
    assert served.daemon.program.wait() == 0
    served.daemon.expect_clean = False


def test_sigterm_with_nobody_in_a_step(serve):
    """Idle members do not hold it up."""
    served = serve(settings={"drain_timeout": "1h"})
    served.judged = False
    served.peer(hello=False)
    served.daemon.signal(signal.SIGTERM)
    assert served.daemon.program.wait() == 0
    served.daemon.expect_clean = False


def test_a_second_daemon_leaves_the_first_ones_socket_alone(serve, build):
    served = serve()
    second = harness.Program(build / harness.DAEMON, "--device", "cpu", "--socket", served.path, "--config",
                             served.daemon.config)
    try:
        assert second.wait() != 0
        assert served.path in second.err
    finally:
        second.destroy()
    served.peer()
    served.go()
