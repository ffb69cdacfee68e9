# SPDX-License-Identifier: Apache-2.0
"""libgradsync against a real daemon: members driven line by line, each step's numbers known beforehand."""
import os
import pathlib
import select
import signal
import socket
import struct

import pytest

from harness import process_state, wait_until
from peer import Crew, small_plan
from trainers import (ask, bring, connected, crew, end, ending_well, fields, fill, join, joined, opened, say,
                     script, step, together)


@pytest.fixture(name="member")
def member_that_ends_well(member):
    yield from ending_well(member)


# --- steps


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_steps(daemon, member, world):
    members = crew(member, daemon(), world)
    assert [step(members) for _ in range(3)] == [1, 2, 3]
    together(members, "leave", "close")


def test_the_norm_and_the_statistics_of_a_bucket(daemon, member):
    members = crew(member, daemon(), 2, params=["a f32 3", "b f32 4"], options="first=4 bucket=4")
    ask(members[0], "fill 3")
    ask(members[1], "fill 5")
    together(members, "ready")
    infos = [fields(rest) for rest in together(members, "finish")]
    mean = [4, 5, 6]
    wanted = (sum(x * x for x in mean) + sum(x * x for x in mean + [7])) ** 0.5
    assert all(abs(float(info["norm"]) - wanted) < 1e-9 * wanted for info in infos)
    a, b = (int(ask(members[0], f"bucket_of {i}")) for i in (0, 1))
    assert (a, b) == (1, 0)                         # the last registered is launched first
    for each in members:
        assert float(fields(ask(each, f"stats {a} 0"))["norm"]) == pytest.approx((9 + 16 + 25) ** 0.5, rel=1e-12)
        assert float(fields(ask(each, f"stats {a} 1"))["norm"]) == pytest.approx((25 + 36 + 49) ** 0.5, rel=1e-12)
        assert float(fields(ask(each, f"stats {a} -1"))["norm"]) == pytest.approx((16 + 25 + 36) ** 0.5, rel=1e-12)
        ask(each, "stats 2 0", "INVALID")
        ask(each, "stats 0 2", "INVALID")


def test_nonfinite_gradients_name_the_rank(daemon, member):
    members = crew(member, daemon(), 3)
    for rank, each in enumerate(members):
        ask(each, f"fill {rank}")
    ask(members[1], "fill nan 1")
    ask(members[2], "fill inf 2")
    together(members, "ready")
    for info in [fields(rest) for rest in together(members, "finish")]:
        assert (info["nonfinite"], info["nonfinite_rank"]) == ("7", "1")


def sleeping_waiter(pid):
    """Whether a thread of that name sleeps in the process."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text() == "waiter\n" and process_state(f"{pid}/task/{task.name}") == "S":
            return True
    return False


@pytest.mark.parametrize("end", ["committed", "void"])
def test_wait_for_a_step_that_another_thread_finishes(daemon, member, end):
    """finish() receives what both wait for, and the next step is open before the other thread wakes: it is told of its own step.
    It cannot leave the job under who waits."""
    served = daemon(settings={"rejoin_grace": "50ms"})
    members = opened(member, served, 3)
    say(members, "join name=job min=2 max=3 last_call=600000")
    for each in members:
        assert each.line().startswith("OK ")
        ask(each, "param a f32 5")
    together(members, "plan")
    together(members[:2], "ready")
    members[0].say("finish_waited 0")
    wait_until(lambda: sleeping_waiter(members[0].pid), "both threads to sleep")
    if end == "committed":
        ask(members[2], "ready")
        assert members[0].line() == "OK wait=OK leave=STATE"
    else:
        members[2].kill()
        assert members[0].line() == "VOID_RETRY wait=VOID_RETRY leave=STATE"
    ask(members[0], "ready")
    ask(members[0], "ready", "STATE")   # the next step is as it ought to be


def test_wait_for_one_parameter(daemon, member):
    members = crew(member, daemon(), 2, params=[f"p{i} f32 16" for i in range(3)], options="first=64 bucket=64")
    ask(members[0], "wait 2", "STATE")
    for rank, each in enumerate(members):
        script(each, f"fill {rank + 1}", "ready 2")
    together(members, "wait 2")
    for each in members:
        assert ask(each, "check 1.5 2") == "right"
        ask(each, "ready 1 0")
    end(members)


def test_mistakes_are_named_and_harmless(daemon, member):
    members = crew(member, daemon(), 2)
    one = members[0]
    assert '"b"' in ask(one, "finish", "STATE")
    ask(one, "ready 1")
    assert '"b"' in ask(one, "ready 1", "STATE")
    assert '"b"' in ask(one, "absent 1", "STATE")
    ask(one, "ready 3", "INVALID")
    text = ask(one, "finish", "STATE")
    assert '"a", "c"' in text and "2 of 3" in text and "rank 0" in text
    ask(one, "accumulate 1", "STATE")
    ask(one, "plan_free", "STATE")
    ask(one, "plan", "STATE")                       # nothing is registered
    ask(one, "param a f32 0", "INVALID")
    ask(one, "param a 99 1", "INVALID")
    ask(one, "param a f32 4")
    assert '"a"' in ask(one, "param a f32 4", "INVALID")
    ask(one, "plan reduce=99", "INVALID")
    ask(one, "param a f32 4")                       # the plan that could not be has taken its list with it
    ask(one, "plan bucket=0", "INVALID")
    ask(one, "plan", "STATE")                       # so nothing is registered
    ask(one, "allreduce 1 i32 avg", "INVALID")
    ask(one, "broadcast 8 2", "INVALID")
    ask(one, "ready 0 2")
    ask(members[1], "ready")
    together(members, "finish")


@pytest.mark.parametrize("reduce, wanted", [("sum", 6), ("min", 1), ("max", 3), ("prod", 6)])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i32", "i64", "u8"])
def test_reductions(daemon, member, reduce, wanted, dtype):
    members = crew(member, daemon(), 3, params=[f"p {dtype} 1"], options=f"reduce={reduce}")
    bring(members)
    together(members, "finish")
    for each in members:
        assert float(ask(each, "get 0 0")) == wanted


# --- absent, unused, divisor, accumulation


def test_absent_and_unused(daemon, member):
    """The bucket has more parameters than a byte has bits."""
    members = crew(member, daemon(), 2, params=[f"p{i} f32 2" for i in range(20)])
    for each, absent in zip(members, ((3, 10, 15), (10,))):
        ask(each, "fill 4")
        ask(each, "absent " + " ".join(map(str, absent)))
        ask(each, "ready " + " ".join(str(i) for i in range(20) if i not in absent))
    together(members, "finish")
    for each in members:
        assert [i for i, unused in enumerate(ask(each, "unused")) if unused == "1"] == [10]
        values = [float(ask(each, f"get {i} 0")) for i in range(20)]
        assert values == [{3: 2, 10: 0, 15: 2}.get(i, 4) for i in range(20)], "the divisor stays 2"
    together(members, "absent " + " ".join(map(str, range(20))))
    assert {fields(rest)["bytes"] for rest in together(members, "finish")} == {"0"}
    assert set(together(members, "unused")) == {"1" * 20}
    step(members)
    assert set(together(members, "unused")) == {"0" * 20}


def test_absent_adds_nothing_to_a_minimum(daemon, member):
    members = crew(member, daemon(), 2, options="reduce=min")
    assert "min" in ask(members[0], "absent 1", "INVALID")
    bring(members)
    together(members, "finish")
    assert ask(members[1], "check 1") == "right"


def test_divisor_of_a_step(daemon, member):
    members = crew(member, daemon(), 2)
    together(members, "fill 4 0", "divisor 1", "ready")
    ask(members[0], "divisor 2", "STATE")
    together(members, "finish")
    assert float(ask(members[0], "get 0 0")) == 8
    step(members)                                   # and the next one divides by the world size again


def test_divisors_that_differ_end_the_member(served, member):
    members = crew(member, served, 2)
    ask(members[1], "divisor 7")
    ask(members[0], "ready")
    wait_until(lambda: served.job("job")["waiting_for"], "the step to be open")
    ask(members[1], "ready")
    assert "7" in ask(members[1], "finish", "OPERATION_MISMATCH")
    told = ask(members[0], "finish", "VOID_RETRY")
    assert fields(told)["lost_rank"] == "1"
    assert f"it was evicted: step 1: rank 1 (pid {members[1].pid}) divides by 7, the others by 2" in told


def test_accumulation(daemon, member):
    members = crew(member, daemon(), 2)
    for rank, each in enumerate(members):
        ask(each, "accumulate 1")
        for _ in range(3):
            ask(each, "ready")
        assert "accumulate" in ask(each, "finish", "STATE")
        script(each, f"fill {rank + 1}", "accumulate 0")
    together(members, "ready")
    assert end(members) == 1


# --- several plans and jobs


def test_plans_step_at_different_rates(daemon, member):
    members = crew(member, daemon(), 2)
    together(members, "slot 1", "param x f64 100", "param y f64 10", "plan reduce=sum")
    for number in range(1, 7):
        for rank, each in enumerate(members):
            script(each, "slot 1", f"fill {rank}")
        together(members, "ready")
        if number % 3 == 0:                         # while a step of the other plan is open
            together(members, "slot 0")
            assert step(members) == number // 3
            together(members, "slot 1")
        assert {fields(rest)["step"] for rest in together(members, "finish")} == {str(number)}
        assert ask(members[1], "get 0 0") == "1"
    together(members, "slot 1", "plan_free", "slot 0")
    step(members)


def test_jobs_of_one_process(served, member):
    shared = member(served)
    others = [member(served), member(served)]
    together([shared, *others], "open")
    for number, other in enumerate(others):
        script(shared, f"job {number}", f"slot {number}")
        join([shared, other], name=f"job{number}")
        together((shared, other), f"param p f32 {number + 1}")
        together([shared, other], "plan")
    ask(shared, "join name=job1 world=2 rank=0", "STATE")
    for number in (1, 0, 1):
        script(shared, f"job {number}", f"slot {number}")
        step([shared, others[number]])
    others[0].kill()
    script(shared, "job 0", "slot 0", "ready")
    ask(shared, "finish", "VOID_RETRY")
    script(shared, "job 1", "slot 1")
    step([shared, others[1]])                       # the other job has lost no member


def test_addresses_stay_until_the_plan_is_freed(served, member):
    members = crew(member, served, 2)
    before = ask(members[0], "address 1")
    step(members)
    step(members)
    assert ask(members[0], "address 1") == before
    ask(members[1], "ready")
    wait_until(lambda: served.job("job")["waiting_for"], "the step to be open")
    ask(members[0], "plan_free", "STATE")           # refused by the daemon: it is as if it had not been asked
    ask(members[0], "ready")
    together(members, "finish")


# --- many parameters, long names, full sockets


def test_a_plan_of_many_chunks(daemon, member):
    long = "n" * 240
    params = [f"{long}{i} f32 1 1 1 1 1 1 1 1" for i in range(700)]
    members = crew(member, daemon(), 2, params=params, options="first=4 bucket=4")
    step(members)
    bring(members)
    assert {fields(rest)["bytes"] for rest in together(members, "finish")} == {str(700 * 4)}


@pytest.mark.parametrize("nonblocking", [0, 1])
def test_ready_never_blocks_though_the_daemon_does_not_read(served, member, nonblocking):
    poll = "poll " if nonblocking else ""
    members = opened(member, served, 2, options=f"nonblocking={nonblocking}")
    for rank, each in enumerate(members):
        each.say(f"{poll}join name=job world=2 rank={rank}")
    assert all(each.line().startswith("OK ") for each in members)
    for each in members:
        for i in range(3000):
            ask(each, f"param p{i} f32 1")
    together(members, f"{poll}plan first=4 bucket=4")
    fill(members)
    served.program.stop()
    together(members, "ready")                      # more frames than a socket holds
    say(members, f"{poll}finish")
    served.signal(signal.SIGCONT)
    for each in members:
        assert each.line().startswith("OK ")
        assert ask(each, "check 1.5") == "right"


# --- threads


def test_ready_from_many_threads(daemon, member):
    params = [f"p{i} f32 {i + 1}" for i in range(40)]
    members = crew(member, daemon(), 2, params=params, options="first=256 bucket=256")
    fill(members)
    together(members, "threads 4 1")
    assert set(together(members, "check 1.5")) == {"right"}
    together(members, "threads 8 20")


# --- fork


def test_calls_in_a_child(daemon, member):
    members = crew(member, daemon(), 2)
    for _ in range(2):
        text = ask(members[0], "fork")
        calls, found = text.split(" fd=")[0].split(), fields(text)
        assert len(calls) == 17 and set(calls) == {"FORKED"}, text
        assert (found["fd"], found["open"], found["status"]) == ("-1", "OK", "0"), text
        step(members)                               # the parent has noticed nothing


def test_a_child_holds_nothing(served, member):
    members = crew(member, served, 2, params=["p f32 100000"])
    together(members, "allreduce 100 f32 sum")
    ask(members[0], "register 0 65536")
    before = sorted(os.listdir(f"/proc/{members[0].pid}/fd"))
    child = int(ask(members[0], "linger"))
    try:
        kinds = [os.readlink(f"/proc/{child}/fd/{fd}") for fd in os.listdir(f"/proc/{child}/fd")]
        held = [kind for kind in kinds if kind.startswith(("socket:", "anon_inode:", "/memfd:"))]
        assert held == ["/memfd:own (deleted)"], "the trainer's own descriptor"
        with open(f"/proc/{child}/maps", encoding="ascii") as maps:
            assert "memfd" not in maps.read()
        assert sorted(os.listdir(f"/proc/{members[0].pid}/fd")) == before
        ask(members[1], "ready")
        members[1].say("finish")
        members[0].process.kill()                   # the child lives on
        members[0].process.wait()
        info = fields(members[1].line())
        assert info["lost_rank"] == "0" and info["lost_pid"] == str(members[0].pid)
        assert process_state(child) not in ("-", "X", "Z")
    finally:
        os.kill(child, signal.SIGKILL)


# --- nothing stays


def holdings(pid):
    """Descriptors and shared mappings of a process."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        shared = sum(" rw-s " in line for line in maps)
    return len(os.listdir(f"/proc/{pid}/fd")), shared


@pytest.mark.parametrize("code", ["PLAN_MISMATCH", "QUOTA"])
def test_failures_leave_nothing_behind(daemon, member, code):
    served = daemon(settings={"arenas_per_uid": "1"} if code == "QUOTA" else {})
    members = joined(member, served, 2)
    before = [holdings(each.pid) for each in members]
    for number in range(20):
        for each in members:
            ask(each, f"param p{each.pid if code == 'PLAN_MISMATCH' else number} f32 300")
        together(members, "plan", code=code)
    assert [holdings(each.pid) for each in members] == before


# --- losses


def test_a_killed_member(served, member):
    members = crew(member, served, 3)
    step(members)
    ask(members[0], "ready")
    members[0].say("finish")
    ask(members[2], "ready 0 2")
    members[1].kill()
    info = fields(members[0].line())
    assert (info["step"], info["lost_rank"], info["lost_pid"]) == ("2", "1", str(members[1].pid))
    ask(members[2], "wait 0", "VOID_RETRY")
    ask(members[2], "ready 1")                      # absorbed: the step is void already
    said = ask(members[2], "finish", "VOID_RETRY")
    assert fields(said)["lost_rank"] == "1"
    lost = f"job 'job' lost rank 1 (pid {members[1].pid}) after step 1: its process ended"
    assert said.endswith(f"step 2 is void on all members: {lost}; the job is over"), said
    assert ask(members[0], "ready 0", "MEMBER_LOST") == f"{lost}; the job is over"
    assert served.log.count(lost) == 1, served.log
    for each in (members[0], members[2]):
        for command in ("ready 0", "absent 0", "finish", "wait 0", "plan", "param x f32", "plan_free", "barrier", "accumulate 1"):
            text = ask(each, command, "MEMBER_LOST")
            assert "rank 1" in text and str(members[1].pid) in text and "'job'" in text
        ask(each, "leave")
    join([members[0], members[2]], name="job", world=2)     # over the same connections


def test_daemon_killed(served, member):
    """Every call says at once that the daemon is gone, and what to do."""
    served.expect_clean = False
    members = crew(member, served, 2, open_options="reconnect=-1")
    idle = connected(member(served), options="reconnect=-1")
    ask(members[0], "ready")
    members[0].say("finish")
    wait_until(lambda: served.job("job")["waiting_for"], "the step to wait")
    pid = served.pid
    served.program.kill()
    line = members[0].line()
    assert line.startswith("DAEMON_LOST ") and f"pid {pid}" in line and served.socket in line, line
    assert "closed the connection" in line and ": it has ended or crashed; look at its log" in line, line
    for each in members:
        for command in ("barrier", "finish", "ready 0", "absent 1", "wait 0", "plan", "param x f32", "plan_free", "dispatch"):
            line = each.ask(command)
            name = line.split()[0]
            # ready() does not read: only a call that sends or receives can notice
            assert name == "DAEMON_LOST" or (each is members[1] and command in ("ready 0", "finish")), f"{command}: {line}"
        ask(each, "leave", "DAEMON_LOST")
        ask(each, "close")
    ask(idle, "join name=x world=1", "DAEMON_LOST")


def test_a_daemon_that_does_not_answer(served, member):
    """A call that only the daemon can end is given up some time after the daemon's own time-out."""
    members = [member(served), member(served)]
    ask(members[0], "open")
    served.program.stop()
    members[0].say("join name=job world=1 timeout=1")
    text = ask(members[1], "open", "NO_DAEMON")
    assert "stopped" in text and served.socket in text
    line = members[0].line()
    assert line.startswith("DAEMON_LOST ") and "stopped" in line and str(served.pid) in line, line
    ask(members[0], "join name=job world=1", "DAEMON_LOST")
    served.signal(signal.SIGCONT)


def test_signals_while_a_daemon_accepts_nobody(program, scratch):
    """They do not begin the time-out of gradsync_open() anew."""
    path = str(scratch / "full")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        one = program("tests/integration/member", socket=path)
        ask(one, "version")             # its signal handler is there
        one.say("open")
        wait_until(lambda: one.signal(signal.SIGUSR1) or select.select([one.process.stdout], [], [], 0)[0], "an answer")
        line = one.line()
    assert line.startswith("NO_DAEMON ") and "accepts no connection" in line, line


# --- plans that cannot be


# --- stalls


def test_a_stall_is_told_to_the_members(daemon, member):
    served = daemon(settings={"stall_notice": "100ms"})
    members = crew(member, served, 2)
    ask(members[1], "ready 0 2")
    members[1].stop()                   # before the step is open
    ask(members[0], "ready")
    members[0].say("finish")
    served.wait_log(rf"for rank 1 \(pid {members[1].pid}, stopped\): bucket 0")  # not of a plan that came late
    members[1].resume()
    script(members[1], "ready 1", "finish")
    assert members[0].line().startswith("OK ")
    told = ask(members[0], "stall")
    assert f"rank=1 pid={members[1].pid}" in told and "state=stopped" in told and "parameter=b" in told and "job=job" in told
    assert "leave=STATE" in told        # what the callback was told, which is a guest of the call


# --- who am I


@pytest.mark.parametrize("launched", [
    [{"GRADSYNC_JOB": "a", "GRADSYNC_WORLD_SIZE": 2, "GRADSYNC_RANK": rank} for rank in range(2)],
    [{"PMIX_NAMESPACE": "a", "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_RANK": rank} for rank in range(2)],
], ids=["gradsync", "openmpi"])
def test_the_ranks_of_a_launcher_are_one_job(served, member, launched):
    members = [member(served, env=env) for env in launched]
    for each in members:
        ask(each, "open")
        each.say("join")
    said = [fields(each.line().split(" ", 1)[1]) for each in members]
    assert [(each["rank"], each["world"], each["name"]) for each in said] == [("0", "2", "a"), ("1", "2", "a")]
    assert len(served.status()["jobs"]) == 1


def test_options_win_over_the_environment(served, member):
    members = [member(served, env={"GRADSYNC_JOB": "a", "GRADSYNC_WORLD_SIZE": 7, "GRADSYNC_RANK": rank}) for rank in range(2)]
    for each in members:
        ask(each, "open")
        each.say("join world=2 name=other")
    ranks = {fields(each.line().split(" ", 1)[1])["rank"] for each in members}
    assert ranks == {"0", "1"} and served.job("other")


@pytest.mark.parametrize("env, named", [
    ({"PMI_RANK": 0}, "PMI_RANK is set but PMI_SIZE is not"),
    ({}, "only where no gradsyncd listens"),
], ids=["of a launcher", "of nothing"])
def test_beside_a_daemon_nobody_is_alone(served, member, env, named):
    one = connected(member(served, env=env))
    text = ask(one, "join", "INVALID")
    assert "which job?" in text and named in text and "mpirun" in text
    assert fields(ask(one, "join name=named world=1"))["name"] == "named"   # and nothing is lost
    assert [job["name"] for job in served.status()["jobs"]] == ["named"]


# --- without a daemon


@pytest.mark.parametrize("nonblocking", [0, 1])
def test_alone(program, scratch, nonblocking):
    """A loop of the caller, which finds nothing to read, hears of what has ended, and sleeps again."""
    one = program("tests/integration/member", env={"XDG_RUNTIME_DIR": scratch, "GRADSYNC_DEVICE": "cpu:nowhere"})
    ask(one, f"open nonblocking={nonblocking}")
    assert fields(ask(one, "join"))["world"] == "1"
    for param in ("a f32 5", "b bf16 3", "c f64 2", "d f32 1", "e f16 2"):
        ask(one, f"param {param}")
    script(one, "plan", "fill 4", "ready 0 1 2 4", "absent 3")
    info = fields(ask(one, "finish"))
    squares = (16 + 25 + 36 + 49 + 16) + (16 + 25 + 36) + (16 + 25) + (16 + 25)
    assert float(info["norm"]) == pytest.approx(squares ** 0.5, rel=1e-12)
    assert ask(one, "unused") == "00010"
    for param in (0, 1, 2, 4):
        assert ask(one, f"check 4 {param}") == "right"
    script(one, "divisor 3", "fill 4", "ready", "finish")
    thirds = [float(ask(one, f"get {param} 0")) for param in range(5)]      # each to the nearest of its type
    assert thirds == pytest.approx([4 / 3, 1.3359375, 4 / 3, 4 / 3, 1.3330078125], rel=1e-6)
    if not nonblocking:                 # else it would have to be called again
        ask(one, "threads 4 5")
    ask(one, "barrier")
    for command in ("broadcast 100 0", "allgather 100", "allreduce 10 f32 avg", "reduce_scatter 10 f32 sum"):
        assert ask(one, command) == "right"
    ask(one, "dispatch")
    assert ask(one, "readable") == "0"
    script(one, "fork", "leave")
    ask(one, "join name=two world=2", "NO_DAEMON")


def test_not_alone_under_a_launcher(program, scratch):
    env = {"XDG_RUNTIME_DIR": scratch, "GRADSYNC_DEVICE": "cpu:nowhere", "WORLD_SIZE": "1"}
    text = ask(program("tests/integration/member", env=env), "open", "NO_DAEMON")
    for said in (f"{scratch}/gradsync/cpu:nowhere/socket", "/run/gradsync/cpu:nowhere/socket", "WORLD_SIZE"):
        assert said in text


def test_a_named_socket_that_is_not_there(program, scratch):
    one = program("tests/integration/member", env={"GRADSYNC_SOCKET": f"{scratch}/none"})
    assert f"{scratch}/none" in ask(one, "open", "NO_DAEMON")
    assert f"{scratch}/other" in ask(one, f"open socket={scratch}/other", "NO_DAEMON")
    ask(one, f"open socket={'x' * 200}", "INVALID")
    ask(one, "open size=1", "INVALID")
    other = program("tests/integration/member", env={"GRADSYNC_SOCKET": f"{scratch}/none", "GRADSYNC_RECONNECT_TIMEOUT": "soon"})
    assert "GRADSYNC_RECONNECT_TIMEOUT=soon" in ask(other, "open", "INVALID")
    assert "NO_DAEMON" in other.ask("open reconnect=5")


def test_no_permission(served, program):
    os.chmod(served.socket, 0o600)
    one = program("tests/integration/member", socket=served.socket, uid=65534)
    assert served.socket in ask(one, "open", "DENIED")


def test_status_shows_the_times_that_a_library_has_counted(served):
    """The control memory of each plan has the times, in nanoseconds: blocked, and as a whole."""
    crew = Crew(served.socket, "timed", 2, small_plan)
    crew.plan(small_plan)
    for rank, plan, blocked, whole in ((0, 0, 3_000_000, 12_000_000), (0, 1, 1_000_000, 2_000_000),
                                       (1, 0, 7_000, 7_000),
                                       (1, 1, 9_000_000, 8_999_999)):
        crew.plans[plan][rank].page.map[0:16] = struct.pack("<2Q", blocked, whole)
    shown = {row.rank: row for row in crew.peers[0].status()["STATUS_MEMBER"]}
    assert (shown[0].exposed_us, shown[0].exposed) == (4000, 0.375)
    assert (shown[1].exposed_us, shown[1].exposed) == (7, 1)         # what cannot be is left out
    crew.close()
