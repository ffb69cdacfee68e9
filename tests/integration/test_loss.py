# SPDX-License-Identifier: Apache-2.0
"""Members that are lost while something of theirs is under way, the news to the others, and the daemon's own
end.

The law: a step is committed once every bucket of every member was READY, also if a member dies later;
otherwise it is void for all.
"""
import signal

import pytest

import harness
import wire
from harness import wait_until
from peer import Refused, agree, small_plan


@pytest.mark.parametrize("children", [0, 3])
def test_killed_in_an_open_step(watched, children):
    """One survivor has given everything, the other nothing yet: both are told, and the job is at an end.
    Children of the dead process hold copies of its socket; it is gone all the same."""
    def script(peer, turn):
        peer.joined(peer.join_send("party", 3, 2))
        plan = small_plan(2)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
        peer.ready(plan, 0)
        peer.status()                   # answered: the daemon has read what came before
        turn()

    child = watched.child(script, grandchildren=children)
    peers = [watched.peer() for _ in range(2)]
    for peer, request in [(peer, peer.join_send("party", 3, rank)) for rank, peer in enumerate(peers)]:
        peer.joined(request)
    plans = agree(peers, [small_plan(2) for _ in peers])
    child.reached()
    for bucket in range(2):
        peers[0].ready(plans[0], bucket)
    child.kill()
    for peer, plan in zip(peers, plans):
        outcome, void, _ = peer.outcome(plan)
        assert outcome == "VOID", void
        for message in (void, peer.expect("LOST")):
            assert (message.rank, message.pid, message.cause) == (2, child.pid, wire.pb.EXITED), message
            assert "rank 2" in message.text and str(child.pid) in message.text
    for peer in peers:
        answer = peer.refusal(peer.plan_send(small_plan(1, ordinal=1)))
        assert answer.code == "MEMBER_LOST" and "rank 2" in answer.text, answer
        peer.leave()
    watched.go()


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


# -- the daemon's own end


def test_a_second_sigterm_voids_what_is_open(serve):
    served = serve(settings={"drain_timeout": "1h"})
    served.judged = False
    crew = served.crew("last", 2)
    crew.open()
    served.daemon.signal(signal.SIGTERM)
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


def test_a_second_daemon_leaves_the_first_ones_socket_alone(watched, build):
    second = harness.Program(build / harness.DAEMON, "--device", "cpu", "--socket", watched.path, "--config",
                             watched.daemon.config)
    try:
        assert second.wait() != 0
        assert watched.path in second.err
    finally:
        second.destroy()
    watched.peer()
    watched.go()
