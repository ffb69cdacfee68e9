# SPDX-License-Identifier: Apache-2.0
"""The contenders: how each is started, and the settings among which its fastest one is looked for."""

import os
import signal
import socket
import statistics
import subprocess
import time

from contender import Contender, Failed

KIB, MIB = 1 << 10, 1 << 20
POLLING_LIMIT = 64 * KIB     # a polling Gloo cannot send and receive at once: it gives up on larger messages
SLOW = 4                     # a setting is dropped if each warming-up takes so many times the best median
HOPELESS = 20                # the same at 1 MiB or more: larger sizes, which take minutes, are not tried


def processors():
    return len(os.sched_getaffinity(0))


def thread_times(pid):
    """Nanoseconds on a processor, user and system, of each thread of a process: {tid: ns}."""
    times = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as f:
            times[int(tid)] = int(f.read().split()[0])
    return times


def idle_share(run):
    """(the share of all processors' time that was idle while run() ran, the result of run())."""
    def read():
        with open("/proc/stat", encoding="ascii") as f:
            figures = [int(word) for word in f.readline().split()[1:9]]
        return figures[3] + figures[4], sum(figures)
    before = read()
    result = run()
    after = read()
    return (after[0] - before[0]) / max(1, after[1] - before[1]), result


class Quiet:
    """Waits before each round until the machine is idle. Counts the rounds that began although it was not."""

    PATIENCE_S = 45
    LEAST_IDLE = 0.9
    LOOK_S = 0.1

    def __init__(self, say):
        self.say, self.end, self.disturbed = say, time.monotonic() + self.PATIENCE_S, 0

    def wait(self):
        while idle_share(lambda: time.sleep(self.LOOK_S))[0] < self.LEAST_IDLE:
            if time.monotonic() > self.end:
                self.disturbed += 1
                return
            self.say("waiting for the machine to be idle")


class Daemon:
    """
    A private gradsyncd with its own settings, not those of the machine. `text` is its configuration file;
    its command begins with `prefix`.
    """

    def __init__(self, build, directory, name="gradsyncd", text="", prefix=()):
        self.socket = os.path.join(directory, name + ".socket")
        self.log = os.path.join(directory, name + ".log")
        config = os.path.join(directory, name + ".conf")
        with open(config, "w", encoding="ascii") as f:
            f.write(text)
        self.build = build
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*prefix, os.path.join(build, "daemon/core/gradsyncd"), "--config", config,
                 "--socket", self.socket, "--rejoin-grace", "0", "--arenas-per-uid", "65536", "--bytes-per-uid", "1T", "--log-level", "warning"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid = self.process.pid
        end = time.monotonic() + 10
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    raise Failed("gradsyncd did not start\n" + log.read())
            time.sleep(0.01)

    def answers(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(self.socket)
            except OSError:
                return False
            return True

    def workers(self):
        return sum(self.thread_name(tid).startswith("gs-worker") for tid in thread_times(self.pid))

    def thread_name(self, tid):
        with open(f"/proc/{self.pid}/task/{tid}/comm", encoding="utf-8") as f:
            return f.read().strip()

    def times(self):
        """(loop thread, all threads) in seconds."""
        times = thread_times(self.pid)
        return times[self.pid] / 1e9, sum(times.values()) / 1e9

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Bench:
    """The common part of all measurements: folders of programs and scratch files, the daemon, the effort."""

    def __init__(self, build, directory, quick, say):
        self.build, self.directory, self.quick, self.say = build, directory, quick, say
        self.daemon = Daemon(build, directory)
        self.workers = self.daemon.workers()
        self.serial = 0
        if not self.workers:
            raise Failed("gradsyncd has no worker threads")

    def program(self, name):
        return os.path.join(self.build, "tests/bench", name)

    def gradsync(self, members, **env):
        self.serial += 1
        return self.part("gradsync", members, range(members), env)

    def replacement(self, members, rank):
        """Starts a process that takes this rank's place in the job that was begun last."""
        return self.part("replacement", members, [rank], {})

    def part(self, name, members, ranks, env):
        env = {"GRADSYNC_SOCKET": self.daemon.socket, "GRADSYNC_JOB": f"bench-{self.serial}", "GRADSYNC_WORLD_SIZE": str(members), **env}
        return Contender(name, len(ranks), lambda line, gate: [
            ["env", f"GRADSYNC_RANK={rank}", self.program("bench_member"), line, gate, name] for rank in ranks], self.directory, env)

    def limit(self, members):
        return Contender("limit", 1, lambda line, gate: [
            [self.program("bench_limit"), line, gate, "limit", str(members), str(self.workers)]], self.directory)

    def socket(self):
        return Contender("socket", 1, lambda line, gate: [[self.program("bench_socket"), line, gate, "socket"]], self.directory)

    def gloo(self, members):
        store = os.path.join(self.directory, f"store.{members}")
        os.mkdir(store)
        return Contender("gloo", members, lambda line, gate: [
            [self.program("bench_gloo"), line, gate, "gloo", str(rank), str(members), store]
            for rank in range(members)], self.directory)

    def mpi(self, members, number, arguments):
        env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": self.directory}
        name = f"mpi{number}"
        crowded = ["--mca", "mpi_yield_when_idle", "1", "--bind-to", "none"] if members > processors() else []
        return Contender(name, members, lambda line, gate: [
            ["mpirun", "-np", str(members), "--oversubscribe", "--mca", "btl", "vader,self", *crowded, *arguments,
             self.program("bench_mpi"), line, gate, name]], self.directory, env)

    def stop(self):
        self.daemon.stop()


DYNAMIC = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm"]
MPI_SETTINGS = [
    ("its own choices", []),
    ("copies through shared memory", ["--mca", "btl_vader_single_copy_mechanism", "none"]),
    ("ring", [*DYNAMIC, "4"]),
    ("Rabenseifner", [*DYNAMIC, "6"]),
]


def fastest(candidates, iterations, give_up=lambda name, factor: None):
    """(median, name, use, run): the candidate with the least median of a short trial, after that median."""
    best = None
    for name, use, run in candidates:
        use()
        least = min(run(max(2, iterations // 4)))
        if best and least > SLOW * best[0]:
            give_up(name, least / best[0])
            continue
        median = statistics.median(run(iterations))
        if best is None or median < best[0]:
            best = (median, name, use, run)
    return best


class Gloo:
    """Gloo's ring, set for each size to the fastest of its event-driven settings, and to the fastest polling one."""

    def __init__(self, bench, members):
        self.contender = bench.gloo(members)
        self.polls = members <= processors()
        self.used = None
        self.abandoned = set()

    def prepare(self, size, buffers, iterations):
        count = int(self.contender.prepare(size, buffers)[0].split()[1])
        settings = [s for s in map(self.setting, range(count)) if s[0] not in self.abandoned]

        def give_up(name, factor):
            if size >= MIB and factor > HOPELESS:
                self.abandoned.add(name)
        self.event = fastest([s for s in settings if "polling" not in s[0]], iterations, give_up)
        self.polling = None
        if self.polls and size <= POLLING_LIMIT:
            self.polling = fastest([s for s in settings if "polling" in s[0]], iterations)

    def setting(self, number):
        def use():
            if self.used != number:
                self.contender.command(f"use {number}")
                self.used = number

        def run(iterations):
            use()
            return self.contender.run(iterations)
        name = self.contender.command(f"name {number}")[0].split(" ", 1)[1]
        return name, use, run

    def release(self):
        self.contender.release()
        self.used = None

    def stop(self):
        self.contender.stop()


class Mpi:
    """
    Open MPI over shared memory, started once for each setting; each size takes the fastest. It moves large messages by
    copying from process to process, which costs much less with huge pages than with ordinary ones: both are measured.
    """

    def __init__(self, bench, members):
        self.contenders = []
        try:
            for number, (_, arguments) in enumerate(MPI_SETTINGS):
                self.contenders.append(bench.mpi(members, number, arguments))
        except BaseException:
            self.stop()
            raise

    def prepare(self, size, buffers, iterations):
        tried = []
        for (name, _), contender in zip(MPI_SETTINGS, self.contenders):
            contender.prepare(size, buffers)
            tried.append([fastest([self.setting(name, contender, huge)], iterations) for huge in (False, True)])
            contender.release()
        self.best, self.huge = (min((row[huge] for row in tried), key=lambda best: best[0]) for huge in (False, True))
        for contender in {self.best[3].contender, self.huge[3].contender}:
            contender.prepare(size, buffers)

    def setting(self, name, contender, huge):
        def run(iterations):
            contender.command(f"huge {int(huge)}")
            return contender.run(iterations)
        run.contender = contender
        return name, lambda: None, run

    def release(self):
        for contender in self.contenders:
            contender.release()

    def stop(self):
        for contender in self.contenders:
            contender.stop()
