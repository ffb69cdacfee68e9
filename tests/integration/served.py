# SPDX-License-Identifier: Apache-2.0
"""A daemon with a healthy job on it, which witnesses that one client's trouble costs no other client
anything."""
import itertools

import harness
from harness import wait_until
from peer import Child, Crew, Hangup, Peer, Refused, agree, form, small_plan
from returning import Returning, back, enter

FORMER = 24                             # pairs that form at once, for former()


class Served:
    """See the fixture `serve` in conftest.py."""

    def __init__(self, daemon, adopt):
        self.daemon = daemon
        self.adopt = adopt
        self.others = []
        self.judged = True
        self.healthy = adopt(Crew(daemon.socket, "healthy", 2,
                                  lambda ordinal: small_plan(3, ordinal=ordinal), peer=Returning))
        self.left, self.names = [], itertools.count()           # see former()
        self.healthy.go(3)
        self.before = self.steady()

    @property
    def path(self):
        return self.daemon.socket

    def peer(self, **options):
        """One more connection, closed when the test ends."""
        made = self.adopt(Peer(self.path, **options))
        self.others.append(made)
        return made

    def admitted(self, **options):
        """One more connection, as soon as there is room for it: what a closed one held is given back a little after
        its end is seen."""
        made = []

        def enters():
            try:
                made.append(self.peer(**options))
            except (Refused, Hangup, ConnectionError):
                return False
            return True

        wait_until(enters, "room for one more connection")
        return made[0]

    def restart(self):
        """Kills the daemon, and starts another one. The healthy job comes back; no other client does."""
        harness.restart(self.daemon)
        self.healthy.peers = [back(self.adopt, self.daemon, each, self.healthy.committed)
                              for each in self.healthy.peers]
        enter(self.healthy.peers)
        self.before = self.steady()

    def former(self):
        """Two members of a job of a former daemon, with a plan of two buckets. They are not back yet."""
        if not self.left:
            for _ in range(FORMER):
                pair = [self.adopt(Returning(self.path)) for _ in range(2)]
                form(pair, f"former{next(self.names)}")
                agree(pair, [small_plan(2) for _ in pair])
                self.left.append(pair)
            self.restart()
        return self.left.pop()

    def crew(self, name, world=2, plan=small_plan, **options):
        made = self.adopt(Crew(self.path, name, world, plan, **options))
        self.others.append(made)
        return made

    def alone(self, name="alone", **options):
        """The only member of a job without a plan."""
        return self.crew(name, 1, plan=None, **options).peers[0]

    def child(self, script, **options):
        """A member in a process of its own."""
        made = self.adopt(Child(self.path, script, **options))
        self.others.append(made)
        return made

    def go(self, steps=3):
        """The healthy job goes on."""
        self.healthy.go(steps)

    def holdings(self):
        """The daemon's holdings now: fds by kind, and its own account."""
        told = self.healthy.peers[0].status()["STATUS_DAEMON"][0]
        return {"fds": self.daemon.fds(), "clients": told.clients, "jobs": told.jobs, "arenas": told.arenas,
                "bytes": told.arena_bytes, "own": told.own_bytes}

    def steady(self):
        """The daemon's holdings, once they are the same twice: a datagram to the service manager takes a
        socket for a moment."""
        def same():
            first = self.holdings()
            return first if first == self.holdings() else None

        return wait_until(same, "holdings that stay")

    def settled(self):
        """Closes everything else, and waits until the daemon holds what it held at first."""
        for other in self.others:
            other.close()
        self.others = []
        seen = []

        def back():
            seen[:] = [self.holdings()]
            return seen[0] == self.before

        try:
            wait_until(back, "return to what was held before")
        except AssertionError:
            assert seen[0] == self.before
        self.go()

    def verify(self):
        """End of the test: as settled(), and then nothing at all is left."""
        if not self.judged:
            return
        assert self.daemon.program.process.poll() is None, f"gradsyncd has ended:\n{self.daemon.log[-8000:]}"
        self.settled()
        self.healthy.leave()
        self.healthy.close()
        watcher = self.adopt(Peer(self.path, program="watcher"))

        def nothing():
            told = watcher.status()["STATUS_DAEMON"][0]
            return (told.clients, told.jobs, told.arenas, told.arena_bytes) == (1, 0, 0, 0)

        wait_until(nothing, "an empty daemon")
        watcher.close()
