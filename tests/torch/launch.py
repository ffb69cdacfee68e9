# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a test, with a private daemon of their own, and reads what they say."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("GRADSYNC_BUILD", ROOT / "build"))
CTL = BUILD / "client/cli/gradsyncctl"
LIBRARY = BUILD / "client/lib/libgradsync.so.0"
PACKAGE = os.environ.get("GRADSYNC_PACKAGE", str(ROOT / "client/python"))
DEADLINE = float(os.environ.get("GRADSYNC_TEST_DEADLINE", "60")) * 5
TAG = "RESULT "


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GRADSYNC_", "SLURM_"))}
    env |= {"GRADSYNC_LIBRARY": str(LIBRARY), "PYTHONPATH": os.pathsep.join([PACKAGE, str(HERE)]),
            "OMP_NUM_THREADS": "1"}
    return env | more


class Ended:
    """What ranks have said, and how they ended."""

    def __init__(self, made):
        self.status, self.out, self.err = made.returncode, made.stdout, made.stderr

    def results(self):
        """One line of each rank, by rank."""
        found = [json.loads(line.partition(TAG)[2]) for line in self.out.splitlines() if TAG in line]
        return sorted(found, key=lambda each: each["rank"])

    def lines(self, rank):
        """What a rank printed, errors too."""
        both = self.out.splitlines() + self.err.splitlines()
        return [re.sub(r"^\[\d+\] ?", "", line) for line in both if line.startswith(f"[{rank}]")]

    def text(self, rank):
        return "\n".join(self.lines(rank))


def run(ranks, script, *arguments, options=(), **env):
    """Runs a script of this folder in so many processes, and waits for their end."""
    command = [str(CTL), "run", "--private", "-n", str(ranks), *options, "--", sys.executable, "-u",
               str(HERE / script),
               *map(str, arguments)]
    return Ended(subprocess.run(command, env=environment(**env), capture_output=True, text=True,
                                timeout=DEADLINE,
                                check=False))


class Group:
    """Cases of cases.py that run one after the other in the same processes, which are started for the first
    test that asks. Where a case ends the processes, those after it have no result."""

    def __init__(self, names, ranks=2):
        self.names, self.ranks = names.split(), ranks
        self._ended = None

    def check(self, name):
        """Nothing differs on any rank."""
        if self._ended is None:
            with tempfile.TemporaryDirectory() as folder:
                self._ended = run(self.ranks, "worker.py", folder, *self.names)
        results = [each for each in self._ended.results() if each["case"] == name]
        assert [each["rank"]
                for each in results] == list(range(self.ranks)), self._ended.out + self._ended.err
        for each in results:
            assert each["size"] > 0
            assert each["differences"] == [], each
