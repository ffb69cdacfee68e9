# SPDX-License-Identifier: Apache-2.0
"""The library beside a daemon that the test plays, which says what real daemons say never, or hardly ever."""
import os
import socket
import threading

import pytest

import wire
from played import SECRET, PlayedDaemon
from trainers import ask, script


class Successors(PlayedDaemon):
    """One connection each for serve(); a member without plans comes back as `after` says: with RESUMED, or
    NEWGEN. It refuses the first OPERATION, and hangs up on each other one until there is no more to come back
    to."""

    def __init__(self, path, after):
        super().__init__(path)
        self.after, self.instance, self.generation, self.rejoins = list(after), 7, 4, []
        self.refuse, self.differs, self.sequences, self.ended = None, True, [], 0

    def hang_up(self):
        self.link.shutdown(socket.SHUT_RDWR)

    def on_hello(self, request, hello):
        if self.refuse:
            self.send("REFUSED", 0, code=wire.pb.QUOTA, text=self.refuse)
            self.hang_up()
            return
        self.welcome(request, self.instance)
        self.instance += 1

    def on_rejoin(self, request, rejoin):
        self.rejoins.append(rejoin)
        self.send("REJOINED", request, job=9)

    def on_rejoin_end(self, request, end):
        self.generation += 1
        place = {"rank": 0, "local_rank": 0, "world": 1} if self.after[0] == "NEWGEN" else {}
        if place:
            self.ended = 0
        self.send(self.after.pop(0), 0, job=9, generation=self.generation, operations=self.ended, **place)

    def on_operation(self, request, operation):
        self.sequences.append(operation.sequence)
        if self.differs:
            self.send("REFUSED", request, code=wire.pb.OPERATION_MISMATCH, text="it differs")
            self.differs, self.ended = False, 1
        elif self.after:
            self.hang_up()
        else:
            self.send("OPERATION_DONE", request, job=9, sequence=operation.sequence)


@pytest.fixture
def against(program, scratch):
    """against(fake) -> a member that has not opened its handle yet; fake is to be served."""
    made = []

    def start(fake):
        made.append(fake)
        return program("tests/integration/member", socket=scratch / "fake",
                       env={"GRADSYNC_JOB": "played", "GRADSYNC_WORLD_SIZE": 1, "GRADSYNC_RANK": 0})

    yield start
    for fake in made:
        fake.close()


def beside(call):
    """Runs it in a thread; returns what waits for its end."""
    thread = threading.Thread(target=call)
    thread.start()
    return thread.join


def test_what_is_said_on_the_way_back(against, scratch):
    """Its secret, and the latest generation that it has heard of. A refusal on the way back is not kept for
    the next loss, nor are operations counted that are those of another generation."""
    fake = Successors(scratch / "fake", ["RESUMED", "NEWGEN", "RESUMED"])
    one = against(fake)
    served = beside(fake.serve)
    script(one, "open", "join")
    ask(one, "barrier", "OPERATION_MISMATCH")
    one.say("barrier")
    served()
    fake.refuse = "too many connections"
    fake.serve()
    fake.refuse = None
    fake.serve()                        # resumed, and lost again
    served = beside(fake.serve)         # a new generation
    assert one.line().startswith("VOID_RETRY ")
    one.say("barrier")
    served()
    served = beside(fake.serve)
    assert one.line() == "OK "
    assert [(rejoin.job, rejoin.secret, rejoin.generation) for rejoin in fake.rejoins] == [
        ("played", SECRET, generation) for generation in (4, 5, 6)]
    assert fake.sequences == [0, 1, 1, 0, 0]
    ask(one, "close")
    served()


@pytest.mark.parametrize("name, change, why", [
    ("instance", -1, "goes on without this process"),
    ("minor", 1, f"answered with version {wire.MAJOR}.{wire.MINOR + 1} of the protocol")])
def test_a_daemon_that_does_not_follow(against, scratch, name, change, why):
    """One has ended the membership, and knows nothing of it any more; the other speaks another version."""
    fake = Successors(scratch / "fake", ["RESUMED"])
    fake.differs = False
    one = against(fake)
    served = beside(fake.serve)
    script(one, "open", "join")
    one.say("barrier")
    served()
    setattr(fake, name, getattr(fake, name) + change)
    served = beside(fake.serve)
    line = one.line()
    assert line.startswith("DAEMON_LOST ") and why in line, line
    assert not fake.rejoins
    ask(one, "close")
    served()


class Nonsense(PlayedDaemon):
    """Says what cannot be at one place."""

    def __init__(self, path, what):
        super().__init__(path)
        self.what = what

    def on_join(self, request, join):
        self.joined(request, 3 if self.what == "rank" else 0)

    def on_plan_commit(self, request, commit):
        begin = self.plans[commit.plan][1]
        short, few = 4096 * (self.what == "file"), self.what == "descriptors"
        fds = [os.memfd_create("arena", os.MFD_CLOEXEC), os.memfd_create("control", os.MFD_CLOEXEC)]
        os.ftruncate(fds[0], begin.arena_bytes - short)
        os.ftruncate(fds[1], 0 if self.what == "control" else begin.control_bytes)
        self.send("PLAN_ARENA", request, fds=fds[:1] if few else fds, job=9, plan=commit.plan,
                  bytes=begin.arena_bytes + 4096 * (self.what == "bytes"))
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("what", ["rank", "bytes", "file", "descriptors", "control"])
def test_what_makes_no_sense_ends_the_connection(against, scratch, what):
    fake = Nonsense(scratch / "fake", what)
    one = against(fake)
    served = beside(fake.serve)
    ask(one, "open")
    if what != "rank":
        script(one, "join", "param a f32 5")
    text = ask(one, "join" if what == "rank" else "plan", "PROTOCOL")
    served()                            # it has closed, and does not come back
    assert ask(one, "dispatch", "PROTOCOL") == text


@pytest.mark.parametrize("answers", [True, False])
def test_whoever_has_left_is_gone(against, scratch, answers):
    """A member that leaves is gone even if the daemon refuses with STATE, which otherwise leaves a member in
    its job."""
    fake = PlayedDaemon(scratch / "fake")

    def refuse(request, _leave):
        fake.send("REFUSED", request if answers else 0, code=wire.pb.STATE, text="no such moment")
        if not answers:
            fake.link.shutdown(socket.SHUT_RDWR)

    fake.on_leave = refuse
    one = against(fake)
    served = beside(fake.serve)
    script(one, "open", "join")
    one.say("leave")
    line = one.line()
    assert line.startswith("DAEMON_LOST ") and "no such moment" in line, line
    ask(one, "close")
    served()
