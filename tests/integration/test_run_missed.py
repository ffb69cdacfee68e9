# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl run when a rank has ended with status 0 and others wait for it: it says who is missed, and
ends."""
import os
import pathlib
import re
import signal
import subprocess

import pytest

import wire
from fake import FakeDaemon
from harness import MEMBER, children_of, environment, process_state, wait_until
from running import lines_of, pidfds, said

STEP = "fill 1\\nready\\nfinish\\n"
READY = "open\\njoin\\nparam p f32 3\\nplan\\n" + STEP


def shell(build, *by_rank):
    """A shell command that has each rank give its member program these lines; the last ones are for all
    further ranks."""
    arms = [f'{rank}) say="{lines}";;' for rank, lines in enumerate(by_rank[:-1])]
    return (f'case $GRADSYNC_RANK in {" ".join(arms)} *) say="{by_rank[-1]}";; esac; '
            f'printf "$say" | {build / MEMBER}')


def named(err):
    """Its words, with the job's name as it is in each run."""
    return [re.sub("'run-[0-9a-f]{16}'", "'run-…'", line) for line in said(err)]


def test_a_rank_that_never_joins(runner, build):
    made = runner.run("-n", "2", "sh", "-c", shell(build, "", "open\\njoin\\n"), code=1)
    assert named(made.err) == ["gradsyncctl: rank 0 ended with status 0, but rank 1 waits for it to join job "
                               "'run-…'; the job is ended. Every rank has to join it"]


@pytest.mark.parametrize("rest", (STEP, "barrier\\n", "param more f32 5\\nplan\\n"),
                         ids=("a step", "a collective", "a plan"))
def test_a_rank_that_ends_too_early(runner, build, rest):
    """Its place is kept, since processes are started again: but not one that has ended well."""
    made = runner.run("-n", "2", "--restart", "1", "sh", "-c", shell(build, READY + rest, READY), code=1)
    assert named(made.err) == ["gradsyncctl: rank 1 ended with status 0, but rank 0 waits for it in job "
                               "'run-…'; the job is ended. Every rank has to take part in each "
                               "step and collective until the last one"]


def row(kind, **fields):
    return kind, getattr(wire.pb, "".join(part.title() for part in kind.split("_")))(job=1, **fields)


class Story:
    """Three ranks that end when they are told to, and a daemon that says of their job what a test wants."""

    def __init__(self, runner, scratch, peers):
        self.go = [runner.scratch / "tmp" / f"go.{rank}" for rank in range(3)]
        for fifo in self.go:
            os.mkfifo(fifo)
        self.daemon = peers(FakeDaemon(scratch / "fake"))
        self.made = runner.start("--socket", self.daemon.path, "-n", "3", "--job", "told", "--restart", "1",
                                 "sh", "-c", 'echo $$; read go < $TMPDIR/go.$GRADSYNC_RANK')
        text = "".join(f"{self.made.line()}\n" for _ in range(3))
        self.pids = [int(lines_of(text, rank)[0]) for rank in range(3)]

    def say(self, state, missing, doing, shift=0, uid=None):
        """Sets the daemon's answer about the job: `doing` by rank; ranks are `shift` higher there."""
        uid = os.geteuid() if uid is None else uid
        self.daemon.answer = [
            row("STATUS_JOB", name="told", uid=uid, state=state, world=3),
            *(row("STATUS_MEMBER", pid=self.pids[rank], rank=rank + shift, state=what)
              for rank, what in doing.items()),
            *(row("STATUS_WAIT", what="join", rank=rank) for rank in missing)]

    def end(self, rank):
        self.go[rank].write_text("go\n", encoding="ascii")

    def goes_on(self):
        """The daemon is asked again after all that it has said so far is known."""
        before = len(self.daemon.asked)
        wait_until(lambda: len(self.daemon.asked) >= before + 2 or self.made.process.poll() is not None,
                   "two more questions")
        assert self.made.process.poll() is None, self.made.err


@pytest.fixture
def story(runner, scratch, peers):
    return Story(runner, scratch, peers)


def test_one_that_waits_later(runner, story):
    """The daemon is asked for as long as some go on; the one that computes is not said to wait."""
    story.say("replacing", [0, 1], {2: "computing"})
    story.end(0)
    story.end(1)
    story.goes_on()
    story.say("replacing", [0, 1], {2: "waiting"})
    assert story.made.wait() == 1
    assert story.made.err == (
        "gradsyncctl: ranks 0, 1 ended with status 0, but rank 2 waits for them in job 'told'; the job is "
        "ended. Every rank has to take part in each step and collective until the last one\n")
    runner.nothing_left()


NOBODY_IS_MISSED = {
    "the others compute": ("replacing", [0], {1: "computing", 2: "computing"}),
    "they wait for one that runs": ("forming", [2], {1: "joining"}),
    "they come back to a daemon": ("replacing", [0], {1: "joining", 2: "joining"}),
    "all are there": ("running", [], {1: "waiting", 2: "waiting"}),
    "ranks of their own": ("forming", [0], {1: "joining", 2: "joining"}, 1),
    "the job of another user": ("forming", [0], {1: "joining", 2: "joining"}, 0, 4711),
}


@pytest.mark.parametrize("said", NOBODY_IS_MISSED.values(), ids=list(NOBODY_IS_MISSED))
def test_nobody_is_missed(runner, story, said):
    """All end well, one long before the others."""
    story.say(*said)
    story.end(0)
    story.goes_on()
    story.end(1)
    story.end(2)
    assert story.made.wait() == 0
    assert story.made.err == ""
    runner.nothing_left()


def test_a_daemon_that_cannot_be_asked(runner, story):
    """It is asked again, and neither its silence nor its refusal ends anything."""
    story.say("forming", [0], {1: "joining"})
    story.daemon.refuse = ("QUOTA", "not now")
    story.end(0)
    wait_until(lambda: story.daemon.refused > 1, "the second refusal")
    assert story.made.process.poll() is None, story.made.err
    story.daemon.refuse = None
    assert story.made.wait() == 1
    assert "rank 0 ended with status 0, but rank 1 waits for it to join job 'told'" in story.made.err
    runner.nothing_left()


class Held:
    """Rank 0 has ended, rank 1 goes on until it is told to end, and the daemon does not answer requests."""

    def __init__(self, runner):
        self.go = runner.scratch / "tmp" / "go"
        os.mkfifo(self.go)
        self.made = runner.start("-n", "2", "sh", "-c",
                                 "echo $$; if [ $GRADSYNC_RANK = 1 ]; then read go < $TMPDIR/go; fi")
        text = "".join(f"{self.made.line()}\n" for _ in range(2))
        self.members = [int(lines_of(text, rank)[0]) for rank in range(2)]
        self.directory, = runner.private()
        self.daemon = int((self.directory / "daemon.pid").read_text())
        os.kill(self.daemon, signal.SIGSTOP)

    def asking(self):
        """The processes of run that ask; one, or none."""
        return [pid for pid in children_of(self.made.pid) if pid not in (*self.members, self.daemon)]

    def end(self):
        self.go.write_text("go\n", encoding="ascii")
        assert self.made.wait() == 0, self.made.err


def descriptors(pid):
    """The targets of a process' descriptors; nothing if it has ended."""
    try:
        return [os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def test_who_asks_has_nothing_that_is_followed(runner):
    """A pidfd or a pipe that it has would stay in the epoll of run after run has closed it. It has its
    standard streams, the pipe for its answer and its connection."""
    held = Held(runner)

    def lean():
        for pid in held.asking():
            has = descriptors(pid)
            if len(has) == 5 and "socket:" in "".join(has) and not pidfds(pid):
                return True
        return False
    wait_until(lean, "a question, asked with no more than that takes")
    os.kill(held.daemon, signal.SIGCONT)
    held.end()
    assert held.made.err == ""
    runner.nothing_left()


def test_a_daemon_that_dies_while_it_is_asked(runner):
    """Run starts one other, and does not take what it has closed for the end of that one too, however long
    the process that asks goes on."""
    held = Held(runner)

    def hold():
        for pid in held.asking():
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                continue
            wait_until(lambda pid=pid: process_state(pid) not in "RSD", "it stopped, or gone")
            if process_state(pid) == "T":
                return pid
        return None
    asker = wait_until(hold, "a question that lasts")
    os.kill(held.daemon, signal.SIGKILL)
    wait_until(lambda: "started again as pid" in held.made.err, "another daemon")
    status = [runner.ctl, "--socket", held.directory / "socket", "status"]
    wait_until(lambda: held.made.process.poll() is not None or
               subprocess.run(status, check=False, env=environment(runner.env), capture_output=True)
               .returncode == 0, "its answer")
    assert process_state(asker) == "T", held.made.err
    os.kill(asker, signal.SIGCONT)
    held.end()
    line, = said(held.made.err)
    assert line.startswith(f"gradsyncctl: the private daemon (pid {held.daemon}) was killed by signal 9 "
                           "(Killed); started again as pid ")
    runner.nothing_left()
