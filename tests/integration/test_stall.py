# SPDX-License-Identifier: Apache-2.0
"""A step that waits says whom for: in status at once, and once per stall in the log and to the members."""
import ctypes
import os
import re
import signal
import threading

import pytest

from harness import process_state, wait_until
from peer import Plan, agree, small_plan
from traced import Traced

ALICE, BOB = 61001, 61002

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")

PARAMS = [("embed.weight", [64], 1), ("body.weight", [64], 0), ("body.bias", [64], 0)]


def halt(turn):
    turn()


def stalling(served, how=halt, uid=None, also=None):
    """A job of three, which has done a step. Rank 2 lives in a child that has halted after having done only
    body.bias of the next one. It is alone in the job `also`."""
    def script(peer, turn):
        if also:
            peer.joined(peer.join_send(also, 1, 0))
        peer.joined(peer.join_send("stalling", 3, 2))
        plan = Plan(PARAMS)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
        while True:
            for bucket in range(2):
                peer.ready(plan, bucket)
            assert peer.outcome(plan)[0] == "COMMITTED"
            peer.mark(plan, [2])
            how(turn)
            for bucket in range(2):
                peer.ready(plan, bucket)
            assert peer.outcome(plan)[0] == "COMMITTED"

    child = served.child(script, uid=uid)
    peers = [served.peer(uid=uid) for _ in range(2)]
    for peer, request in [(peer, peer.join_send("stalling", 3, rank)) for rank, peer in enumerate(peers)]:
        peer.joined(request)
    plans = agree(peers, [Plan(PARAMS) for _ in peers])
    go(peers, plans)
    commit(peers, plans)
    child.reached()
    return child, peers, plans


def go(peers, plans):
    for peer, plan in zip(peers, plans):
        for bucket in range(2):
            peer.ready(plan, bucket)


def wait_for_the_child(served, peers, plans):
    """As go(), for a step that stalls: it waits for the child alone, from the first moment on. Earlier
    notices, of a slow machine's own stalls, have been heard."""
    for peer in peers:
        peer.silent()
    with served.daemon.at_once():
        go(peers, plans)


def commit(peers, plans):
    for peer, plan in zip(peers, plans):
        assert peer.outcome(plan)[0] == "COMMITTED"


def test_a_stopped_member_is_named(serve):
    """To the others, in the log, and there once more when it goes on. How status shows it: the next test."""
    served = serve(settings={"stall_notice": "100ms"})
    child, peers, plans = stalling(served)
    child.stop()
    before = len(stall_lines(served.daemon, child.pid))
    wait_for_the_child(served, peers, plans)
    words = ("rank 2", str(child.pid), "stopped", "body.weight")
    for peer in peers:
        stall = peer.expect("STALL")
        assert (stall.bucket, stall.step) == (0, plans[0].step) and stall.since_ms >= 100
        assert all(word in stall.text for word in words), stall.text
    states = {member["rank"]: member["state"] for member in served.daemon.job("stalling")["members"]}
    assert states[2] == "stopped" and states[0] == states[1] == "waiting", states
    assert served.daemon.job("healthy")["waiting_for"] == []
    served.go()
    lines = stall_lines(served.daemon, child.pid)
    assert len(lines) == before + 1, served.daemon.log
    assert all(word in lines[-1] for word in ("stalling", *words)), lines[-1]
    child.signal(signal.SIGCONT)
    child.proceed()
    commit(peers, plans)
    over = rf"notice: job 'stalling', step {plans[0].step - 1}: goes on after waiting \d+\.\d s for rank 2 " \
           rf"\(pid {child.pid}\) \["
    assert len(re.findall(over, served.daemon.log)) == 1, served.daemon.log


def compute(turn):
    """The main thread is busy for as long as the test wants."""
    waiting = threading.Thread(target=turn)
    waiting.start()
    while waiting.is_alive():
        pass


def let_a_thread_compute(turn):
    """The main thread sleeps meanwhile."""
    over = threading.Event()

    def busy():
        while not over.is_set():
            pass

    worker = threading.Thread(target=busy)
    worker.start()
    turn()
    over.set()
    worker.join()


def go_on_without_the_main_thread(turn):
    """The kernel calls a process a zombie whose first thread has ended, though the others go on."""
    threading.Thread(target=turn).start()
    number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    ctypes.CDLL(None).syscall(number, 0)        # exit of one thread: nothing is unwound, no other thread ends


def stop(child):
    child.stop()
    return lambda: child.signal(signal.SIGCONT)


def trace(child):
    return Traced(child.pid).release


@pytest.mark.parametrize("state, how, act", [
    ("running", compute, None), ("running", let_a_thread_compute, None), ("sleeping", halt, None), ("stopped", halt, stop), ("stopped", compute, stop),
    ("traced", halt, trace), ("zombie", go_on_without_the_main_thread, None)])
def test_the_state_of_the_culprit(serve, state, how, act):
    """Status names the culprit with the state of its process, and so does the notice to the others."""
    served = serve(settings={"stall_notice": "200ms"})
    child, peers, plans = stalling(served, how=how)
    if state == "zombie":
        wait_until(lambda: process_state(child.pid) == "Z", "the end of its first thread")
    undo = act(child) if act else None
    wait_for_the_child(served, peers, plans)

    def told():
        found = [(wait["rank"], wait["pid"], wait["bucket"], wait["parameter"], wait["process_state"])
                 for wait in served.daemon.job("stalling")["waiting_for"]]
        return found == [(2, child.pid, 0, "body.weight", state)]

    wait_until(told, f"a wait for a {state} process")
    member, = [each for each in served.daemon.job("stalling")["members"] if each["rank"] == 2]
    assert member["state"] == ("stopped" if state == "stopped" else "late")
    assert f"for rank 2 (pid {child.pid}, {state}): bucket 0, parameter \"body.weight\"" in served.daemon.ctl("status")
    for peer in peers:
        stall = peer.expect("STALL")
        assert (stall.rank, stall.pid, stall.parameter) == (2, child.pid, "body.weight")
        assert stall.process_state == state or state in ("running", "sleeping"), "what it does may change meanwhile"
    if undo:
        undo()
    if state != "zombie":               # nothing is left that could go on with its script
        child.proceed()
        commit(peers, plans)


@needs_root
def test_users_are_told_the_state_of_the_culprit(serve):
    """Users are told what operators are told: the parameter, and the state of a process that leaves the work
    to its threads, though in another job no member waits for it."""
    served = serve(settings={"socket_mode": "0666"})
    child, peers, plans = stalling(served, how=let_a_thread_compute, uid=ALICE, also="other")
    go(peers, plans)

    def told():
        waits = served.daemon.job("stalling", uid=ALICE)["waiting_for"]
        return [(wait["rank"], wait["parameter"], wait["process_state"]) for wait in waits] == [(2, "body.weight", "running")]

    wait_until(told, "a wait for a process whose first thread sleeps")
    child.proceed()
    commit(peers, plans)


def stall_lines(daemon, pid):
    return [line for line in daemon.log.splitlines()
            if ": waiting " in line and re.search(rf"\b{pid}\b", line)]


def test_each_stall_is_told_once(serve):
    """A second stall of the same member is news again; a lasting one is not."""
    served = serve(settings={"stall_notice": "50ms"})
    child, peers, plans = stalling(served)
    for _ in range(3):
        before = len(stall_lines(served.daemon, child.pid))
        wait_for_the_child(served, peers, plans)
        for peer in peers:
            peer.expect("STALL")
        served.go(20)
        wait_until(lambda: served.daemon.job("stalling")["waiting_for"][0]["since_ms"] > 300,
                   "a stall that lasts")
        assert len(stall_lines(served.daemon, child.pid)) == before + 1, served.daemon.log
        assert all(frame.kind != "STALL" for peer in peers for frame in peer.silent())
        child.proceed()
        commit(peers, plans)
        go(peers, plans)
        commit(peers, plans)
        child.reached()


def test_only_a_wait_that_was_logged_ends_in_the_log(serve):
    """Status names it at once, long before that."""
    served = serve(settings={"stall_notice": "1h"})
    child, peers, plans = stalling(served)
    go(peers, plans)
    wait_until(lambda: served.daemon.job("stalling")["waiting_for"], "the wait")
    assert stall_lines(served.daemon, child.pid) == []
    child.proceed()
    commit(peers, plans)
    assert "goes on after" not in served.daemon.log


def test_a_wait_that_ends_with_a_loss_does_not_go_on(serve):
    served = serve(settings={"stall_notice": "50ms"})
    child, peers, plans = stalling(served)
    wait_for_the_child(served, peers, plans)
    for peer in peers:
        peer.expect("STALL")
    child.kill()
    for peer, plan in zip(peers, plans):
        assert peer.outcome(plan)[0] == "VOID"
    served.daemon.wait_log(rf"lost rank 2 \(pid {child.pid}\)")
    assert not re.search("job 'stalling'.*goes on after", served.daemon.log), served.daemon.log


def test_a_member_that_a_debugger_holds_has_no_deadline(serve):
    served = serve(settings={"stall_notice": "50ms"})
    child, peers, plans = stalling(served)
    release = trace(child)
    wait_for_the_child(served, peers, plans)
    served.daemon.change(step_deadline="100ms", stall_notice="50ms")
    wait_until(lambda: served.daemon.job("stalling")["waiting_for"][0]["since_ms"] > 1000, "a wait that lasts")
    served.daemon.change()
    release()
    child.proceed()
    commit(peers, plans)


@needs_root
def test_jobs_of_many_parameters_hide_no_one_elses(serve):
    """The daemon looks at a bounded number of parameters for one piece of an answer; for operators, which see
    the jobs of all users, in each job."""
    served = serve(settings={"socket_mode": "0666"})
    many = [(str(number), [1], 0) for number in range(65536)]
    hers = served.crew("many", 3, lambda ordinal: Plan(many), uid=ALICE), served.crew("few", uid=ALICE)
    his = served.crew("his", uid=BOB)
    for rank in (1, 2):
        hers[0].peers[rank].mark(hers[0].plans[0][rank], range(65536))      # all marked, but it does not say so
    for crew in (*hers, his):
        crew.open()

    def told(**options):
        return {job["name"]: [wait["parameter"] for wait in job["waiting_for"]] for job in served.daemon.status(**options)["jobs"]}

    first = small_plan().params[0][0]
    assert told(uid=BOB) == {"his": [first]}
    alice = told(uid=ALICE)
    assert alice["many"] == [None, None] and alice["few"] in ([None], [first]), "one piece, or two"
    assert told() == {"healthy": [], "many": [None, None], "few": [first], "his": [first]}
    served.go()


@pytest.mark.parametrize("world, told", [(20, 16), (64, 8)])
def test_a_stall_of_many_names_some(serve, world, told):
    """The more there are to tell it to, the fewer."""
    served = serve(settings={"stall_notice": "200ms"})
    crew = served.crew("many", world, plan=None)
    crew.peers[0].operation("BARRIER")
    assert [crew.peers[0].expect("STALL").rank for _ in range(told)] == list(range(1, told + 1))
    assert all(frame.kind != "STALL" for frame in crew.peers[0].silent())
    for peer in crew.peers[1:]:
        peer.operation("BARRIER")
    served.go()


def test_a_collective_that_waits_is_told(serve):
    """To the members and in the log, once."""
    served = serve(settings={"stall_notice": "50ms"})
    crew = served.crew("third", 2, plan=None)
    sequence = crew.peers[1].operation("BARRIER")
    stall = crew.peers[1].expect("STALL")
    assert (stall.rank, stall.pid, stall.step, stall.bucket, stall.parameter) == (0, os.getpid(), 0, 0, "")
    assert served.daemon.job("third")["waiting_for"][0]["what"] == "operation"
    assert f"for rank 0 (pid {os.getpid()}, " in stall.text and "barrier" in stall.text, stall.text
    crew.peers[0].expect("STALL")
    crew.peers[0].operation("BARRIER")
    crew.peers[1].expect("OPERATION_DONE", sequence)
    assert len(re.findall("job 'third'.*barrier: waiting .* for rank 0", served.daemon.log)) == 1, served.daemon.log
    over = rf"job 'third', operation 0, barrier: goes on after waiting \d+\.\d s for rank 0 " \
           rf"\(pid {os.getpid()}\) \["
    assert len(re.findall(over, served.daemon.log)) == 1, served.daemon.log


def test_a_plan_that_waits_is_told(serve):
    """After ten times the patience: it is usual that members are not ready at the same time."""
    served = serve(settings={"stall_notice": "20ms"})
    crew = served.crew("other", 2, plan=None)
    peer, plan = crew.peers[0], small_plan(1)
    peer.plan_arena(plan, peer.plan_send(plan))
    while (stall := peer.expect("STALL")).rank != 1:
        pass                            # a slow machine may have named rank 0, too
    assert (stall.pid, stall.step) == (os.getpid(), 0) and stall.since_ms >= 200
    assert re.search(r"agreement on plan 0: waiting \d+\.\d s for rank 1 \(pid", stall.text), stall.text
    wait_until(lambda: served.daemon.job("other")["waiting_for"][0]["since_ms"] > 600, "a wait that lasts")
    wait, = served.daemon.job("other")["waiting_for"]
    assert (wait["what"], wait["rank"]) == ("plan", 1)
    named = r"job 'other', agreement on plan 0: waiting \d+\.\d s for rank 1"
    assert len(re.findall(named, served.daemon.log)) == 1, served.daemon.log


def test_a_job_that_waits_for_members_is_logged(serve):
    served = serve(settings={"stall_notice": "20ms"})
    joiner = served.peer()
    joiner.join_send("half", 4, 1)
    served.daemon.wait_log(r"job 'half': waiting \d+\.\d s for rank 0 and 2 more to join")
    wait_until(lambda: served.daemon.job("half")["waiting_for"][0]["since_ms"] > 600, "a wait that lasts")
    assert len(re.findall("job 'half': waiting", served.daemon.log)) == 1, served.daemon.log


def test_the_patience_is_three_usual_steps(serve):
    """Where steps take long by themselves, a wait is named when it has lasted three of them, however early a
    notice is wanted.

    Planted: it is named after one (stall.c).
    """
    served = serve(settings={"stall_notice": "10ms"})
    peers = [served.peer() for _ in range(2)]
    for peer, request in [(peer, peer.join_send("slow", 2, rank)) for rank, peer in enumerate(peers)]:
        peer.joined(request)
    plans = agree(peers, [Plan(PARAMS) for _ in peers])

    def lasts(least):
        waits = [wait for wait in peers[0].status().get("STATUS_WAIT", []) if wait.what == "step"]
        return waits and waits[0].since_ms >= least

    for _ in range(5):
        go(peers[:1], plans[:1])
        wait_until(lambda: lasts(200), "a slow step")
        go(peers[1:], plans[1:])
        commit(peers, plans)
    go(peers[:1], plans[:1])
    stall = peers[0].expect("STALL")
    while stall.step != plans[0].step:          # of the first steps, before their usual time was known
        stall = peers[0].expect("STALL")
    assert stall.since_ms >= 3 * 200
    go(peers[1:], plans[1:])
    commit(peers, plans)
