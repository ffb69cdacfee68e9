# SPDX-License-Identifier: Apache-2.0
"""The measured processes as the driver sees them: started once, commanded by lines over a socket, asleep between."""

import os
import select
import socket
import subprocess
import tempfile
import time

class Failed(Exception):
    """A contender could not be started, or gave up; the text says which."""


class Member:
    """One process's command line."""

    def __init__(self, connection):
        self.connection = connection
        self.have = b""
        self.number = -1
        self.pid = 0

    def send(self, line):
        self.connection.sendall(line.encode() + b"\n")

    def receive(self, timeout, what):
        end = time.monotonic() + timeout
        while b"\n" not in self.have:
            ready, _, _ = select.select([self.connection], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise Failed(f"{what}: no answer within {timeout} s")
            data = self.connection.recv(1 << 16)
            if not data:
                raise Failed(f"{what}: the process has ended")
            self.have += data
        line, self.have = self.have.split(b"\n", 1)
        return line.decode()


class Contender:
    """All processes of one contender with one number of members."""

    start_s, answer_s = 60, 300

    def __init__(self, name, members, commands, directory, env=None):
        self.name, self.count = name, members
        self.log = open(os.path.join(directory, f"{name}.{members}.log"), "w+b")
        self.gate = tempfile.NamedTemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else directory)
        self.gate.truncate(4096)
        self.path = os.path.join(directory, f"{name}.{members}")
        self.members, self.processes = [], []
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self.path)
            listener.listen(members)
            for command in commands(self.path, self.gate.name):
                self.processes.append(subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})}))
            self.accept(listener)
        except BaseException:
            self.stop()
            raise
        finally:
            listener.close()

    def fail(self, text):
        self.log.seek(0)
        said = self.log.read().decode(errors="replace").strip()
        raise Failed(f"{self.name}, {self.count} members: {text}" + (f"\n{said}" if said else ""))

    def accept(self, listener):
        end = time.monotonic() + self.start_s
        while len(self.members) < self.count:
            ready, _, _ = select.select([listener], [], [], 0.2)
            if ready:
                self.members.append(Member(listener.accept()[0]))
            elif any(p.poll() is not None for p in self.processes):
                self.fail("a process ended before it was ready")
            elif time.monotonic() > end:
                self.fail(f"not ready within {self.start_s} s")
        for member in self.members:
            word, _, number, pid = member.receive(self.start_s, self.name).split()
            if word != "hello":
                self.fail("a stranger on the line")
            member.number, member.pid = int(number), int(pid)
        self.members.sort(key=lambda member: member.number)

    def tell(self, line):
        for member in self.members:
            member.send(line)

    def hear(self, members=None):
        try:
            return [m.receive(self.answer_s, f"member {m.number}") for m in (members or self.members)]
        except (Failed, OSError) as e:
            self.fail(str(e))

    def command(self, line):
        try:
            self.tell(line)
        except OSError as e:
            self.fail(str(e))
        return self.hear()

    def prepare(self, size, buffers):
        return self.command(f"prepare {size} {buffers}")

    def run(self, iterations):
        """Microseconds of each iteration: from the end of the one before to the moment the last member was done."""
        answers = self.command(f"run {iterations}")
        stamps = [[int(word) for word in answer.split()[1:]] for answer in answers]
        if any(len(s) != iterations + 1 for s in stamps):
            self.fail("a member did not report every iteration")
        ends = [max(s) for s in zip(*stamps)]
        return [(end - start) / 1000 for start, end in zip(ends, ends[1:])]

    def release(self):
        self.command("release")

    def stop(self):
        for member in self.members:
            try:
                member.send("quit")
            except OSError:
                pass
            member.connection.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.gate.close()
        self.log.close()
        if os.path.exists(self.path):
            os.unlink(self.path)


class Field:
    """Contenders that are started once, by begin(), and asleep while others are measured."""

    def __init__(self):
        self.contenders = []
        try:
            self.begin()
        except BaseException:
            self.stop()
            raise

    def add(self, contender):
        self.contenders.append(contender)
        return contender

    def release(self):
        for contender in self.contenders:
            contender.release()

    def stop(self):
        for contender in self.contenders:
            contender.stop()
