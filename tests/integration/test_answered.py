# SPDX-License-Identifier: Apache-2.0
"""Answers that have come before the daemon went, and whose calls are repeated after another one has taken the job back: members
with a loop of their own, which take the answer in one call and learn of it in the next. What an answer has said is
neither counted twice nor forgotten."""
import signal

import pytest

import harness
import wire
from fake import FakeDaemon
from harness import wait_until
from test_client import ask, fields


def restart(served, end):
    served.signal(end)
    assert served.program.wait() == (0 if end == signal.SIGTERM else -end), served.log
    served.start()


def answered(served, member, command):
    """What the daemon answers while the member is not in the call."""
    with served.at_once():
        ask(member, command, "AGAIN")
    served.job("job")                   # who asks later is answered later
    ask(member, "dispatch")


def back(served, members, world=1):
    """Until their job goes on at the daemon that follows."""
    before = [fields(ask(each, "place"))["generation"] for each in members]
    wait_until(lambda: [ask(each, "dispatch") for each in members] and
               all(fields(ask(each, "place"))["generation"] != was for each, was in zip(members, before)), "the job to go on")
    assert len(served.job("job")["members"]) == world


@pytest.fixture
def alone(daemon, member):
    """The daemon, and a member with a loop of its own that is all of its job."""
    served = daemon()
    made = member(served)
    ask(made, "open nonblocking=1")
    ask(made, "poll join name=job world=1")
    return served, made


ENDS = pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])


@ENDS
def test_an_operation_is_counted_once(alone, end):
    served, made = alone
    ask(made, "poll barrier")
    answered(served, made, "barrier")
    restart(served, end)
    back(served, [made])
    assert ask(made, "barrier") == ""
    ask(made, "poll barrier")
    assert "right" in ask(made, "poll broadcast 100000 0")


@ENDS
def test_registered_memory_is_told_of(alone, end):
    """Its number is another one at the daemon that follows: what is registered there next does not get its place."""
    served, made = alone
    answered(served, made, "register 0 65536")
    restart(served, end)
    back(served, [made])
    ask(made, "poll register 0 65536")
    ask(made, "poll register 1 65536")
    ask(made, "param_at 0 0 first f32 100")
    ask(made, "poll plan")
    ask(made, "fill 3")
    ask(made, "ready")
    ask(made, "poll finish")
    assert ask(made, "check 3") == "right"
    assert ask(made, "unregister 0", "STATE")
    ask(made, "poll unregister 1")


@ENDS
def test_memory_that_was_given_back_stays_so(alone, end):
    served, made = alone
    ask(made, "poll register 0 65536")
    answered(served, made, "unregister 0")
    restart(served, end)
    back(served, [made])
    ask(made, "poll unregister 0")
    assert not any("memfd:own" in each for each in served.fds()), served.fds()


@ENDS
def test_who_has_left_does_not_come_back(alone, end):
    served, made = alone
    answered(served, made, "leave")
    restart(served, end)
    ask(made, "job 1")
    ask(made, "poll join name=other world=1")
    assert served.job("job") is None
    ask(made, "job 0")
    ask(made, "leave")


@ENDS
def test_staging_memory_is_told_of(alone, end):
    served, made = alone
    for _ in range(2):                  # the memory, and that it is mapped
        answered(served, made, "broadcast 100000 0")
    restart(served, end)
    back(served, [made])
    assert "right" in ask(made, "poll broadcast 100000 0")
    assert "right" in ask(made, "poll allgather 100000")


def test_a_plan_whose_end_was_not_said(alone):
    """The socket is full, the daemon goes, and the one that follows knows of the plan until it hears of its end."""
    served, made = alone
    for i in range(3000):
        ask(made, f"param p{i} f32 16")
    ask(made, "poll plan first=64 bucket=64")
    ask(made, "slot 1")
    ask(made, "param other f32 16")
    ask(made, "poll plan")
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
    ask(made, "poll finish", "VOID_RETRY")


class Ending(FakeDaemon):
    """Refuses an operation because of a loss, and tells the loss to all only then, as a daemon does when nothing is done in the job
    any more."""

    def __init__(self, path):
        self.operations = 0
        super().__init__(path)

    def _talk(self, client):
        while data := client.recv(wire.FRAME_MAX):
            head, _ = wire.parse(data)
            if head.type == wire.pb.HELLO:
                self._send(client, head, "WELCOME", wire.pb.Welcome(minor=1, instance=1, device="cpu", version="0.1.0"))
            elif head.type == wire.pb.JOIN:
                self._send(client, head, "JOINED", wire.pb.Joined(job=1, generation=1, rank=0, local_rank=0, world=2, member=1))
            elif head.type == wire.pb.OPERATION:
                self.operations += 1
                self._send(client, head, "REFUSED", wire.pb.Refused(code=wire.pb.Code.Value("MEMBER_LOST"), text="rank 1 is gone"))
                client.send(wire.frame("LOST", wire.pb.Lost(job=1, generation=1, rank=1, pid=77, cause=wire.pb.EXITED, text="it exited")))


def test_refused_before_the_loss_is_told(program, scratch):
    """The call returns when the loss is known, and each one behind it says the same of its own knowledge."""
    ending = Ending(scratch / "ending")
    each = program(harness.MEMBER, socket=ending.path)
    ask(each, "open")
    ask(each, "join name=ending world=2 rank=0")
    for command in ("barrier", "barrier", "allreduce 1 f32 sum"):
        text = ask(each, command, "MEMBER_LOST")
        assert "rank 1 (pid 77)" in text and "it exited" in text, text
    assert ending.operations == 1
    each.kill()
    ending.close()
