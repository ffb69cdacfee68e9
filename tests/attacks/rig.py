# SPDX-License-Identifier: Apache-2.0
"""
The rig that measures attacks: a daemon with its usual limits, in a memory cgroup if possible; the probe, a
job of another uid that takes steps as fast as it can (probe.c); and processes of other uids, which attack, or
are only busy.
"""
import contextlib
import json
import os
import pathlib
import resource
import select
import signal
import sys
import time
import traceback

import harness
from memory_group import MemoryGroup

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PROBE_UID = 61900
FIRST_UID = 62000                       # of the attackers; the next ones follow it
NOFILE = 20000                          # of an attacker, as far as the machine lets it have so many
LOOK_S = 0.05                           # between two looks at the processes
PATIENCE_S = 60                         # with a process after the time at which it should have ended
IDLE = 0.03                             # of a CPU: a process that takes less is not busy
SLICE_S = 0.004                         # of a busy process at least: it works and sleeps in turns
WAKES = 1000                            # of busy processes in a second, all together, at most
# The defaults of the daemon, which the harness changes so that tests may be fast or slow.
AS_INSTALLED = {"rejoin_grace": "10s", "connects_per_uid": 1000, "handshake_timeout": "5s",
                "stall_notice": "1s"}


class Failed(Exception):
    """A claim does not hold, or could not be tried; the text says which."""


class Counted:
    """The daemon's own memory, as far as this machine can count it."""

    def __init__(self):
        self.group = MemoryGroup()
        self.pid = None
        version = "v1" if self.group.path and self.group.usage.name == "memory.usage_in_bytes" else "v2"
        self.what = f"cgroup {version}" if self.group.path else "RssAnon"
        self.before = self.most = 0

    def used(self):
        if self.group.path:
            return self.group.used()
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text("utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * KIB
        raise Failed(f"/proc/{self.pid}/status does not say RssAnon")

    def begin(self):
        self.before = self.most = self.used()

    def limit(self, more):
        """Lets it grow by so many bytes at most, shared memory included, if there is a cgroup."""
        if self.group.path:
            self.group.limit(more)

    def look(self):
        self.most = max(self.most, self.used())

    def growth(self):
        return self.most - self.before

    def close(self):
        self.group.close()


class Server:
    """A daemon that every uid may reach, by its socket and by that of its metrics."""

    def __init__(self, build, directory, attack):
        self.memory = Counted()
        self.metrics = str(directory / "metrics")
        usual = {"socket_mode": "0666", "metrics_socket": self.metrics, "metrics_mode": "0666"}
        group = str(self.memory.group.path) if self.memory.group.path else None
        self.daemon = harness.Daemon(build, directory / "d", nofile=attack.nofile, cgroup=group,
                                     settings={**AS_INSTALLED, **usual})
        self.start()

    @property
    def socket(self):
        return self.daemon.socket

    @property
    def of_probe(self):
        """The sockets of the probe's members."""
        return [self.socket] * 2

    def start(self):
        self.daemon.start()
        self.memory.pid = self.daemon.pid

    def restart(self):
        harness.kill(self.daemon)
        self.start()

    def finish(self):
        """Ends the daemon. Raises AssertionError if it does not end as it should."""
        try:
            self.daemon.finish()
        finally:
            self.daemon.destroy()
            self.memory.close()


class Period:
    """The steps of a period, from the answers of the probe's members."""

    def __init__(self, answers):
        rows = [[int(word) for word in answer.split()[1:]] for answer in answers]
        self.steps = min(row[0] for row in rows)
        self.voided = max(row[1] for row in rows)
        self.wrong = sum(row[2] for row in rows)
        self.p50_ms = round(rows[0][3] / 1e6, 3)
        self.worst_ms = round(max(row[4] for row in rows) / 1e6, 3)


class Probe:
    """A job of two members that take steps."""

    def __init__(self, build, server, size, token=None):
        self.members = []
        try:
            for rank, path in enumerate(server.of_probe):
                env = {"GRADSYNC_JOB": "probe", "GRADSYNC_RANK": rank, "GRADSYNC_WORLD_SIZE": 2,
                       "GRADSYNC_JOB_TOKEN": token}
                self.members.append(harness.Program(build / "tests/attacks/attack_probe", size, env=env,
                                                    socket=path, uid=PROBE_UID))
            self.expect("began")
        except BaseException:
            self.close()
            raise

    def expect(self, word):
        lines = [member.line() for member in self.members]
        for member, line in zip(self.members, lines):
            if line is None or not line.startswith(word):
                raise Failed(f"a member of the probe (pid {member.pid}) says {line!r}: {member.err}")
        return lines

    def period(self):
        """The Period since the last call."""
        try:
            for member in self.members:
                member.say("period")
            return Period(self.expect("period "))
        except (BrokenPipeError, AssertionError) as problem:
            raise Failed(f"the probe takes no steps any more: {problem}; {self.last_words()}") from problem

    def last_words(self):
        """The exit statuses and output of the members, after a short wait for their ends."""
        for member in self.members:
            with contextlib.suppress(AssertionError):
                member.wait(1)
        return [(member.process.poll(), member.told()) for member in self.members]

    def pause(self):
        for member in self.members:
            member.stop()

    def go_on(self):
        for member in self.members:
            member.resume()

    def close(self):
        for member in self.members:
            member.destroy()
        self.members = []


def readable(fd, seconds):
    """Like select(), for descriptors of any number."""
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else seconds * 1000))


def close_others(*kept):
    """Closes all descriptors except the standard streams and these: a forked process needs no others."""
    start = 3
    for fd in sorted(kept):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, NOFILE)


class Forked:
    """
    A process of its own uid, forked from this one. body(told) runs in it: it calls told() when it is
    prepared, which returns when go() is called here. The result of body() travels back as JSON.
    """

    def __init__(self, uid, body):
        sys.stdout.flush()
        self.uid, self.said, self.answer = uid, b"", None
        self.out, there = os.pipe()
        control, self.control = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            close_others(there, control)
            self._run(body, there, control)
        os.close(there)
        os.close(control)
        self.pidfd = os.pidfd_open(self.pid)

    def _run(self, body, there, control):
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            most = max(NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            os.setgroups([])
            os.setgid(self.uid)
            os.setuid(self.uid)

            def told():
                os.write(there, b"began\n")
                if not os.read(control, 1):
                    os._exit(1)
                return control

            os.write(there, json.dumps(body(told)).encode() + b"\n")
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc(limit=-2).encode())
        finally:
            os._exit(status)            # this process must not go on with the script

    def wait_began(self):
        while b"\n" not in self.said:
            if not readable(self.out, harness.DEADLINE):
                raise Failed(f"uid {self.uid} did not come to its attack within {harness.DEADLINE:.0f} s")
            part = os.read(self.out, 65536)
            if not part:
                raise Failed(f"uid {self.uid} ended before its attack")
            self.said += part
        self.said = self.said[len(b"began\n"):]

    def go(self, word=b"g"):
        os.write(self.control, word)

    def has_ended(self):
        return readable(self.pidfd, 0)

    def cpu_ns(self):
        return int(pathlib.Path(f"/proc/{self.pid}/schedstat").read_text("ascii").split()[0])

    def result(self):
        """The result of body(); None if the process was killed, or has failed."""
        while part := os.read(self.out, 65536):
            self.said += part
        return json.loads(self.said) if self.said.strip() else None

    def close(self):
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for fd in (self.out, self.control, self.pidfd):
            os.close(fd)


def close_all(processes):
    for process in processes:
        process.close()


def burn(told, share, turn, seconds):
    """Is busy and sleeps in turns of that many seconds, so that it takes that share of a CPU."""
    told()
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        busy = time.process_time() + turn * share
        while time.process_time() < busy:
            pass
        time.sleep(max(0, now + turn - time.monotonic()))
    return {}


def busy_processes(cpus, count, seconds):
    """So many processes, which take that many CPUs together, and have nothing to do with the daemon."""
    count = max(count, int(cpus) + 1)
    turn = max(SLICE_S, count / WAKES)
    made = []
    for number in range(count):
        made.append(Forked(FIRST_UID + number, lambda told: burn(told, cpus / count, turn, seconds)))
    begin_all(made)
    return made


def begin_all(processes, before=lambda: None):
    """Lets all processes begin at once, when all are prepared, after before()."""
    for process in processes:
        process.wait_began()
    before()
    for process in processes:
        process.go()


def watch(processes, until, look):
    """Calls look() now and then until all have ended, and until that time; kills those that do not end."""
    give_up = until + PATIENCE_S
    while (now := time.monotonic()) < until or not all(process.has_ended() for process in processes):
        if now > give_up:
            for process in processes:
                if not process.has_ended():
                    os.kill(process.pid, signal.SIGKILL)
        look()
        time.sleep(LOOK_S)
