# SPDX-License-Identifier: Apache-2.0
"""A cluster with a job that must not be disturbed, whatever comes to the port or socket where daemons
meet."""
import re
import threading

from clusters import Cluster, members_of, write_key
from harness import free_port, wait_until
from linkpeer import OverTls, over_unix
from trainers import crew, step


class Going:
    """A job that commits one step after the other, on a thread: each with the right averages, none void."""

    def __init__(self, members):
        self.members, self.count, self.problem, self.stop = members, 0, None, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.stop:
                assert step(self.members) == self.count + 1
                self.count += 1
        except BaseException as problem:        # pylint: disable=broad-except
            self.problem = problem

    def on(self, steps=2):
        """Waits for so many more steps."""
        wanted = self.count + steps
        wait_until(lambda: self.count >= wanted or self.problem, "the job's next steps")
        assert self.problem is None, self.problem

    def end(self):
        self.stop = True
        self.thread.join()
        assert self.problem is None, self.problem


class Target(Cluster):
    """Two daemons and their coordinator, which listens on a TCP port and on a Unix socket; and a job."""

    def __init__(self, daemon, build, scratch, member, **options):
        self.port, self.path = free_port(), scratch / "link"
        self.key_file = scratch / "key"
        self.key = write_key(self.key_file).read_text().split()
        super().__init__(daemon, build, f"127.0.0.1:{self.port}", common={"key_file": self.key_file},
                         **options)
        self.job = Going(crew(members_of(self, member), None, 2))
        self.job.on()

    def config(self, **more):
        if "listen" in more:
            more["listen"] += f", unix:{self.path}"
        return super().config(**more)

    def tls(self, source="127.0.0.1", key=None):
        return OverTls(self.port, key or self.key[:2], source)

    def stranger(self, tls, source):
        """An end with the key from that address, or one on the Unix socket; and how logs name it."""
        if tls:
            return self.tls(source), rf"{re.escape(source)}:\d+"
        return over_unix(self.path), r"pid \d+ of uid \d+ on a Unix socket"

    def refuses(self, who, why):
        """The coordinator's log says so; the job is not disturbed by that."""
        self.coordinator.wait_log(f"{who} was turned away: {why}")
        self.job.on()

    def undisturbed(self):
        self.job.end()
        for node in self.nodes:
            assert "has ended" not in node.log, node.log
            assert "void" not in node.log, node.log
