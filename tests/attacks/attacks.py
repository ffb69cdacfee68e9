# SPDX-License-Identifier: Apache-2.0
"""
Attacks on a real daemon, each beside a probe: measures the cost for a job of another uid. The probe runs for
some seconds beside the attack, then for as long on another daemon without it. If the attack took processor
time, the probe also runs beside processes that are as busy and have nothing to do with the daemon. These take
the processor evenly, and attackers do not: if a step still took long in comparison, the probe also runs
beside an attack on a daemon that it does not use.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
sys.path.append(str(HERE.parent / "bench"))

import descriptors                      # noqa: E402, F401 (they define the attacks)
import floods                           # noqa: E402, F401
import jobs                             # noqa: E402, F401
import memory                           # noqa: E402, F401
import network                          # noqa: E402, F401
import rig                              # noqa: E402
from attack import ATTACKS              # noqa: E402
from report import progress, table      # noqa: E402
from rig import MIB, Failed             # noqa: E402

AFTERWARDS_S = 1                        # effects of an attack may show after its processes have ended
# The names of periods in the rows.
PERIODS = {"probe": "attack", "baseline": "quiet", "busy": "busy", "elsewhere": "elsewhere"}
LIKE = ("elsewhere", "busy", "quiet")   # periods, the one that is most like the attack first
WHAT = ("Attacks a daemon, or a cluster, beside a job of another user, and measures what that costs the job. "
        "Needs root, because attackers are users of their own.")


def arguments():
    parser = argparse.ArgumentParser(prog="run.sh", description=WHAT)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each attack")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these attacks")
    parser.add_argument("--seconds", type=float, default=5, help="how long each attack goes on (5)")
    parser.add_argument("--build", type=pathlib.Path, metavar="DIR",
                        help="the build to attack (build-test/gcc)")
    parser.add_argument("--limit", type=float, metavar="MS",
                        help="fail if a step took so much longer than without the attack")
    parser.add_argument("--memory", type=int, metavar="MIB",
                        help="kill the daemon if all its memory grows by more, where that can be had")
    parser.add_argument("--doubt", type=float, default=25, metavar="MS",
                        help="measure beside the attack on another daemon if a step took so much longer (25)")
    parser.add_argument("--seed", type=int, metavar="N",
                        default=int(os.environ.get("GRADSYNC_TEST_SEED", "1")),
                        help="of what is random in attacks (%(default)s)")
    parser.add_argument("--list", action="store_true", help="say which attacks there are")
    options = parser.parse_args()
    os.environ["GRADSYNC_TEST_SEED"] = str(options.seed)
    for name in options.only or []:
        if name not in ATTACKS:
            parser.error(f"there is no attack {name}; --list says which there are")
    if not options.list and not options.build:
        parser.error("--build is needed")
    return options


class Measured:
    """One attack, from the start of its daemon to the end of the daemon of the quiet period."""

    def __init__(self, options, attack, directory):
        self.build, self.seconds, self.directory = options.build.resolve(), options.seconds, directory
        self.attack, self.doubt, self.most, self.seed = attack, options.doubt, options.memory, options.seed
        self.problems, self.counts = [], collections.Counter()
        self.periods = {}
        self.survived, self.why = False, None
        self.cpus, self.wall = 0, 0
        self.server = self.probe = self.memory = None
        try:
            with self.standing("attacked"):
                self.memory = self.server.memory
                self.attacked()
                self.survived = True
            with self.standing("quiet"):
                self.without()
        except (Failed, AssertionError) as problem:
            if self.memory is None:
                raise
            self.problems.append(str(problem))
        self.judge()

    @contextlib.contextmanager
    def standing(self, name):
        """A fresh daemon with the probe, so that nothing of an earlier attack is left in it."""
        directory = self.directory / name
        directory.mkdir(mode=0o755)
        self.server = self.attack.server_kind(self.build, directory, self.attack)
        try:
            self.probe = rig.Probe(self.build, self.server, self.attack.probe_bytes, self.attack.token)
            yield
        finally:
            self.finish()

    def finish(self):
        if self.probe:
            self.probe.close()
        self.probe = None
        try:
            self.server.finish()
        except AssertionError as problem:
            self.problems.append(str(problem))

    def judge(self):
        self.problems += [f"it did not attack: nothing was counted as {what}" for what in self.attack.proof
                          if not self.counts[what]]
        wrong = sum(period.wrong for period in self.periods.values())
        if wrong:
            self.problems.append(f"{wrong} sums were wrong")

    def without(self):
        self.beside("quiet", [])
        if self.cpus >= rig.IDLE:
            count = self.attack.users * self.attack.processes
            self.beside("busy", rig.busy_processes(self.cpus, count, self.wall))
        if self.above() > self.doubt and not self.attack.needs_probe:
            self.elsewhere()

    def forked(self, server, number):
        uid = self.attack.uid
        if uid is None:
            uid = rig.FIRST_UID + number // self.attack.processes
        return rig.Forked(uid, lambda told: self.attack(server, number, self.seconds).run(told))

    def attack_on(self, server, name, look):
        """Attacks a daemon. Returns (the results of the attackers, seconds); names the probe's period."""
        processes = []
        try:
            for number in range(self.attack.users * self.attack.processes):
                processes.append(self.forked(server, number))
            rig.begin_all(processes, self.probe.period)
            began = time.monotonic()
            rig.watch(processes, began + self.seconds + AFTERWARDS_S, look)
            wall = time.monotonic() - began
            self.periods[name] = self.probe.period()
            return [process.result() for process in processes], wall
        finally:
            rig.close_all(processes)

    def attacked(self):
        self.memory.begin()
        if self.most is not None:
            self.memory.limit(self.most * MIB)
        results, self.wall = self.attack_on(self.server, "attack", self.look)
        self.add(results)

    def elsewhere(self):
        """Measures the probe while another daemon is attacked, in the same way and on the same processors."""
        directory = self.directory / "elsewhere"
        directory.mkdir(mode=0o755)
        other = self.attack.server_kind(self.build, directory, self.attack)
        try:
            counts = collections.Counter()
            self.attack_on(other, "elsewhere", lambda: self.attack.beside(self.server, counts))
        finally:
            other.finish()

    def look(self):
        self.memory.look()
        self.attack.beside(self.server, self.counts)

    def add(self, results):
        for result in results:
            if result is None:
                self.counts["killed"] += 1
                continue
            self.cpus += result["cpu_s"] / self.wall
            self.why = result["why"] or self.why
            for name, count in result["counts"].items():
                self.counts[name] += count

    def beside(self, name, processes):
        """Measures the probe beside these processes, for as long as the attack took."""
        counts = collections.Counter()
        try:
            self.probe.period()
            until = time.monotonic() + self.wall
            rig.watch(processes, until, lambda: self.attack.beside(self.server, counts))
            self.periods[name] = self.probe.period()
        finally:
            rig.close_all(processes)

    def figure(self, name, what):
        return getattr(self.periods[name], what) if name in self.periods else None

    def above(self):
        like = next((self.periods[name] for name in LIKE if name in self.periods), None)
        return round(self.periods["attack"].worst_ms - like.worst_ms, 3) if like else None

    def row(self):
        refused = self.counts["refused"] + self.counts["hung_up"]
        did = {name: count for name, count in sorted(self.counts.items()) if name != "restarted_at"}
        figures = {f"{name}_{what}": self.figure(period, what) for name, period in PERIODS.items()
                   for what in ("p50_ms", "worst_ms")}
        return {"attack": self.attack.name, "seed": self.seed, "seconds": self.seconds,
                "probe_bytes": self.attack.probe_bytes, "probe_steps": self.figure("attack", "steps"),
                **figures, "worst_above_ms": self.above(),
                "attack_cpus": round(self.cpus, 2), "daemon_anon_mib": round(self.memory.growth() / MIB, 1),
                "memory_of": self.memory.what, "refused": refused, "last_refusal": self.why, "did": did,
                "job_survived": self.survived, "problems": self.problems}


def measured(options, attack):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        return Measured(options, attack, directory).row()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def text_of(rows):
    def cell(value):
        return "–" if value is None else value

    order = sorted(rows, key=lambda row: -(row["worst_above_ms"] or 0))
    head = ["attack", "p50 ms", "worst ms", "quiet", "busy", "elsewhere", "above", "CPUs", "daemon MiB",
            "refused", "job"]
    keys = ["attack", "probe_p50_ms", "probe_worst_ms", "baseline_worst_ms", "busy_worst_ms",
            "elsewhere_worst_ms", "worst_above_ms", "attack_cpus", "daemon_anon_mib", "refused"]
    return table(head, [[*(cell(row[key]) for key in keys), "survived" if row["job_survived"] else "LOST"]
                        for row in order])


def failures(rows, limit):
    for row in rows:
        for problem in row["problems"]:
            yield f"{row['attack']} (seed {row['seed']}): {problem}"
        above = row["worst_above_ms"]
        if limit is not None and above is not None and above > limit:
            yield f"{row['attack']}: a step took {above} ms longer than without it, more than {limit} ms"


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)   # also when told to stop, leave nothing
    if options.list:
        for name, attack in ATTACKS.items():
            print(f"{name:24} {' '.join(attack.__doc__.split())}")
        return 0
    if os.geteuid() != 0:
        print("run.sh needs root: attackers, and whom they attack, are users of their own", file=sys.stderr)
        return 1
    rows = []
    try:
        for name in options.only or ATTACKS:
            progress(f"{name} ({len(rows) + 1})")
            rows.append(measured(options, ATTACKS[name]))
            if options.json:
                print(json.dumps(rows[-1]), flush=True)
    except KeyboardInterrupt:
        return 130
    finally:
        progress("")
    if not options.json:
        print(text_of(rows))
    failed = list(failures(rows, options.limit))
    for text in failed:
        print(f"failed: {text}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
