# SPDX-License-Identifier: Apache-2.0
"""The identity that a daemon keeps over its runs: where it lies, and what the daemon does without it."""
import pathlib

import pytest

import harness

NOTHING = "coordinates nothing beyond its own host"


def shown(made):
    return made.status()["daemon"]


def again(made, end):
    end()
    made.program.destroy()
    return shown(made.start())


def doctors(made, code=0):
    return [line for line in made.ctl("doctor", code=code).split("\n") if " identity " in line]


@pytest.mark.parametrize("how", ["finish", "kill"])
def test_it_stays_over_restarts(daemon, how):
    made = daemon()
    before = shown(made)
    assert len(before["node"]) == 32 and before["starts"] == 1 and before["no_identity"] is None
    kept = pathlib.Path(made.socket + ".identity")
    assert kept.stat().st_mode & 0o7777 == 0o600
    for starts in (2, 3):
        after = again(made, made.finish if how == "finish" else made.program.kill)
        assert (after["node"], after["starts"]) == (before["node"], starts)
    (line,) = doctors(made)
    assert line.startswith("ok") and before["node"] in line and "3 times" in line
    assert NOTHING not in made.log


def test_it_lies_in_the_state_directory(daemon, scratch):
    for name in ("cpu", "cpu:left"):
        state = scratch / name
        state.mkdir()
        made = daemon(env={"STATE_DIRECTORY": str(state)})
        assert (state / "identity").exists() and not pathlib.Path(made.socket + ".identity").exists()
        assert shown(made)["starts"] == 1


def test_without_a_place_it_coordinates_its_own_host(daemon, scratch):
    made = daemon(env={"STATE_DIRECTORY": str(scratch / "nowhere")})
    told = shown(made)
    assert told["node"] is None and told["starts"] is None
    assert str(scratch / "nowhere/identity") in told["no_identity"] and "No such file" in told["no_identity"]
    assert made.log.count(NOTHING) == 1 and NOTHING in made.ctl("status")
    warning, = doctors(made)
    assert warning.startswith("warn") and NOTHING in warning


def refused(made, how):
    """It does not start, and says in one sentence why."""
    made.expect_clean = False
    made.spawn()
    assert made.program.wait() == 1
    assert how in made.log.strip().split("\n")[-1], made.log
    made.program.destroy()


def test_two_daemons_do_not_share_it(daemon, build, scratch):
    state = scratch / "state"
    state.mkdir()
    first = daemon(env={"STATE_DIRECTORY": str(state)})
    second = harness.Daemon(build, scratch / "second", env={"STATE_DIRECTORY": str(state)})
    refused(second, "belongs to another gradsyncd that runs")
    second.destroy()
    assert shown(first)["starts"] == 1
