# SPDX-License-Identifier: Apache-2.0
"""Plants the slips of tests/mutants/*.toml in copies of the tree, and checks that their tests turn red.

Run by mutants.sh. A slip is found if one of its tests fails, or does not end in time. It is a mistake of the
list if it does not compile, or if one of its tests fails without it, which is tried first.
"""
import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import pathlib
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

TREE = pathlib.Path(__file__).resolve().parents[1]
LISTS = TREE / "tests/mutants"
BUILD = "build-test/gcc"
VENV = TREE / "build-test/torch-venv"
JOBS = int(os.environ.get("JOBS") or os.cpu_count())
#: Folders of programs that no test of another folder needs.
APART = ("tests/unit", "tests/fuzz", "tests/simulation", "tests/gpu", "tests/nccl", "tests/bench")
GREEN, RED, LATE = "green", "red", "time-out"


class Slip:
    """A row of a list."""

    def __init__(self, area, name, file, old, new, tests):
        self.area, self.name, self.file, self.old, self.new, self.tests = area, name, file, old, new, tests


class Mistake(Exception):
    """A slip that says nothing about the tests."""


def read_lists(folder=LISTS):
    return [Slip(path.stem, **row) for path in sorted(folder.glob("*.toml"))
            for row in tomllib.loads(path.read_text("utf-8"))["slip"]]


def run(command, limit=None, cwd=None, log=subprocess.DEVNULL, **variables):
    """Runs a command. Returns how it ended. After the time limit it is interrupted, so that pytest ends its
    programs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADSYNC_")}
    environment.update(variables, LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1")
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return GREEN if process.wait(limit) == 0 else RED
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        return LATE
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Copy:
    """A copy of the tree with a build of its own."""

    def __init__(self, folder, number):
        self.number = number
        self.tree, self.log = folder / str(number), folder / f"{number}.log"
        self.build = self.tree / BUILD
        self.programs, self.units = [], {}

    def make(self):
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                cwd=TREE, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (TREE / name).exists():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(TREE / name, self.tree / name)
        compiler = os.environ.get("CC") or ("ccache gcc" if shutil.which("ccache") else "gcc")
        self.do("meson", "setup", "-Dtests=enabled", "-Dcli=enabled", "-Dman=disabled", self.build,
                CC=compiler)
        self.look()

    def copy(self, other):
        """Copies the other one, and replaces its paths in the commands."""
        shutil.copytree(other.tree, self.tree, symlinks=True)
        rules = self.build / "build.ninja"
        rules.write_text(rules.read_text("utf-8").replace(str(other.tree), str(self.tree)), "utf-8")
        self.programs, self.units = other.programs, other.units

    def look(self):
        """Reads the targets of the build, and the needs of each unit test."""
        info = self.build / "meson-info"
        files = {}
        for target in json.loads((info / "intro-targets.json").read_text("utf-8")):
            files[target["id"]] = [os.path.relpath(name, self.build) for name in target["filename"]]
            if target["build_by_default"] and target["type"] != "static library":
                self.programs += files[target["id"]]
        for test in json.loads((info / "intro-tests.json").read_text("utf-8")):
            self.units[test["name"]] = [name for of in test["depends"] for name in files[of]]

    def do(self, *command, **variables):
        """Runs a command that must succeed."""
        with open(self.log, "wb") as log:
            ended = run(command, cwd=self.tree, log=log, CCACHE_BASEDIR=str(self.tree), CCACHE_NOHASHDIR="1",
                        **variables)
        if ended != GREEN:
            raise Mistake(f"{command[0]} fails:\n{self.tail()}")

    def tail(self):
        """The end of the last command's output."""
        return self.log.read_text("utf-8", "replace")[-3000:]

    def compile(self, tests, jobs):
        wanted = set()
        for test in tests:
            kind = test.split()[0]
            if kind == "simulation":
                wanted.add("tests/simulation/simulation")
            elif "/" not in kind:
                wanted.update(self.units[kind])
            else:
                own = f"tests/{kind.split('/')[0]}/"
                wanted.update(name for name in self.programs if name.startswith(own)
                              or not name.startswith(APART))
        self.do("ninja", "-C", self.build, "-j", str(jobs), *sorted(wanted))

    def command(self, test):
        kind, *rest = shlex.split(test)
        if kind == "simulation":
            return [self.build / "tests/simulation/simulation", "--jobs", "1", "--schedules", *rest]
        if "/" not in kind:
            return [self.build / "tests/unit" / kind]
        python = VENV / "bin/python" if kind.startswith("torch/") else "/usr/bin/python3"
        return [python, "-m", "pytest", "-q", "-x", self.tree / "tests" / kind, *rest]

    def ends(self, test, limit=None):
        """How a test ends."""
        with open(self.log, "wb") as log:
            return run(self.command(test), limit, self.tree, log, GRADSYNC_BUILD=str(self.build),
                       GRADSYNC_TEST_DEADLINE="40", PYTEST_XDIST_WORKER=f"gw{self.number}",
                       CMOCKA_TEST_ABORT="1")       # unit tests stop at the first red, as pytest does by -x

    def plant(self, slip, limits):
        """The first test that sees the slip, and how it ends; None if no test does."""
        path = self.tree / slip.file
        text = path.read_text("utf-8")
        if text.count(slip.old) != 1:
            raise Mistake(f"its old text occurs {text.count(slip.old)} times in {slip.file}")
        try:
            path.write_text(text.replace(slip.old, slip.new), "utf-8")
            self.compile(slip.tests, 1)
            for test in slip.tests:
                ended = self.ends(test, limits[test])
                if ended != GREEN:
                    return f"{test}{' does not end' if ended == LATE else ''}"
            return None
        finally:
            path.write_text(text, "utf-8")      # newer than the objects with the slip


def at_once(copies, things, work):
    """work(copy, thing) for all of them; each copy does one after the other."""
    left = collections.deque(things)

    def worker(copy):
        while True:
            try:
                thing = left.popleft()
            except IndexError:
                return
            work(copy, thing)

    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        try:
            for ended in concurrent.futures.as_completed([pool.submit(worker, copy) for copy in copies]):
                ended.result()
        finally:
            left.clear()


class Trial:
    """All chosen slips, tried."""

    def __init__(self, slips, copies):
        self.slips, self.copies = slips, copies
        self.limits, self.mistakes, self.survivors = {}, [], []
        self.found = self.done = 0
        self.lock = threading.Lock()

    def first(self, copy, test):
        """Runs a test without a slip. Notes how long it may take with one, or why it is of no use."""
        begun = time.monotonic()
        ended = copy.ends(test, 1200)
        self.limits[test] = 30 + 5 * (time.monotonic() - begun) if ended == GREEN else None
        if ended != GREEN:
            say(f"{test}: {ended} without a slip\n{copy.tail()}")

    def one(self, copy, slip):
        begun = time.monotonic()
        try:
            for test in slip.tests:
                if self.limits[test] is None:
                    raise Mistake(f"{test} fails without it")
            by = copy.plant(slip, self.limits)
            text = f"found by {by}" if by else "NOT FOUND"
        except Mistake as mistake:
            by, text = "", f"MISTAKE: {mistake}"
        with self.lock:
            self.done += 1
            self.found += bool(by)
            if by is None:
                self.survivors.append(slip)
            elif not by:
                self.mistakes.append(slip)
            say(f"{self.done}/{len(self.slips)}  {slip.area}: {slip.name}: {text}"
                f" ({time.monotonic() - begun:.0f} s)")

    def run(self):
        tests = sorted({test for slip in self.slips for test in slip.tests})
        self.copies[0].make()
        self.copies[0].compile(tests, JOBS)
        for copy in self.copies[1:]:
            copy.copy(self.copies[0])
            copy.compile(tests, JOBS)
        at_once(self.copies, tests, self.first)
        at_once(self.copies, self.slips, self.one)


def say(text):
    print(text, flush=True)


def choose(arguments):
    slips = read_lists()
    if unknown := set(arguments.names) - {slip.name for slip in slips}:
        sys.exit(f"no slip {', '.join(sorted(unknown))}")
    if unknown := set(arguments.area) - {slip.area for slip in slips}:
        sys.exit(f"no area {', '.join(sorted(unknown))}")
    slips = [slip for slip in slips if (not arguments.area or slip.area in arguments.area)
             and (not arguments.names or slip.name in arguments.names)]
    if arguments.quarter:
        arguments.slice = f"{datetime.date.today().timetuple().tm_yday % 4 + 1}/4"
        say(f"today's quarter is --slice {arguments.slice}")
    if arguments.slice:
        part, parts = map(int, arguments.slice.split("/"))
        slips = slips[part - 1::parts]
    return slips


def main():
    parser = argparse.ArgumentParser(prog="mutants.sh")
    parser.add_argument("--list", action="store_true", help="show the slips and their tests")
    parser.add_argument("--area", action="append", default=[], help="only those of tests/mutants/AREA.toml")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--slice", metavar="I/N", help="only each N-th, from the I-th")
    which.add_argument("--quarter", action="store_true", help="a quarter, another one each day")
    parser.add_argument("names", metavar="NAME", nargs="*")
    arguments = parser.parse_args()
    slips = choose(arguments)
    if arguments.list:
        for slip in slips:
            say(f"{slip.area}: {slip.name}  [{slip.file}; {', '.join(slip.tests)}]")
        return 0
    if not slips:
        sys.exit("no slip is chosen")
    if any(test.startswith("torch/") for slip in slips for test in slip.tests):
        subprocess.run(["sh", TREE / "tests/torch/run.sh", "--version"], check=True)      # installs torch
    # Also in the background: it is what ends a test that takes too long.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slips-") as folder:
        os.chmod(folder, 0o755)         # some tests start programs as other users
        trial = Trial(slips, [Copy(pathlib.Path(folder), number) for number in range(JOBS)])
        trial.run()
    for slip in trial.survivors:
        say(f"NOT FOUND  {slip.area}: {slip.name}  [{slip.file}; {', '.join(slip.tests)}]")
    for slip in trial.mistakes:
        say(f"MISTAKE  {slip.area}: {slip.name}  [{slip.file}; {', '.join(slip.tests)}]")
    failed = len(trial.survivors) + len(trial.mistakes)
    say(f"{time.monotonic() - begun:.0f} s")
    say(f"{trial.found} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
