# SPDX-License-Identifier: Apache-2.0
"""Notices of the private daemon of gradsyncctl run reach the terminal; its log stays if something failed."""
import os
import re
import signal
import subprocess

import harness
from harness import process_state, wait_until
from running import Trainers, notices, said


def logs(runner):
    return [path for path in (runner.scratch / "tmp").iterdir() if path.suffix == ".log"]


def kept(runner, made):
    """Text of the log that was kept, where it is said to be."""
    path, = logs(runner)
    assert made.err.splitlines()[-1] == f"gradsyncctl: the log of the private daemon is in {path}"
    assert re.fullmatch(rf"gradsync-{os.geteuid()}\.\w{{6}}\.log", path.name)
    return path.read_text("utf-8")


def test_a_hang_has_a_name(runner):
    """A trainer that is stopped is named at once, once, and in one line."""
    trainers = Trainers(runner, n=3)
    trainers.begin()
    trainers.all("fill 1", "ready", "finish")
    os.kill(trainers.pids[1], signal.SIGSTOP)
    wait_until(lambda: process_state(trainers.pids[1]) == "T", "a stopped trainer")
    for rank in (0, 2):
        for command in ("fill 1", "ready", "finish"):
            trainers.say(rank, command)
    stopped = f": waiting \\d+\\.\\d s for rank 1 \\(pid {trainers.pids[1]}, stopped\\)"
    wait_until(lambda: re.search(stopped, trainers.made.err), "a notice")
    os.kill(trainers.pids[1], signal.SIGCONT)
    for command in ("fill 1", "ready", "finish"):
        trainers.say(1, command)
    trainers.end(0, 1, 2)
    assert trainers.made.wait() == 0
    named, = [line for line in notices(trainers.made.err) if re.search(stopped, line)]
    assert '"p"' in named and "step 2" in named
    assert not re.search(r"^<\d>|\d\d:\d\d:\d\d|gradsyncd \w+:|\[job=|\]$", named), named
    assert logs(runner) == []
    runner.nothing_left()


def test_values_that_are_not_finite(runner):
    trainers = Trainers(runner)
    trainers.begin()
    trainers.say(1, "fill nan")
    assert trainers.line(1).startswith("OK")
    trainers.all("ready", "finish")
    wait_until(lambda: [line for line in notices(trainers.made.err)
                        if "rank 1" in line and "not finite" in line and '"p"' in line], "a notice")
    trainers.end(0, 1)
    assert trainers.made.wait() == 0
    runner.nothing_left()


def test_a_loss(runner):
    """One that run itself does not see: the process goes on, but not as a member."""
    trainers = Trainers(runner, "--job", "lossy")
    trainers.begin()
    directory, = runner.private()
    subprocess.run([runner.ctl, "--socket", directory / "socket", "evict", "lossy", "1"], check=True,
                   env=harness.environment(runner.env), capture_output=True, timeout=harness.DEADLINE)
    wait_until(lambda: [line for line in notices(trainers.made.err) if "rank 1" in line and "evict" in line],
               "a notice")
    assert "formed" not in trainers.made.err and "serves device" not in trainers.made.err
    trainers.end(0, 1)
    assert trainers.made.wait() == 0
    runner.nothing_left()


def test_what_is_no_loss_is_not_held_back(runner):
    """A job may have a name that looks like a loss. A notice about a member is shown even if the member ends
    at once."""
    trainers = Trainers(runner, "--job", "we lost rank 1 of it")
    trainers.begin()
    trainers.say(1, "fill nan")
    assert trainers.line(1).startswith("OK")
    trainers.all("ready", "finish")
    trainers.end(1, 0)
    assert trainers.made.wait() == 0
    assert [line for line in notices(trainers.made.err) if "not finite" in line and '"p"' in line]
    runner.nothing_left()


def test_the_end_is_no_loss(runner):
    """Trainers that do not leave their job, since they have done their part, and end well."""
    trainers = Trainers(runner, n=3)
    trainers.begin()
    for rank in (1, 0, 2):
        trainers.end(rank)
    assert trainers.made.wait() == 0
    assert trainers.made.err == ""
    runner.nothing_left()


def test_a_failure_is_said_once(runner):
    """run has said which rank has failed, and ends the others: the daemon's lines about that would not
    help."""
    trainers = Trainers(runner, n=3)
    trainers.begin()
    os.kill(trainers.pids[1], signal.SIGKILL)
    assert trainers.made.wait() == 128 + signal.SIGKILL
    assert notices(trainers.made.err) == []
    assert said(trainers.made.err) == [f"gradsyncctl: rank 1 (pid {trainers.pids[1]}) was killed by signal 9 "
                                       "(Killed); the others are ended"]
    assert "join" not in trainers.made.err
    text = kept(runner, trainers.made)
    assert "serves device" in text and "lost rank " in text
    runner.nothing_left()


def test_a_loss_that_is_made_good(runner):
    """The daemon says what it meant for the job."""
    trainers = Trainers(runner, "--restart", "1")
    trainers.begin()
    trainers.all("fill 1", "ready", "finish")
    os.kill(trainers.pids[1], signal.SIGKILL)
    wait_until(lambda: [line for line in notices(trainers.made.err)
                        if f"lost rank 1 (pid {trainers.pids[1]}) after step 1" in line], "a notice")
    assert "started again (1 of 1)" in said(trainers.made.err)[0]
    trainers.made.signal(signal.SIGTERM)
    assert trainers.made.wait() == 128 + signal.SIGTERM
    assert logs(runner) == [], "whoever interrupts a job knows why it has ended"
    runner.nothing_left()


def test_what_is_kept_of_a_daemon_that_dies(runner):
    """Lines of all that were started are in one log."""
    made = runner.start("-n", "1", "sh", "-c", "echo $$; exec sleep 1000")
    pid = int(made.line().split()[1])
    directory, = runner.private()
    first = int((directory / "daemon.pid").read_text())
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: "started again as pid" in made.err, "another daemon")
    wait_until(lambda: (directory / "daemon.log").read_text("utf-8").count("serves device") == 2, "its log")
    os.kill(pid, signal.SIGKILL)
    assert made.wait() == 128 + signal.SIGKILL
    assert kept(runner, made).count("serves device") == 2
    runner.nothing_left()
