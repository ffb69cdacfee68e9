# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl run, in a directory of its own, with a look at what it leaves behind."""
import pathlib
import subprocess

import harness


class Runner:
    """gradsyncctl run in a directory of its own, in which no daemon and no leftovers of others are found."""

    def __init__(self, build, program, scratch):
        self.build, self.program, self.scratch = build, program, scratch
        self.env = {"TMPDIR": scratch / "tmp", "GRADSYNC_DEVICE": "cpu:run-test"}
        (scratch / "tmp").mkdir()
        self.ctl = build / harness.CTL

    def start(self, *arguments, env=None, **options):
        return self.program(harness.CTL, "run", *arguments, env={**self.env, **(env or {})}, **options)

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
    """What a rank has written, of relayed output."""
    return [line[len(f"[{rank}] "):] for line in text.splitlines() if line.startswith(f"[{rank}] ")]
