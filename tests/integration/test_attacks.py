# SPDX-License-Identifier: Apache-2.0
"""Short runs of tests/attacks: the rows have what they should, attacks attack, and jobs survive. The cost of
attacks is measured there, and not asserted here."""
import json
import os
import pathlib
import subprocess

import pytest

import harness

ATTACKS = pathlib.Path(__file__).resolve().parents[1] / "attacks"
NUMBERS = ("seconds", "probe_bytes", "probe_steps", "probe_p50_ms", "probe_worst_ms", "baseline_p50_ms",
           "baseline_worst_ms", "worst_above_ms", "attack_cpus", "daemon_anon_mib", "refused")
SOME = ["garbage", "turned-away", "control-denied", "plans-differ-last", "rejoin-without-secret",
        "rejoins-guessed", "holes-hidden", "restarts-beside-stopped", "frames-of-a-key", "lying-daemon"]

pytestmark = [pytest.mark.host, pytest.mark.heavy,
              pytest.mark.skipif(os.geteuid() != 0, reason="attackers are users of their own")]


def run(script, build, *arguments):
    return subprocess.run(["sh", ATTACKS / script, "--build", build, *arguments], capture_output=True,
                          text=True, check=False, timeout=harness.LONG)


@pytest.mark.parametrize("name", SOME)
def test_a_job_survives(build, name):
    made = run("run.sh", build, "--json", "--seconds", "1", "--only", name)
    assert made.returncode == 0, made.stderr
    row = json.loads(made.stdout)
    assert row["attack"] == name and row["job_survived"] is True and row["problems"] == []
    assert all(isinstance(row[key], (int, float)) for key in NUMBERS), row
    assert row["probe_steps"] > 0 and row["probe_p50_ms"] <= row["probe_worst_ms"]
    assert (row["busy_worst_ms"] is None) == (row["busy_p50_ms"] is None)
    assert row["memory_of"] in ("cgroup v1", "cgroup v2", "RssAnon")
    assert sum(count > 0 for count in row["did"].values()) > 0


@pytest.mark.skipif(not harness.guarded(), reason="userfaultfd(2) is not allowed here")
def test_holes_before_the_search_for_a_nan(build):
    """In a memory cgroup without room for the pages that are missing; a sanitizer's books need room, too."""
    made = run("run.sh", build, "--json", "--seconds", "4", "--only", "holes-after-nan", "--memory",
               "1024" if harness.sanitized(build) else "64")
    assert made.returncode == 0, made.stdout + made.stderr
    row = json.loads(made.stdout)
    assert row["job_survived"] is True and row["did"]["punched"] > 0


def test_in_doubt_another_daemon_is_attacked(build):
    """With a doubt of minus one hour each step is in doubt, even if it was faster than without the attack."""
    made = run("run.sh", build, "--json", "--seconds", "1", "--only", "garbage", "--doubt", "-3600000")
    assert made.returncode == 0, made.stderr
    row = json.loads(made.stdout)
    assert row["worst_above_ms"] == round(row["probe_worst_ms"] - row["elsewhere_worst_ms"], 3)


def test_who_is_after_the_probe_has_nothing_to_do_elsewhere(build):
    """Its time is over before the daemon is back, but it goes on until it has claimed a place."""
    made = run("run.sh", build, "--json", "--seconds", "0.01", "--only", "rejoin-without-secret", "--doubt",
               "-3600000")
    assert made.returncode == 0, made.stderr
    row = json.loads(made.stdout)
    assert row["elsewhere_worst_ms"] is None and row["did"]["claims"] > 0


def test_the_table(build):
    made = run("run.sh", build, "--seconds", "1", "--only", "garbage", "lies")
    assert made.returncode == 0, made.stderr
    head, _, *rows = made.stdout.splitlines()
    assert "worst ms" in head and {row.split()[1] for row in rows if row} == {"garbage", "lies"}


def test_a_limit_that_is_exceeded(build):
    """Each step exceeds a limit of minus one hour, even if it was faster than without the attack."""
    made = run("run.sh", build, "--seconds", "1", "--only", "garbage", "--limit", "-3600000")
    assert made.returncode == 1 and "garbage: a step took" in made.stderr


def test_what_there_is(build):
    made = run("run.sh", build, "--list")
    assert made.returncode == 0, made.stderr
    names = [line.split()[0] for line in made.stdout.splitlines()]
    assert len(names) >= 20 and set(SOME) <= set(names)
    made = run("run.sh", build, "--only", "no-such-attack")
    assert made.returncode == 2 and "no-such-attack" in made.stderr


def test_a_crowd(build):
    made = run("crowd.sh", build, "--json", "--uids", "3", "--seconds", "1", "--rounds", "2")
    assert made.returncode == 0, made.stderr
    row = json.loads(made.stdout)
    assert (row["crowd"], row["rounds"], row["wrong_sums"], row["status_failed"]) == (3, 2, 0, 0)
    assert row["job_survived"] is True
    assert row["new_client_admitted"] is True and row["new_client_refused"] is None
    assert row["connections"] > 300 and row["refused"] > 0 and row["registered"] > 0
    assert row["ratio"] > 0 and row["steps_per_s"] > 0 and row["status_worst_s"] > 0
