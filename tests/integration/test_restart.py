# SPDX-License-Identifier: Apache-2.0
"""A daemon that ends while jobs run, and another one in its place: no trainer notices more than it must. Members are real
trainers on the public API, driven line by line, whose daemon is killed, or told to stop, at each point of a step."""
import fcntl
import os
import signal

import pytest

import wire
from harness import CTL, DIGITS, LONG, wait_until
from peer import Peer, Refused, small_plan
from test_client import ask, fields, join, together
from test_digits import events

PARAMS = ("weight f32 3000", "bias f32 40")
PLAN = "plan first=64 bucket=64"


@pytest.fixture
def crew(member):
    """crew(daemon, count) -> members of one job with a plan of two buckets, which have done a step."""
    def start(served, count=2, name="job", options="", **more):
        members = [member(served, **more) for _ in range(count)]
        together(members, "open")
        join(members, name, options=options)
        for each in members:
            for param in PARAMS:
                ask(each, f"param {param}")
        together(members, PLAN)
        assert step(members) == 1
        return members
    return start


def bring(members):
    for rank, each in enumerate(members):
        ask(each, f"fill {rank + 1}")
    together(members, "ready")


def end(members):
    """All finish, with OK, the right averages, and the same number."""
    rests = [fields(rest) for rest in together(members, "finish")]
    for each in members:
        assert ask(each, f"check {(len(members) + 1) / 2}") == "right"
    number, = {rest["step"] for rest in rests}
    assert len({rest["norm"] for rest in rests}) == 1
    return int(number)


def step(members):
    bring(members)
    return end(members)


def stop(served):
    """As `systemctl stop` would, without waiting for what is open longer than it takes."""
    served.signal(signal.SIGTERM)
    assert served.program.wait() == 0, served.log


def kill(served):
    assert served.program.kill() == -signal.SIGKILL


def generation(member):
    return int(fields(ask(member, "place"))["generation"])


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_between_steps(daemon, crew, end_daemon):
    served = daemon()
    members = crew(served)
    addresses = [ask(each, "address 0") for each in members]
    for number in (2, 3):
        end_daemon(served)
        served.start()
        assert step(members) == number, "nothing was open, so nothing is void"
    assert [ask(each, "address 0") for each in members] == addresses
    assert generation(members[0]) == 3
    job = served.job("job")
    assert (job["state"], job["generation"], job["step"], job["void_steps"]) == ("running", 3, 3, 0)
    together(members, "leave")


@pytest.mark.parametrize("end_daemon", [stop, kill])
@pytest.mark.parametrize("brought", [["ready 1"], ["ready"]])
def test_somebody_had_not_begun(daemon, crew, end_daemon, brought):
    """No bucket can have been reduced before all had brought it: what was brought is brought again."""
    served = daemon()
    members = crew(served)
    ask(members[0], "fill 1")
    for command in brought:
        ask(members[0], command)
    members[0].say("finish" if brought == ["ready"] else "place")
    wait_until(lambda: served.job("job")["waiting_for"], "the step to be open")
    end_daemon(served)
    served.start()
    if brought == ["ready"]:
        ask(members[1], "fill 2")
        ask(members[1], "ready")
        assert fields(ask(members[1], "finish"))["step"] == "2"
        assert members[0].line().startswith("OK step=2 ")
        for each in members:
            assert ask(each, "check 1.5") == "right"
    else:
        assert members[0].line().startswith("OK ")
        ask(members[0], "ready 0")
        ask(members[1], "fill 2")
        ask(members[1], "ready")
        assert end(members) == 2
    assert step(members) == 3


def begin_one_bucket(served, members, name="job"):
    """Bucket 0, which holds the last parameter, is reduced; bucket 1 waits for rank 1."""
    for rank, each in enumerate(members):
        ask(each, f"fill {rank + 1}")
        ask(each, "ready 1")
    together(members, "wait 1")
    ask(members[0], "ready 0")
    wait_until(lambda: served.job(name)["waiting_for"], "the step to be open")


def void_for(members, finish="finish", code="VOID_RETRY"):
    for rest in together(members, finish, code):
        assert "gradsyncd" in rest, rest


def test_killed_in_the_middle_of_a_step(daemon, crew):
    """Part of the gradients are averages already: the step is void, once, and tried again under its number."""
    served = daemon()
    members = crew(served)
    begin_one_bucket(served, members)
    kill(served)
    served.start()
    ask(members[1], "ready 0")
    void_for(members)
    assert step(members) == 2
    assert step(members) == 3
    job = served.job("job")
    assert (job["step"], job["void_steps"]) == (3, 1)


def test_stopped_in_the_middle_of_a_step(daemon, crew):
    """What has been begun has time to end."""
    served = daemon(settings={"drain_timeout": "60s"})
    members = crew(served)
    begin_one_bucket(served, members)
    served.signal(signal.SIGTERM)
    served.wait_log("stopping, open steps have")
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
    stop(served)
    served.start()
    ask(members[1], "ready 0")
    void_for(members)
    assert step(members) == 2


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_while_a_plan_is_made(daemon, member, end_daemon):
    served = daemon()
    members = [member(served) for _ in range(2)]
    together(members, "open")
    join(members)
    for each in members:
        for param in PARAMS:
            ask(each, f"param {param}")
    members[0].say(PLAN)
    wait_until(lambda: served.job("job")["waiting_for"], "the plan to wait")
    end_daemon(served)
    served.start()
    ask(members[1], PLAN)
    assert members[0].line().startswith("OK")
    assert step(members) == 1


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_while_a_job_forms(daemon, member, end_daemon):
    served = daemon()
    members = [member(served) for _ in range(2)]
    together(members, "open")
    members[0].say("join name=job world=2 rank=0")
    wait_until(lambda: served.job("job"), "the job")
    end_daemon(served)
    served.start()
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
    end_daemon(served)
    served.start()
    assert ask(members[1], "allreduce 400000 f32 sum") == "right"
    assert members[0].line() == "OK right"
    together(members, "barrier")
    assert step(members) == 2


def test_nobody_comes_back(daemon, member, crew):
    """The daemon is waited for as long as one has said, and then the error names it and that time."""
    served = daemon()
    served.expect_clean = False
    members = crew(served, env={"GRADSYNC_RECONNECT_TIMEOUT": "0.2"})
    pid = served.pid
    ask(members[0], "ready")
    members[0].say("finish")
    kill(served)
    for line in (members[0].line(), members[1].ask("barrier")):
        assert line.startswith("DAEMON_LOST ") and f"pid {pid}" in line and served.socket in line and "0.2 s" in line, line
    ask(members[1], "leave", "DAEMON_LOST")


def test_not_waited_for(daemon, member):
    served = daemon()
    served.expect_clean = False
    each = member(served)
    ask(each, "open reconnect=-1")
    ask(each, "join name=job world=1")
    stop(served)
    assert "stopping" in ask(each, "barrier", "DAEMON_LOST")


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_left_while_there_is_no_daemon(daemon, crew, end_daemon):
    served = daemon()
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
    members = [member(served) for _ in range(2)]
    together(members, "open nonblocking=1")
    for rank, each in enumerate(members):
        each.say(f"poll join name=job world=2 rank={rank}")
    assert all(each.line().startswith("OK ") for each in members)
    return served, members


def test_a_caller_with_a_loop_of_its_own(daemon, member):
    served, members = looped(daemon, member)
    for each in members:
        ask(each, "param weight f32 100")
    together(members, "poll plan")
    members[0].say("poll barrier")
    wait_until(lambda: served.job("job")["waiting_for"], "the barrier to wait")
    kill(served)
    served.start()
    ask(members[1], "poll barrier")
    assert members[0].line().startswith("OK ")
    for rank, each in enumerate(members):
        ask(each, f"fill {rank + 1}")
        ask(each, "ready")
    together(members, "poll finish")


@pytest.mark.parametrize("end_daemon", [stop, kill])
@pytest.mark.parametrize("taken", [0, 1], ids=["by-nobody", "by-one"])
def test_an_answer_that_was_read_but_not_taken(daemon, member, end_daemon, taken):
    """The collective has ended, and callers with loops of their own have not called again: they count it when they do, and so
    does the daemon that follows."""
    served, members = looped(daemon, member)
    served.ctl("pause", "job")
    for each in members:
        assert each.ask("barrier").startswith("AGAIN ")
    served.ctl("resume", "job")
    wait_until(lambda: not served.job("job")["waiting_for"], "the end of the barrier")
    for each in members:
        ask(each, "dispatch")
    together(members[:taken], "poll barrier")
    end_daemon(served)
    served.start()
    wait_until(lambda: together(members, "dispatch") and (served.job("job") or {}).get("state") == "running", "the return")
    together(members[taken:], "poll barrier")
    assert all(rest.startswith("right") for rest in together(members, "poll allgather 64"))


def test_marks_of_a_caller_with_a_loop_of_its_own(daemon, member):
    """What ready() takes from the socket on the way back has an effect on another call: the loop hears of it."""
    served, members = looped(daemon, member)
    for each in members:
        ask(each, "param weight f32 100")
        ask(each, "param bias f32 4")
    together(members, "poll plan first=4 bucket=4")
    ask(members[0], "barrier", "AGAIN")
    before = generation(members[0])
    kill(served)
    served.start()
    ask(members[0], "ready 1")
    wait_until(lambda: members[0].ask("ready 1") and members[1].ask("dispatch") and generation(members[0]) > before, "the return")
    assert ask(members[0], "readable") == "1"
    members[0].say("poll barrier")
    ask(members[1], "poll barrier")
    assert members[0].line().startswith("OK ")


def test_a_signal_while_there_is_no_daemon(daemon, crew):
    served = daemon()
    members = crew(served)
    ask(members[0], "ready")
    kill(served)
    members[0].say("finish")
    wait_until(lambda: (members[0].signal(signal.SIGUSR1), members[0]._pump(0.05))[1], "the interruption")
    assert members[0].line().startswith("INTERRUPTED ")
    served.start()
    ask(members[1], "fill 1")
    ask(members[1], "ready")
    together(members, "finish")


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_under_load(daemon, crew, scratch, end_daemon):
    """The daemon goes again and again while trainers do step after step: an orderly end costs nothing, a crash one step at most."""
    served = daemon()
    members = crew(served, 3)
    restarts = 6
    for each in members:
        each.say(f"train until={scratch / 'end'}")
    for _ in range(restarts):
        wait_until(lambda: served.job("job") and served.job("job")["bytes_reduced"] > 0, "steps")
        end_daemon(served)
        served.start()
    (scratch / "end").touch()
    for each in members:
        line = each.line(LONG)
        assert line.startswith("OK ") and fields(line)["wrong"] == "0", line
        assert int(fields(line)["void"]) <= (0 if end_daemon is stop else restarts), line
    together(members, "leave")


class Returning(Peer):
    """A member made of single frames that comes back: what it says of the past is the test's."""

    def __init__(self, path, uid=None):
        super().__init__(path, uid, hello=False)
        self.ask("HELLO", "WELCOME", minor=wire.MINOR, program="returning", library="peer", pid=os.getpid(), returns=True)
        self.memory = {}

    def plan_arena(self, plan, request, populate=True):
        """Keeps the arena's memfd, as the library does."""
        held = super().expect("PLAN_ARENA", request)
        self.memory[plan.ordinal] = os.dup(self.fds[0])
        self.early.insert(0, type("Kept", (), {"kind": "PLAN_ARENA", "request": request, "message": held, "fds": self.fds})())
        return super().plan_arena(plan, request, populate)

    def close(self):
        for fd in self.memory.values():
            os.close(fd)
        self.memory = {}
        super().close()

    def rejoin_send(self, old, **changes):
        """Asks for the place that `old` had; returns the request."""
        fields = {"job": old.name, "incarnation": 0, "generation": old.generation, "rank": old.rank, "local_rank": old.rank,
                  "world": old.world, "member": old.member, "min_world": old.world, "max_world": old.world, "asked_rank": True,
                  "asked_slot": False, "rejoin_grace_ms": 0, "wait_ms": 60000, "operations": 0, "next_plan": len(old.plans),
                  **changes}
        return self.send("REJOIN", **{key: value for key, value in fields.items() if value is not None})

    def rejoin(self, old, **changes):
        self.job = self.expect("REJOINED", self.rejoin_send(old, **changes)).job
        self.name, self.generation, self.rank = old.name, old.generation, old.rank
        self.world, self.member = old.world, old.member

    def offer(self, plan, fd, step, launched, **changes):
        """Describes a plan again and offers its memory; returns the request."""
        request = self.plan_send(plan, commit=False)
        return self.send("REJOIN_PLAN", request, fds=[fd], job=self.job, plan=plan.ordinal, step=step, launched=launched, **changes)

    def told(self):
        return self.send("REJOIN_END", job=self.job)


@pytest.fixture
def pair(peers):
    """pair(daemon, name, buckets, uid) -> two Returning members of one job with a plan, no step begun."""
    def start(served, name="pair", buckets=2, uid=None):
        made = [peers(Returning(served.socket, uid)) for _ in range(2)]
        requests = [each.join_send(name, 2, rank, rejoin_grace_ms=0) for rank, each in enumerate(made)]
        for each, request in zip(made, requests):
            each.name, each.member = name, each.joined(request).member
        plans = [small_plan(buckets) for _ in made]
        requests = [each.plan_send(plan) for each, plan in zip(made, plans)]
        mapped = [each.plan_arena(plan, request) for each, plan, request in zip(made, plans, requests)]
        for each, request in zip(made, mapped):
            each.expect("PLAN_AGREED", request)
        return made
    return start


def back(peers, served, old, step, launched, **changes):
    """The same member at the new daemon, everything told."""
    made = peers(Returning(served.socket))
    made.rejoin(old, **changes)
    for ordinal, plan in old.plans.items():
        made.offer(plan, old.memory[ordinal], step, launched)
        made.plans[ordinal] = plan
    made.told()
    made.memory, old.memory, old.plans = old.memory, {}, {}
    return made


def again(served):
    kill(served)
    served.start()


def go(pair, step):
    for each in pair:
        plan = each.plans[0]
        plan.step = step
        for bucket in range(len(plan.buckets)):
            each.write(plan, bucket, [each.rank + 1.0] * 256)
            each.ready(plan, bucket)
    for each in pair:
        outcome, message, _ = each.outcome(each.plans[0])
        assert outcome == "COMMITTED", message
        assert set(each.read(each.plans[0], 0)) == {1.5}


@pytest.mark.parametrize("said", [dict(launched=0), dict(launched=2, orderly=True)])
def test_untouched(daemon, pair, peers, said):
    """Nobody can have been reduced: either one has not brought anything, or the daemon had said that it ends."""
    served = daemon()
    old = pair(served)
    again(served)
    orderly = said.get("orderly", False)
    new = [back(peers, served, each, 0, 2 if each.rank == 0 else said["launched"], orderly=orderly) for each in old]
    for each in new:
        resumed = each.expect("RESUMED")
        assert (resumed.generation, resumed.operations) == (2, 0)
        each.generation = 2
    go(new, 1)


def test_a_plan_that_comes_back_is_refused_once(daemon, pair, peers):
    """The memory that ends a description is part of the same request: what was refused before it is not refused again."""
    served = daemon()
    old = pair(served)
    again(served)
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
    other = served.peer(minor=1)
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


@pytest.mark.parametrize("orderly", [[False, False], [True, False]])
def test_begun(daemon, pair, peers, orderly):
    """All had brought a bucket, and not all have heard of an orderly end: what the daemon did with it is not known."""
    served = daemon()
    old = pair(served)
    again(served)
    new = [back(peers, served, each, 0, 1, orderly=orderly[each.rank]) for each in old]
    for each in new:
        newgen = each.expect("NEWGEN")
        assert (newgen.generation, newgen.behind, newgen.cause) == (2, False, wire.pb.RESTARTED)
        each.generation = 2
    go(new, 1)
    assert served.job("pair")["void_steps"] == 1


def test_one_has_heard_of_the_commit(daemon, pair, peers):
    """It is committed, then; the other one has not the results, and takes the state."""
    served = daemon()
    old = pair(served)
    again(served)
    new = [back(peers, served, each, 1 if each.rank == 0 else 0, 0 if each.rank == 0 else 2) for each in old]
    assert new[1].expect("PLAN_STEP").step == 1
    for each in new:
        newgen = each.expect("NEWGEN")
        assert (newgen.generation, newgen.behind) == (2, True)
        each.generation = 2
    assert not [frame for frame in new[0].early if frame.kind == "PLAN_STEP"]
    go(new, 2)


def test_one_has_heard_of_the_next_generation(daemon, pair, peers):
    """The daemon was killed while it told of a generation: void if it was a new one for who was told, else not."""
    served = daemon()
    old = pair(served)
    for resumed in (False, True):
        again(served)
        new = [back(peers, served, each, 0, 2, generation=each.generation + each.rank,
                    resumed=resumed and each.rank == 1) for each in old]
        for each in new:
            message = each.expect("RESUMED" if resumed else "NEWGEN")
            assert message.generation == each.generation + 2
            each.generation = message.generation
        old = new


def test_operations_that_had_ended(daemon, pair, peers):
    """One has heard that the operation is done: it is for the other one, too, and the sequence goes on."""
    served = daemon()
    old = pair(served)
    again(served)
    new = [back(peers, served, each, 0, 0, operations=5 - each.rank) for each in old]
    for each in new:
        resumed = each.expect("RESUMED")
        assert (resumed.operations, resumed.operation_failed) == (5, False)
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


def test_places_that_cannot_be(daemon, pair, peers):
    """Wrong claims are refused by name, and the job goes on with those who were right."""
    served = daemon()
    old = pair(served)
    again(served)
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
    for each in (first, second):
        each.generation = each.expect("RESUMED").generation
    refused(liar, liar.rejoin_send(first, generation=1), "STALE", "gone on without")
    go([first, second], 1)
    stranger = peers(Returning(served.socket))
    refused(stranger, stranger.send("REJOIN_END", job=1), "INVALID", "no member")


def test_anothers_job(daemon, pair, peers):
    """A name belongs to a uid: who claims another one's place claims one of his own."""
    served = daemon()
    old = pair(served)
    again(served)
    os.chmod(served.socket, 0o666)
    thief = peers(Returning(served.socket, 1234))
    thief.rejoin(old[0])
    new = [back(peers, served, each, 0, 0) for each in old]
    for each in new:
        each.generation = each.expect("RESUMED").generation
    go(new, 1)
    assert served.job("pair", uid=1234)["state"] == "replacing"


def memfd(size, seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW, flags=0):
    fd = os.memfd_create("offered", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def populated(size, *seals):
    fd = memfd(size, 0)
    os.posix_fallocate(fd, 0, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, *seals)
    return fd


def test_memory_that_cannot_be(daemon, pair, peers, tmp_path):
    """The daemon maps nothing that could take its pages away, or that it would be the first to touch."""
    served = daemon()
    old = pair(served)
    size = old[0].plans[0].bytes
    again(served)
    made = peers(Returning(served.socket))
    made.rejoin(old[0])
    (tmp_path / "file").write_bytes(bytes(size))
    offers = [(memfd(size, 0), "F_SEAL"), (memfd(size - 4096), str(size)), (populated(size + 4096, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW), str(size)), (memfd(size), "touched"),
              (os.open(tmp_path / "file", os.O_RDWR), "memfd"), (os.open("/dev/null", os.O_RDWR), "memfd"), (os.pipe()[0], "pipe")]
    for fd, word in offers:
        request = made.offer(old[0].plans[0], fd, 0, 0)
        os.close(fd)
        refused(made, request, "INVALID", word)
    request = made.plan_send(old[0].plans[0], commit=False)
    refused(made, made.send("REJOIN_PLAN", request, job=made.job, plan=0, step=0, launched=0), "INVALID", "missing")
    request = made.send("REJOIN_PLAN", fds=[old[0].memory[0]], job=made.job, plan=0, step=0, launched=9)
    refused(made, request, "INVALID", "9 of 2")
    made.offer(old[0].plans[0], old[0].memory[0], 0, 0)
    made.plans, made.memory, old[0].plans, old[0].memory = old[0].plans, old[0].memory, {}, {}
    made.told()
    other = back(peers, served, old[1], 0, 0)
    for each in (made, other):
        each.generation = each.expect("RESUMED").generation
    go([made, other], 1)


def test_plans_that_differ_after_a_restart(daemon, pair, peers):
    served = daemon()
    old = pair(served)
    again(served)
    first = back(peers, served, old[0], 0, 0)
    second = peers(Returning(served.socket))
    second.rejoin(old[1])
    other = small_plan(2, elements=512)
    fd = populated(other.bytes, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    refused(second, second.offer(other, fd, 0, 0), "PLAN_MISMATCH", "rank 0", "rank 1")
    os.close(fd)
    second.close()
    assert first.expect("LOST").rank == 1


def test_a_place_that_stays_empty(daemon, pair, peers):
    """Whoever does not come back in time is lost as if it had died."""
    served = daemon()
    old = pair(served)
    again(served)
    first = back(peers, served, old[0], 0, 2, wait_ms=10000)   # it has to say by then what it has, itself
    lost = first.expect("LOST")
    assert "restarted" in lost.text
    late = peers(Returning(served.socket))
    late.rejoin(old[1])                # nobody is left: it is a job of its own, which it waits in


def test_a_place_that_an_operator_gives_up(daemon, pair, peers):
    served = daemon()
    old = pair(served)
    again(served)
    first = back(peers, served, old[0], 0, 2)
    waits, = served.job("pair")["waiting_for"]
    assert (waits["rank"], waits["what"]) == (1, "join")
    served.ctl("evict", "pair", 1)
    assert "restarted" in first.expect("LOST").text
    served.wait_log("has nobody wait any longer for a member that did not come back to")


def test_who_comes_and_does_not_say_what_it_has(daemon, pair, peers):
    served = daemon()
    old = pair(served)
    again(served)
    silent = peers(Returning(served.socket))
    silent.rejoin(old[1], wait_ms=100)
    assert silent.hangup().code == "TIMEOUT"


def test_a_newcomer_takes_the_place_of_the_dead(daemon, pair, peers):
    """A process that was started again comes before or after the survivors: it gets the place, and they are told."""
    served = daemon()
    for before in (True, False):
        name = f"pair{before}"
        old = pair(served, name)
        again(served)
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


def test_a_newcomer_does_not_push_anybody_out(daemon, pair, peers):
    served = daemon()
    old = pair(served)
    again(served)
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
    assert "stopping" in made.expect("LOST").text
    made.expect("RESTARTING")
    assert made.hangup() is None
    assert served.program.wait() == 0
    served.start()


@pytest.mark.heavy
@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_training_that_nobody_could_tell_from_another(daemon, program, build, end_daemon):
    """digits ends with the parameters of a run whose daemon nobody touched."""
    served = daemon()
    arguments = ["-n", "2", "--job", "digits", "--", build / DIGITS, "--json", "--epochs", "60"]

    def hashes(disturb):
        run = program(CTL, "run", *arguments, socket=served.socket)
        disturb()
        assert run.wait(LONG) == 0, run.err
        found = events(run.out)
        return {event["hash"] for event in found if event["event"] == "end"}

    def restarts():
        for _ in range(3):
            wait_until(lambda: served.job("digits") and served.job("digits")["bytes_reduced"] > 0, "steps")
            end_daemon(served)
            served.start()

    undisturbed = hashes(lambda: None)
    assert len(undisturbed) == 1 and hashes(restarts) == undisturbed


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
    fresh = member(served)
    ask(fresh, "open")
    assert "rank=1 " in ask(fresh, "join name=job world=3 rank=1")
    for param in PARAMS:
        ask(fresh, f"param {param}")
    ask(fresh, PLAN)
    for each in members:
        assert each.line().startswith("VOID_BEHIND ")
    members.insert(1, fresh)
    together(members, "state 8 1")
    together(members, "sync 1")
    assert step(members) == 2


def test_nobody_takes_the_place_of_who_died_meanwhile(daemon, crew):
    """The others wait for it twenty times as long as for a daemon, and are told then."""
    served = daemon()
    members = crew(served, 3, env={"GRADSYNC_RECONNECT_TIMEOUT": "1"})
    kill(served)
    members.pop(1).kill()
    served.start()
    for each in members:
        each.say("barrier")
    for each in members:
        line = each.line()
        assert line.startswith("MEMBER_LOST ") and "restarted" in line, line


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_while_a_lost_member_is_replaced(daemon, crew, member, end_daemon):
    served = daemon(settings={"rejoin_grace": "60s"})
    members = crew(served)
    ask(members[0], "ready")
    members[0].say("finish")
    members.pop().kill()
    wait_until(lambda: served.job("job")["state"] == "replacing", "the loss")
    end_daemon(served)
    served.start()
    fresh = member(served)
    ask(fresh, "open")
    assert "rank=1 " in ask(fresh, "join name=job world=2 rank=1")
    for param in PARAMS:
        ask(fresh, f"param {param}")
    ask(fresh, PLAN)
    assert members[0].line().startswith("VOID_BEHIND ")
    members.append(fresh)
    together(members, "state 8 1")
    together(members, "sync 1")
    assert step(members) == 2


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_a_job_that_can_grow(daemon, member, end_daemon):
    """It has fewer members than it may have: it goes on with them, and takes another one in later."""
    served = daemon()
    members = [member(served) for _ in range(2)]
    together(members, "open")
    for each in members:
        each.say("join name=job min=2 max=3 last_call=1")
    places = [fields(each.line()) for each in members]
    if places[0]["rank"] == "1":
        members.reverse()
    for each in members:
        for param in PARAMS:
            ask(each, f"param {param}")
    together(members, PLAN)
    assert step(members) == 1
    end_daemon(served)
    served.start()
    assert step(members) == 2
    fresh = member(served)
    ask(fresh, "open")
    assert "rank=2 " in ask(fresh, "join name=job min=2 max=3 last_call=1")


def test_jobs_and_users_do_not_meet(daemon, crew):
    """Two jobs of one user, and one of the same name of another user, each with a step in another state."""
    served = daemon(settings={"socket_mode": "0666"})
    mine, other = crew(served, name="one"), crew(served, name="two")
    theirs = crew(served, name="one", uid=4321)
    begin_one_bucket(served, other, "two")
    bring(theirs[:1])
    kill(served)
    served.start()
    assert step(mine) == 2
    ask(other[1], "ready 0")
    void_for(other)
    assert step(other) == 2
    ask(theirs[1], "fill 2")
    ask(theirs[1], "ready")
    assert end(theirs) == 2


def test_one_process_in_two_jobs(daemon, member):
    """Over one connection: each goes back to its place, whatever handles the new daemon gives."""
    served = daemon()
    members = [member(served) for _ in range(2)]
    together(members, "open")
    for slot, name in enumerate(("left", "right")):
        together(members, f"job {slot}")
        together(members, f"slot {slot}")
        join(members, name)
        together(members, f"param weight f32 {100 + slot}")
        together(members, "plan")
    for _ in range(2):
        for slot in (1, 0):
            together(members, f"job {slot}")
            together(members, f"slot {slot}")
            step(members)
        kill(served)
        served.start()
    together(members, "leave")


def test_children_hold_nothing(daemon, crew):
    """The descriptors that are kept for the next daemon are not inherited."""
    served = daemon()
    members = crew(served)
    together(members, "allreduce 100 f32 sum")
    kept = [target for target in os.listdir(f"/proc/{members[0].pid}/fd")
            if "memfd" in os.readlink(f"/proc/{members[0].pid}/fd/{target}")]
    assert len(kept) == 2
    child = int(ask(members[0], "linger"))
    inherited = [os.readlink(f"/proc/{child}/fd/{name}") for name in os.listdir(f"/proc/{child}/fd")]
    os.kill(child, signal.SIGKILL)
    assert not [target for target in inherited if "memfd" in target or "socket" in target or "timerfd" in target], inherited


@pytest.mark.parametrize("end_daemon", [stop, kill])
def test_memory_of_ones_own(daemon, crew, end_daemon):
    """What a trainer has registered is registered with the next daemon, too, before the plans that lie in it; one has a plan there,
    and memory that no plan uses yet."""
    served = daemon()
    members = crew(served)
    ask(members[0], "register 0 65536")
    ask(members[0], "register 1 8192 map=1")
    together(members, "slot 1")
    ask(members[0], "param_at 0 128 own f32 1000")
    ask(members[1], "param own f32 1000")
    together(members, "plan")
    for number in (1, 2):
        assert step(members) == 2 * number - 1
        together(members, "slot 0")
        step(members)
        together(members, "slot 1")
        ask(members[0], "ready")
        end_daemon(served)
        served.start()
        ask(members[1], "fill 2")
        ask(members[1], "ready")
        together(members, "finish")
    together(members, "plan_free")
    for memory in (0, 1):
        ask(members[0], f"unregister {memory}")
    together(members, "slot 0")
    step(members)


def test_marks_while_there_is_no_daemon(daemon, crew):
    """ready() and absent() never wait, and what they said is said to the next daemon."""
    served = daemon()
    members = crew(served)
    for each in members:
        ask(each, "fill 2")
    kill(served)
    for each in members:
        ask(each, "absent 1")
        ask(each, "ready 0")
    served.start()
    together(members, "finish")
    for each in members:
        assert ask(each, "check 2 0") == "right"


def test_killed_again_and_again_on_the_way_back(daemon, crew):
    """Daemons that live for a moment only: whatever had been told to one of them is told to the next."""
    served = daemon()
    members = crew(served, 3)
    for each in members:
        each.say("train 3000")
    for _ in range(15):
        kill(served)
        served.start()
    for each in members:
        line = each.line(LONG)
        rest = fields(line)
        assert line.startswith("OK ") and (rest["step"], rest["wrong"]) == ("3000", "0") and int(rest["void"]) <= 15, line
