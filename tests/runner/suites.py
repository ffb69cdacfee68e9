# SPDX-License-Identifier: Apache-2.0
"""Which suites there are, in three tiers. Called by tests/run.sh, which installs packages first."""
import argparse
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time

import reports
import steps

TIERS = {"default": "what a change must pass",
         "merge": "other builds, and what takes long: continuous integration runs it after the first",
         "all": "everything else: other machines and libraries, search by fresh seeds, planted slips"}
SUITES = {}                             # by their names


@dataclasses.dataclass
class Suite:
    tier: str
    seconds: int                        # on two idle cores, with its build
    what: str
    build: str
    function: object


# Members do the same wherever their gradients are, so a part of their tests runs again on a fake GPU.
ON_GPU = ["client_again", "restart", "void_plan", "replace"]
# Tests in which bytes, memory and descriptors come from others run again under ASan and UBSan.
OUTSIDE = ["bad_frames", "bad_operations", "bad_plans", "client", "cluster_wire", "control_memory", "cuda",
           "cuda_corners", "descriptors", "jobs", "journal_file", "metrics_listen", "pieces", "played",
           "protocol_version", "registered", "rejoin", "restart", "secret", "states", "token", "trace",
           "walk"]
# Tests in which a process has several threads at work run again under TSan.
THREADED = ["answered", "client", "client_again", "cluster", "cluster_gloo", "collectives", "deadlock",
            "descriptors", "loss", "metrics", "nonfinite", "registered", "registered_restart", "replace",
            "restart", "walk"]
THREADED_UNITS = ["test_absent", "test_client_parts", "test_client_promises", "test_client_steps",
                  "test_closer", "test_gloo", "test_gloo_loss", "test_host_holes", "test_host_pool",
                  "test_host_reduce", "test_link", "test_nodes", "test_nodes_agree", "test_nodes_left",
                  "test_nodes_staging", "test_nodes_told", "test_proc", "test_saver"]
QUICK = ("-m", "not heavy")
HEAVY = ("-m", "heavy")


def suite(tier, seconds, what, build="gcc"):
    """Adds a suite: the function runs its tests, after the build has been made."""
    def enter(function):
        SUITES[function.__name__.strip("_").replace("_", "-")] = Suite(tier, seconds, what, build, function)
        return function
    return enter


def integration(*names):
    return [f"tests/integration/test_{name}.py" for name in names] or ["tests/integration"]


@suite("default", 80, "the build with gcc, warnings are errors")
def gcc(_):
    pass


@suite("default", 35, "format, layers, links, manual pages, and other habits of the tree")
def lint(run):
    run.pytest("lint", "gcc", "tests/lint", workers=run.jobs)


@suite("default", 55, "functions of one module in one process; the corpus of the fuzzers is replayed")
def unit(run):
    run.unit("unit", "gcc")


@suite("default", 30, "100,000 schedules of the rules of membership in a world with faults")
def simulation(run):
    schedules(run, "simulation", 100_000)


def schedules(run, name, count):
    """Two tests: no rule is violated, and faults strike in every phase (which the exit status 2 denies)."""
    program = steps.OUT / "gcc/tests/simulation/simulation"
    began = time.monotonic()
    log = steps.OUT / f"{name}.log"
    status = run.program([str(program), "--schedules", str(count), "--jobs", str(run.jobs), "--coverage",
                          *(["--seed", str(run.seed)] if run.seed else [])], log, 1800)
    why = f"ended with {status}\n{reports.of_log(log)}"
    cases = [reports.Case(name, "passed" if status in (0, 2) else "failed", why),
             reports.Case(f"{name} coverage", "failed" if status else "passed", why)]
    run.tell(name, cases, began, log)


@suite("default", 140, "real daemons, clients, command lines and hosts, except for what takes long")
def _integration(run):
    run.pytest("integration", "gcc", *QUICK, *integration())


@suite("default", 30, "the probe and the fake GPU, except for what takes long")
def gpu(run):
    # Most tests wait for programs that hang on purpose.
    run.pytest("gpu", "gcc", *QUICK, "tests/gpu", workers=4 * run.jobs)


@suite("default", 235, "the Python package beside torch: each kind of case once; the wheel on a bare machine")
def torch(run):
    with_torch(run, "torch", *QUICK)


def with_torch(run, name, *arguments):
    """Runs tests in a Python environment of their own, see tests/torch/run.sh."""
    run.pytest(name, "gcc", *arguments, "tests/torch", runner=["sh", "tests/torch/run.sh"],
               workers=run.jobs)


@suite("default", 15, "gradsyncctl demo, once")
def demo(run):
    run.pytest("demo", "gcc", "tests/integration/test_demo.py::test_the_story", workers=0)


@suite("merge", 130, "the build with clang, and its unit tests", "clang")
def clang(run):
    run.unit("unit clang", "clang")


@suite("merge", 210, "what takes long of the integration tests and of the fake GPU")
def heavy(run):
    run.pytest("integration heavy", "gcc", *HEAVY, *integration())
    run.pytest("gpu heavy", "gcc", *HEAVY, "tests/gpu", workers=4 * run.jobs)


@suite("merge", 30, "what members do, with gradients on a fake GPU")
def on_gpu(run):
    run.pytest("integration on a GPU", "gcc", "--on-gpu", *integration(*ON_GPU))


@suite("merge", 610, "what takes long of the Python package")
def torch_heavy(run):
    with_torch(run, "torch heavy", *HEAVY)


@suite("merge", 500, "ASan and UBSan: unit tests, and where bytes and memory come from others", "asan")
def asan(run):
    run.unit("unit asan", "asan")
    run.pytest("integration asan", "asan", *QUICK, *integration(*OUTSIDE))


@suite("merge", 280, "TSan: where several threads are at work", "tsan")
def tsan(run):
    run.unit("unit tsan", "tsan", *THREADED_UNITS)
    run.pytest("integration tsan", "tsan", *QUICK, *integration(*THREADED))


@suite("all", 300, "the package on a booted machine: units, journal, watchdog, users")
def systemd(run):
    """It boots one machine for all tests. Only root can do that; a developer without root is told that it is
    left out, which continuous integration may not."""
    if not run.environment.get("CI") and not run.root and os.geteuid() != 0:
        print(f"{run.at} systemd is left out: only root, or sudo without a password, boots a machine")
        return
    run.pytest("systemd", "gcc", "tests/systemd", workers=0)


@suite("all", 260, "each fuzzer looks for new inputs, FUZZ_SECONDS long (60)", "fuzz")
def fuzz(run):
    seconds = os.environ.get("FUZZ_SECONDS", "60")
    targets = sorted(path for path in (steps.OUT / "fuzz/tests/fuzz").glob("fuzz_*") if path.is_file())
    work = steps.OUT / "fuzz/work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    began = time.monotonic()

    def search(target):
        found = work / target.name
        run.program([*run.near, "sh", "tests/fuzz.sh", str(target), "tests/fuzz/corpus", str(work), seconds],
                    work / f"{target.name}.log", int(seconds) + 600)
        for part in ("replay", "search"):
            status, log = found / f"{part}.status", found / f"{part}.log"
            good = status.is_file() and status.read_text().strip() == "0"
            yield reports.Case(f"{target.name} {part}", "passed" if good else "failed", reports.of_log(log))

    cases = [case for found in run.beside(lambda target: list(search(target)), targets) for case in found]
    run.tell("fuzz", cases or [reports.Case("fuzz", "failed", "no targets were built")], began,
             steps.OUT / "build-fuzz.log")


@suite("all", 330, "SCHEDULES (1,000,000) schedules; each rule is violated by planted bugs, which are found")
def rules(run):
    schedules(run, "rules", int(os.environ.get("SCHEDULES", "1000000")))
    program, began = str(steps.OUT / "gcc/tests/simulation/simulation-planted"), time.monotonic()
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
    found = [run.case(f"planted {bug}", [program, "--plant", bug, "--schedules", "1000000", "--jobs",
                                         str(run.jobs)]) for bug in listed]
    run.tell("planted bugs", found, began, steps.OUT / f"planted-{listed[-1]}.log")


@suite("all", 300, "trainings under faults, with sums checked: one host, several, fake GPUs")
def faults(run):
    def strike(script, *arguments):
        run.command(f"faults {script}", ["sh", f"tests/faults/{script}.sh", "--seed", str(run.seed),
                                         *arguments], GRADSYNC_BUILD=str(steps.OUT / "gcc"))
    strike("run", "--faults", "500")
    strike("cluster", "--faults", "100")
    strike("nccl", "--faults", "50")


@suite("all", 900, "attacks on a daemon beside a job of another user")
def attacks(run):
    run.command("attacks", [*run.root, "sh", "tests/attacks/run.sh", "--seed", str(run.seed), "--build",
                            str(steps.OUT / "gcc")])


@suite("all", 200, "what the daemon and the library hold after ten thousand jobs and a million steps")
def leaks(run):
    build = str(steps.OUT / "gcc")
    run.command("leaks", [*run.root, "env", f"GRADSYNC_BUILD={build}", "sh", "tests/leaks.sh"])


@suite("all", 60, "NCCL as NVIDIA ships it, from PyPI")
def nccl(run):
    run.pytest("nccl", "gcc", "tests/nccl", workers=0)


@suite("all", 60, "metrics, alerts and panels, read by Prometheus' own programs")
def metrics(run):
    run.pytest("metrics", "gcc", "tests/prometheus", workers=0)


@suite("all", 1200, "a quarter of the planted slips, which the tests must see")
def mutants(run):
    run.command("mutants", ["sh", "tests/mutants.sh", "--quarter"], 3600)


@suite("all", 400, "lines and branches that the tests reach, by folder: a report", "coverage")
def coverage(run):
    for old in (steps.OUT / "coverage").rglob("*.gcda"):
        old.unlink()
    run.unit("unit coverage", "coverage")
    run.pytest("integration coverage", "coverage", *QUICK, *integration())
    run.command("coverage", ["sh", "tests/coverage.sh", str(steps.OUT / "coverage")])


def usage():
    lines = []
    for tier, what in TIERS.items():
        mine = {name: entry for name, entry in SUITES.items() if entry.tier == tier}
        lines += ["", f"{tier}: {what} ({sum(entry.seconds for entry in mine.values()) / 60:.0f} minutes)"]
        lines += [f"  {name:12} {entry.seconds:5} s  {entry.what}" for name, entry in mine.items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        prog="tests/run.sh", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Installs what the tests need, builds, and runs suites: by default the first tier. The\n"
                    "last line is the total, \"N passed, N failed, N skipped\". Ends with 0 if nothing\n"
                    "failed and every suite ran.",
        epilog="Suites, with their seconds on two idle cores:\n" + usage() + """

environment:
  JOBS            parallel compilations and tests (default: the number of CPUs)
  NO_INSTALL      set: install no packages
  SEED            of searches (default: fresh ones; printed)
  FUZZ_SECONDS, SCHEDULES: see above

Builds and logs go to build-test/, one folder per kind of build; so does the file system of the machine that
the suite systemd boots.""")
    parser.add_argument("suite", nargs="*", metavar="SUITE", help="only these")
    for tier in TIERS:
        parser.add_argument(f"--{tier}", action="append_const", const=tier, dest="tiers", help=TIERS[tier])
    options = parser.parse_args()
    for name in options.suite:
        if name not in SUITES:
            parser.error(f"no suite {name}; there are: {' '.join(SUITES)}")
    tiers = options.tiers or ([] if options.suite else ["default"])
    chosen = [name for tier in TIERS if tier in tiers for name, entry in SUITES.items() if entry.tier == tier]
    chosen += [name for name in options.suite if name not in chosen]

    # A shell ignores SIGINT for programs in the background. Tests send it to programs that expect it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(steps.TREE)
    seed = int(os.environ.get("SEED", "0"))
    if not seed and any(SUITES[name].tier == "all" for name in chosen):
        seed = int(time.time())
    if seed:
        print(f"SEED={seed}")
    run = steps.Run(int(os.environ.get("JOBS") or os.cpu_count()), seed)
    began = time.monotonic()
    for i, name in enumerate(chosen, 1):
        run.at = f"[{i:2}/{len(chosen)}]"
        if run.build(SUITES[name].build):
            SUITES[name].function(run)
        else:
            print(f"{run.at} {name} did not run: the build {SUITES[name].build} failed", flush=True)
    return 0 if run.end(began) else 1


if __name__ == "__main__":
    sys.exit(main())
