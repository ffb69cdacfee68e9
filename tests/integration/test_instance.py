# SPDX-License-Identifier: Apache-2.0
"""Two processes of one rank: a launcher counts those that it starts, and a newer one takes the rank from an older one that still
lives, stopped or stuck. One that does not count finds its rank taken."""
import pytest

from harness import kill, wait_until
from teams import GRACE, Team, takes_state, void_behind
from trainers import ask, connected, fields, restart


class Counted(Team):
    """A team whose members say which process of their rank they are."""
    instance = 2

    def join_line(self, rank):
        return f"{super().join_line(rank)} instance={self.instance}"


@pytest.fixture
def counted(member, daemon):
    return lambda: Counted(member, daemon(settings=GRACE), 2)


def refused(it, rank, instance):
    """The error of a process that comes for this rank and has to go."""
    made = it.fresh()
    made.say(f"{Team.join_line(it, rank)} instance={instance}")
    name, _, text = made.line().partition(" ")
    assert f"pid {it.members[rank].pid}" in text, (name, text)
    made.kill()
    return name, text


ENVIRONMENT = {"GRADSYNC_JOB": "a", "GRADSYNC_WORLD_SIZE": 2, "GRADSYNC_RANK": 0, "GRADSYNC_INSTANCE": 3}


@pytest.mark.parametrize("line, before, code", [
    ("join", 3, "STALE"),
    ("join instance=4", 9, "STALE"),    # the fourth is the one that three were before
    ("join", "", "RANK_TAKEN"),
    ("join rank=0", 9, "RANK_TAKEN"),   # not the rank that the launcher counts for
])
def test_the_environment_counts(served, member, line, before, code):
    first = connected(member(served, env=ENVIRONMENT))
    first.say("join")
    wait_until(lambda: served.job("a"), "the first one")
    second = connected(member(served, env={**ENVIRONMENT, "GRADSYNC_INSTANCE": before}))
    assert f"pid {first.pid}" in ask(second, line, code)


def test_what_a_program_cannot_say(daemon, member):
    one = connected(member(daemon()))
    text = ask(one, "join name=b world=2 instance=1", "INVALID")
    assert "instance 1" in text and "without a rank" in text, text


def test_a_stopped_process_is_replaced(counted):
    it = counted()
    assert it.step() == [1, 1]
    stays, old = it.members
    was = fields(ask(old, "place"))
    old.stop()
    it.bring([stays])
    stays.say("finish")
    it.instance = 3
    new = it.replace(1)
    void_behind([stays], 1, old.pid)
    now = fields(ask(new, "place"))
    assert (now["generation"], now["world"], now["member"]) == ("2", "2", was["member"]), (was, now)
    takes_state(new, [stays], 1)
    assert it.step() == [2, 2]
    it.bring([stays])
    old.resume()                        # in the middle of a step of the others
    ask(old, "fill 50")
    assert old.ask("ready").split()[0] in ("OK", "STALE")         # it is told at the latest when it waits
    assert "newer" in ask(old, "finish", "STALE")
    assert "newer" in ask(old, "sync 1", "STALE")
    it.bring([new])
    for each in it.members:
        assert ask(each, "finish").startswith("step=3 ")
        assert ask(each, "check 1.5") == "right"
    for instance in (2, 3):             # and what it has taken it keeps
        assert refused(it, 1, instance)[0] == "STALE"
    assert it.step() == [4, 4]


def test_after_a_restart_of_the_daemon(counted):
    it = counted()
    assert it.step() == [1, 1]
    restart(it.served, kill)
    assert it.step() == [2, 2]
    for instance in (1, 2):
        assert refused(it, 1, instance)[0] == "STALE"
    stays, old = it.members
    old.stop()
    it.bring([stays])
    stays.say("finish")
    it.instance = 3
    new = it.replace(1)
    void_behind([stays], 1, old.pid)
    takes_state(new, [stays], 2)
    assert it.step() == [3, 3]
