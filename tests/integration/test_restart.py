# SPDX-License-Identifier: Apache-2.0
"""A daemon that ends while jobs run, and another one in its place: no trainer notices more than it must. Members are real
trainers on the public API, driven line by line, whose daemon is killed, or told to stop, at each point of a step."""
import random
import signal
import time
from types import SimpleNamespace

import pytest

from harness import LONG, kill, stop, wait_until
from teams import Training
from trainers import (ask, bring, end, ended, fields, join, joined, opened, restart, say, script, step,
                     together)

PARAMS = ("param weight f32 3000", "param bias f32 40")
PLAN = "plan first=64 bucket=64"


@pytest.fixture
def crew(member):
    """crew(daemon, count) -> members of one job with a plan of two buckets, which have done a step."""
    def start(served, count=2, name="job", options="", **more):
        members = opened(member, served, count, **more)
        join(members, name, options=options)
        together(members, *PARAMS, PLAN)
        assert step(members) == 1
        return members
    return start


def successor(member, served, rank, world):
    """A new process in a lost member's place, up to its plan."""
    fresh, = opened(member, served, 1)
    assert f"rank={rank} " in ask(fresh, f"join name=job world={world} rank={rank}")
    script(fresh, *PARAMS, PLAN)
    return fresh


def generation(member):
    return int(fields(ask(member, "place"))["generation"])


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_between_steps(served, crew, end_daemon):
    members = crew(served)
    addresses = [ask(each, "address 0") for each in members]
    for number in (2, 3):
        restart(served, end_daemon)
        assert step(members) == number, "nothing was open, so nothing is void"
    assert [ask(each, "address 0") for each in members] == addresses
    assert generation(members[0]) == 3
    job = served.job("job")
    assert (job["state"], job["generation"], job["step"], job["void_steps"]) == ("running", 3, 3, 0)
    assert served.log.count("info: job 'job' has been taken back after a restart with 2 members, after") == 2
    assert "goes on" not in served.log, "which is no other fact"
    assert ("gradsyncd ends on SIGTERM: open steps have" in served.log) == (end_daemon is stop)
    assert "stopp" not in served.log, "nobody has sent SIGSTOP"
    together(members, "leave")


@pytest.mark.parametrize("end_daemon", [stop, kill])
@pytest.mark.parametrize("brought", [["ready 1"], ["ready"]])
def test_somebody_had_not_begun(served, crew, end_daemon, brought):
    """No bucket can have been reduced before all had brought it: what was brought is brought again."""
    members = crew(served)
    ask(members[0], "fill 1")
    for command in brought:
        ask(members[0], command)
    members[0].say("finish" if brought == ["ready"] else "place")
    wait_until(lambda: served.job("job")["waiting_for"], "the step to be open")
    restart(served, end_daemon)
    if brought == ["ready"]:
        script(members[1], "fill 2", "ready")
        assert fields(ask(members[1], "finish"))["step"] == "2"
        assert members[0].line().startswith("OK step=2 ")
        assert set(together(members, "check 1.5")) == {"right"}
    else:
        assert members[0].line().startswith("OK ")
        ask(members[0], "ready 0")
        script(members[1], "fill 2", "ready")
        assert end(members) == 2
    assert step(members) == 3


def begin_one_bucket(served, members, name="job"):
    """Bucket 0, which holds the last parameter, is reduced; bucket 1 waits for rank 1."""
    for rank, each in enumerate(members):
        script(each, f"fill {rank + 1}", "ready 1")
    together(members, "wait 1")
    ask(members[0], "ready 0")
    wait_until(lambda: served.job(name)["waiting_for"], "the step to be open")


def void_for(members, finish="finish", code="VOID_RETRY"):
    for rest in together(members, finish, code=code):
        assert "gradsyncd" in rest, rest


def test_killed_in_the_middle_of_a_step(served, crew):
    """Part of the gradients are averages already: the step is void, once, and tried again under its number."""
    members = crew(served)
    begin_one_bucket(served, members)
    restart(served, kill)
    ask(members[1], "ready 0")
    void_for(members)
    assert step(members) == 2
    assert step(members) == 3
    job = served.job("job")
    assert (job["step"], job["void_steps"]) == (3, 1)


def test_stopped_in_the_middle_of_a_step(daemon, crew):
    """Steps that were begun have time to end."""
    served = daemon(settings={"drain_timeout": "60s"})
    members = crew(served)
    begin_one_bucket(served, members)
    served.signal(signal.SIGTERM)
    served.wait_log("ends on SIGTERM: open steps have")
    ask(members[1], "ready 0")
    assert end(members) == 2
    assert served.program.wait() == 0
    served.start()
    assert step(members) == 3
    assert served.job("job")["void_steps"] == 0


def test_stopped_while_a_step_does_not_end(daemon, crew):
    served = daemon(settings={"drain_timeout": "50ms"})
    members = crew(served)
    begin_one_bucket(served, members)
    restart(served, stop)
    ask(members[1], "ready 0")
    void_for(members)
    assert step(members) == 2


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_while_a_plan_is_made(served, member, end_daemon):
    members = joined(member, served, 2)
    together(members, *PARAMS)
    members[0].say(PLAN)
    wait_until(lambda: served.job("job")["waiting_for"], "the plan to wait")
    restart(served, end_daemon)
    ask(members[1], PLAN)
    assert members[0].line().startswith("OK")
    assert step(members) == 1


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_while_a_job_forms(served, member, end_daemon):
    members = opened(member, served, 2)
    members[0].say("join name=job world=2 rank=0")
    wait_until(lambda: served.job("job"), "the job")
    restart(served, end_daemon)
    assert "rank=1 " in ask(members[1], "join name=job world=2 rank=1")
    assert members[0].line().startswith("OK ")
    ask(members[0], "place")
    together(members, "barrier")


@pytest.mark.parametrize("end_daemon", [stop, kill])
@pytest.mark.parametrize("known", [False, True])
def test_while_a_collective_waits(daemon, crew, end_daemon, known):
    """It goes on at the new daemon, also where its staging memory was not agreed yet."""
    served = daemon(settings={"staging_bytes": "1MiB"})
    members = crew(served)
    if known:
        together(members, "allreduce 400000 f32 sum")
    members[0].say("allreduce 400000 f32 sum")
    wait_until(lambda: served.job("job")["waiting_for"], "the collective to wait")
    restart(served, end_daemon)
    assert ask(members[1], "allreduce 400000 f32 sum") == "right"
    assert members[0].line() == "OK right"
    together(members, "barrier")
    assert step(members) == 2


def test_nobody_comes_back(served, member, crew):
    """The daemon is waited for as long as one has said, and then the error names it and that time."""
    served.expect_clean = False
    members = crew(served, env={"GRADSYNC_RECONNECT_TIMEOUT": "0.2"})
    pid = served.pid
    ask(members[0], "ready")
    members[0].say("finish")
    kill(served)
    for line in (members[0].line(), members[1].ask("barrier")):
        assert line.startswith("DAEMON_LOST ") and f"pid {pid}" in line and served.socket in line and "0.2 s" in line, line
    ask(members[1], "leave", "DAEMON_LOST")


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_left_while_there_is_no_daemon(served, crew, end_daemon):
    members = crew(served)
    end_daemon(served)
    members[0].say("leave")
    served.start()
    assert members[0].line() == "OK "
    line = members[1].ask("barrier")
    assert line.startswith("MEMBER_LOST ") and " left after step " in line, line


def looped(daemon, member):
    """A daemon, and a job of two members with loops of their own."""
    served = daemon()
    members = opened(member, served, 2, options="nonblocking=1")
    for rank, each in enumerate(members):
        each.say(f"poll join name=job world=2 rank={rank}")
    assert all(each.line().startswith("OK ") for each in members)
    return served, members


@pytest.mark.parametrize("end_daemon", [stop, kill])
@pytest.mark.parametrize("taken", [0, 1], ids=["by-nobody", "by-one"])
def test_an_answer_that_was_read_but_not_taken(daemon, member, end_daemon, taken):
    """The collective has ended, and callers with loops of their own have not called again: they count it when they do, and so
    does the daemon that follows."""
    served, members = looped(daemon, member)
    served.ctl("pause", "job")
    together(members, "barrier", code="AGAIN")
    served.ctl("resume", "job")
    wait_until(lambda: not served.job("job")["waiting_for"], "the end of the barrier")
    together(members, "dispatch")
    together(members[:taken], "poll barrier")
    restart(served, end_daemon)
    wait_until(lambda: together(members, "dispatch") and (served.job("job") or {}).get("state") == "running", "the return")
    together(members[taken:], "poll barrier")
    assert all(rest.startswith("right") for rest in together(members, "poll allgather 64"))


def test_marks_of_a_caller_with_a_loop_of_its_own(daemon, member):
    """On the way back ready() takes frames from the socket that concern another call: the loop hears of it."""
    served, members = looped(daemon, member)
    together(members, "param weight f32 100", "param bias f32 4", "poll plan first=4 bucket=4")
    ask(members[0], "barrier", "AGAIN")
    before = generation(members[0])
    restart(served, kill)
    ask(members[0], "ready 1")
    wait_until(lambda: members[0].ask("ready 1") and members[1].ask("dispatch") and generation(members[0]) > before, "the return")
    assert ask(members[0], "readable") == "1"
    members[0].say("poll barrier")
    ask(members[1], "poll barrier")
    assert members[0].line().startswith("OK ")


def test_a_signal_while_there_is_no_daemon(served, crew):
    members = crew(served)
    ask(members[0], "ready")
    kill(served)
    members[0].say("finish")
    wait_until(lambda: (members[0].signal(signal.SIGUSR1), members[0]._pump(0.05))[1], "the interruption")
    assert members[0].line().startswith("INTERRUPTED ")
    served.start()
    script(members[1], "fill 1", "ready")
    together(members, "finish")


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_under_load(served, crew, scratch, end_daemon):
    """The daemon goes again and again while trainers do step after step: an orderly end costs nothing, a crash one step at most."""
    members = crew(served, 3)
    restarts = 6
    say(members, f"train until={scratch / 'end'}")
    for _ in range(restarts):
        wait_until(lambda: served.job("job") and served.job("job")["bytes_reduced"] > 0, "steps")
        restart(served, end_daemon)
    (scratch / "end").touch()
    for each in members:
        line = each.line(LONG)
        assert line.startswith("OK ") and fields(line)["wrong"] == "0", line
        assert int(fields(line)["void"]) <= (0 if end_daemon is stop else restarts), line
    together(members, "leave")


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_a_member_that_dies_meanwhile(daemon, crew, member, end_daemon):
    """Its place is empty at the new daemon, and given to the process that is started in its place."""
    served = daemon(settings={"rejoin_grace": "60s"})
    members = crew(served, 3)
    victim = members.pop(1)
    end_daemon(served)
    victim.kill()
    for each in members:
        ask(each, "ready")
        each.say("finish")
    served.start()
    wait_until(lambda: served.job("job") and served.job("job")["state"] == "replacing", "the survivors")
    fresh = successor(member, served, 1, 3)
    ended(members, "VOID_BEHIND")
    members.insert(1, fresh)
    together(members, "state 8 1", "sync 1")
    assert step(members) == 2
    restart(served, end_daemon)
    assert step(members) == 3, "the new process lacks no state any more"


def test_jobs_and_users_do_not_meet(daemon, crew):
    """Two jobs of one user, and one of the same name of another user, each with a step in another state."""
    served = daemon(settings={"socket_mode": "0666"})
    mine, other = crew(served, name="one"), crew(served, name="two")
    theirs = crew(served, name="one", uid=4321)
    begin_one_bucket(served, other, "two")
    bring(theirs[:1])
    restart(served, kill)
    assert step(mine) == 2
    ask(other[1], "ready 0")
    void_for(other)
    assert step(other) == 2
    script(theirs[1], "fill 2", "ready")
    assert end(theirs) == 2


def test_one_process_in_two_jobs(served, member):
    """Over one connection: each goes back to its place, whatever handles the new daemon gives."""
    members = opened(member, served, 2)
    for slot, name in enumerate(("left", "right")):
        together(members, f"job {slot}", f"slot {slot}")
        join(members, name)
        together(members, f"param weight f32 {100 + slot}", "plan")
    for _ in range(2):
        for slot in (1, 0):
            together(members, f"job {slot}", f"slot {slot}")
            step(members)
        restart(served, kill)
    together(members, "leave")


def test_marks_while_there_is_no_daemon(served, crew):
    """ready() and absent() never wait, and what they said is said to the next daemon."""
    members = crew(served)
    together(members, "fill 2")
    kill(served)
    together(members, "absent 1", "ready 0")
    served.start()
    together(members, "finish")
    assert set(together(members, "check 2 0")) == {"right"}


def test_killed_again_and_again_on_the_way_back(served, crew):
    """Daemons that live for a moment only: whatever had been told to one of them is told to the next."""
    members = crew(served, 3)
    say(members, "train 3000")
    for _ in range(15):
        restart(served, kill)
    for each in members:
        line = each.line(LONG)
        rest = fields(line)
        assert line.startswith("OK ") and (rest["step"], rest["wrong"]) == ("3000", "0") and int(rest["void"]) <= 15, line


def test_killed_fifty_times(served, crew, scratch):
    """Each kill costs the open step at most; no sum is wrong, and no supervisor is needed."""
    members = crew(served, 3)
    training = Training(SimpleNamespace(nodes=[served]), members, scratch / "stop")
    chance = random.Random(50)
    for _ in range(50):
        training.go_on(more=chance.randrange(1, 12))
        time.sleep(chance.random() / 50)        # the kill hits any point of a step
        restart(served, kill)
    training.go_on()
    for told in training.end():
        assert told["void"] <= 50, told
