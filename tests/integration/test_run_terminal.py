# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl run on a terminal: progress bars stay one row for each rank, below everything else."""
import os
import signal

import pytest

from harness import process_state, wait_until
from terminal import Terminal

# Writes what it is told to write: to standard output after "out:", else to standard error.
OBEY = ('while read -r line; do case "$line" in out:*) printf "${line#out:}";; '
        'end:*) exit "${line#end:}";; *) printf "$line" >&2;; esac; done < $TMPDIR/say.$GRADSYNC_RANK')


class Bars:
    """Ranks that write what a test wants, and a terminal on which it is shown."""

    def __init__(self, runner, n, *options, env=None, **terminal):
        fifos = [runner.scratch / "tmp" / f"say.{rank}" for rank in range(n)]
        for fifo in fifos:
            os.mkfifo(fifo)
        self.terminal = Terminal([runner.ctl, "run", *options, "-n", n, "sh", "-c", OBEY],
                                 {**runner.env, **(env or {})}, **terminal)
        self.inputs = [open(fifo, "w", encoding="utf-8") for fifo in fifos]

    def say(self, rank, text):
        self.inputs[rank].write(text + "\n")
        self.inputs[rank].flush()

    def end(self):
        for each in self.inputs:
            each.close()
        return self.terminal.wait()

    def close(self):
        self.terminal.close()
        for each in self.inputs:
            try:
                each.close()
            except BrokenPipeError:
                pass


@pytest.fixture
def bars(runner, peers):
    return lambda *arguments, **options: peers(Bars(runner, *arguments, **options))


def test_a_row_for_each_rank(runner, bars):
    """Whether the carriage return stands before the text or after it; lines of others scroll by above."""
    made = bars(3)
    screen = made.terminal
    made.say(0, r"\r10 %% of it")
    screen.shows("[0] 10 % of it")
    made.say(2, r"5 %%\r")
    screen.shows("[0] 10 % of it", "[2] 5 %")
    made.say(0, r"\r20 %%")
    screen.shows("[0] 20 %", "[2] 5 %")
    made.say(1, r"out:a line\n")
    screen.shows("[1] a line", "[0] 20 %", "[2] 5 %")
    made.say(2, r"another\n6 %%\r")
    screen.shows("[1] a line", "[2] another", "[0] 20 %", "[2] 6 %")
    made.say(0, r", done\r\n")
    screen.shows("[1] a line", "[2] another", "[0] 20 %, done", "[2] 6 %")
    made.say(1, r"out:last\n")
    screen.shows("[1] a line", "[2] another", "[0] 20 %, done", "[1] last", "[2] 6 %")
    assert made.end() == 0
    assert screen.screen == ["[1] a line", "[2] another", "[0] 20 %, done", "[1] last", "[2] 6 %"]
    runner.nothing_left()


def test_two_streams_have_one_row(bars):
    """The row is that of standard error, where bars usually are; the other stream has it when that one has
    gone."""
    made = bars(1)
    made.say(0, r"out:\rout")
    made.terminal.shows("[0] out")
    made.say(0, r"\rerr")
    made.terminal.shows("[0] err")
    made.say(0, r"\n")
    made.terminal.shows("[0] err", "[0] out")


def test_rows_fit_into_the_terminal(bars):
    """As wide as it is now, and not more of them than it has rows."""
    made = bars(5, rows=4, columns=20)
    for rank in range(5):
        made.say(rank, r"\r0123456789abcdefghij")
    made.terminal.shows(*(f"[{rank}] 0123456789abcde" for rank in range(3)))
    made.terminal.resize(6, 10)
    made.say(0, r"\r0123456789")
    made.terminal.shows(*(f"[{rank}] 01234" for rank in range(5)))


def test_what_this_program_says_stands_above(runner, bars):
    """Its own messages, and those of the daemon's that are shown."""
    made = bars(2, "--job", "b", "--restart", "1", columns=200)
    for rank in range(2):
        made.say(rank, r"\r10 %%")
    made.terminal.shows("[0] 10 %", "[1] 10 %")
    made.terminal.process.send_signal(signal.SIGTERM)
    assert made.terminal.wait() == 128 + signal.SIGTERM
    screen = made.terminal.screen
    assert screen[0] == ("gradsyncctl: SIGTERM: job 'b' ends, and ranks 0, 1 with it; a second signal kills "
                         "them")
    assert sorted(screen[1:]) == ["[0] 10 %", "[1] 10 %"]
    runner.nothing_left()


def test_a_failure_is_said_above(bars):
    made = bars(2, "--restart", "1", columns=200)
    for rank in range(2):
        made.say(rank, r"\r10 %%")
    made.terminal.shows("[0] 10 %", "[1] 10 %")
    made.say(1, "end:3")
    wait_until(lambda: made.terminal.screen[-1] == "[0] 10 %" and len(made.terminal.screen) == 3, "one bar")
    last, told = sorted(made.terminal.screen[:2])
    assert told.startswith("gradsyncctl: rank 1 (pid ") and told.endswith("started again (1 of 1)")
    assert last == "[1] 10 %"


def test_suspended_without_bars(bars):
    """The shell writes where they were."""
    made = bars(1)
    made.say(0, r"\r10 %%")
    made.terminal.shows("[0] 10 %")
    made.terminal.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: process_state(made.terminal.pid) == "T", "the program stopped")
    assert made.terminal.screen == [""]
    made.terminal.process.send_signal(signal.SIGCONT)
    made.terminal.shows("[0] 10 %")


NO_BARS = {"a dumb terminal": {"env": {"TERM": "dumb"}}, "an unknown terminal": {"env": {"TERM": None}},
           "standard error elsewhere": {"streams": ("stdout",)}}


@pytest.mark.parametrize("options", NO_BARS.values(), ids=list(NO_BARS))
def test_no_bars(runner, bars, options):
    """A carriage return ends a line, as it does in a pipe."""
    path = runner.scratch / "err"
    with open(path, "w", encoding="utf-8") as err:
        made = bars(1, stderr=err, **options)
        made.say(0, r"\r10 %%\r20 %%\r30 %%\n")
        made.say(0, r"out:end\n")
        assert made.end() == 0
    written = path.read_text("utf-8").splitlines()
    assert [line for line in (*written, *made.terminal.screen) if line != "[0] end"] == [
        "[0] 10 %", "[0] 20 %", "[0] 30 %"]
