# SPDX-License-Identifier: Apache-2.0
"""A job of trainers each of which has a state, and may be lost and replaced."""
import json
import subprocess

import harness
from trainers import OK, ask, connected, ended, fields, say, together

GRACE = {"rejoin_grace": "60s"}
SHORT = {"rejoin_grace": "50ms"}
PARAMS = ("weight f32 300", "bias f32 7")


class Team:
    """Members of one job by rank, each with a plan and a state whose value is its number."""

    def __init__(self, member, served, world=3, ranks=True, least=None, come=None, state=100000,
                 open_options=""):
        self.start, self.served, self.world, self.state = member, served, world, state
        self.open_options = open_options
        self.options = f"name=team min={least or world} max={world}"
        # In ms; members that come at once are all there in the beginning.
        self.last_call = 1 if (come or world) < world else 600000
        self.ranks = ranks
        self.members = [self.fresh() for _ in range(come or world)]
        for rank, each in enumerate(self.members):
            each.say(self.join_line(rank))
        ended(self.members, OK)
        self.members.sort(key=lambda each: int(fields(ask(each, "place"))["rank"]))
        for each in self.members:
            self.register(each)
        together(self.members, "plan")
        for rank, each in enumerate(self.members):
            ask(each, f"state {state} {rank + 1}")
        for rest in together(self.members, "sync 0"):
            assert rest == "step=0 value=1 strange=0", "rank 0 decides where nobody has a state"

    def join_line(self, rank):
        return f"join {self.options} last_call={self.last_call}" + (f" rank={rank}" if self.ranks else "")

    def fresh(self):
        return connected(self.start(self.served), options=self.open_options)

    @staticmethod
    def register(each):
        together([each], *(f"param {param}" for param in PARAMS))

    def kill(self, rank):
        victim = self.members[rank]
        victim.kill()
        return victim

    def survivors(self):
        return [each for each in self.members if each.process.poll() is None]

    def lose(self, rank):
        """The member dies in a step that the others are in. Returns it, and these."""
        stay = [each for each in self.members if each is not self.members[rank]]
        self.bring(stay)
        say(stay, "finish")
        return self.kill(rank), stay

    def enter(self, made, rank):
        """It has this place: from now on it is a member like the others, up to its plan."""
        self.register(made)
        together([made], "plan", f"state {self.state} 99")
        self.members[rank] = made

    def replace(self, rank):
        """A new process in this place."""
        made = self.fresh()
        answer = fields(ask(made, self.join_line(rank)))
        assert int(answer["rank"]) == rank, answer
        self.enter(made, rank)
        return made

    def bring(self, members=None):
        """Rank r brings r + 1 everywhere, and all mark all."""
        for each in members or self.members:
            ask(each, f"fill {int(fields(ask(each, 'place'))['rank']) + 1}")
            ask(each, "ready")

    def step(self):
        self.bring()
        rests = together(self.members, "finish")
        assert set(together(self.members, f"check {(len(self.members) + 1) / 2}")) == {"right"}
        return [int(fields(rest)["step"]) for rest in rests]

    def status(self):
        command = [self.members[0].build_ctl, "status", "--json"]
        made = subprocess.run(command, capture_output=True, check=True,
                              env=harness.environment({"GRADSYNC_SOCKET": self.served.socket}))
        job, = json.loads(made.stdout)["jobs"]
        return job


def takes_state(new, others, step):
    """The new member gets the others' state, which is rank 0's of that step."""
    say(others, f"sync {step}")
    state = f"step={step} value=1 strange=0"
    assert ask(new, "sync 0") == state
    assert set(ended(others, OK)) == {state}


def void_behind(members, rank, pid):
    """The members' finish() names the member that was lost, and says that a new one needs a state."""
    for rest in ended(members, "VOID_BEHIND"):
        said = fields(rest)
        assert (int(said["lost_rank"]), int(said["lost_pid"])) == (rank, pid), rest
        assert "gradsync_sync_state" in rest


class Training:
    """Members of a job on a Cluster that make steps until told to stop."""

    def __init__(self, it, members, stop, collect=False):
        self.it, self.members, self.stop, self.seen = it, members, stop, 0
        say(members, f"train until={stop}{' collect=1' if collect else ''}")

    def step_of(self, node):
        found = node.job("team") or node.job("job")
        return found["step"] if found else 0

    def go_on(self, node=None, more=20):
        """Waits for so many more steps. A daemon that has just begun may not know of any yet."""
        node = node or self.it.nodes[0]
        self.seen = max(self.seen, self.step_of(node)) + more
        harness.wait_until(lambda: self.step_of(node) >= self.seen, f"step {self.seen}")

    def end(self):
        """Ends the training. Returns the members' results; no sum was wrong, and all have made as many
        steps."""
        self.stop.touch()
        told = []
        for each in self.members:
            name, _, rest = each.line(harness.LONG).partition(" ")
            assert name == "OK", (name, rest)
            told.append({key: int(value) for key, value in fields(rest).items()})
        assert not any(each["wrong"] for each in told), told
        assert len({each["step"] for each in told}) == 1, told
        return told


def other_plan(members, slot, name):
    together(members, f"slot {slot}", f"param {name} f32 50", "plan")


def leave_plans(members):
    """Makes five plans and frees two: the first is left, and "left" and "late", in the slots 2 and 1."""
    def free(slot):
        together(members, f"slot {slot}", "plan_free")
    other_plan(members, 1, "freed")
    other_plan(members, 2, "left")
    free(1)
    other_plan(members, 1, "late")
    other_plan(members, 3, "last")
    free(3)
    together(members, "slot 0")


def take_plans(new, members):
    """The new one makes those that are left; then all make another one. The slots of all these."""
    other_plan([new], 2, "left")
    other_plan([new], 1, "late")
    other_plan(members, 4, "next")
    return (0, 1, 2, 4)
