# SPDX-License-Identifier: Apache-2.0
"""Who gets which place in which job: ranks, names, users, incarnations, time-outs and quotas."""
import os
import select

import pytest

import harness
import wire
from harness import wait_until
from peer import Hangup, Plan, Refused, connect, small_plan

ALICE, BOB = 61001, 61002

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


def forming(served, name, world, ranks, **join):
    """Peers that wait in a job which is not full yet: [(peer, request)]."""
    made = []
    for rank in ranks:
        peer = served.peer()
        made.append((peer, peer.join_send(name, world, rank, **join)))
    peer = made[-1][0]

    def waiting():
        return sum(member.unranked for member in peer.status().get("STATUS_MEMBER", []))

    wait_until(lambda: waiting() == len(ranks), "members that wait")
    return made


# -- ranks

def test_requested_ranks_are_granted(serve):
    served = serve()
    peers = [served.peer() for _ in range(4)]
    requests = [peer.join_send("ordered", 4, rank) for peer, rank in zip(peers, (2, 0, 3, 1))]
    assert [peer.joined(request).rank for peer, request in zip(peers, requests)] == [2, 0, 3, 1]
    served.go()


def test_free_ranks_go_to_those_who_asked_for_none(serve):
    served = serve()
    peers = [served.peer() for _ in range(4)]
    requests = [peer.join_send("mixed", 4, rank) for peer, rank in zip(peers, (None, 0, None, 2))]
    ranks = [peer.joined(request).rank for peer, request in zip(peers, requests)]
    assert ranks[1] == 0 and ranks[3] == 2 and sorted(ranks) == [0, 1, 2, 3]
    served.go()


def test_duplicate_rank(serve):
    """The second one is refused with the name of the holder; the first keeps its place."""
    served = serve()
    (first, request), = forming(served, "duplicate", 2, [1])
    second = served.peer()
    answer = second.refusal(second.join_send("duplicate", 2, 1))
    assert answer.code == "RANK_TAKEN"
    assert answer.rank == 1 and answer.pid == os.getpid() and str(os.getpid()) in answer.text
    third = served.peer()
    other = third.join_send("duplicate", 2, 0)
    assert first.joined(request).rank == 1 and third.joined(other).rank == 0
    served.go()


def test_full_job(serve):
    served = serve()
    crew = served.crew("full", 2)
    late = served.peer()
    answer = late.refusal(late.join_send("full", 2))
    assert answer.code == "JOB_FULL" and "full" in answer.text
    answer = late.refusal(late.join_send("full", 2, 0))
    assert answer.code in ("JOB_FULL", "RANK_TAKEN"), answer
    crew.go(2)
    served.go()


def test_more_joins_than_places_at_once(serve):
    served = serve()
    peers = [served.peer() for _ in range(8)]
    with served.daemon.at_once():
        requests = [peer.join_send("crowded", 2) for peer in peers]
    ranks, codes = [], []
    for peer, request in zip(peers, requests):
        try:
            ranks.append(peer.joined(request).rank)
        except Refused as refused:
            codes.append(refused.code)
    assert sorted(ranks) == [0, 1] and codes == ["JOB_FULL"] * 6
    served.go()


def test_another_world_size_in_the_same_moment(serve):
    """The first one is gone before the others come, or while they do: who met it may try again, and their wish counts."""
    served = serve()
    for _ in range(5):
        first, others = served.peer(), [served.peer() for _ in range(4)]
        with served.daemon.at_once():
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
        wait_until(lambda: served.holdings()["jobs"] == 1, "the end of the job")
    served.go()


def test_world_sizes_that_differ(serve):
    served = serve()
    forming(served, "sizes", 3, [0])
    other = served.peer()
    answer = other.refusal(other.join_send("sizes", 4, 1))
    assert answer.code in ("INVALID", "JOB_FULL") and "3" in answer.text and "4" in answer.text, answer
    served.go()


def test_join_timeout_names_the_missing_ranks(serve):
    served = serve()
    (patient, waiting), = forming(served, "sparse", 4, [3])
    hasty = served.peer()
    answer = hasty.refusal(hasty.join_send("sparse", 4, 1, timeout_ms=150))
    assert answer.code == "TIMEOUT"
    assert "0" in answer.text and "2" in answer.text, answer
    others = [served.peer() for _ in range(3)]
    requests = [peer.join_send("sparse", 4, rank) for rank, peer in enumerate(others)]
    assert patient.joined(waiting).rank == 3            # who waits longer is not harmed
    for peer, request in zip(others, requests):
        peer.joined(request)
    served.go()


def test_gone_while_the_job_forms(serve):
    """A member that goes away before the job has formed leaves its place free."""
    served = serve()
    (first, request), (second, _) = forming(served, "fickle", 3, [0, 1])
    second.close()
    replacement, third = served.peer(), served.peer()
    wait_until(lambda: served.holdings()["clients"] == 2 + 3, "the end of the connection")
    requests = [replacement.join_send("fickle", 3, 1), third.join_send("fickle", 3, 2)]
    assert first.joined(request).rank == 0
    assert [replacement.joined(requests[0]).rank, third.joined(requests[1]).rank] == [1, 2]
    served.go()


def test_a_name_is_free_again_after_the_job(serve):
    served = serve()
    for _ in range(3):
        crew = served.crew("again", 2)
        crew.go(2)
        crew.leave()
        crew.close()
    served.go()


def test_a_name_is_free_again_after_a_loss(serve):
    """Survivors of the old job may still be there: a new job of that name is another job."""
    served = serve()
    old = served.crew("phoenix", 2)
    old.go(1)
    old.peers[0].close()
    assert old.peers[1].expect("LOST").rank == 0
    new = served.crew("phoenix", 2)
    new.go(3)
    assert new.peers[0].job != old.peers[1].job
    served.go()


# -- users

@needs_root
def test_a_name_used_by_two_users_is_two_jobs(serve):
    served = serve(settings={"socket_mode": "0666"})
    alice = served.crew("mine", 2, uid=ALICE)
    bob = served.crew("mine", 2, uid=BOB)
    assert alice.peers[0].job != bob.peers[0].job
    for _ in range(3):
        alice.go(1)
        bob.go(1)
    seen = {(job.uid, job.name) for job in served.peer().status()["STATUS_JOB"]}
    assert {(ALICE, "mine"), (BOB, "mine"), (0, "healthy")} <= seen


@needs_root
def test_half_a_job_of_each_user_is_no_job(serve):
    """Same name, different users: neither completes the other's."""
    served = serve(settings={"socket_mode": "0666"})
    alice, bob = served.peer(uid=ALICE), served.peer(uid=BOB)
    requests = [alice.join_send("split", 2, 0, timeout_ms=200), bob.join_send("split", 2, 1, timeout_ms=200)]
    for peer, request in zip((alice, bob), requests):
        assert peer.refusal(request).code == "TIMEOUT"
    served.go()


@needs_root
def test_users_see_their_own_jobs_only(serve):
    served = serve(settings={"socket_mode": "0666"})
    served.crew("secret", 1, uid=ALICE)
    bob = served.peer(uid=BOB)
    snapshot = bob.status()
    assert [job.name for job in snapshot.get("STATUS_JOB", [])] == []
    assert {client.uid for client in snapshot.get("STATUS_CLIENT", [])} <= {BOB}
    assert not snapshot["STATUS_DAEMON"][0].complete
    root = served.peer().status()
    assert "secret" in [job.name for job in root["STATUS_JOB"]] and root["STATUS_DAEMON"][0].complete
    served.go()


@needs_root
def test_another_users_handle_is_worthless(serve):
    """Handles of jobs are small numbers; guessing one gives nothing."""
    served = serve(settings={"socket_mode": "0666"})
    alice = served.crew("guarded", 2, uid=ALICE)
    bob = served.peer(uid=BOB)
    for kind, fields in (("LEAVE", {}), ("STAGING", {}), ("PLAN_COMMIT", {"plan": 0}),
                         ("PLAN_DROP", {"plan": 0})):
        request = bob.send(kind, job=alice.peers[0].job, **fields)
        assert bob.refusal(request).code in ("INVALID", "STATE"), kind
    alice.go(2)
    served.go()


@needs_root
def test_the_mode_of_the_socket_keeps_others_out(daemon):
    made = daemon()
    with pytest.raises(PermissionError):
        connect(made.socket, uid=ALICE).close()
    connect(made.socket).close()


# -- incarnations

def test_stale_incarnation(serve):
    served = serve()
    crew = served.crew("restarted", 2, incarnation=5)
    late = served.peer()
    answer = late.refusal(late.join_send("restarted", 2, incarnation=4))
    assert answer.code == "STALE" and "4" in answer.text and "5" in answer.text, answer
    crew.go(2)
    served.go()


def test_stale_incarnation_while_forming(serve):
    served = serve()
    forming(served, "restarted", 2, [0], incarnation=5)
    late = served.peer()
    assert late.refusal(late.join_send("restarted", 2, 1, incarnation=4)).code == "STALE"
    served.go()


def test_newer_incarnation_supersedes(serve):
    served = serve()
    old = served.crew("restarted", 2, incarnation=1)
    old.go(1)
    old.peers[0].ready(old.plans[0][0], 0)              # and in the middle of a step
    new = served.crew("restarted", 2, incarnation=2)
    for peer in old.peers:
        outcome, message, _ = peer.outcome(old.plans[0][peer.rank])
        assert outcome == "VOID" and message.cause == wire.pb.SUPERSEDED
        lost = peer.expect("LOST")
        assert lost.cause == wire.pb.SUPERSEDED and lost.text
    line, = [line for line in served.daemon.log.splitlines() if "a newer incarnation of the job" in line]
    assert " rank=" not in line and " pid=" not in line, "nobody in particular was lost"
    new.go(3)
    assert {peer.job for peer in old.peers}.isdisjoint(peer.job for peer in new.peers)
    served.go()


def test_newer_incarnation_supersedes_one_that_forms(serve):
    """Those who wait in the old incarnation are told that it is over."""
    served = serve()
    (old, request), = forming(served, "restarted", 2, [0], incarnation=1)
    new = served.crew("restarted", 2, incarnation=2)
    assert old.refusal(request).code in ("STALE", "MEMBER_LOST")
    new.go(2)
    served.go()


# -- quotas

def test_quota_of_clients(serve):
    """Healthy members count too: two of five are theirs."""
    served = serve(settings={"clients_per_uid": 5})
    inside = [served.peer() for _ in range(3)]
    outside = served.peer(hello=False)
    try:
        outside.send("HELLO", minor=0)
    except BrokenPipeError:
        pass
    reason = outside.hangup()
    assert reason is not None and reason.code == "QUOTA" and "clients_per_uid" in reason.text, reason
    served.go()
    inside.pop().close()
    served.admitted()


@needs_root
def test_limit_of_users(serve):
    """Who is here may come again, and whoever looks after the daemon; root's healthy job counts as one."""
    served = serve(settings={"uids": 3, "socket_mode": "0666"})
    inside = [served.peer(uid=uid) for uid in (4001, 4002)]
    outside = served.peer(uid=4003, hello=False)
    reason = outside.hangup()
    assert reason.code == "QUOTA" and "uids in section [limits]" in reason.text and "uid 4003" in reason.text
    served.peer(uid=4002).status()
    served.peer().status()
    inside.pop(0).close()
    served.admitted(uid=4003).status()


def test_quota_of_jobs(serve):
    served = serve(settings={"jobs_per_uid": 3})
    crews = [served.crew(f"job{number}", 1) for number in range(2)]
    peer = served.peer()
    answer = peer.refusal(peer.join_send("one-too-many", 1))
    assert answer.code == "QUOTA" and "jobs_per_uid" in answer.text and "3" in answer.text, answer
    crews[0].leave()
    peer.joined(peer.join_send("fits", 1))
    served.go()


def test_quota_of_arenas(serve):
    served = serve(settings={"arenas_per_uid": 4})
    crew = served.crew("greedy", 1, plan=None)
    peer = crew.peers[0]
    for ordinal in range(2):
        plan = small_plan(1, ordinal=ordinal)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
    answer = peer.refusal(peer.plan_send(small_plan(1, ordinal=2)))
    assert answer.code == "QUOTA" and "arenas_per_uid" in answer.text, answer
    answer = peer.refusal(peer.send("STAGING", job=peer.job))
    assert answer.code == "QUOTA" and "arenas_per_uid" in answer.text, answer
    peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=0)
    plan = small_plan(1, ordinal=3)
    request = peer.plan_send(plan)
    try:
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, request))
    except Refused as refused:          # the refused one's ordinal may have to be used first
        assert refused.code in ("INVALID", "STATE"), refused
        plan = small_plan(1, ordinal=2)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
    served.go()


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


def test_quota_of_file_descriptors_in_connections(serve):
    """A socket and a pidfd each, and whoever comes when that is too much hears which key says so."""
    served = serve(settings={"fds_per_uid": 14, "clients_per_uid": 100})
    inside = []
    for _ in range(20):
        peer = served.peer(hello=False)
        try:
            peer.ask("HELLO", "WELCOME", minor=0)
            inside.append(peer)
        except (Refused, BrokenPipeError, ConnectionResetError) as problem:
            reason = problem if isinstance(problem, Refused) else peer.hangup()
            assert reason.code == "QUOTA" and "fds_per_uid" in reason.text and "14" in reason.text, reason
            break
    assert 2 <= len(inside) < 20
    served.go()
    inside.pop().close()
    served.admitted()


def test_quota_of_file_descriptors_in_arenas(serve):
    served = serve(settings={"fds_per_uid": 12})
    peer = served.crew("greedy", 1, plan=None).peers[0]
    plans, answer = [], None
    while answer is None and len(plans) < 12:
        plan = small_plan(1, ordinal=len(plans))
        request = peer.plan_send(plan)
        try:
            peer.expect("PLAN_AGREED", peer.plan_arena(plan, request))
            plans.append(plan)
        except Refused as refused:
            answer = refused
    assert plans and answer is not None and answer.code == "QUOTA" and "fds_per_uid" in answer.text, answer
    answer = peer.refusal(peer.send("STAGING", job=peer.job))
    assert answer.code == "QUOTA" and "fds_per_uid" in answer.text, answer
    served.go()
    peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=0)
    peer.staging().close()
    served.go()


@needs_root
def test_all_file_descriptors_are_charged(serve):
    """What one user can make the daemon hold is what the limit says, by the kernel's own count."""
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


@needs_root
def test_one_users_full_quota_is_nobody_elses(serve):
    served = serve(settings={"jobs_per_uid": 2, "socket_mode": "0666"})
    for number in range(2):
        served.crew(f"job{number}", 1, uid=ALICE)
    alice = served.peer(uid=ALICE)
    assert alice.refusal(alice.join_send("more", 1)).code == "QUOTA"
    bob = served.crew("bobs", 2, uid=BOB)
    bob.go(2)
    served.go()


def test_descriptions_are_charged(serve):
    """The names that a member sends before anything is agreed count against a quota of their own."""
    served = serve(settings={"plan_bytes_per_uid": "1M"})
    crew = served.crew("wordy", 1, plan=None)
    peer = crew.peers[0]
    params = [(f"{number:05}" + "x" * 240, [1], 0) for number in range(20000)]
    try:
        answer = peer.refusal(peer.plan_send(Plan(params)))
    except (Hangup, BrokenPipeError, ConnectionResetError):
        raise AssertionError("a quota is no reason to hang up") from None
    assert answer.code == "QUOTA" and "plan_bytes_per_uid" in answer.text, answer
    served.go()


def test_descriptions_are_shared(serve):
    """What members say alike is kept once, however far each of them has come; a member that says something
    else has what follows for itself, and is told from the others by it."""
    served = serve(settings={"plan_bytes_per_uid": "3M"})
    crew = served.crew("alike", 5, plan=None)
    params = [(f"{number:05}" + "x" * 200, [1], 0) for number in range(6000)]         # 1.7 MiB
    sent = [peer.plan_send(Plan(params), commit=False) for peer in crew.peers]
    for peer, request in zip(crew.peers, sent):
        peer.send("PLAN_COMMIT", request, job=peer.job, plan=0)
    for peer, request in zip(crew.peers, sent):
        assert peer.expect("PLAN_ARENA", request).bytes
    for peer in crew.peers:
        peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=0)
    other = params[:5990] + [(name.upper(), *rest) for name, *rest in params[5990:]]
    sent = [peer.plan_send(Plan(mine, ordinal=1), commit=False)
            for peer, mine in zip(crew.peers, [params, other, params, params, params])]
    for peer, request in zip(crew.peers, sent):
        peer.send("PLAN_COMMIT", request, job=peer.job, plan=1)
    answer = crew.peers[1].refusal(sent[1])
    assert answer.code == "PLAN_MISMATCH", answer
    assert f'parameter 5990 is "{other[5990][0]}" on rank 1' in answer.text, answer
    served.go()


# -- several at once

def test_many_jobs_take_turns(serve):
    served = serve()
    def plan(ordinal):
        return small_plan(3, elements=20000, ordinal=ordinal)

    crews = [served.crew(f"job{number}", 1 + number % 4, plan) for number in range(8)]
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
        served.go(1)


def test_several_plans_of_one_job(serve):
    """Models that step at different rates."""
    served = serve()
    crew = served.crew("two-models", 2, lambda ordinal: small_plan(2, ordinal=ordinal))
    crew.plan(lambda ordinal: small_plan(3, elements=64, ordinal=ordinal))
    for _ in range(3):
        crew.go(2, ordinal=0)
        crew.go(1, ordinal=1)
    for peer in crew.peers:
        peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=0)
    crew.go(2, ordinal=1)
    served.go()


def test_steps_of_two_plans_open_at_once(serve):
    served = serve()
    crew = served.crew("interleaved", 2, lambda ordinal: small_plan(1, ordinal=ordinal))
    crew.plan(lambda ordinal: small_plan(1, ordinal=ordinal))
    first, second = crew.plans
    one, two = crew.peers
    one.ready(first[0], 0)
    two.ready(second[1], 0)
    one.ready(second[0], 0)
    two.ready(first[1], 0)
    for peer, plans in ((one, (first[0], second[0])), (two, (first[1], second[1]))):
        outcomes = {}
        while len(outcomes) < 2:
            message = peer.expect("STEP")
            if message.outcome != wire.pb.OPEN:
                outcomes[message.plan] = message.outcome
        assert set(outcomes.values()) == {wire.pb.COMMITTED}
        assert set(outcomes) == {plan.ordinal for plan in plans}
    served.go()


def test_a_member_that_leaves_between_steps(serve):
    """The others are told who left; their next step cannot be."""
    served = serve()
    crew = served.crew("parting", 3)
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
    served.go()


def test_all_leave_at_once(serve):
    """Everybody's leave is answered, whoever is first."""
    served = serve()
    crew = served.crew("closing", 4)
    crew.go(1)
    requests = [peer.send("LEAVE", job=peer.job) for peer in crew.peers]
    for peer, request in zip(crew.peers, requests):
        peer.expect("LEFT", request)

    served.go()


def test_a_plan_that_not_all_have_freed_goes_its_own_way(serve):
    """One member has freed it, another one has not: a plan that is agreed on meanwhile counts its steps for
    itself.

    Planted: the track of a plan that some members have freed is given to the next plan (plan_provide.c).
    """
    served = serve()
    crew = served.crew("tracks", 2)
    first, second = crew.peers
    crew.go(3)
    first.ask("PLAN_DROP", "PLAN_DROPPED", job=first.job, plan=0)
    crew.plan(lambda ordinal: small_plan(2, ordinal=ordinal))
    crew.go(2, ordinal=1)
    second.ask("PLAN_DROP", "PLAN_DROPPED", job=second.job, plan=0)
    crew.plan(lambda ordinal: small_plan(2, ordinal=ordinal))
    crew.go(2, ordinal=2)
    crew.go(2, ordinal=1)
    assert served.daemon.job("tracks")["void_steps"] == 0
    crew.leave()
    served.go()
