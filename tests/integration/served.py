# SPDX-License-Identifier: Apache-2.0
"""A daemon with a healthy job on it, which witnesses that one client's trouble costs no other client
anything."""
from harness import wait_until
from peer import Child, Crew, Hangup, Peer, Refused, small_plan


class Served:
    """See the fixture `serve` in conftest.py."""

    def __init__(self, daemon, adopt):
        self.daemon = daemon
        self.adopt = adopt
        self.others = []
        self.judged = True
        self.healthy = adopt(Crew(daemon.socket, "healthy", 2,
                                  lambda ordinal: small_plan(3, ordinal=ordinal)))
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
