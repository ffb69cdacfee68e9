# SPDX-License-Identifier: Apache-2.0
"""Members made of single frames that come back to the daemon that follows theirs: what they say they have
heard is the test's."""
import os

import wire
from peer import Peer


class Returning(Peer):
    """A member made of single frames that comes back."""

    def __init__(self, path, uid=None, program="returning"):
        super().__init__(path, uid, hello=False)
        self.ask("HELLO", "WELCOME", minor=wire.MINOR, program=program, library="peer", pid=os.getpid(),
                 returns=True)
        self.memory, self.control = {}, {}

    def join_send(self, name, *arguments, **fields):
        self.name = name
        return super().join_send(name, *arguments, **fields)

    def keep(self, plan):
        """As the library does."""
        self.memory[plan.ordinal] = os.dup(self.fds[0])
        self.control[plan.ordinal] = os.dup(self.fds[-1])

    def close(self):
        for fd in (*self.memory.values(), *self.control.values()):
            os.close(fd)
        self.memory, self.control = {}, {}
        super().close()

    def rejoin_send(self, old, **changes):
        """Asks for the place that `old` had; returns the request."""
        fields = {"job": old.name, "secret": old.secret, "generation": old.generation, "wait_ms": 60000,
                  **changes}
        return self.send("REJOIN", **{key: value for key, value in fields.items() if value is not None})

    def rejoin(self, old, **changes):
        self.job = self.expect("REJOINED", self.rejoin_send(old, **changes)).job
        for name in ("name", "secret", "generation", "rank", "world"):
            setattr(self, name, getattr(old, name))

    def tell(self, old, step, next_plan=None):
        """All that there is to tell, and takes over what `old` held."""
        for ordinal, plan in old.plans.items():
            self.offer(plan, old.memory[ordinal], step, old.control[ordinal])
        self.told(len(old.plans) if next_plan is None else next_plan)
        self.take_over(old)

    def take_over(self, old):
        self.plans, self.memory, self.control = old.plans, old.memory, old.control
        old.plans, old.memory, old.control = {}, {}, {}

    def offer(self, plan, fd, step, control):
        """Describes a plan again and offers its memories, or the arena alone; returns the request."""
        request = self.plan_send(plan, commit=False)
        return self.send("REJOIN_PLAN", request, fds=[fd] if control is None else [fd, control], job=self.job,
                         plan=plan.ordinal, step=step)

    def told(self, next_plan=0):
        return self.send("REJOIN_END", job=self.job, next_plan=next_plan)


def back(peers, served, old, step=0, next_plan=None, **changes):
    """The same member at the new daemon, everything told. It has heard of all commits up to `step`."""
    made = peers(Returning(served.socket))
    made.rejoin(old, **changes)
    made.tell(old, step, next_plan)
    return made


def enter(members, kind="RESUMED"):
    """The next generation."""
    for each in members:
        each.generation = each.expect(kind).generation


def give(members, buckets=(0, 1)):
    """READY for these buckets; rank r gives r + 1 everywhere."""
    for each in members:
        plan = each.plans[0]
        for bucket in buckets:
            each.write(plan, bucket, [each.rank + 1.0] * 256)
            each.ready(plan, bucket)


def go(members, step):
    for each in members:
        each.plans[0].step = step
    give(members)
    for each in members:
        outcome, message, _ = each.outcome(each.plans[0])
        assert outcome == "COMMITTED", message
        assert set(each.read(each.plans[0], 0)) == {(len(members) + 1) / 2}
