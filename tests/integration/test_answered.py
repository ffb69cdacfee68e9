# SPDX-License-Identifier: Apache-2.0
"""Answers that come before the daemon goes. Their calls are repeated after another daemon has taken the job
back: members with a loop of their own take the answer in one call and learn of it in the next. Such an answer
is neither counted twice nor forgotten."""
import resource
import signal
import threading

import pytest

import harness
import wire
from fake import FakeDaemon
from harness import restart, wait_until
from trainers import ask, connected, fields, join, script, together


def address_space(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def answered(served, member, command):
    """The daemon answers while the member is not in the call."""
    with served.at_once():
        ask(member, command, "AGAIN")
    served.job("job")                   # the daemon answers this request after the member's
    ask(member, "dispatch")


def back(served, members, world=1):
    """Waits until the members' job goes on at the next daemon."""
    before = [fields(ask(each, "place"))["generation"] for each in members]
    wait_until(lambda: [ask(each, "dispatch") for each in members] and
               all(fields(ask(each, "place"))["generation"] != was for each, was in zip(members, before)), "the job to go on")
    assert len(served.job("job")["members"]) == world


@pytest.fixture
def alone(served, member):
    """The daemon, and a member with a loop of its own that is all of its job."""
    made = connected(member(served), options="nonblocking=1")
    ask(made, "poll join name=job world=1")
    return served, made


ENDS = pytest.mark.parametrize("orderly", [True, False])


@ENDS
def test_an_operation_is_counted_once(alone, orderly):
    served, made = alone
    ask(made, "poll barrier")
    answered(served, made, "barrier")
    restart(served, orderly)
    back(served, [made])
    assert ask(made, "barrier") == ""
    ask(made, "poll barrier")
    assert "right" in ask(made, "poll broadcast 100000 0")


@ENDS
def test_registered_memory_is_told_of(alone, orderly):
    """The memory has another number at the next daemon: memory that is registered there next does not get its
    place."""
    served, made = alone
    answered(served, made, "register 0 65536")
    ask(made, "register 1 65536", "STATE")      # another file, though the first one's call has not returned
    restart(served, orderly)
    back(served, [made])
    script(made, "poll register 0 65536", "poll register 1 65536", "param_at 0 0 first f32 100", "poll plan",
           "fill 3", "ready", "poll finish")
    assert ask(made, "check 3") == "right"
    assert ask(made, "unregister 0", "STATE")
    ask(made, "poll unregister 1")


@ENDS
def test_memory_that_was_given_back_stays_so(alone, orderly):
    served, made = alone
    ask(made, "poll register 0 65536")
    answered(served, made, "unregister 0")
    restart(served, orderly)
    back(served, [made])
    ask(made, "poll unregister 0")
    wait_until(lambda: not any("memfd:own" in each for each in served.fds()), "an end of what was given back")


@ENDS
def test_who_has_left_does_not_come_back(alone, orderly):
    served, made = alone
    answered(served, made, "leave")
    restart(served, orderly)
    script(made, "job 1", "poll join name=other world=1")
    assert served.job("job") is None
    script(made, "job 0", "leave")


@ENDS
def test_staging_memory_is_told_of(alone, orderly):
    served, made = alone
    for _ in range(2):                  # the memory, and that it is mapped
        answered(served, made, "broadcast 100000 0")
    restart(served, orderly)
    back(served, [made])
    assert "right" in ask(made, "poll broadcast 100000 0")
    assert "right" in ask(made, "poll allgather 100000")


def test_a_plan_whose_end_was_not_said(alone):
    """The socket is full, the daemon goes, and the one that follows knows of the plan until it hears of its end."""
    served, made = alone
    for i in range(3000):
        ask(made, f"param p{i} f32 16")
    script(made, "poll plan first=64 bucket=64", "slot 1", "param other f32 16", "poll plan")
    with served.at_once():
        ask(made, "slot 0")
        ask(made, "ready")              # more than the socket holds
        ask(made, "slot 1")
        ask(made, "plan_free", "AGAIN")
        assert served.program.kill() == -signal.SIGKILL
        served.start()
    back(served, [made])
    ask(made, "poll plan_free")
    assert len(served.job("job")["plans"]) == 1
    ask(made, "slot 0")
    ask(made, "poll finish")            # the journal says that nothing of the step was begun


class Forming(FakeDaemon):
    """Forms a job of two, of which it has rank 0; on() does what follows, and says whether it goes on."""

    def __init__(self, path):
        self.instance = 0
        super().__init__(path)

    def _talk(self, client):
        while data := client.recv(wire.FRAME_MAX):
            head, message = wire.parse(data)
            if head.type == wire.pb.HELLO and not self.refuse:
                self.instance += 1
                self._send(client, head, "WELCOME", wire.pb.Welcome(instance=self.instance, device="cpu",
                                                                    version="0.1.0"))
            elif head.type == wire.pb.JOIN:
                self._send(client, head, "JOINED", wire.pb.Joined(job=1, generation=1, rank=0, local_rank=0, world=2,
                                                                  member=1))
            elif not self.on(client, head, message):
                return

    def _refuse(self, client, head, code, text):
        self._send(client, head, "REFUSED", wire.pb.Refused(code=wire.pb.Code.Value(code), text=text))


class Ending(Forming):
    """Refuses an operation because of a loss, and tells the loss to all only then, as a daemon does when nothing is
    done in the job any more; or refuses it with `code`, and goes. It answers when the test lets it."""

    def __init__(self, path, code="MEMBER_LOST", goes=False):
        self.operations, self.code, self.goes = 0, code, goes
        self.may_answer, self.has_told = threading.Event(), threading.Event()
        super().__init__(path)

    def on(self, client, head, message):
        self.operations += 1
        self.may_answer.wait()
        self._refuse(client, head, self.code, "rank 1 is gone")
        if self.goes:
            return False
        client.send(wire.frame("LOST", wire.pb.Lost(
            job=1, generation=1, rank=1, pid=77, cause=wire.pb.EXITED,
            text="job 'ending' lost rank 1 (pid 77) after step 0: it exited")))
        self.has_told.set()
        return True


@pytest.mark.parametrize("at_once", [False, True])
def test_refused_for_a_loss(program, fake, at_once):
    """The call returns when the loss is known, also if that has come with the answer. Each call after it says
    the same of its own knowledge."""
    ending = fake(kind=Ending)
    each = connected(program(harness.MEMBER, socket=ending.path), "name=ending world=2 rank=0")
    each.say("barrier")
    wait_until(lambda: ending.operations == 1, "the operation")
    if at_once:
        each.stop()
    ending.may_answer.set()
    if at_once:
        wait_until(ending.has_told.is_set, "both messages to be sent")
        each.resume()
    lines = [each.line(), *(each.ask(command) for command in ("barrier", "allreduce 1 f32 sum"))]
    for line in lines:
        assert line.startswith("MEMBER_LOST ") and "rank 1 (pid 77)" in line and "it exited" in line, lines
    assert ending.operations == 1


@pytest.mark.parametrize("code", ["MEMBER_LOST", "VOID_RETRY"])
def test_the_daemon_goes_before_the_loss_is_told(program, fake, code):
    """No daemon tells the outcome: the call returns all the same, and gives up no sooner than the
    connection."""
    ending = fake(kind=Ending, code=code, goes=True)
    ending.may_answer.set()
    each = connected(program(harness.MEMBER, socket=ending.path), options="reconnect=-1")
    ask(each, "join name=ending world=2 rank=0")
    for _ in range(2):
        assert "closed the connection" in ask(each, "barrier", "DAEMON_LOST")


def test_the_daemon_goes_while_a_place_is_kept(daemon, member):
    """The step is void, as it was before. No daemon tells what follows."""
    served = daemon(settings={"rejoin_grace": "60s"})
    members = [member(served) for _ in range(2)]
    together(members, "open reconnect=-1")
    join(members)
    together(members, "param first f32 100", "plan")
    ask(members[0], "ready")
    members[1].kill()
    wait_until(lambda: served.job("job")["state"] == "replacing", "the loss to be seen")
    members[0].say("finish")
    served.expect_clean = False
    assert served.program.kill() == -signal.SIGKILL
    assert members[0].line().startswith("VOID_RETRY ")
    assert "closed the connection" in ask(members[0], "finish", "DAEMON_LOST")


def test_staging_memory_that_could_not_be_mapped(daemon, member):
    """The daemon has given it, and gives it once."""
    served = daemon(settings={"staging_bytes": "64M"})
    made = connected(member(served), options="reconnect=-1")
    join([made])
    was = resource.prlimit(made.pid, resource.RLIMIT_AS)
    resource.prlimit(made.pid, resource.RLIMIT_AS, (address_space(made.pid) + (32 << 20), was[1]))
    for _ in range(2):
        assert "ulimit -v" in ask(made, "broadcast 100000 0", "NO_MEMORY")
    resource.prlimit(made.pid, resource.RLIMIT_AS, was)
    for _ in range(2):
        assert "right" in ask(made, "broadcast 100000 0")


class Refusing(Forming):
    """Takes one client, goes at its first operation, and refuses all later clients."""

    def on(self, client, head, message):
        if self.refuse:
            client.send(wire.frame("REFUSED", wire.pb.Refused(code=wire.pb.QUOTA, text=self.refuse)))
        self.refuse = "uid 7 has too many connections"
        return False


def test_the_daemon_that_follows_refuses(program, fake):
    """The text does not say that no daemon has answered, where one did."""
    refusing = fake(kind=Refusing)
    each = connected(program(harness.MEMBER, socket=refusing.path), options="reconnect=1500")
    ask(each, "join name=job world=2 rank=0")
    for _ in range(2):
        text = ask(each, "barrier", "DAEMON_LOST")
        assert "uid 7 has too many connections" in text and "no other one has answered" not in text, text


class Following(Forming):
    """Refuses an operation for a loss and goes; then takes the member back, and does its operations."""

    def __init__(self, path):
        self.sequences = []
        super().__init__(path)

    def on(self, client, head, message):
        if head.type == wire.pb.REJOIN:
            self._send(client, head, "REJOINED", wire.pb.Rejoined(job=1))
        elif head.type == wire.pb.REJOIN_END:
            client.send(wire.frame("RESUMED", wire.pb.Resumed(job=1, generation=2, operations=0)))
        elif head.type == wire.pb.OPERATION:
            self.sequences.append(message.sequence)
            if self.instance == 1:
                self._refuse(client, head, "MEMBER_LOST", "rank 1 is gone")
                return False
            self._send(client, head, "OPERATION_DONE", wire.pb.OperationDone(job=1, sequence=message.sequence))
        return True


def test_what_was_refused_for_a_loss_is_not_counted(program, fake):
    """It did not begin, and others that come back call it again."""
    following = fake(kind=Following)
    each = connected(program(harness.MEMBER, socket=following.path), "name=job world=2 rank=0")
    ask(each, "barrier", "VOID_RETRY")
    for _ in range(2):
        ask(each, "barrier")
    assert following.sequences == [0, 0, 1]
