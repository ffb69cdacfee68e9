# SPDX-License-Identifier: Apache-2.0
"""Jobs that several users or plans make at once, and the quotas of a user."""
import os
import select

import pytest

import harness
import wire
from harness import wait_until
from peer import Refused, small_plan

ALICE, BOB = 61001, 61002

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


# -- ranks

def test_another_world_size_in_the_same_moment(watched):
    """The first member is gone before the others come, or while they do: one that met it may try again, and
    their wish counts."""
    for _ in range(5):
        first, others = watched.peer(), [watched.peer() for _ in range(4)]
        with watched.daemon.at_once():
            first.join_send("moody", 2)
            first.close()
            waiting = {peer: peer.join_send("moody", 4) for peer in others}
        while waiting:
            answered, _, _ = select.select([peer.sock for peer in waiting], [], [], harness.DEADLINE)
            assert answered, "an answer for one of the others"
            for peer in [peer for peer in waiting if peer.sock in answered]:
                try:
                    peer.joined(waiting.pop(peer))
                except Refused as refused:
                    assert refused.code == "INVALID"    # it was still there
                    waiting[peer] = peer.join_send("moody", 4)
        for peer in others:
            peer.close()
        wait_until(lambda: watched.holdings()["jobs"] == 1, "the end of the job")
    watched.go()



# -- quotas

@needs_root
def test_limit_of_users(serve):
    """A user with a connection may come again, and so may an administrator; root's healthy job counts as one
    user."""
    served = serve(settings={"uids": 3, "socket_mode": "0666"})
    inside = [served.peer(uid=uid) for uid in (4001, 4002)]
    outside = served.peer(uid=4003, hello=False)
    reason = outside.hangup()
    assert reason.code == "QUOTA" and "uids in section [limits]" in reason.text and "uid 4003" in reason.text
    served.peer(uid=4002).status()
    served.peer().status()
    inside.pop(0).close()
    served.admitted(uid=4003).status()


def test_quota_of_bytes(serve):
    served = serve(settings={"bytes_per_uid": "4M"})
    crew = served.crew("fat", 1, plan=None)
    peer = crew.peers[0]
    answer = peer.refusal(peer.plan_send(small_plan(1, elements=2 << 20)))
    assert answer.code == "QUOTA" and "bytes_per_uid" in answer.text, answer
    answer = peer.refusal(peer.plan_send(small_plan(1, elements=1 << 40)))
    assert answer.code in ("QUOTA", "INVALID"), answer
    fits = small_plan(1, elements=512 << 10, ordinal=2)
    peer.expect("PLAN_AGREED", peer.plan_arena(fits, peer.plan_send(fits)))
    again = small_plan(1, elements=512 << 10, ordinal=3)
    answer = peer.refusal(peer.plan_send(again))
    assert answer.code == "QUOTA" and "bytes_per_uid" in answer.text, answer
    peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=2)
    again = small_plan(1, elements=512 << 10, ordinal=4)
    peer.expect("PLAN_AGREED", peer.plan_arena(again, peer.plan_send(again)))
    served.go()


@needs_root
def test_all_file_descriptors_are_charged(serve):
    """The daemon holds at most as much for one user as the limit says, by the kernel's own count."""
    limit = 40
    served = serve(settings={"fds_per_uid": limit, "socket_mode": "0666"})
    before = len(served.before["fds"])
    peer = served.peer(uid=ALICE, pidfd=True)
    peer.joined(peer.join_send("greedy", 1))
    ordinal = 0
    for _ in range(limit):
        plan = small_plan(1, ordinal=ordinal)
        try:
            peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
            ordinal += 1
        except Refused as refused:
            assert refused.code == "QUOTA" and "fds_per_uid" in refused.text, refused
            break
    assert len(served.steady()["fds"]) - before == limit
    served.peer(uid=BOB)                # another user's is another account
    served.go()


# -- several at once

def test_many_jobs_take_turns(watched):
    def plan(ordinal):
        return small_plan(3, elements=20000, ordinal=ordinal)

    crews = [watched.crew(f"job{number}", 1 + number % 4, plan) for number in range(8)]
    for _ in range(5):
        for crew in crews:              # all READY first, so that the daemon has them at the same time
            for peer, plan in zip(crew.peers, crew.plans[0]):
                for param in range(3):
                    peer.write(plan, param, [peer.rank + 1.0] * 20000)
                for bucket in range(3):
                    peer.ready(plan, bucket)
        for crew in crews:
            for peer, plan in zip(crew.peers, crew.plans[0]):
                assert peer.outcome(plan)[0] == "COMMITTED"
                assert set(peer.read(plan, 1)) == {(len(crew.peers) + 1) / 2}
        watched.go(1)


def test_a_member_that_leaves_between_steps(watched):
    """The others are told who left; their next step cannot be."""
    crew = watched.crew("parting", 3)
    crew.go(2)
    crew.peers[1].leave()
    for peer in (crew.peers[0], crew.peers[2]):
        lost = peer.expect("LOST")
        assert lost.rank == 1 and lost.cause == wire.pb.LEAVING
        assert lost.text == (f"job 'parting': rank 1 (pid {os.getpid()}) left after step 2, and takes part "
                             "in nothing any more: all ranks have to make the same calls and as many steps, "
                             "and leave after the last one")
        request = peer.send("PLAN_COMMIT", job=peer.job, plan=1)
        assert peer.refusal(request).code in ("MEMBER_LOST", "INVALID", "STATE")
    for peer in (crew.peers[0], crew.peers[2]):
        peer.leave()
    watched.go()


def test_a_plan_that_not_all_have_freed_goes_its_own_way(watched):
    """One member has freed it, another one has not: a plan that is agreed on meanwhile counts its steps for
    itself.

    Planted: the track of a plan that some members have freed is given to the next plan (plan_provide.c).
    """
    crew = watched.crew("tracks", 2)
    first, second = crew.peers
    crew.go(3)
    first.ask("PLAN_DROP", "PLAN_DROPPED", job=first.job, plan=0)
    crew.plan(lambda ordinal: small_plan(2, ordinal=ordinal))
    crew.go(2, ordinal=1)
    second.ask("PLAN_DROP", "PLAN_DROPPED", job=second.job, plan=0)
    crew.plan(lambda ordinal: small_plan(2, ordinal=ordinal))
    crew.go(2, ordinal=2)
    crew.go(2, ordinal=1)
    assert watched.daemon.job("tracks")["void_steps"] == 0
    crew.leave()
    watched.go()
