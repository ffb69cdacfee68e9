# SPDX-License-Identifier: Apache-2.0
"""Files of gradsyncctl run --log-dir, pauses before restarts, and what an interrupt ends."""
import os
import re
import signal
import subprocess
import sys

import pytest

from harness import LONG, environment, wait_until
from running import lines_of, pidfds, said

BOTH = 'echo "out $GRADSYNC_RANK"; echo "err $GRADSYNC_RANK" >&2; printf "%s" "rest $GRADSYNC_RANK"'


def of(directory, rank):
    return (directory / f"rank-{rank}.log").read_text("utf-8")


def test_a_file_for_each_rank(runner):
    """A file has both streams of a rank, without the rank. Relayed output is as usual. The daemon's log is
    there, too."""
    directory = runner.scratch / "logs"
    made = runner.run("--log-dir", directory, "-n", "2", "sh", "-c", BOTH)
    for rank in range(2):
        assert sorted(of(directory, rank).splitlines()) == [f"err {rank}", f"out {rank}", f"rest {rank}"]
        assert of(directory, rank).endswith("\n")
        assert lines_of(made.out, rank) == [f"out {rank}", f"rest {rank}"]
        assert lines_of(made.err, rank) == [f"err {rank}"]
    assert sorted(path.name for path in directory.iterdir()) == ["gradsyncd.log", "rank-0.log", "rank-1.log"]
    assert "serves device" in (directory / "gradsyncd.log").read_text("utf-8")


def test_files_are_continued(runner):
    """The next run continues the files, and so does a process that is started again. A daemon's older lines
    are no news."""
    directory = runner.scratch / "logs"
    directory.mkdir()
    (directory / "gradsyncd.log").write_text("2026-01-01 00:00:00.000 gradsyncd warning: long ago\n", "utf-8")
    script = 'echo "$$"; exit 3'
    made = runner.run("--log-dir", directory, "--restart", "1", "-n", "1", "sh", "-c", script, code=3)
    assert of(directory, 0).splitlines() == lines_of(made.out, 0)
    assert len(set(lines_of(made.out, 0))) == 2
    assert "long ago" not in made.err
    assert made.err.splitlines()[-1] == ("gradsyncctl: the log of the private daemon is in "
                                         f"{directory / 'gradsyncd.log'}")
    assert list((runner.scratch / "tmp").iterdir()) == []
    runner.run("--log-dir", directory, "-n", "1", "echo", "another")
    assert of(directory, 0).splitlines() == [*lines_of(made.out, 0), "another"]
    assert (directory / "gradsyncd.log").read_text("utf-8").count("serves device") == 2


def test_a_bar_is_in_a_file_as_it_was_last(runner):
    """Relayed to a pipe, each state is a line."""
    directory = runner.scratch / "logs"
    script = 'printf "begin\\r\\n10 %%\\r20 %%\\r" >&2; printf "30 %%\\nend\\n\\r40 %%\\r50 %%" >&2'
    made = runner.run("--log-dir", directory, "-n", "1", "sh", "-c", script)
    assert of(directory, 0) == "begin\n30 %\nend\n50 %\n"
    assert lines_of(made.err, 0) == ["begin", "10 %", "20 %", "30 %", "end", "40 %", "50 %"]


def test_long_lines_are_whole_in_a_file(runner):
    directory = runner.scratch / "logs"
    runner.run("--log-dir", directory, "-n", "1", sys.executable, "-c", "print('x' * 200000)")
    assert of(directory, 0) == 200000 * "x" + "\n"


def test_a_directory_that_cannot_be_made(runner):
    made = runner.run("--log-dir", runner.scratch / "no" / "where", "-n", "1", "echo", "x", code=1)
    assert made.out == "" and said(made.err) == [
        f"gradsyncctl: cannot make {runner.scratch / 'no' / 'where'}: No such file or directory"]
    (runner.scratch / "file").touch()
    made = runner.run("--log-dir", runner.scratch / "file", "-n", "1", "echo", "x", code=1)
    assert made.out == "" and "cannot write" in said(made.err)[0] and "rank-0.log" in said(made.err)[0]


def test_a_file_that_takes_no_more(runner):
    """The job goes on, and one line says what is missing."""
    directory = runner.scratch / "logs"
    directory.mkdir()
    (directory / "rank-0.log").symlink_to("/dev/full")
    made = runner.run("--log-dir", directory, "-n", "1", "sh", "-c", "echo one; echo two")
    assert lines_of(made.out, 0) == ["one", "two"]
    assert said(made.err) == [
        f"gradsyncctl: cannot write to rank-0.log in {directory} any more: No space left on device"]


# -- restarts

def test_what_goes_on_writing_does_not_hold_up_a_restart(runner):
    """A process in a session of its own has the pipe of one that has failed, and writes without end: run
    relays its output up to then, and hears signals."""
    script = ('setsid yes & until read name < /proc/$!/comm && [ "$name" = yes ]; do :; done; '
              'echo err >&2; exit 3')
    command = [runner.ctl, "run", "--private", "--restart", "1", "-n", "1", "sh", "-c", script]
    made = subprocess.run(command, check=False, env=environment(runner.env), stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=LONG)
    assert made.returncode == 3
    assert lines_of(made.stderr, 0) == ["err", "err"]
    first, last = said(made.stderr)
    assert first.endswith("ended with status 3; started again (1 of 1)"), first
    assert last.endswith("ended with status 3 after 1 restart"), last
    runner.nothing_left()


def pauses(made):
    return [re.search(r"started again(?: in ([\d.]+) s)?", line)[1] for line in said(made.err)
            if "started again" in line]


PAUSES = {"3": [None, "0.5", "0.75", "0.75"], "1": [None, "0.25", "0.25"], "0": [None] * 3,
          "": [None, "0.5", "0.5"]}


@pytest.mark.parametrize("grace, expected", PAUSES.items())
def test_restarts_come_more_and_more_slowly(runner, grace, expected):
    """The first one at once: the others wait for it. All within a quarter of the time for which its place is
    kept; and it is not started before."""
    script = "import time; print(time.monotonic_ns(), flush=True); raise SystemExit(7)"
    made = runner.run("--restart", len(expected), "-n", "1", sys.executable, "-c", script, code=7,
                      env={"GRADSYNC_REJOIN_GRACE": grace})
    assert pauses(made) == expected
    starts = [int(line) for line in lines_of(made.out, 0)]
    for before, after, pause in zip(starts, starts[1:], expected):
        assert after - before >= float(pause or 0) * 1e9


def test_a_command_that_is_gone_at_a_restart(runner):
    """The process that could not become the command is no member, and no process waits for its end."""
    trainer = runner.scratch / "trainer"
    trainer.write_text('#!/bin/sh\nrm "$0"\nexit 3\n', "utf-8")
    trainer.chmod(0o755)
    made = runner.run("--grace", "0.1", "--restart", "1", "-n", "1", trainer, code=127)
    assert said(made.err)[1:] == [f"gradsyncctl: cannot run {trainer}: No such file or directory"]


def paused(runner, *options):
    """Rank 0 fails whenever it is started, and waits longer each time. Rank 1 ends when it is told to."""
    os.mkfifo(runner.scratch / "tmp" / "go")
    script = 'if [ $GRADSYNC_RANK = 0 ]; then exit 7; fi; read go < $TMPDIR/go'
    made = runner.start("--restart", "50", *options, "-n", "2", "sh", "-c", script)
    wait_until(lambda: len(pauses(made)) == 4, "the fourth failure")
    return made


def test_a_pause_does_not_outlast_the_job(runner):
    """A process that does not run is not asked to end: there is no grace time to wait for."""
    made = paused(runner, "--grace", "1000")
    made.signal(signal.SIGTERM)
    assert made.wait() == 128 + signal.SIGTERM
    runner.nothing_left()


def test_nobody_is_started_again_after_a_pause_in_which_another_has_ended(runner):
    made = paused(runner)
    (runner.scratch / "tmp" / "go").write_text("go\n", "utf-8")
    assert made.wait() == 7
    assert re.fullmatch(
        r"gradsyncctl: rank 0 \(pid \d+\) ended with status 7; not started again, because rank 1 has ended "
        r"and the job cannot have all its members any more; the others are ended",
        said(made.err)[-1]), made.err
    runner.nothing_left()


# -- signals

def test_an_interrupt_says_what_it_ends(runner):
    """The job, and the ranks that still run; and what a second one does."""
    script = ('echo $$; if [ $GRADSYNC_RANK = 1 ]; then exit 0; fi; trap "echo caught" INT; echo up; '
              'while :; do sleep 9 & wait $!; done')
    made = runner.start("-n", "4", "--job", "long", "sh", "-c", script)
    lines = [made.line() for _ in range(7)]
    pid, = (int(line.split()[1]) for line in lines if line.startswith("[1] "))
    wait_until(lambda: pid not in pidfds(made.pid), "the end of rank 1, noticed")
    made.signal(signal.SIGINT)
    assert sorted(made.line() for _ in range(3)) == [f"[{rank}] caught" for rank in (0, 2, 3)]
    assert said(made.err) == ["gradsyncctl: SIGINT: job 'long' ends, and ranks 0, 2, 3 with it; a second "
                              "signal kills them"]
    made.signal(signal.SIGINT)
    assert made.wait() == 128 + signal.SIGINT
    assert said(made.err)[1:] == ["gradsyncctl: SIGINT again: ranks 0, 2, 3 of job 'long' are killed"]
    runner.nothing_left()


def test_an_interrupt_after_a_failure_asks_first(runner):
    """The job is being ended because of rank 1: the first signal is passed on and leaves rank 0 its grace
    time, the second kills. The failure is what has ended it: its status, and the daemon's log."""
    script = ('if [ $GRADSYNC_RANK = 1 ]; then read go < $TMPDIR/go; exit 7; fi; trap "echo asked" TERM; '
              'trap "echo caught" INT; echo go > $TMPDIR/go; while :; do sleep 9 & wait $!; done')
    os.mkfifo(runner.scratch / "tmp" / "go")
    made = runner.start("--grace", "1000", "-n", "2", "--job", "long", "sh", "-c", script)
    assert made.line() == "[0] asked"
    made.signal(signal.SIGINT)
    assert made.line() == "[0] caught"
    assert said(made.err)[1:] == ["gradsyncctl: SIGINT: job 'long' is being ended already, and rank 0 has "
                                  "time to end; a second signal kills it"]
    made.signal(signal.SIGHUP)
    made.signal(signal.SIGINT)
    assert made.wait() == 7
    assert said(made.err)[2:] == ["gradsyncctl: SIGINT again: rank 0 of job 'long' is killed"]
    assert "the log of the private daemon is in" in made.err.splitlines()[-1]
    runner.nothing_left()
