# SPDX-License-Identifier: Apache-2.0
"""Members made of single frames that come back to the daemon that follows theirs: what they say of the past
is the test's."""
import os

import wire
from peer import Peer


class Returning(Peer):
    """A member made of single frames that comes back: what it says of the past is the test's."""

    def __init__(self, path, uid=None):
        super().__init__(path, uid, hello=False)
        self.ask("HELLO", "WELCOME", minor=wire.MINOR, program="returning", library="peer", pid=os.getpid(),
                 returns=True)
        self.memory, self.control = {}, {}

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
        fields = {"job": old.name, "incarnation": 0, "generation": old.generation, "rank": old.rank,
                  "local_rank": old.rank, "world": old.world, "member": old.member, "min_world": old.world,
                  "max_world": old.world, "asked_rank": True, "asked_slot": False, "rejoin_grace_ms": 0,
                  "wait_ms": 60000, "operations": 0, "next_plan": len(old.plans),
                  "token": getattr(old, "token", None), "proof": getattr(old, "proof", None), **changes}
        return self.send("REJOIN", **{key: value for key, value in fields.items() if value is not None})

    def rejoin(self, old, **changes):
        self.follow(old, self.expect("REJOINED", self.rejoin_send(old, **changes)).job)

    def follow(self, old, job):
        """It has that handle, and is what `old` was."""
        self.job, self.name, self.generation, self.rank = job, old.name, old.generation, old.rank
        self.world, self.member = old.world, old.member

    def tell(self, old, step, launched):
        """All that there is to tell, and takes over what `old` held."""
        for ordinal, plan in old.plans.items():
            self.offer(plan, old.memory[ordinal], step, launched, old.control[ordinal])
        self.told()
        self.take_over(old)

    def take_over(self, old):
        self.plans, self.memory, self.control = old.plans, old.memory, old.control
        old.plans, old.memory, old.control = {}, {}, {}

    def offer(self, plan, fd, step, launched, control, **changes):
        """Describes a plan again and offers its memories, or the arena alone; returns the request."""
        request = self.plan_send(plan, commit=False)
        return self.send("REJOIN_PLAN", request, fds=[fd] if control is None else [fd, control], job=self.job,
                         plan=plan.ordinal, step=step, launched=launched, **changes)

    def told(self):
        return self.send("REJOIN_END", job=self.job)


def back(peers, served, old, step, launched, **changes):
    """The same member at the new daemon, everything told."""
    made = peers(Returning(served.socket))
    made.rejoin(old, **changes)
    made.tell(old, step, launched)
    return made


def enter(members, kind="RESUMED"):
    """The next generation."""
    for each in members:
        each.generation = each.expect(kind).generation


def go(pair, step):
    for each in pair:
        plan = each.plans[0]
        plan.step = step
        for bucket in range(len(plan.buckets)):
            each.write(plan, bucket, [each.rank + 1.0] * 256)
            each.ready(plan, bucket)
    for each in pair:
        outcome, message, _ = each.outcome(each.plans[0])
        assert outcome == "COMMITTED", message
        assert set(each.read(each.plans[0], 0)) == {1.5}
