# SPDX-License-Identifier: Apache-2.0
"""Orders of operators: members evicted, jobs paused and resumed, the daemon drained; and who may give which
order."""
import contextlib
import grp
import os
import re
import signal
import time

import pytest

import wire
from harness import wait_until
from peer import Crew, Refused

ALICE, BOB, NOBODY = 61001, 61002, 65534
OPEN = {"socket_mode": "0666"}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


@contextlib.contextmanager
def in_groups(groups):
    """Supplementary groups of this process inside."""
    before = os.getgroups()
    os.setgroups(groups)
    try:
        yield
    finally:
        os.setgroups(before)


def order(peer, verb, **fields):
    """One order over a peer's connection; the reply, or Refused."""
    return peer.ask("CONTROL", "CONTROL_DONE", verb=wire.pb.Verb.Value(verb), **fields)


def ready_all(crew):
    for peer, plan in zip(crew.peers, crew.plans[0]):
        for param in range(len(plan.params)):
            peer.write(plan, param, [peer.rank + 1.0] * 256)
        for bucket in range(len(plan.buckets)):
            peer.ready(plan, bucket)


def committed(crew):
    for peer, plan in zip(crew.peers, crew.plans[0]):
        outcome, message, _ = peer.outcome(plan)
        assert outcome == "COMMITTED", message
        assert set(peer.read(plan, 0)) == {(len(crew.peers) + 1) / 2}


# -- evict

@needs_root
def test_an_owner_evicts_a_member_of_its_job(serve):
    served = serve(settings=OPEN)
    crew = served.crew("unruly", 3, uid=ALICE)
    crew.go(2)
    crew.peers[0].ready(crew.plans[0][0], 0)
    assert served.daemon.ctl("evict", "unruly", "1", uid=ALICE) == "evicted\n"
    reason = crew.peers[1].hangup()
    assert reason.code == "MEMBER_LOST" and f"evicted by uid {ALICE}" in reason.text, reason
    for rank in (0, 2):
        outcome, message, _ = crew.peers[rank].outcome(crew.plans[0][rank])
        assert (outcome, message.rank, message.cause) == ("VOID", 1, wire.pb.EVICTED)
        assert f"it was evicted by uid {ALICE}" in message.text
        lost = crew.peers[rank].expect("LOST")
        assert (lost.rank, lost.cause) == (1, wire.pb.EVICTED) and f"uid {ALICE}" in lost.text
    said = [line for line in served.daemon.log.splitlines()
            if re.search(rf"\b(pid|rank).*uid {ALICE}\b.*job=unruly", line)]
    assert len(said) == 1, served.daemon.log
    lost = f"job 'unruly' lost rank 1 (pid {os.getpid()}) after step 2"
    assert f"{lost}: it was evicted by uid {ALICE} [" in said[0]


@needs_root
def test_root_names_a_job_by_its_owner(serve):
    served = serve(settings=OPEN)
    hers, his = served.crew("same", 2, uid=ALICE), served.crew("same", 2, uid=BOB)
    served.daemon.ctl("evict", "same", "0", code=1)            # whose?
    served.daemon.ctl("evict", f"{BOB}/same", "0")
    assert his.peers[0].hangup().code == "MEMBER_LOST"
    assert re.search(rf"job 'same' lost rank 0 .* evicted by uid 0 \[.* uid={BOB} ", served.daemon.log), \
        "whose it was is in the log, too"
    served.crew("same", 2)
    served.daemon.ctl("pause", "same")                          # one's own goes before others'
    assert {job["uid"] for job in served.daemon.status()["jobs"] if job["state"] == "paused"} == {0}
    hers.go(2)


@needs_root
def test_what_cannot_be_evicted(serve):
    served = serve(settings=OPEN)
    crew = served.crew("guarded", 2, uid=ALICE)
    for words, uid, code in ((("guarded", "2"), ALICE, 1), (("guarded", "0"), BOB, 4), ((f"{ALICE}/guarded", "0"), BOB, 4),
                             (("nothing", "0"), 0, 4), (("guarded",), 0, 2), (("guarded", "first"), 0, 2)):
        served.daemon.ctl("evict", *words, uid=uid, code=code)
    waiting = served.peer(uid=BOB)
    waiting.join_send("forming", 2)
    waiting.silent()
    served.daemon.ctl("evict", "forming", "0", code=1)
    crew.go(2)


def test_orders_that_are_none(watched):
    peer = watched.peer()
    for fields in ({"verb": 0}, {"verb": 1}, {"verb": 3}, {"verb": 3, "job": ""}, {}):
        assert peer.refusal(peer.send("CONTROL", **fields)).code in ("INVALID", "UNSUPPORTED")
    peer.send_raw(wire.frame("CONTROL", b"\x08\x63", request=1000))    # a verb of a newer client
    assert peer.refusal(1000).code == "UNSUPPORTED"
    assert not order(peer, "PAUSE", job="absent").found
    watched.daemon.ctl("pause", code=2)
    watched.daemon.ctl("resume", "a", "b", code=2)
    watched.daemon.ctl("drain", "healthy", code=2)


# -- pause and resume

def test_a_paused_job_launches_nothing(watched):
    crew = watched.crew("halted", 2)
    crew.go(3)
    assert watched.daemon.ctl("pause", "halted") == "paused\n"
    ready_all(crew)
    crew.silent()
    job = watched.daemon.job("halted")
    assert (job["state"], job["step"], job["waiting_for"]) == ("paused", 3, [])
    assert "halted  paused" in watched.daemon.ctl("status", "halted")
    watched.go()                         # others go on
    assert watched.daemon.ctl("pause", "halted") == "paused\n"   # it is already
    assert watched.daemon.ctl("resume", "halted") == "resumed\n"
    committed(crew)
    assert watched.daemon.job("halted")["state"] == "running"
    crew.go(2)
    assert len(re.findall(r"uid \d+ pauses job 'halted'", watched.daemon.log)) == 1
    assert len(re.findall(r"uid \d+ resumes job 'halted'", watched.daemon.log)) == 1


def test_nobody_is_blamed_during_a_pause(watched):
    """A job that stalls at the same time shows that there was time enough to be blamed."""
    halted = watched.crew("halted", 2)
    halted.go(1)
    halted.open()
    order(halted.peers[0], "PAUSE", job="halted")
    stalling = watched.crew("stalling", 2)
    stalling.open()
    before = re.sub(r".*uid \d+ pauses.*", "", watched.daemon.log).count("job 'halted'")
    watched.daemon.change(stall_notice="50ms", step_deadline="1s")
    reason = stalling.peers[1].hangup()
    assert reason.code == "MEMBER_LOST" and "the step deadline of 1.0 s has passed" in reason.text, reason
    assert re.sub(r".*uid \d+ pauses.*", "", watched.daemon.log).count("job 'halted'") == before
    watched.daemon.change()
    resumed = time.monotonic()
    order(halted.peers[0], "RESUME", job="halted")
    waits, = halted.peers[0].status()["STATUS_WAIT"]
    assert waits.since_ms <= (time.monotonic() - resumed) * 1000, "the pause counts"
    halted.peers[1].ready(halted.plans[0][1], 0)
    halted.commits()
    halted.go(2)


def test_collectives_wait_for_the_end_of_a_pause(serve):
    served = serve(settings={"stall_notice": "50ms"})
    boss = served.peer()
    crew = served.crew("halted", 2, plan=None)
    order(boss, "PAUSE", job="halted")
    requests = crew.call("BARRIER")
    crew.silent()
    order(boss, "RESUME", job="halted")
    crew.answered(requests)
    order(boss, "PAUSE", job="halted")
    early = crew.peers[0].operation("BARRIER")
    crew.peers[0].status()
    order(boss, "RESUME", job="halted")
    late = crew.peers[1].operation("BARRIER")
    crew.peers[0].expect("OPERATION_DONE", early)
    crew.peers[1].expect("OPERATION_DONE", late)


def test_the_end_of_the_daemon_ends_a_pause(daemon, peers):
    """A complete step is committed before the daemon goes; a pause would only make it void."""
    made = daemon(settings={"drain_timeout": "1h"})
    crew = peers(Crew(made.socket, "halted", 2))
    order(crew.peers[0], "PAUSE", job="halted")
    ready_all(crew)
    crew.peers[1].status()
    made.signal(signal.SIGTERM)
    committed(crew)
    made.expect_clean = False
    assert made.program.wait() == 0, made.log


# -- drain

def test_drain_lets_open_steps_end_and_begins_none(watched):
    crew = watched.crew("underway", 2)
    crew.go(1)
    crew.open()
    assert watched.daemon.ctl("drain", "--no-wait") == "draining: 1 open\n"
    assert "draining" in watched.daemon.ctl("status")
    assert watched.daemon.status()["daemon"]["draining"] is True
    late = watched.peer()
    answer = late.refusal(late.join_send("late", 1))
    assert answer.code == "STATE" and "drained" in answer.text, answer
    ready_all(watched.healthy)           # a new step: waits
    watched.healthy.silent()
    assert watched.daemon.status()["jobs"] and order(late, "DRAIN").open == 1
    crew.open(rank=1)                   # the open one ends
    crew.commits()
    assert watched.daemon.ctl("drain").startswith("quiet")
    watched.healthy.silent()
    assert watched.daemon.ctl("resume") == "resumed\n"
    committed(watched.healthy)
    assert watched.daemon.status()["daemon"]["draining"] is False
    late.joined(late.join_send("late", 1))
    crew.go(2)


def test_drain_says_when_it_is_quiet(watched, program):
    crew = watched.crew("underway", 2)
    crew.open()
    waiting = program("client/cli/gradsyncctl", "drain", socket=watched.path)
    wait_until(lambda: "1 step or collective is still open" in waiting.err, "a word about what is open")
    assert waiting.out == ""
    crew.open(rank=1)
    assert waiting.line().startswith("quiet") and waiting.wait() == 0
    crew.commits()
    watched.daemon.ctl("resume")


def test_a_collective_that_an_open_step_needs_is_let_through(watched):
    """One member waits in a barrier before it is ready: the step that the other has opened could not end otherwise."""
    boss = watched.peer()
    crew = watched.crew("underway", 2)
    crew.open()
    order(boss, "DRAIN")
    crew.operate("BARRIER")
    crew.open(rank=1)
    crew.commits()
    held = crew.call("BARRIER")
    crew.silent()
    order(boss, "RESUME")
    crew.answered(held)


# -- who may

@needs_root
def test_only_some_may_drain(serve):
    served = serve(settings=OPEN)
    crew = served.crew("hers", 1, uid=ALICE)
    for words in (("drain",), ("drain", "--no-wait"), ("resume",)):
        served.daemon.ctl(*words, uid=ALICE, code=5)
    assert served.daemon.status()["daemon"]["draining"] is False
    for peer, may in ((crew.peers[0], False), (served.peer(), True)):       # what others have open is not theirs to know
        assert peer.status()["STATUS_DAEMON"][0].HasField("open") == may


@needs_root
def test_a_job_behind_a_daemon_that_is_not_for_this_user(daemon, program, peers, scratch):
    """On a host with a service that Alice may not use, an order of hers still finds her own daemon's job."""
    places = {"a-service": daemon(), "b-alices": daemon(uid=ALICE, settings=OPEN)}
    for name, made in places.items():
        (scratch / "run/gradsync" / name).mkdir(parents=True)
        (scratch / "run/gradsync" / name / "socket").symlink_to(made.socket)
    peers(Crew(places["b-alices"].socket, "hidden", 1, uid=ALICE, plan=None))

    def ordered(*words):
        made = program("client/cli/gradsyncctl", *words, uid=ALICE, env={"XDG_RUNTIME_DIR": str(scratch / "run"), "TMPDIR": str(scratch)})
        return made.wait(), made.out + made.err
    assert ordered("pause", "hidden") == (0, "paused\n")
    code, said = ordered("pause", "elsewhere")
    assert code == 4 and 'no job "elsewhere"' in said
    (scratch / "run/gradsync/b-alices/socket").unlink()
    code, said = ordered("pause", "hidden")
    assert code == 5 and "a-service/socket: permission denied" in said and "doctor" in said


@needs_root
def test_whose_daemon_it_is_may_drain_it(daemon, peers):
    made = daemon(uid=ALICE, settings=OPEN)
    assert made.ctl("drain", uid=ALICE).startswith("quiet")
    made.ctl("resume", uid=BOB, code=5)
    assert made.ctl("resume", uid=ALICE) == "resumed\n"


@needs_root
@pytest.mark.parametrize("primary", [False, True])
def test_the_admin_group(serve, primary):
    group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, NOBODY))
    served = serve(settings={**OPEN, "admin_group": group.gr_name})
    crew = served.crew("hers", 2, uid=ALICE)
    bob = served.peer(uid=BOB)
    assert not order(bob, "PAUSE", job="hers").found and not bob.status()["STATUS_DAEMON"][0].complete
    with in_groups([] if primary else [4, 5, group.gr_gid]):
        if primary:                     # as_uid() sets group and user to the same number: only the group is wanted here
            os.setegid(group.gr_gid)
            os.seteuid(BOB)
        try:
            admin = served.peer(uid=None if primary else BOB)
        finally:
            if primary:
                os.seteuid(0)
                os.setegid(0)
    seen = admin.status()
    assert seen["STATUS_DAEMON"][0].complete
    assert {job.name for job in seen["STATUS_JOB"]} == {"hers", "healthy"}
    assert order(admin, "PAUSE", job="hers").found
    assert served.daemon.job("hers")["state"] == "paused"
    order(admin, "RESUME", job=f"{ALICE}/hers")
    crew.go(1)
    order(admin, "DRAIN")
    order(admin, "RESUME")
    order(admin, "EVICT", job="hers", rank=1)
    assert f"evicted by uid {BOB}" in crew.peers[1].hangup().text


@needs_root
def test_many_groups_do_not_hide_the_one(serve):
    group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, NOBODY))
    served = serve(settings={**OPEN, "admin_group": group.gr_name})
    with in_groups([*range(70000, 70500), group.gr_gid]):
        admin = served.peer(uid=BOB)
    with in_groups(list(range(70000, 70500))):
        other = served.peer(uid=BOB)
    assert admin.status()["STATUS_DAEMON"][0].complete and not other.status()["STATUS_DAEMON"][0].complete


def test_a_group_that_does_not_exist_is_no_error(serve):
    served = serve("--admin-group=no-such-group-here")


@needs_root
def test_nobody_may_not_connect(serve):
    served = serve(settings=OPEN)
    stranger = served.peer(uid=NOBODY, hello=False)
    reason = stranger.hangup()
    assert reason.code == "DENIED" and "65534" in reason.text and "allow_nobody" in reason.text, reason
    served.daemon.change(**OPEN, allow_nobody="yes")
    assert served.peer(uid=NOBODY).welcome
    with pytest.raises(Refused):
        order(served.peer(uid=NOBODY), "DRAIN")


def test_pause_and_drain_of_steps_are_lifted_each_for_itself(watched):
    boss = watched.peer()
    crew = watched.crew("halted", 2)
    order(boss, "DRAIN")
    order(boss, "PAUSE", job="halted")
    ready_all(crew)
    order(boss, "RESUME")
    crew.silent()
    order(boss, "DRAIN")
    order(boss, "RESUME", job="halted")
    committed(crew)                     # it was no new step any more
    ready_all(crew)
    crew.silent()
    order(boss, "RESUME")
    committed(crew)


def test_pause_and_drain_of_collectives_are_lifted_each_for_itself(watched):
    """A collective goes on when neither holds it any more.

    Planted: the end of a drain starts the collective of a job that is paused (hold.c).
    """
    boss = watched.peer()
    crew = watched.crew("halted", 2, plan=None)
    for first, second in (({}, {"job": "halted"}), ({"job": "halted"}, {})):
        order(boss, "DRAIN")
        order(boss, "PAUSE", job="halted")
        requests = crew.call("BARRIER")
        crew.silent()
        order(boss, "RESUME", **first)
        crew.silent()
        order(boss, "RESUME", **second)
        crew.answered(requests)


def test_the_end_of_a_drain_is_for_all_jobs(watched):
    """Jobs of all users go on, those with steps and those with collectives.

    Planted: only the first job on the list goes on (hold.c).
    """
    crews = [watched.crew(f"held{number}", 2) for number in range(2)]
    gathered = [peer for number in range(2) for peer in watched.crew(f"gathered{number}", 2, plan=None).peers]
    order(watched.healthy.peers[0], "DRAIN")
    for crew in (watched.healthy, *crews):
        ready_all(crew)
    requests = [peer.operation("BARRIER") for peer in gathered]
    for peer in (*gathered, *(peer for crew in crews for peer in crew.peers)):
        assert peer.silent() == []
    order(watched.healthy.peers[0], "RESUME")
    for crew in (watched.healthy, *crews):
        committed(crew)
    for peer, request in zip(gathered, requests):
        peer.expect("OPERATION_DONE", request)
