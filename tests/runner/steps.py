# SPDX-License-Identifier: Apache-2.0
"""A run of suites: what is built for them, how their programs are started, what is printed meanwhile, and the
total."""
import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess
import sys
import time

import reports

TREE = pathlib.Path(__file__).resolve().parents[2]
OUT = TREE / "build-test"
PYTHON = "/usr/bin/python3"
MOST_FLAKY = 2                  # tests of one run that may fail once

ALL = ["-Dtests=enabled", "-Dcli=enabled", "-Dsystemd=enabled"]
DEBUG = "-Dbuildtype=debugoptimized"
BUILDS = {                      # compiler, target of ninja, options of meson
    "gcc": ("gcc", "all", [*ALL, "-Dman=enabled"]),
    "clang": ("clang", "all", [*ALL, "-Dman=disabled"]),
    "asan": ("gcc", "all", [*ALL, "-Dman=disabled", DEBUG, "-Db_sanitize=address,undefined"]),
    "tsan": ("gcc", "all", [*ALL, "-Dman=disabled", "-Dcuda=disabled", DEBUG, "-Db_sanitize=thread"]),
    "coverage": ("gcc", "all", [*ALL, "-Dman=disabled", "-Db_coverage=true"]),
    "fuzz": ("clang", "fuzz", ["-Dfuzz=true", "-Dtests=enabled", "-Dcli=disabled", "-Dexamples=false",
                               "-Dman=disabled", "-Dsystemd=disabled", DEBUG, "-Db_lundef=false"])}
SANITIZERS = {
    "asan": {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:"
                             "exitcode=99",
             "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=98"},
    "tsan": {"TSAN_OPTIONS": "halt_on_error=0:second_deadlock_stack=1:exitcode=66:"
                             f"suppressions={TREE}/tests/tsan.supp"}}


@dataclasses.dataclass
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, cases):
        for case in cases:
            setattr(self, case.outcome, getattr(self, case.outcome) + 1)


def as_root():
    """Several users and memory cgroups take part in the tests, so they run as root."""
    if os.geteuid() == 0:
        return []
    if subprocess.run(["sudo", "-n", "true"], check=False, capture_output=True).returncode == 0:
        return ["sudo", "-n", "-E"]
    print("neither root nor sudo without a password: tests that need several users will fail")
    return []


def near_addresses():
    """The sanitizers' shadow memory needs a modest randomisation of addresses."""
    try:
        bits = int(pathlib.Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    except (OSError, ValueError):
        return []
    if bits <= 28:
        return []
    if subprocess.run(["setarch", "-R", "true"], check=False, capture_output=True).returncode == 0:
        return ["setarch", "-R"]
    print(f"vm.mmap_rnd_bits is {bits} and setarch -R not allowed: sanitizers may fail to start")
    return []


class Run:
    """The suites of one call, one after the other. Each step prints a line, and what failed in it."""

    def __init__(self, jobs, seed, retries=True):
        self.jobs, self.seed, self.retries = jobs, seed, retries
        self.root, self.near = as_root(), near_addresses()
        self.totals, self.flaky, self.built = Totals(), [], {}
        self.at = ""                    # "[i/n]" of the suite that runs
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("GRADSYNC_") or name.startswith("GRADSYNC_TEST_")}
        self.environment |= {"LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "JOBS": str(jobs)}
        OUT.mkdir(exist_ok=True)

    def begins(self, name):
        if sys.stdout.isatty():
            print(f"{self.at} {name} ...", end="\r", flush=True)
        return time.monotonic()

    def tell(self, name, cases, began, log):
        """Counts the cases of a step, prints its line and what failed. True if nothing did."""
        counts = Totals()
        counts.add(cases)
        self.totals.add(cases)
        print(f"{self.at} {name:24} {counts.passed:5} passed {counts.failed:4} failed {counts.skipped:4} "
              f"skipped {time.monotonic() - began:6.0f} s  {log.relative_to(TREE)}", flush=True)
        for case in cases:
            if case.outcome == "failed":
                print(f"--- FAILED {case.name}\n{case.why}\n---", flush=True)
            elif case.outcome == "skipped":
                print(f"      skipped: {case.name}", flush=True)
        return counts.failed == 0

    def program(self, argv, log, seconds, **environment):
        """Runs one program, with its output in a file; its exit status."""
        with open(log, "w") as out:
            return subprocess.run(["timeout", "-k", "10", str(seconds), *argv], check=False, cwd=TREE,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                  env=self.environment | environment).returncode

    def case(self, name, argv, seconds=1800, **environment):
        """A program that is one test."""
        log = OUT / f"{name.replace(' ', '-')}.log"
        status = self.program(argv, log, seconds, **environment)
        if status == 0:
            return reports.Case(name, "passed")
        return reports.Case(name, "failed", f"ended with {status}\n{reports.of_log(log)}")

    def command(self, name, argv, seconds=1800, **environment):
        began = self.begins(name)
        return self.tell(name, [self.case(name, argv, seconds, **environment)], began,
                         OUT / f"{name.replace(' ', '-')}.log")

    def build(self, kind):
        """Configures build-test/KIND, and compiles it. One test, once per run. Whether it is there."""
        if kind in self.built:
            return self.built[kind]
        compiler, target, options = BUILDS[kind]
        folder = OUT / kind
        setup = ["meson", "configure" if (folder / "build.ninja").exists() else "setup", "-Dwerror=true",
                 *options, str(folder)]
        script = f'"$@" && ninja -k 0 -j {self.jobs} -C {folder} {target}'
        self.built[kind] = self.command(f"build {kind}", ["sh", "-c", script, "sh", *setup], CC=compiler)
        return self.built[kind]

    def again(self, case, argv, log, **environment):
        """Runs a test that failed once more, alone. If it passes then, it is flaky: both outputs are told."""
        if self.program(argv, log, 900, **environment) != 0:
            return
        then = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        print(f"--- FLAKY {case.name}: failed once, and passed alone. It said first:\n{case.why}\n"
              f"--- and then:\n{then}\n---", flush=True)
        self.flaky.append(case.name)
        case.outcome = "passed"

    def retry(self, cases, argv, log, **environment):
        failed = [case for case in cases if case.outcome == "failed"]
        too_many = len(failed) + len(self.flaky) > MOST_FLAKY
        if not self.retries or not failed or too_many or not all(case.alone for case in failed):
            return
        for alone in dict.fromkeys(case.alone for case in failed):
            same = [case for case in failed if case.alone == alone]
            same[0].why = "\n".join(case.why for case in same if case.why)
            self.again(same[0], argv(alone), log.with_suffix(".again.log"), **environment)
            for case in same[1:]:
                case.outcome = same[0].outcome

    def unit(self, name, kind, *tests):
        """The unit tests of build-test/KIND, all or these; a program of cmocka counts by its cases."""
        log, began = OUT / f"{name.replace(' ', '-')}.log", self.begins(name)
        folder = OUT / kind
        meson = [*self.near, "meson", "test", "-C", str(folder), "--no-rebuild", "--timeout-multiplier", "4"]
        written = folder / "meson-logs/testlog.json"
        written.unlink(missing_ok=True)
        environment = SANITIZERS.get(kind, {})
        # Some programs wait more than they compute.
        together = ["--num-processes", str(3 * self.jobs)]
        status = self.program([*meson, *together, *tests], log, 1800, **environment)
        try:
            cases = reports.of_meson(written, folder)
        except (OSError, ValueError) as problem:
            cases = [reports.Case(name, "failed", f"{problem}\n{reports.of_log(log)}")]
        if status and not any(case.outcome == "failed" for case in cases):
            why = f"meson test ended with {status}\n{reports.of_log(log)}"
            cases.append(reports.Case(name, "failed", why))
        self.retry(cases, lambda test: [*meson, "--verbose", test], log, **environment)
        return self.tell(name, cases, began, log)

    def pytest(self, name, kind, *arguments, runner=(PYTHON, "-m", "pytest"), workers=None, seconds=2400,
               **environment):
        """Python tests against build-test/KIND."""
        log, began = OUT / f"{name.replace(' ', '-')}.log", self.begins(name)
        written = log.with_suffix(".xml")
        written.unlink(missing_ok=True)
        environment = {**SANITIZERS.get(kind, {}), "GRADSYNC_BUILD": str(OUT / kind), **environment}
        front = [*self.root, "env", *(f"{key}={value}" for key, value in environment.items()), *self.near,
                 *runner, "-q"]
        count = 3 * self.jobs if workers is None else workers
        status = self.program([*front, "-n", str(count), "--junitxml", str(written), "-o",
                               "junit_family=xunit1", *arguments], log, seconds)
        try:
            cases = reports.of_pytest(written, "tests")
        except (OSError, reports.ParseError) as problem:
            cases = [reports.Case(name, "failed", f"{problem}\n{reports.of_log(log)}")]
        if status and not any(case.outcome == "failed" for case in cases):
            cases.append(reports.Case(name, "failed", f"pytest ended with {status}\n{reports.of_log(log)}"))
        options = [argument for argument in arguments if argument.startswith("--")]
        self.retry(cases, lambda test: [*front, "-n", "0", *options, test], log)
        return self.tell(name, cases, began, log)

    def beside(self, work, items):
        """Calls a function for each item, as many at a time as there are jobs."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(work, items))

    def end(self, began):
        for name in self.flaky:
            print(f"FLAKY {name}: find out why before anything else")
        print(f"{time.monotonic() - began:.0f} s; logs in {OUT.name}/")
        totals = self.totals
        print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped", flush=True)
        return totals.failed == 0 and totals.passed > 0
