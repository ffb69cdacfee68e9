# SPDX-License-Identifier: Apache-2.0
"""Spares: processes that wait for a place in a job that has all its members, and get that of the first who is lost, at once.
Members are real trainers on the public API, driven line by line."""
import json
import re

import pytest

from harness import kill, stop, wait_until
from teams import GRACE, Team, takes_state, void_behind
from trainers import OK, ask, connected, ended, fields, restart, together


class Spared(Team):
    """A team, and processes that wait for a place in it."""

    def spare(self, open_options=""):
        made = self.start(self.served)
        ask(made, f"open {open_options}")
        made.say(f"join {self.options} last_call=1 spare=1")
        wait_until(lambda: self.waits(made), "the spare")
        return made

    def waits(self, made):
        return made.pid in self.spares()

    def job(self):
        return self.served.job("team")

    def spares(self):
        return [each["pid"] for each in self.job()["members"] if each["state"] == "spare"]

    def take_place(self, made, rank):
        """It has got its place."""
        answer, = map(fields, ended([made], OK))
        assert (answer["rank"], answer["world"]) == (str(rank), str(self.world)), answer
        self.enter(made, rank)
        return answer

    def sync(self, new, step):
        """All members take the state of those that stayed; `new` comes with none."""
        takes_state(new, [each for each in self.members if each is not new], step)

    def lose_to(self, spare, rank):
        """The member dies in an open step, and the spare is in its place."""
        victim, stay = self.lose(rank)
        answer = self.take_place(spare, rank)
        void_behind(stay, rank, victim.pid)
        return answer


@pytest.fixture
def spared(member, daemon):
    return lambda settings=None, **options: Spared(member, daemon(settings=settings or GRACE), **options)


def test_takes_the_rank_of_one_that_is_killed_in_a_step(spared):
    it = spared(world=2)
    before = [fields(ask(each, "place")) for each in it.members]
    assert it.step() == [1, 1]
    waiting = it.spare()
    assert it.step() == [2, 2], "it disturbs nobody"
    answer = it.lose_to(waiting, 1)
    assert (answer["generation"], answer["member"]) == ("2", before[1]["member"]), answer
    it.sync(waiting, 2)
    assert it.step() == [3, 3]
    job = it.job()
    assert (job["state"], job["step"], job["generation"], job["void_steps"], it.spares()) == ("running", 3, 2, 1, [])
    together(it.members, "leave")


def test_is_told_when_the_job_ends(spared):
    it = spared(world=2, settings={"rejoin_grace": "60s"})
    it.step()
    waiting = [it.spare(), it.spare()]
    newer = it.fresh()
    ask(newer, "join name=team world=1 rank=0 incarnation=1")
    for each in waiting:
        text, = ended([each], "MEMBER_LOST")
        assert "a newer incarnation of the job has started" in text and "no place to wait for" in text, text


def test_without_blocking(spared):
    it = spared(world=2)
    it.step()
    waiting = connected(it.start(it.served), options="nonblocking=1")
    line = f"join {it.options} spare=1"
    assert waiting.ask(line).startswith("AGAIN ")
    wait_until(lambda: it.waits(waiting), "the spare")
    assert waiting.ask(line).startswith("AGAIN ")
    it.kill(0)
    assert fields(waiting.ask(f"poll {line}"))["rank"] == "0"


@pytest.mark.parametrize("end_daemon", [stop, kill])
@pytest.mark.parametrize("n", [1, 2])
def test_the_daemon_restarts(spared, end_daemon, n):
    """Spares ask the next daemon at once, members when they have computed: however many spares there are, they begin no job."""
    it = spared(world=2)
    it.step()
    waiting = [it.spare() for _ in range(n)]
    restart(it.served, end_daemon)
    wait_until(lambda: sorted(it.spares()) == sorted(each.pid for each in waiting) if it.job() else False, "the spares")
    other = it.fresh()
    other.say("join name=other world=2 rank=0 timeout=400")
    ended([other], "TIMEOUT")           # the daemon has let time pass
    assert it.job()["state"] == "forming"
    assert it.step() == [2, 2], "nothing was open, so nothing is void"
    assert sorted(it.spares()) == sorted(each.pid for each in waiting)
    first = next(each for each in waiting if each.pid == it.spares()[0])
    it.lose_to(first, 0)
    it.sync(first, 2)
    assert it.step() == [3, 3]
    restart(it.served, end_daemon)
    assert it.step() == [4, 4], "one that was a spare comes back like the others"


def test_one_that_does_not_await_the_next_daemon_ends_no_job(spared):
    it = spared(world=2)
    it.step()
    waiting = it.spare("reconnect=-1")
    restart(it.served, stop)
    ended([waiting], "DAEMON_LOST")
    assert it.step() == [2, 2]
    job = it.job()
    assert (job["generation"], job["void_steps"]) == (2, 0)


def test_people_see_it(spared):
    it = spared(world=2)
    it.step()
    waiting = it.spare()
    job = json.loads(it.served.ctl("status", "--json"))["jobs"][0]
    assert (job["world_size"], job["waiting_for"], job["state"]) == (2, [], "running")
    assert [(each["rank"], each["state"]) for each in job["members"] if each["pid"] == waiting.pid] == [(None, "spare")]
    assert re.search(rf"^ +- +{waiting.pid} +\S+ +spare ", it.served.ctl("status"), re.MULTILINE)
    assert re.search(r"^team .* 2/2 ", it.served.ctl("list", "jobs"), re.MULTILINE)
    assert re.search(r"^team +2/2 ", it.served.ctl("top", "-b", "-n", "1"), re.MULTILINE)
    metrics = it.served.ctl("metrics")
    assert re.search(r'^gradsync_members\{.*job_name="team".*\} 2$', metrics, re.MULTILINE), metrics
    assert re.search(r'^gradsync_spares\{.*job_name="team".*\} 1$', metrics, re.MULTILINE), metrics
