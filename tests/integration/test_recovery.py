# SPDX-License-Identifier: Apache-2.0
"""Status and metrics of a loss after the fact: the member, the cost, and the time until the job was back."""
import os
import re
import time

from exposition import parse, series
from harness import wait_until
from peer import Crew
from teams import SHORT
from trainers import ended, say, together

MINE = {"job_name": "team", "uid": str(os.geteuid())}


def lose_in_a_step(it, rank):
    """Kills one while the others have a step open; returns it."""
    stay = [each for number, each in enumerate(it.members) if number != rank]
    it.bring(stay)
    say(stay, "finish")
    wait_until(lambda: it.status()["waiting_for"], "an open step")
    return it.kill(rank), stay


def back(it, rank, stay):
    """The job after the loss, up to its next committed step."""
    new = it.replace(rank)
    ended(stay, "VOID_BEHIND")
    together(it.members, f"sync {it.status()['step']}")
    it.step()
    return new


def test_replaced(trio):  # noqa: F811
    trio.step()
    assert trio.status()["last_loss"] is None and trio.status()["recoveries"] == 0
    victim, stay = lose_in_a_step(trio, 1)
    wait_until(lambda: trio.status()["state"] == "replacing", "the loss")
    wait_until(lambda: trio.status()["last_loss"]["void_ms"] is not None, "the others to be told")
    loss = trio.status()["last_loss"]
    assert (loss["rank"], loss["pid"], loss["cause"]) == (1, victim.pid, "exited")
    assert (loss["step"], loss["generation"], loss["void_steps"]) == (1, 1, 1)
    assert loss["new_generation_ms"] is loss["committed_ms"] is loss["successor_pid"] is None
    assert "not back yet" in trio.served.ctl("status")
    new = back(trio, 1, stay)
    job = trio.status()
    loss = job["last_loss"]
    assert (loss["rank"], loss["pid"], loss["successor_pid"]) == (1, victim.pid, new.pid)
    assert 0 <= loss["void_ms"] <= loss["new_generation_ms"] <= loss["committed_ms"] <= loss["ago_ms"] + 1
    assert loss["noticed_us"] / 1e6 <= time.monotonic() - loss["committed_ms"] / 1e3
    assert (job["recoveries"], job["void_steps"], loss["void_steps"]) == (1, 1, 1)
    line, = [line for line in trio.served.ctl("status").splitlines() if "lost rank" in line]
    assert re.fullmatch(rf"  lost rank 1 \(pid {victim.pid}\) \S+ s ago, after step 1: its process ended; 1 step void, "
                        rf"told after \S+ m?s, back after \S+ m?s with pid {new.pid} in its place", line), line
    found = parse(trio.served.ctl("metrics"))
    assert found["gradsync_rebuilds_total"][series(reason="exited", **MINE)] == 1
    assert sum(found["gradsync_rebuilds_total"].values()) == 1
    assert found["gradsync_recovery_seconds_count"] == {series(**MINE): 1}
    assert abs(found["gradsync_recovery_seconds_sum"][series(**MINE)] * 1e3 - loss["committed_ms"]) < 0.002


def test_without_a_successor(team):  # noqa: F811
    it = team(SHORT, ranks=False, least=2, world=3)
    it.step()
    victim, stay = lose_in_a_step(it, 1)
    ended(stay, "VOID_RETRY")
    it.members = stay
    it.step()
    job = it.status()
    assert (job["last_loss"]["rank"], job["last_loss"]["pid"], job["world_size"]) == (1, victim.pid, 2)
    assert job["last_loss"]["successor_pid"] is None and job["last_loss"]["committed_ms"] is not None
    assert re.search(r"1 step void, told after .*, back after \S+ m?s without it$", it.served.ctl("status"), re.M)


def test_no_step_was_open(trio):  # noqa: F811
    trio.step()
    trio.kill(2)
    trio.replace(2)
    for rest in together(trio.members, "sync 1"):
        assert rest.startswith("step=1 ")
    loss = trio.status()["last_loss"]
    assert loss["new_generation_ms"] is not None and loss["committed_ms"] is None
    assert (loss["void_steps"], loss["void_ms"]) == (0, None)
    assert "0 steps void, no step committed since with pid" in trio.served.ctl("status")
    trio.step()
    assert trio.status()["last_loss"]["committed_ms"] is not None


def test_a_job_that_cannot_go_on(served, peers):
    """The job has no grace: the loss stays on status for as long as a client holds the job."""
    crew = peers(Crew(served.socket, "team", 2))
    crew.go()
    crew.peers[1].close()
    wait_until(lambda: served.job("team")["state"] == "lost", "the loss")
    job = served.job("team")
    assert (job["last_loss"]["rank"], job["last_loss"]["cause"], job["recoveries"]) == (1, "closed", 0)
    assert job["last_loss"]["committed_ms"] is None
    assert parse(served.ctl("metrics"))["gradsync_job_state"][series(gradsync_job_state="lost", **MINE)] == 1
