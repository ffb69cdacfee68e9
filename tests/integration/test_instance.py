# SPDX-License-Identifier: Apache-2.0
"""Two processes of one rank: a launcher counts those that it starts, and a newer one takes the rank from an older one that still
lives, stopped or stuck. Whoever does not count finds its rank taken."""
import contextlib
import os

import pytest

import wire
from harness import kill, wait_until
from peer import Peer, small_plan
from teams import GRACE, Team, takes_state, void_behind
from trainers import ask, fields, restart


class Counted(Team):
    """A team whose members say which process of their rank they are."""
    instance = 2

    def join_line(self, rank):
        return f"{super().join_line(rank)} instance={self.instance}"


@pytest.fixture
def counted(member, daemon):
    return lambda: Counted(member, daemon(settings=GRACE), 2)


def refused(it, rank, instance):
    """What a process is told that comes for this rank, and has to go."""
    made = it.fresh()
    made.say(f"{Team.join_line(it, rank)} instance={instance}")
    name, _, text = made.line().partition(" ")
    assert f"pid {it.members[rank].pid}" in text, (name, text)
    made.kill()
    return name, text


def greet(peers, served):
    """A connection that can go on in another generation."""
    made = peers(Peer(served.socket, hello=False))
    made.ask("HELLO", "WELCOME", minor=wire.MINOR, program="counted")
    return made


def come(peers, served, rank, instance=None):
    """Another process for this rank, and its request."""
    made = greet(peers, served)
    counted_as = {} if instance is None else {"instance": instance}
    return made, made.join_send("pair", 2, rank, rejoin_grace_ms=60000, **counted_as)


def agree(pair):
    plans = [small_plan() for _ in pair]
    mapped = [each.plan_arena(plan, each.plan_send(plan)) for each, plan in zip(pair, plans)]
    for each, request in zip(pair, mapped):
        each.expect("PLAN_AGREED", request)
    return plans


def formed(peers, served, instance=None):
    asked = [come(peers, served, rank, instance) for rank in range(2)]
    for each, request in asked:
        each.member = each.joined(request).member
    pair = [each for each, _ in asked]
    agree(pair)
    return pair


def bring(each):
    each.write(each.plans[0], 0, [each.rank + 1.0] * 256)
    each.ready(each.plans[0], 0)


def go(pair, step):
    for each in pair:
        each.plans[0].step = step
        bring(each)
    for each in pair:
        outcome, message, _ = each.outcome(each.plans[0])
        assert outcome == "COMMITTED", message
        assert set(each.read(each.plans[0], 0)) == {1.5}


# -- who is not newer

@pytest.mark.parametrize("old, new", [(None, None), (None, 7), (7, None)])
def test_a_rank_is_taken_if_one_of_the_two_is_not_counted(daemon, peers, old, new):
    served = daemon()
    pair = formed(peers, served, old)
    second, request = come(peers, served, 1, new)
    answer = second.refusal(request)
    assert (answer.code, answer.rank, answer.pid) == ("RANK_TAKEN", 1, os.getpid()), answer
    go(pair, 1)


@pytest.mark.parametrize("new", [3, 2, 0])
def test_who_is_not_newer_is_refused(daemon, peers, new):
    served = daemon()
    pair = formed(peers, served, 3)
    second, request = come(peers, served, 1, new)
    answer = second.refusal(request)
    assert (answer.code, answer.pid) == ("STALE", os.getpid()), answer
    assert "'pair'" in answer.text and "end this one" in answer.text, answer
    go(pair, 1)
    assert served.job("pair")["generation"] == 1


def test_who_is_not_newer_is_refused_while_the_job_forms(daemon, peers):
    served = daemon()
    first, asked = come(peers, served, 0, 3)
    first.silent()
    second, request = come(peers, served, 0, 3)
    assert second.refusal(request).code == "STALE"
    other, request = come(peers, served, 1, 0)
    first.joined(asked)
    other.joined(request)
    agree([first, other])
    go([first, other], 1)


# -- how a program says it

ENVIRONMENT = {"GRADSYNC_JOB": "a", "GRADSYNC_WORLD_SIZE": 2, "GRADSYNC_RANK": 0, "GRADSYNC_INSTANCE": 3}


@pytest.mark.parametrize("line, before, code", [
    ("join", 3, "STALE"),
    ("join instance=4", 9, "STALE"),    # the fourth is the one that three were before
    ("join", "", "RANK_TAKEN"),
    ("join rank=0", 9, "RANK_TAKEN"),   # not the rank that the launcher counts for
])
def test_the_environment_counts(daemon, member, line, before, code):
    served = daemon()
    first = member(served, env=ENVIRONMENT)
    ask(first, "open")
    first.say("join")
    wait_until(lambda: served.job("a"), "the first one")
    second = member(served, env={**ENVIRONMENT, "GRADSYNC_INSTANCE": before})
    ask(second, "open")
    assert f"pid {first.pid}" in ask(second, line, code)


def test_what_a_program_cannot_say(daemon, member):
    one = member(daemon())
    ask(one, "open")
    text = ask(one, "join name=b world=2 instance=1", "INVALID")
    assert "instance 1" in text and "without a rank" in text, text


# -- who is newer

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


def test_what_the_older_one_still_says_changes_nothing(daemon, peers):
    served = daemon()
    stays, old = formed(peers, served, 0)
    go([stays, old], 1)
    stays.plans[0].step = old.plans[0].step = 2
    bring(stays)
    stays.silent()                      # it was heard
    new, request = come(peers, served, 1, 1)
    joined = new.joined(request)
    assert (joined.rank, joined.generation, joined.member, joined.history) == (1, 2, old.member, True)
    outcome, message, _ = stays.outcome(stays.plans[0])
    assert (outcome, message.rank, message.pid) == ("VOID", 1, os.getpid()), message
    newgen = stays.expect("NEWGEN")
    assert (newgen.generation, newgen.rank, newgen.world, newgen.behind) == (2, 0, 2, True)
    assert (newgen.lost_rank, newgen.lost_pid) == (1, os.getpid())
    stays.generation = 2
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for generation in (1, 2):
            old.ready(old.plans[0], 0, generation=generation)
    reason = old.hangup()
    assert reason.code == "STALE" and "newer" in reason.text, reason
    plan = small_plan()
    new.expect("PLAN_AGREED", new.plan_arena(plan, new.plan_send(plan)))
    go([stays, new], 2)
    assert served.job("pair")["void_steps"] == 1


def test_the_older_one_waits_for_the_job_to_form(daemon, peers):
    served = daemon()
    old, waits = come(peers, served, 0, 4)
    old.silent()
    new, asked = come(peers, served, 0, 5)
    assert old.refusal(waits).code == "STALE"
    other, request = come(peers, served, 1)
    for each, number in ((new, asked), (other, request)):
        assert each.joined(number).generation == 1
    agree([new, other])
    go([new, other], 1)


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


def test_a_job_with_an_old_client_ends(daemon, peers):
    """Such a job does not go on after a loss; it ends, and says why."""
    served = daemon()
    plain = peers(Peer(served.socket))
    old, asked = come(peers, served, 1, 1)
    plain.joined(plain.join_send("pair", 2, 0))
    old.joined(asked)
    come(peers, served, 1, 2)
    lost = plain.expect("LOST")
    assert lost.rank == 1, lost
    assert old.hangup().code == "STALE"
