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


def test_without_a_place_it_coordinates_its_own_host(daemon, scratch):
    made = daemon(env={"STATE_DIRECTORY": str(scratch / "nowhere")})
    told = shown(made)
    assert told["node"] is None and told["starts"] is None
    assert str(scratch / "nowhere/identity") in told["no_identity"] and "No such file" in told["no_identity"]
    assert made.log.count(NOTHING) == 1 and NOTHING in made.ctl("status")
    warning, = doctors(made)
    assert warning.startswith("warn") and NOTHING in warning


def test_it_lies_in_the_state_directory_of_one_daemon(daemon, build, scratch, processes):
    """Another daemon with that directory does not start, and says in one sentence why."""
    state = {"STATE_DIRECTORY": str(scratch)}
    first = daemon(env=state)
    assert (scratch / "identity").exists() and not pathlib.Path(first.socket + ".identity").exists()
    second = harness.Daemon(build, scratch / "second", env=state)
    processes.append(second)
    second.spawn()
    assert second.program.wait() == 1
    assert "belongs to another gradsyncd that runs" in second.log.strip().split("\n")[-1]
    assert shown(first)["starts"] == 1
