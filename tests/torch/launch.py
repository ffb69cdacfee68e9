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
#: Cases whose ranks drift apart: an optimiser's step in no_sync(), an embedding that is normalised by the
#: rank's own input, and an optimiser that follows the loss.
DRIFTS = {"uneven_inputs": ["gradients", "parameters"], "uneven_by_live": ["gradients", "parameters"],
          "uneven_thrown": ["gradients", "parameters"], "lbfgs": ["losses"], "layers": ["parameters"]}


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GRADSYNC_", "SLURM_"))}
    env |= {"GRADSYNC_BUILD": str(BUILD), "GRADSYNC_LIBRARY": str(LIBRARY),
            "PYTHONPATH": os.pathsep.join([PACKAGE, str(HERE)]), "OMP_NUM_THREADS": "1"}
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


def run(ranks, script, *arguments, options=(), socket=None, **env):
    """Runs a script of this folder in so many processes, and waits for their end. They have a daemon of their
    own, or the one with this socket."""
    daemon = ["--socket", socket, "run"] if socket else ["run", "--private"]
    command = [str(CTL), *daemon, "-n", str(ranks), *options, "--", sys.executable, "-u", str(HERE / script),
               *map(str, arguments)]
    return Ended(subprocess.run(command, env=environment(**env), capture_output=True, text=True,
                                timeout=DEADLINE,
                                check=False))


def trained(folder, *more):
    """What the two ranks of recovering.py say in the end if nobody is lost; their parameters are equal."""
    ended = run(2, "recovering.py", folder, -1, 2, *more)
    assert ended.status == 0, ended.out + ended.err
    results = ended.results()
    assert len(results) == 2 and results[0]["trained"] == results[1]["trained"]
    return results


class Group:
    """Cases of a script, by default of cases.py, that run one after the other in the same processes. These
    are started for the first test that asks. With twice=True the cases run in double precision, too. Where a
    case ends the processes, those after it have no result."""

    def __init__(self, names, ranks=2, twice=False, script="worker.py"):
        self.names, self.ranks, self.script = names.split(), ranks, script
        if twice:
            self.names += [f"{name}.f64" for name in self.names]
        self._ended = None

    def check(self, name):
        """Nothing differs on any rank. Warnings of drift come only in cases whose ranks do drift."""
        if self._ended is None:
            with tempfile.TemporaryDirectory() as folder:
                self._ended = run(self.ranks, self.script, folder, *self.names)
        results = [each for each in self._ended.results() if each["case"] == name]
        assert [each["rank"]
                for each in results] == list(range(self.ranks)), self._ended.out + self._ended.err
        for each in results:
            assert each["size"] > 0
            assert each["differences"] == [], each
            assert each["drifts"] == DRIFTS.get(name.partition(".")[0], []), each
