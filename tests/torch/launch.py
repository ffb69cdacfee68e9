# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a test, with a private daemon of their own, and reads what they say."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("GRADSYNC_BUILD", ROOT / "build"))
CTL = BUILD / "client/cli/gradsyncctl"
LIBRARY = BUILD / "client/lib/libgradsync.so.0"
PACKAGE = os.environ.get("GRADSYNC_PACKAGE", str(ROOT / "client/python"))
#: A group of cases takes half a minute of two processors that have nothing else to do.
DEADLINE = float(os.environ.get("GRADSYNC_TEST_DEADLINE", "60")) * 15
TAG = "RESULT "


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GRADSYNC_", "SLURM_"))}
    env |= {"GRADSYNC_BUILD": str(BUILD), "GRADSYNC_LIBRARY": str(LIBRARY),
            "PYTHONPATH": os.pathsep.join([PACKAGE, str(HERE)]), "OMP_NUM_THREADS": "1"}
    return env | more


def results_of(*outputs):
    """The results that ranks have printed, by rank. Ranks may write to one pipe, where a line may end after
    the next one has begun."""
    found = [json.JSONDecoder().raw_decode(said)[0] for out in outputs for said in out.split(TAG)[1:]]
    return sorted(found, key=lambda each: each["rank"])


class Ended:
    """The output of ranks, and their exit status."""

    def __init__(self, made):
        self.status, self.out, self.err = made.returncode, made.stdout, made.stderr
        self.told = f"ended with {self.status}\n{self.out}{self.err}"

    def results(self):
        return results_of(self.out)

    def text(self, rank):
        """The lines that a rank printed, then its errors."""
        both = self.out.splitlines() + self.err.splitlines()
        return "\n".join(re.sub(r"^\[\d+\] ?", "", line) for line in both if line.startswith(f"[{rank}]"))


def run(ranks, script, *arguments, options=(), socket=None, **env):
    """Runs a script of this folder in so many processes, and waits for their end. They have a daemon of their
    own, or the one with this socket."""
    daemon = ["--socket", socket, "run"] if socket else ["run", "--private"]
    command = [str(CTL), *daemon, "-n", str(ranks), *options, "--", sys.executable, "-u", str(HERE / script),
               *map(str, arguments)]
    return Ended(subprocess.run(command, env=environment(**env), capture_output=True, text=True,
                                timeout=DEADLINE, check=False))


def passed(ranks, script, *arguments, **options):
    """Runs a script that must succeed, and returns the results of its ranks."""
    ended = run(ranks, script, *arguments, **options)
    assert ended.status == 0, ended.told
    found = ended.results()
    assert {each["rank"] for each in found} == set(range(ranks)), ended.told
    return found


def check_cases(names, *outputs):
    """Each rank has an output of its own, and has run these cases; none complains."""
    found = results_of(*outputs)
    assert [each for each in found if each["failed"]] == []
    assert [(each["rank"], each["case"]) for each in found] == [
        (rank, name) for rank in range(len(outputs)) for name in names]


def trained(folder, *more):
    """The results of the two ranks of recovering.py if none is lost. Their parameters are equal."""
    results = passed(2, "recovering.py", folder, -1, 2, *more)
    assert len(results) == 2 and results[0]["trained"] == results[1]["trained"]
    return results


class Group:
    """Cases of a script, by default of cases.py, that run one after the other in the same processes. These
    are started for the first test that asks. Cases after one that has failed have no result."""

    def __init__(self, names, ranks=2, script="worker.py", heavy=True):
        self.names, self.ranks, self.script, self.heavy = names.split(), ranks, script, heavy
        #: those that this run of pytest asks for
        self.chosen = self.names
        self._ended = None

    def _run(self):
        with tempfile.TemporaryDirectory() as folder:
            return run(self.ranks, self.script, folder, *self.chosen)

    def check(self, name):
        """Each rank has run the case, and none complains."""
        self._ended = self._ended or self._run()
        found = [each for each in self._ended.results() if each["case"] == name]
        for each in found:
            assert each["failed"] == "", f"rank {each['rank']}: {each['failed']}"
        assert [each["rank"] for each in found] == list(range(self.ranks)), self._ended.told


def cases(*groups):
    """For a test of (group, case): all cases. Those of a group run in one process of pytest."""
    found = []
    for group in groups:
        marks = [pytest.mark.xdist_group(f"{group.script} {group.ranks} {group.names[0]}")]
        marks += [pytest.mark.heavy] * group.heavy
        more = f"-{group.ranks}" if group.ranks != 2 else ""
        found += [pytest.param(group, name, id=name + more, marks=marks) for name in group.names]
    return pytest.mark.parametrize("group, case", found)
