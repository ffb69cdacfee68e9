# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl run, in a directory of its own, with a look at what it leaves behind."""
import os
import pathlib
import re
import subprocess

import harness

NOTICE = "[gradsyncd] "


class Runner:
    """gradsyncctl run in a directory of its own, in which no daemon and no leftovers of others are found."""

    def __init__(self, build, program, scratch):
        self.build, self.program, self.scratch = build, program, scratch
        self.env = {"TMPDIR": scratch / "tmp", "GRADSYNC_DEVICE": "cpu:run-test"}
        (scratch / "tmp").mkdir()
        self.ctl = build / harness.CTL

    def start(self, *arguments, env=None, prefix=(), **options):
        """Starts gradsyncctl run. Signals end it even if the caller of the tests ignores them, as nohup(1)
        does."""
        return self.program(harness.CTL, "run", *arguments, env={**self.env, **(env or {})},
                            prefix=("env", "--default-signal=HUP,INT,QUIT", *prefix), **options)

    def run(self, *arguments, code=0, stdin=subprocess.DEVNULL, **options):
        made = self.start(*arguments, stdin=stdin, **options)
        status = made.wait(harness.LONG)
        assert status == code, f"ended with {status}: {made.out}{made.err}"
        assert not harness.SANITIZER.search(made.err), made.err
        self.nothing_left()
        return made

    def private(self):
        """Directories of private daemons."""
        return [path for path in (self.scratch / "tmp").iterdir()
                if path.name.startswith("gradsync-") and path.is_dir()]

    def processes(self):
        """Processes that have our TMPDIR in their environment: everything that was started for a run."""
        mark = f"TMPDIR={self.scratch / 'tmp'}".encode()
        found = []
        for path in pathlib.Path("/proc").iterdir():
            if not path.name.isdigit():
                continue
            try:
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def nothing_left(self):
        assert self.private() == []
        assert self.processes() == []


def lines_of(text, rank):
    """The lines of a rank in relayed output."""
    return [line[len(f"[{rank}] "):] for line in text.splitlines() if line.startswith(f"[{rank}] ")]


def said(err):
    """gradsyncctl's own lines, except the one that says where a log is."""
    return [line for line in err.splitlines()
            if line.startswith("gradsyncctl: ") and "the log of the private daemon is in" not in line]


def notices(err):
    return [line[len(NOTICE):] for line in err.splitlines() if line.startswith(NOTICE)]


def pidfds(pid):
    """The processes of which a process holds a pidfd."""
    found = set()
    for path in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            match = re.search(r"^Pid:\s*(\d+)", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        if match:
            found.add(int(match[1]))
    return found


class Trainers:
    """The test's own trainers (member.c) under gradsyncctl run, each driven line by line."""

    def __init__(self, runner, *options, n=2, env=None):
        self.fifos = [runner.scratch / "tmp" / f"say.{rank}" for rank in range(n)]
        for fifo in self.fifos:
            os.mkfifo(fifo)
        self.made = runner.start(*options, "-n", n, "sh", "-c",
                                 f"echo $$; exec {runner.build / harness.MEMBER} < "
                                 "$TMPDIR/say.$GRADSYNC_RANK", env=env)
        # Each waits until its trainer has opened the other end.
        self.inputs = [open(fifo, "w", encoding="ascii") for fifo in self.fifos]
        self.early = [[] for _ in range(n)]
        self.pids = [int(self.line(rank)) for rank in range(n)]

    def line(self, rank):
        """The rank's next line; None if it has none any more."""
        while not self.early[rank]:
            line = self.made.line()
            if line is None:
                return None
            head, _, text = line.partition(" ")
            self.early[int(head[1:-1])].append(text)
        return self.early[rank].pop(0)

    def say(self, rank, text):
        self.inputs[rank].write(text + "\n")
        self.inputs[rank].flush()

    def all(self, *commands):
        """Each must be answered with OK, by all."""
        for command in commands:
            for rank in range(len(self.pids)):
                self.say(rank, command)
            for rank in range(len(self.pids)):
                line = self.line(rank)
                assert line is not None and line.startswith("OK"), (rank, command, line, self.made.err)

    def begin(self):
        """A job with a plan."""
        self.all("open", "join", "param p f32 3", "plan")

    def end(self, *ranks):
        """They have no more to do, and end with status 0."""
        for rank in ranks:
            self.inputs[rank].close()
