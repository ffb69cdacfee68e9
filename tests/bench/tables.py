# SPDX-License-Identifier: Apache-2.0
"""The measurements. Each yields rows: JSON objects with a "table" key."""

import os
import random
import signal
import statistics
import time

from contender import Failed, Field
from peers import KIB, MIB, Gloo, Mpi, Quiet, processors

SIZES = [4 * KIB, 64 * KIB, MIB, 25 * MIB, 128 * MIB]
MEMBERS = [2, 4]
BATCH = {4 * KIB: 200, 64 * KIB: 150, MIB: 80, 25 * MIB: 20, 128 * MIB: 5}     # measured iterations of a contender in its turn
MOST_BUFFERS = 160


def last_level_cache():
    """Bytes, from sysfs: what the C library says of some processors is the sum over all of their dies."""
    best = 0, 32 * MIB
    base = "/sys/devices/system/cpu/cpu0/cache"
    for entry in os.listdir(base) if os.path.isdir(base) else []:
        try:
            with open(f"{base}/{entry}/level", encoding="ascii") as level, open(f"{base}/{entry}/size", encoding="ascii") as size:
                best = max(best, (int(level.read()), int(size.read().strip().rstrip("K")) * KIB))
        except (OSError, ValueError):
            continue
    return best[1]


def buffers_for(members, size):
    """How many sets of buffers take turns, and whether they exceed four times the cache."""
    wanted = max(2, 4 * last_level_cache() // (members * size) + 1)
    return (wanted, True) if wanted <= MOST_BUFFERS else (8, False)


def in_turns(rounds, runs, warming, say, quiet):
    """
    Each round gives every contender a turn, in an order that changes. {name: all times}
    The first `warming` iterations of a turn do not count: the contenders before have evicted everything from the caches,
    the page tables of these buffers too.
    """
    times = {name: [] for name in runs}
    order = list(runs)
    for number in range(rounds):
        quiet.wait()
        say(f"round {number + 1}/{rounds}")
        for name in order[number % len(order):] + order[:number % len(order)]:
            times[name] += runs[name]()[warming:]
    return times


def ratio(a, b):
    return round(a / b, 2) if a is not None and b else None


class AllreduceField(Field):
    """All contenders with one number of members."""

    def __init__(self, bench, members):
        self.bench, self.members = bench, members
        super().__init__()

    def begin(self):
        bench, members = self.bench, self.members
        self.gradsync = self.add(bench.gradsync(members))
        self.limit = self.add(bench.limit(members))
        self.gloo = self.add(Gloo(bench, members))
        self.mpi = self.add(Mpi(bench, members))
        self.socket = self.add(bench.socket())

    def loop(self, number, batch):
        self.limit.command(f"loop {number}")
        return self.limit.run(batch)

    def measure(self, size):
        batch = max(2, BATCH[size] // (2 if self.bench.quick else 1))
        rounds = 4 if self.bench.quick else 15
        buffers, rotating = buffers_for(self.members, size)
        say = lambda text: self.bench.say(f"{self.members} members, {size} bytes: {text}")
        say("preparing")
        self.gradsync.command(f"prepare {size} {buffers} 1 0 0")
        copied = int(self.limit.prepare(size, buffers)[0].split()[1])
        self.gloo.prepare(size, buffers, max(3, batch // 4))
        self.mpi.prepare(size, buffers, max(3, batch // 4))
        turn = buffers + batch          # once through all buffers, then the measured ones
        runs = {"gradsync": lambda: self.gradsync.run(turn), "limit": lambda: self.loop(0, turn),
                "scale": lambda: self.loop(1, turn), "copy": lambda: self.loop(2, turn),
                "gloo": lambda: self.gloo.event[3](turn),
                "mpi": lambda: self.mpi.best[3](turn), "mpi_huge": lambda: self.mpi.huge[3](turn)}
        if self.gloo.polling:
            runs["gloo_polling"] = lambda: self.gloo.polling[3](turn)
        if size == SIZES[0]:
            runs["socket"] = lambda: self.socket.run(turn)
        for run in runs.values():
            run()                       # warm: page tables, connections, branch predictors
        quiet = Quiet(say)
        times = in_turns(rounds, runs, buffers, say, quiet)
        self.release()
        return {**self.row(size, buffers, rotating, copied, times), "rounds": rounds, "disturbed_rounds": quiet.disturbed}

    def row(self, size, buffers, rotating, copied, times):
        median = {name: statistics.median(values) for name, values in times.items()}
        us = {f"{name}_us": round(median[name], 2) for name in ("gradsync", "limit", "gloo", "mpi")}
        extra = {f"{name}_us": round(median[name], 2) if name in median else None
                 for name in ("gloo_polling", "mpi_huge", "scale", "socket")}
        return {"table": "allreduce", "members": self.members, "bytes": size, **us,
                "copy_gbps": round(copied / median["copy"] / 1000, 2), "oversubscribed": self.members > processors(),
                "gradsync_over_limit": ratio(median["gradsync"], median["limit"]),
                "gloo_over_gradsync": ratio(median["gloo"], median["gradsync"]),
                "mpi_over_gradsync": ratio(median["mpi"], median["gradsync"]),
                "limit_over_scale": ratio(median["limit"], median["scale"]),
                "gloo_polling_over_gradsync": ratio(median.get("gloo_polling"), median["gradsync"]),
                "mpi_huge_over_gradsync": ratio(median["mpi_huge"], median["gradsync"]), **extra,
                "rotating": rotating, "buffers": buffers, "iterations": len(times["gradsync"]),
                "gloo_setting": "TCP over loopback, " + self.gloo.event[1],
                "mpi_setting": "shared memory, " + self.mpi.best[1],
                "mpi_huge_setting": "shared memory, huge pages, " + self.mpi.huge[1]}


def allreduce(bench, members, sizes):
    for count in members:
        field = AllreduceField(bench, count)
        try:
            for size in sizes:
                yield field.measure(size)
        finally:
            field.stop()


# --- members computing meanwhile ---

COMPUTING = [(MIB, 16), (25 * MIB, 25), (128 * MIB, 128)]      # bytes, parameters
COMPUTE_MS_PER_MIB = 1.5
COMPUTE_MS_LEAST = 5


def total_steps(contender, steps, units, sync):
    """Milliseconds per step: computing (the members' mean), exposed and all (the slowest member's)."""
    answers = [[int(word) / steps / 1e6 for word in answer.split()[1:]]
               for answer in contender.command(f"steps {steps} {units} {int(sync)}")]
    compute, exposed, whole = zip(*answers)
    return statistics.mean(compute), max(exposed), max(whole)


def units_for(contender, size, params):
    """How much computing before each gradient makes the step as long as it should be; found with one member's core."""
    few, many = (total_steps(contender, 3, units, False)[0] for units in (10, 60))
    wanted = max(COMPUTE_MS_LEAST, COMPUTE_MS_PER_MIB * size / MIB)
    return max(1, round(wanted / max(1e-6, (many - few) / 50)))


def compute_row(bench, contender, members, size, params):
    steps = max(4, min(60, int(600 / max(COMPUTE_MS_LEAST, COMPUTE_MS_PER_MIB * size / MIB))))
    rounds = 3 if bench.quick else 9
    buckets = int(contender.command(f"prepare {size} 2 {params} 0 0")[0].split()[1])
    units = units_for(contender, size, params)
    total_steps(contender, 2, units, True)
    alone, synced, cpu = [], [], []
    quiet = Quiet(bench.say)
    for number in range(rounds):
        quiet.wait()
        bench.say(f"{members} members computing, {size} bytes: round {number + 1}/{rounds}")
        alone.append(total_steps(contender, steps, units, False))
        before = bench.daemon.times()
        synced.append(total_steps(contender, steps, units, True))
        after = bench.daemon.times()
        cpu.append([(b - a) / steps * 1000 for a, b in zip(before, after)])
    contender.release()
    middle = lambda rows, column: round(statistics.median(row[column] for row in rows), 3)
    crowded = members > processors()    # then members compute in turns, and their own clocks say little
    return {"table": "computing", "members": members, "bytes": size, "buckets": buckets,
            "oversubscribed": crowded,
            "compute_alone_ms": middle(alone, 0), "compute_ms": middle(synced, 0),
            "slowdown": None if crowded else ratio(middle(synced, 0), middle(alone, 0)), "exposed_ms": middle(synced, 1),
            "step_alone_ms": middle(alone, 2), "step_ms": middle(synced, 2),
            "step_over_alone": ratio(middle(synced, 2), middle(alone, 2)),
            "daemon_cpu_ms_per_step": middle(cpu, 1), "daemon_loop_cpu_ms_per_step": middle(cpu, 0),
            "daemon_cpu_s": round(sum(row[1] for row in cpu) * steps / 1000, 3), "steps": steps * rounds,
            "rounds": rounds, "disturbed_rounds": quiet.disturbed}


def computing(bench, members):
    for count in members:
        contender = bench.gradsync(count)
        try:
            for size, params in COMPUTING:
                yield compute_row(bench, contender, count, size, params)
        finally:
            contender.stop()


# --- many small buckets ---

def small_buckets(bench):
    count, size, batch = 200, 64 * KIB, 10
    rounds = 3 if bench.quick else 15
    contender = bench.gradsync(2)
    try:
        made = int(contender.command(f"prepare {count * size} 1 {count} {size} {size}")[0].split()[1])
        if made != count:
            raise Failed(f"{count} parameters made {made} buckets instead of one each")
        contender.run(batch)
        loop, every, times = [], [], []
        quiet = Quiet(bench.say)
        for number in range(rounds):
            quiet.wait()
            bench.say(f"{count} buckets of {size} bytes: round {number + 1}/{rounds}")
            before = bench.daemon.times()
            times += contender.run(batch)
            after = bench.daemon.times()
            loop.append((after[0] - before[0]) / batch / count * 1e6)
            every.append((after[1] - before[1]) / batch / count * 1e6)
    finally:
        contender.stop()
    return {"table": "buckets", "members": 2, "bytes": size, "buckets": count,
            "loop_cpu_us_per_bucket": round(statistics.median(loop), 2),
            "daemon_cpu_us_per_bucket": round(statistics.median(every), 2),
            "step_us": round(statistics.median(times), 1), "us_per_bucket": round(statistics.median(times) / count, 2),
            "steps": len(times), "rounds": rounds, "disturbed_rounds": quiet.disturbed}


# --- a member is killed ---

def open_step(contender, size, params):
    """(the one who is to be hit, in the middle of a step; the others, who wait in finish())."""
    contender.command(f"prepare {size} 1 {params} 0 0")
    victim, survivors = contender.members[-1], contender.members[:-1]
    for member in contender.members:
        member.send(f"open {params // 2}" if member is victim else f"lose {params}")
    contender.hear()
    time.sleep(random.uniform(0.005, 0.02))             # the survivors go to sleep
    return victim, survivors


def one_loss(bench, members, size, params):
    """Milliseconds from kill -9 in an open step to the last survivor's VOID_RETRY."""
    contender = bench.gradsync(members)
    try:
        victim, survivors = open_step(contender, size, params)
        killed = time.monotonic_ns()
        os.kill(victim.pid, signal.SIGKILL)
        took = []
        for answer in contender.hear(survivors):
            _, outcome, stamp, rank, pid, cause = answer.split(" ", 5)
            if outcome != "VOID_RETRY" or (int(rank), int(pid)) != (victim.number, victim.pid) or not cause:
                raise Failed(f"a survivor was told: {answer}")
            took.append((int(stamp) - killed) / 1e6)
        return max(took)
    finally:
        contender.stop()


def one_replacement(bench, members, size, params):
    """Milliseconds from the moment a successor is connected to the last member's commit of the next step."""
    contender, successor = bench.gradsync(members, GRADSYNC_REJOIN_GRACE="60"), None
    try:
        contender.command(f"prepare {size} 1 {params} 0 0")
        victim, survivors = contender.members[-1], contender.members[:-1]
        for member in contender.members:
            member.send(f"go_on {params // 2 if member is victim else params}")
        contender.hear()
        process, = [process for process in contender.processes if process.pid == victim.pid]
        process.kill()
        process.wait()                  # as a launcher does
        successor = bench.replacement(members, victim.number)
        committed, attached, step = (int(word) for word in successor.command(f"replace {size} {params}")[0].split()[1:])
        if step != 1:
            raise Failed(f"the successor was given the state of step {step} instead of 1")
        return (max([committed] + [int(answer.split()[1]) for answer in contender.hear(survivors)]) - attached) / 1e6
    finally:
        if successor:
            successor.stop()
        contender.stop()


def recovery(bench, counts):
    rounds = 5 if bench.quick else 30
    for members in counts:
        times, back = [], []
        quiet = Quiet(bench.say)
        for number in range(rounds):
            quiet.wait()
            bench.say(f"{members} members, one killed: {number + 1}/{rounds}")
            times.append(one_loss(bench, members, 25 * MIB, 25))
            bench.say(f"{members} members, one replaced: {number + 1}/{rounds}")
            back.append(one_replacement(bench, members, 25 * MIB, 25))
        yield {"table": "recovery", "members": members, "bytes": 25 * MIB, "void_ms_median": round(statistics.median(times), 3),
               "void_ms_worst": round(max(times), 3), "replaced_ms_median": round(statistics.median(back), 3),
               "replaced_ms_worst": round(max(back), 3), "losses": rounds, "rounds": rounds, "disturbed_rounds": quiet.disturbed}
