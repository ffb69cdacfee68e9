# SPDX-License-Identifier: Apache-2.0
"""Clients and daemons of different versions work together: frozen clients of former ones, synthetic peers of the next one."""
import os
import pathlib
import socket
import threading

import fake
import harness
import pytest
import transcript
import wire
from harness import wait_until
from peer import Crew, Peer, Plan
from trainers import ask

TRANSCRIPTS = sorted((pathlib.Path(__file__).resolve().parent / "transcripts").glob("*.bin"))
NEWER = wire.unknown_fields()


def test_there_are_transcripts_of_each_minor_version():
    names = {path.name.split("-")[0] for path in TRANSCRIPTS}
    assert names == {f"v{wire.MAJOR}.{minor}" for minor in range(wire.MINOR + 1)}


def test_this_version_is_the_one_of_the_header():
    text = (pathlib.Path(__file__).resolve().parents[2] / "proto/frame.h").read_text()
    assert f"#define FRAME_MAJOR {wire.MAJOR}u" in text and f"#define FRAME_MINOR {wire.MINOR}u" in text


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_frozen_client_is_served(daemon, path):
    d = daemon()

    def restart():
        harness.restart(d, orderly=True)

    first = transcript.Replay(d.socket, path.read_bytes(), restart)
    again = transcript.Replay(d.socket, path.read_bytes(), restart)
    assert not first.patched, "the first job of a daemon has the recorded numbers, so that the bytes are the recorded ones"
    assert [name for name, _ in first.replies if name != "STEP"] == [name for name, _ in again.replies if name != "STEP"]
    minor = int(path.name.split("-")[0].split(".")[1])
    assert first.replies[0][0] == "WELCOME" and first.replies[0][1].minor == minor


class Newer(Peer):
    """A client of the next minor version, whose every message has fields that this daemon has never heard of."""

    suffix = NEWER


def test_a_newer_client_is_served(daemon, peers):
    def plan(ordinal):
        return Plan([("a", [100], 1), ("b", [1000], 0)], ordinal)

    crew = peers(Crew(daemon().socket, "newer", 2, plan, peer=Newer, minor=wire.MINOR + 1))
    assert {peer.welcome.minor for peer in crew.peers} == {wire.MINOR}
    crew.go(3)
    assert [job.step for job in crew.peers[0].status()["STATUS_JOB"]] == [3]
    crew.leave()


@pytest.mark.parametrize("command", [("trace", "job", "-o", "/dev/null"), ("evict", "job", "0"), ("pause", "job"), ("drain",)],
                         ids=lambda command: command[0])
def test_what_an_older_daemon_cannot_do(program, scratch, command):
    """It is told so, before it is sent a message that it would take for a mistake in the protocol."""
    older = fake.FakeDaemon(scratch / "older", minor=0, version="0.0.9")
    try:
        ctl = program(harness.CTL, *command, "--socket", older.path)
        assert ctl.wait() == 1, ctl.err
        assert "older release" in ctl.err or "too old" in ctl.err, ctl.err
    finally:
        older.close()


class FakeDaemon:
    """Serves one member of a job of one as a daemon would, with `suffix` behind every message."""

    def __init__(self, path, minor, suffix=b"", major=wire.MAJOR):
        self.minor, self.suffix, self.major = minor, suffix, major
        self.heard = []
        self.plans = {}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.listener.settimeout(harness.DEADLINE)
        self.listener.bind(str(path))
        self.listener.listen(1)

    def send(self, kind, request, /, fds=(), **fields):
        payload = wire.message(kind, **fields).SerializeToString() + self.suffix
        data = wire.frame(kind, payload, request, len(fds), major=self.major)
        if fds:
            socket.send_fds(self.link, [data], fds)
        else:
            self.link.send(data)

    def serve(self):
        """Until the client closes."""
        self.link, _ = self.listener.accept()
        self.link.settimeout(harness.DEADLINE)
        with self.link:
            while True:
                try:
                    data, fds, _, _ = socket.recv_fds(self.link, wire.FRAME_MAX, 4)
                except ConnectionResetError:
                    return
                except TimeoutError:
                    raise AssertionError(f"nothing more after {self.heard}") from None
                for fd in fds:
                    os.close(fd)
                if not data:
                    return
                head, message = wire.parse(data)
                kind = wire.name(head.type)
                self.heard.append(kind)
                getattr(self, "on_" + kind.lower())(head.request, message)

    def close(self):
        self.listener.close()
        for fds, _, _ in self.plans.values():
            for fd in fds:
                os.close(fd)

    def on_hello(self, request, hello):
        self.send("WELCOME", request, minor=self.minor, instance=7, device="cpu", version="0.2.0", staging_bytes=1 << 20)

    def on_join(self, request, join):
        assert (join.job, join.min_world, join.max_world) == ("newer", 1, 1)
        self.send("JOINED", request, job=9, generation=4, rank=0, local_rank=0, world=1, member=77, incarnation=0)

    def on_plan_begin(self, request, begin):
        assert (begin.job, begin.generation) == (9, 4)
        self.plans[begin.plan] = ([], begin, [])

    def on_plan_params(self, request, chunk):
        assert chunk.job == 9 and chunk.plan in self.plans

    def on_plan_buckets(self, request, chunk):
        self.plans[chunk.plan][2].extend(chunk.bucket)

    def on_plan_commit(self, request, commit):
        _, begin, buckets = self.plans[commit.plan]
        assert len(buckets) == begin.buckets
        assert begin.HasField("control_bytes") == (self.minor >= 2) != begin.HasField("diagnosis_bytes")
        fds = [os.memfd_create("arena", os.MFD_CLOEXEC) for size in (begin.arena_bytes, begin.control_bytes) if size]
        for fd, size in zip(fds, (begin.arena_bytes, begin.control_bytes)):
            os.ftruncate(fd, size)
        self.plans[commit.plan] = (fds, begin, buckets)
        self.send("PLAN_ARENA", request, fds=fds, job=9, plan=commit.plan, bytes=begin.arena_bytes)

    def on_plan_mapped(self, request, mapped):
        self.send("PLAN_AGREED", request, job=9, generation=4, plan=mapped.plan, step=0)

    def on_ready(self, request, ready):
        """A result that no real daemon would give, so that it is seen where it comes from."""
        (fd, *_), _, buckets = self.plans[ready.plan]
        bucket = buckets[ready.bucket]
        os.pwrite(fd, b"\x00\x00\x28\x42" * (bucket.bytes // 4), bucket.offset)         # 42.0
        self.send("STALL", 0, job=9, generation=4, plan=ready.plan, step=ready.step, rank=0, pid=os.getpid(), process_state="running",
                  bucket=ready.bucket, since_ms=1000, text="a notice that changes nothing")
        last = ready.bucket == len(buckets) - 1
        self.send("STEP", 0, job=9, generation=3, plan=ready.plan, step=ready.step, outcome=wire.pb.VOID, text="of another generation")
        self.send("STEP", 0, job=9, generation=4, plan=ready.plan, step=ready.step,
                  result=[wire.pb.BucketResult(bucket=ready.bucket, sum_squares=1.0, rank_sum_squares=[1.0])],
                  **({"outcome": wire.pb.COMMITTED} if last else {}))

    def on_plan_drop(self, request, drop):
        self.send("PLAN_DROPPED", request, job=9, plan=drop.plan)

    def on_leave(self, request, leave):
        self.send("LEFT", request, job=leave.job)


@pytest.fixture
def hello_against(program, scratch):
    """hello_against(minor, env={}, ...) -> (FakeDaemon, the hello example after it has ended)."""
    made = []

    def run(minor, env=None, **options):
        fake = FakeDaemon(scratch / "fake", minor, **options)
        made.append(fake)
        job = {"GRADSYNC_JOB": "newer", "GRADSYNC_WORLD_SIZE": 1, "GRADSYNC_RANK": 0}
        hello = program(harness.HELLO, socket=scratch / "fake", env={**job, **(env or {})})
        fake.serve()
        hello.wait()
        return fake, hello

    yield run
    for fake in made:
        fake.close()


def test_a_newer_daemon_is_understood(hello_against):
    """The real library with a daemon of the next minor version, which has more to say in every message."""
    fake, hello = hello_against(wire.MINOR, suffix=NEWER)
    assert hello.process.returncode == 0, hello.err
    assert hello.out == "rank 0 of 1: the average is 42\n"
    assert fake.heard[:2] == ["HELLO", "JOIN"] and "READY" in fake.heard and "LEAVE" in fake.heard


@pytest.mark.parametrize("minor", range(wire.MINOR))
def test_an_older_daemon_is_understood(hello_against, minor):
    fake, hello = hello_against(minor)
    assert hello.process.returncode == 0, hello.err
    assert hello.out == "rank 0 of 1: the average is 42\n" and "LEAVE" in fake.heard


def test_an_older_daemon_gets_no_job_with_a_token(hello_against):
    """It would ignore the token and let everybody of this uid in: so it is not asked."""
    fake, hello = hello_against(0, env={"GRADSYNC_JOB_TOKEN": "secret"})
    assert hello.process.returncode == 1 and fake.heard == ["HELLO"]
    assert "job 'newer'" in hello.err and "too old to know tokens" in hello.err, hello.err
    assert "secret" not in hello.err


def test_a_daemon_that_does_not_come_down_is_refused(hello_against):
    """WELCOME with a minor version above what HELLO offered."""
    fake, hello = hello_against(wire.MINOR + 1)
    assert hello.process.returncode == 1 and fake.heard == ["HELLO"]
    assert "minor version" in hello.err, hello.err


def test_another_major_version_is_named(hello_against):
    fake, hello = hello_against(wire.MINOR, major=wire.MAJOR + 1)
    assert hello.process.returncode == 1 and fake.heard == ["HELLO"]
    assert "another major protocol version" in hello.err, hello.err


class Successors(FakeDaemon):
    """One connection each for serve(); a member without plans comes back as `after` says: with RESUMED, or NEWGEN. It refuses
    the first OPERATION, and hangs up on each other one until there is no more to come back to."""

    def __init__(self, path, after):
        super().__init__(path, wire.MINOR)
        self.after, self.instance, self.generation, self.rejoins, self.refuse, self.differs = list(after), 7, 4, [], None, True

    def hang_up(self):
        self.link.shutdown(socket.SHUT_RDWR)

    def on_hello(self, request, hello):
        if self.refuse:
            self.send("REFUSED", 0, code=wire.pb.QUOTA, text=self.refuse)
            self.hang_up()
            return
        self.send("WELCOME", request, minor=self.minor, instance=self.instance, device="cpu", version="0.2.0", staging_bytes=1 << 20)
        self.instance += 1

    def on_rejoin(self, request, rejoin):
        self.rejoins.append(rejoin)
        self.send("REJOINED", request, job=9)

    def on_rejoin_end(self, request, end):
        self.generation += 1
        place = {"rank": 0, "local_rank": 0, "world": 1} if self.after[0] == "NEWGEN" else {}
        self.send(self.after.pop(0), 0, job=9, generation=self.generation, operations=self.rejoins[-1].operations, **place)

    def on_operation(self, request, operation):
        if self.differs:
            self.send("REFUSED", request, code=wire.pb.OPERATION_MISMATCH, text="it differs")
            self.differs = False
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
                       env={"GRADSYNC_JOB": "newer", "GRADSYNC_WORLD_SIZE": 1, "GRADSYNC_RANK": 0})

    yield start
    for fake in made:
        fake.close()


def beside(call):
    """Runs it in a thread; returns what waits for its end."""
    thread = threading.Thread(target=call)
    thread.start()
    return thread.join


def test_what_is_said_on_the_way_back(against, scratch):
    """A refusal on the way back is not kept for the next loss, nor is it said of a generation in which
    something was void that it was resumed, nor are operations counted that are those of another one."""
    fake = Successors(scratch / "fake", ["RESUMED", "NEWGEN", "RESUMED"])
    one = against(fake)
    served = beside(fake.serve)
    ask(one, "open")
    ask(one, "join")
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
    assert [(rejoin.resumed, rejoin.operations, rejoin.operation_failed) for rejoin in fake.rejoins] == [
        (False, 1, True), (True, 1, True), (False, 0, False)]
    ask(one, "close")
    served()


def test_a_daemon_that_goes_on_without_this_process(against, scratch):
    """It is not one that follows: it has ended the membership, and knows nothing of what it would be told."""
    fake = Successors(scratch / "fake", ["RESUMED"])
    fake.differs = False
    one = against(fake)
    served = beside(fake.serve)
    ask(one, "open")
    ask(one, "join")
    one.say("barrier")
    served()
    fake.instance -= 1
    served = beside(fake.serve)
    line = one.line()
    assert line.startswith("DAEMON_LOST ") and "goes on without this process" in line and not fake.rejoins, line
    ask(one, "close")
    served()


class Nonsense(FakeDaemon):
    """Says what cannot be at one place."""

    def __init__(self, path, what):
        super().__init__(path, wire.MINOR)
        self.what = what

    def on_join(self, request, join):
        self.send("JOINED", request, job=9, generation=4, rank=3 if self.what == "rank" else 0, local_rank=0, world=1, member=77)

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
        ask(one, "join")
        ask(one, "param a f32 5")
    text = ask(one, "join" if what == "rank" else "plan", "PROTOCOL")
    served()                            # it has closed, and does not come back
    assert ask(one, "dispatch", "PROTOCOL") == text


@pytest.mark.parametrize("answers", [True, False])
def test_whoever_has_left_is_gone(against, scratch, answers):
    """Whatever the daemon says: with STATE the job would still be there."""
    fake = FakeDaemon(scratch / "fake", wire.MINOR)
    fake.on_leave = lambda request, leave: fake.send("REFUSED", request if answers else 0, code=wire.pb.STATE, text="no such moment")
    one = against(fake)
    served = beside(fake.serve)
    ask(one, "open")
    ask(one, "join")
    one.say("leave")
    if not answers:
        wait_until(lambda: "LEAVE" in fake.heard, "LEAVE")
        fake.link.shutdown(socket.SHUT_RDWR)
    line = one.line()
    assert line.startswith("DAEMON_LOST ") and "no such moment" in line, line
    ask(one, "close")
    served()
