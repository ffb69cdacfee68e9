# SPDX-License-Identifier: Apache-2.0
"""Short runs of tests/faults; with more faults it is run by itself. GRADSYNC_TEST_SEED: the seed of all runs."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

import harness
from hosts import needed, on_network

FAULTS = pathlib.Path(__file__).resolve().parents[1] / "faults"


def run(build, script, faults, members, seed, *arguments):
    """The row of a run that found nothing. A failure names the seed."""
    seed = int(os.environ.get("GRADSYNC_TEST_SEED", seed))
    command = [sys.executable, FAULTS / script, "--build", build, "--json", "--faults", str(faults),
               "--members", str(members), "--seed", str(seed), "--hang", "60", *arguments]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, f"seed {seed}\n{made.stderr}"
    assert not harness.SANITIZER.search(made.stderr), f"seed {seed}\n{made.stderr}"
    row = json.loads(made.stdout)
    assert row["seed"] == seed
    assert (row["faults"], row["wrong_sums"], row["hangs"], row["leaks"]) == (faults, 0, 0, 0), row
    return row


@pytest.mark.parametrize("members, seed", [(2, 1), (4, 2)])
def test_faults_spoil_no_sum(build, members, seed):
    faults = 10 if harness.sanitized(build) else 40
    assert run(build, "faults.py", faults, members, seed)["steps_checked"] > faults


@needed
@on_network
@pytest.mark.host
@pytest.mark.heavy
@pytest.mark.parametrize("hosts, members, seed", [(2, 4, 1), (3, 3, 2)])
def test_faults_over_hosts_spoil_no_sum(build, hosts, members, seed):
    """Each kind of fault once, over network namespaces."""
    row = run(build, "cluster.py", 30, members, seed, "--each", "1", "--hosts", str(hosts))
    assert {"kill_node", "cut_off", "reset_data", "delay", "lossy", "old_state", "again"} <= set(row["kinds"])


@pytest.mark.fake
@pytest.mark.heavy
def test_faults_of_gpus_and_of_nccl_spoil_no_sum(build):
    """Two jobs on two daemons with a fake GPU each; the script judges broken rules."""
    kinds = ["kill", "fork_and_die", "kill_node", "fail_nccl", "fail_gpu", "hold"]
    only = [word for kind in kinds for word in ("--only", kind)]
    row = run(build, "nccl.py", 12, 4, 1, "--each", "1", "--hosts", "2", *only)
    assert set(row["kinds"]) == set(kinds)
