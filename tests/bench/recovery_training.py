# SPDX-License-Identifier: Apache-2.0
"""A training, as the driver of recovery_bench.py sees it: a line, with its time, for each event of a rank.
All times are those of CLOCK_MONOTONIC, which is one clock for all processes. The driver lets the ranks go on
some steps in advance, so that they never wait for it before the end.
"""
import contextlib
import os
import queue
import signal
import socket
import statistics
import threading
import time
from dataclasses import dataclass

AHEAD, POLL_S, ANSWER_S = 10, 2, 180


class Failed(Exception):
    """A contender cannot go on; the text says why."""


class Process:
    """A process that has imported everything."""

    def __init__(self, connection):
        self.connection, self.lines = connection, connection.makefile("r")
        self.pid, self.spawned, self.started, self.gone = 0, 0, 0, False

    def tell(self, line):
        """Sends a line to the process, unless it is gone."""
        with contextlib.suppress(OSError):
            self.connection.sendall(f"{line}\n".encode())


@dataclass
class Commit:
    """A rank has committed a step, with the samples of so many ranks."""

    process: Process
    ns: int
    parts: int


class Training:
    """All processes of a contender, also those that come later.

    alive    called now and then; raises Failed if no more events can come
    members  rank → the process that has committed as this rank last
    inside   rank → the step in the middle of whose backward pass it waits to be killed
    done     rank → the last step that it has committed
    commits  (rank, step) → the last Commit
    noticed  (process, ns): the process has noticed that another one is gone, or is gone itself
    started  processes, in the order of their starts
    """

    def __init__(self, path, ranks, alive):
        self.ranks, self.alive = ranks, alive
        self.members, self.inside, self.commits, self.ends, self.noticed = {}, {}, {}, {}, []
        self.done = {rank: 0 for rank in range(ranks)}
        self.started, self._looked = [], 0.
        self._limit, self._doomed, self._over, self._events = AHEAD, None, False, queue.Queue()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                process = Process(self._listener.accept()[0])
                threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process):
        with contextlib.suppress(OSError):
            for line in process.lines:
                what, *values, ns = line.split()
                self._events.put((process, what, values, int(ns)))
        self._events.put((process, "gone", [], time.monotonic_ns()))

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    # ---- events of the processes

    def next(self):
        """Waits for an event, and takes it."""
        event, deadline = None, time.monotonic() + ANSWER_S
        while event is None:
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=POLL_S)
            now = time.monotonic()
            if now > self._looked + POLL_S:
                self.alive()
                self._looked = now
            if event is None and now > deadline:
                raise Failed(f"nothing happens: steps {self.done}")
        process, what, values, ns = event
        getattr(self, f"_on_{what}")(process, ns, *values)

    def _on_started(self, process, ns, pid, age):
        process.pid, process.started, process.spawned = int(pid), ns, ns - int(age)
        self.started.append(process)
        process.tell(self._order())

    def _on_inside(self, process, ns, rank, step):
        self.inside[int(rank)] = int(step)

    def _on_noticed(self, process, ns, rank, step):
        self.noticed.append((process, ns))

    def _on_committed(self, process, ns, rank, step, parts):
        rank, step = int(rank), int(step)
        self.members[rank], self.done[rank] = process, step
        self.commits[rank, step] = Commit(process, ns, int(parts))
        if step + AHEAD // 2 >= self._limit and not self._over:
            self._go_on()

    def _on_ended(self, process, ns, rank, step, params, digest):
        self.ends[int(rank)] = (process, int(step), int(params), digest)

    def _on_gone(self, process, ns):
        process.gone = True
        self.noticed.append((process, ns))

    # ---- orders to the processes

    def _order(self, doom=0):
        return f"{'end' if self._over else 'limit'} {self._limit} {doom}"

    def _go_on(self):
        """Lets the ranks go on a bit further. A doomed process is killed in the first step that was not
        allowed before."""
        doom, doomed = self._limit + 1, self._doomed
        self._limit, self._doomed = self._limit + AHEAD, None
        for process in self.started:
            process.tell(self._order(doom if process is doomed else 0))

    def doom(self, rank):
        """Waits until the rank's process is in the middle of a backward pass, where it stays, and all others
        are in the same step."""
        self.inside.pop(rank, None)
        self._doomed = self.members[rank]
        while rank not in self.inside or min(self.done.values()) < self.inside[rank] - 1:
            self.next()

    def settle(self, steps):
        """Waits until all ranks have committed so many more steps."""
        aim = max(self.done.values()) + steps
        while min(self.done.values()) < aim:
            self.next()

    def end(self):
        """Lets all go to the last step. Returns (steps, parameters, digests of all ranks) when they have
        left, one after the other: rank 0, which may keep things for the others, last."""
        self._over = True
        for process in self.started:
            process.tell(self._order())
        while len(self.ends) < self.ranks:
            self.next()
        for _, (process, *_) in sorted(self.ends.items(), reverse=True):
            process.tell("bye")
            while not process.gone:
                self.next()
        counts, params, digests = zip(*(end[1:] for end in self.ends.values()))
        if set(counts) != {self._limit}:
            raise Failed(f"ranks have ended after {counts} steps, and not after {self._limit}")
        return self._limit, params[0], digests


class Loss:
    """Kills a rank, and watches the recovery.

    times  in ms since the kill; see recovery_bench.py
    """

    def __init__(self, training, victim, contender):
        self._training, self._victim, self._contender = training, victim, contender
        training.doom(victim)
        self._step, self._process = training.inside[victim], training.members[victim]
        self._survivors = [each for rank, each in training.members.items() if rank != victim]
        self._at = time.monotonic_ns()
        os.kill(self._process.pid, signal.SIGKILL)
        contender.replace()
        self._first = self._wait_for_all()
        self.times = self._found()

    def _wait_for_all(self):
        """Waits until all ranks have committed the first step of the new process."""
        it, first = self._training, None
        while True:
            it.next()
            step = it.done[self._victim]
            if first is None and it.commits[self._victim, step].process is not self._process:
                first = step
            if first is not None and all(self._after(rank, first) for rank in range(it.ranks)):
                return first

    def _after(self, rank, step):
        commit = self._training.commits.get((rank, step))
        return commit is not None and commit.ns > self._at

    def _ms(self, ns):
        return (ns - self._at) / 1e6

    def _found(self):
        it = self._training
        since = {at: commit for at, commit in it.commits.items()
                 if commit.ns > self._at and at[1] <= self._first}
        new = [each for each in it.started if each.spawned > self._at]
        noticed = [ns for each, ns in it.noticed if each in self._survivors and ns > self._at]
        if told := self._contender.told(it):
            noticed.append(told)
        to_all = max(self._ms(since[rank, self._first].ns) for rank in range(it.ranks))
        start = max(((each.started - each.spawned) / 1e6 for each in new), default=None)
        return {"to_all_ms": to_all, "start_ms": start, "rest_ms": to_all - (start or 0),
                "survivor_ms": min(self._ms(commit.ns) for (rank, _), commit in since.items()
                                   if rank != self._victim),
                "survivor_notice_ms": self._ms(min(noticed)) if noticed else None,
                "spawn_ms": max((self._ms(each.spawned) for each in new), default=None),
                "steps_lost": self._lost(since)}

    def _lost(self, since):
        """Steps that all had committed and that were computed again, and steps without the samples of a
        rank."""
        again = self._step - min(self._step, *(step for _, step in since))
        ranks = self._training.ranks
        return again + len({step for (_, step), commit in since.items() if commit.parts < ranks})


def medians(losses):
    """The median of each figure over all losses; None if no loss has the figure."""
    rows = [loss.times for loss in losses]
    found = {key: [row[key] for row in rows if row[key] is not None] for key in rows[0]}
    made = {key: round(statistics.median(values), 1) if values else None for key, values in found.items()}
    return made | {"to_all_min_ms": round(min(found["to_all_ms"]), 1),
                   "to_all_max_ms": round(max(found["to_all_ms"]), 1),
                   "steps_lost": statistics.median_high(found["steps_lost"])}
