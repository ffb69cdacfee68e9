# SPDX-License-Identifier: Apache-2.0
"""
A crowd of users that together hold every connection and descriptor that a daemon admits, and go on asking for
more: what that costs a running job of another uid, against the same job on a daemon without a crowd beside
processes that are as busy; how long root's status takes; and whether a new client of that uid gets in.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
sys.path.append(str(HERE.parent / "bench"))

import rig                              # noqa: E402
from attack import ENDS, Client         # noqa: E402
from harness import CTL, environment    # noqa: E402
from peer import PAGE, Own, Refused     # noqa: E402
from report import progress             # noqa: E402
from rig import KIB, PROBE_UID, Failed  # noqa: E402

ASK_S = 0.1                             # between two of a holder's attempts to have more
ENOUGH = 3                              # refusals in a row after which a holder has all that it gets
ACTIVE, PAUSED, OVER = b"a", b"p", b"q"
WHAT = "Measures a job beside a crowd of users that hold all that a daemon admits. Needs root."
NO = (Refused, *ENDS)


def arguments():
    parser = argparse.ArgumentParser(prog="crowd.sh", description=WHAT)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--uids", type=int, default=200, help="of the crowd (200)")
    parser.add_argument("--nofile", type=int, default=10000,
                        help="descriptors that the daemon may have (10000)")
    parser.add_argument("--seconds", type=float, default=3, help="of a period (3)")
    parser.add_argument("--rounds", type=int, default=5, help="periods of each kind, which take turns (5)")
    parser.add_argument("--build", type=pathlib.Path, required=True, metavar="DIR",
                        help="the build (build-test/gcc)")
    return parser.parse_args()


class Holder:
    """One user of the crowd, in a process of its own: connections first, then memories registered over
    them."""

    def __init__(self, path):
        self.path, self.peers, self.refused = path, [], 0
        self.own, self.registered = Own(PAGE), 0

    def connect(self):
        self.peers.append(Client(self.path))

    def register(self):
        if self.peers[0].job is None:
            self.peers[0].joined(self.peers[0].join_send(f"holder{os.getuid()}", 1))
        self.peers[0].register(self.own)
        self.registered += 1

    def more(self, of):
        """Whether it got one more."""
        try:
            of()
        except NO:
            self.refused += 1
            return False
        return True

    def fill(self, of):
        refusals = 0
        while refusals < ENOUGH:
            refusals = 0 if self.more(of) else refusals + 1

    def go_on(self):
        for peer in self.peers[:1]:
            peer.status()
        self.more(self.connect)

    def run(self, told):
        self.fill(self.connect)
        if self.peers:
            self.fill(self.register)
        control, word = told(), PAUSED
        while word != OVER:
            if rig.readable(control, ASK_S if word == ACTIVE else None):
                word = os.read(control, 1) or OVER
            elif word == ACTIVE:
                with contextlib.suppress(*NO):
                    self.go_on()
        return {"connections": len(self.peers), "registered": self.registered, "refused": self.refused}


class Side:
    """A daemon and a job on it, which is asleep except while it is measured."""

    def __init__(self, options, directory):
        directory.mkdir(mode=0o755)
        build = options.build.resolve()
        self.server = rig.Server(build, directory, options)
        self.probe = None
        self.rates, self.p50_ms, self.status_s = [], [], []
        self.wrong = self.failed_status = 0
        self.command = [build / CTL, "status", "--json"]
        try:
            self.probe = rig.Probe(build, self.server, 8 * KIB)
            self.probe.pause()
        except BaseException:
            self.finish()
            raise

    def finish(self):
        if self.probe:
            self.probe.close()
        self.server.finish()

    def measure(self, seconds):
        """One period, in which root asks for status once."""
        self.probe.go_on()
        self.probe.period()             # of steps of which the pause is a part
        began = time.monotonic()
        self.ask_status()
        time.sleep(max(0, began + seconds - time.monotonic()))
        period = self.probe.period()
        self.rates.append(period.steps / (time.monotonic() - began))
        self.p50_ms.append(period.p50_ms)
        self.wrong += period.wrong
        self.probe.pause()

    def ask_status(self):
        began = time.monotonic()
        asked = subprocess.run(self.command, env=environment({"GRADSYNC_SOCKET": self.server.socket}),
                               capture_output=True, check=False)
        self.status_s.append(round(time.monotonic() - began, 3))
        self.failed_status += asked.returncode != 0


def cpu_of(processes):
    return sum(process.cpu_ns() for process in processes) / 1e9


def admitted(path):
    """(whether a new client of the uid with the running job gets in and joins a job, why not)."""
    try:
        with contextlib.closing(Client(path, uid=PROBE_UID)) as peer:
            peer.joined(peer.join_send("newcomer", 1))
        return True, None
    except NO as problem:
        return False, f"{type(problem).__name__}: {problem}"


class Crowd:
    def __init__(self, options, directory):
        self.options = options
        self.sides, self.holders = [], []
        self.cpus = []
        self.admitted, self.why_not = False, None
        self.told = collections.Counter()
        try:
            self.crowded, self.calm = self.side(directory / "crowded"), self.side(directory / "calm")
            self.gather()
            self.take_turns()
        finally:
            self.end()

    def side(self, directory):
        self.sides.append(Side(self.options, directory))
        return self.sides[-1]

    def gather(self):
        for number in range(self.options.uids):
            self.holders.append(rig.Forked(rig.FIRST_UID + number,
                                           lambda told: Holder(self.crowded.server.socket).run(told)))
        rig.begin_all(self.holders)
        self.descriptors = len(self.crowded.server.daemon.fds())

    def tell(self, word):
        for holder in self.holders:
            with contextlib.suppress(BrokenPipeError):
                holder.go(word)

    def take_turns(self):
        for number in range(self.options.rounds):
            progress(f"round {number + 1}/{self.options.rounds}")
            self.tell(ACTIVE)
            before, began = cpu_of(self.holders), time.monotonic()
            self.crowded.measure(self.options.seconds)
            self.cpus.append((cpu_of(self.holders) - before) / (time.monotonic() - began))
            if number == self.options.rounds - 1:
                self.admitted, self.why_not = admitted(self.crowded.server.socket)
            self.tell(PAUSED)
            self.beside_busy()

    def beside_busy(self):
        busy = rig.busy_processes(self.cpus[-1], self.options.uids, self.options.seconds + 1)
        try:
            self.calm.measure(self.options.seconds)
        finally:
            rig.close_all(busy)

    def end(self):
        self.tell(OVER)
        for holder in self.holders:
            self.told.update(holder.result() or {})
            holder.close()
        for side in self.sides:
            side.finish()

    def row(self):
        rates = [statistics.median(side.rates) for side in self.sides]
        return {"crowd": self.options.uids, "daemon_nofile": self.options.nofile,
                "daemon_descriptors": self.descriptors, "connections": self.told["connections"],
                "registered": self.told["registered"], "refused": self.told["refused"],
                "crowd_cpus": round(statistics.median(self.cpus), 2),
                "steps_per_s": round(rates[0], 1), "steps_per_s_busy": round(rates[1], 1),
                "ratio": round(rates[0] / rates[1], 3), "p50_ms": statistics.median(self.crowded.p50_ms),
                "p50_busy_ms": statistics.median(self.calm.p50_ms),
                "status_worst_s": max(self.crowded.status_s), "status_failed": self.crowded.failed_status,
                "new_client_admitted": self.admitted,
                "new_client_refused": self.why_not, "wrong_sums": sum(side.wrong for side in self.sides),
                "rounds": self.options.rounds, "job_survived": True}


def text_of(row):
    return "\n".join(f"{name:20} {value}" for name, value in row.items())


def failures(row):
    if row["wrong_sums"]:
        yield f"{row['wrong_sums']} sums were wrong"
    if row["status_failed"]:
        yield f"status failed {row['status_failed']} times beside the crowd"
    if not row["new_client_admitted"]:
        yield f"a new client of the uid with the running job was turned away: {row['new_client_refused']}"
    if not row["connections"]:
        yield "the crowd holds nothing"


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)   # also when told to stop, leave nothing
    if os.geteuid() != 0:
        print("crowd.sh needs root: the crowd is users of their own", file=sys.stderr)
        return 1
    directory = pathlib.Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        row = Crowd(options, directory).row()
    except (Failed, AssertionError) as problem:
        print(f"failed: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        progress("")
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(row) if options.json else text_of(row))
    failed = list(failures(row))
    for text in failed:
        print(f"failed: {text}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
