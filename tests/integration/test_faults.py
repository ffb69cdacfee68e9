# SPDX-License-Identifier: Apache-2.0
"""A short run of tests/faults; with more faults, and other seeds, it is run by itself."""
import json
import pathlib
import subprocess
import sys

import pytest

import harness
from hosts import needed, on_network

FAULTS = pathlib.Path(__file__).resolve().parents[1] / "faults/faults.py"


@pytest.mark.parametrize("members, seed", [(2, 1), (4, 2)])
def test_faults_spoil_no_sum(build, members, seed):
    faults = 10 if harness.sanitized(build) else 40
    made = subprocess.run([sys.executable, FAULTS, "--build", build, "--json", "--faults", str(faults), "--members", str(members),
                           "--seed", str(seed), "--hang", "60"], capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, made.stderr
    assert not harness.SANITIZER.search(made.stderr), made.stderr
    row = json.loads(made.stdout)
    assert row["faults"] == faults and row["steps_checked"] > faults
    assert (row["wrong_sums"], row["hangs"], row["leaks"]) == (0, 0, 0)


@needed
@on_network
@pytest.mark.host
@pytest.mark.heavy
@pytest.mark.parametrize("hosts, members, seed", [(2, 4, 1), (3, 3, 2)])
def test_faults_over_hosts_spoil_no_sum(build, hosts, members, seed):
    """Each kind of fault once, over network namespaces; the script judges void steps."""
    script = FAULTS.with_name("cluster.py")
    command = [sys.executable, script, "--build", build, "--json", "--faults", "30", "--each", "1",
               "--hosts", str(hosts), "--members", str(members), "--seed", str(seed), "--hang", "60"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, made.stderr
    row = json.loads(made.stdout)
    assert (row["faults"], row["wrong_sums"], row["hangs"], row["leaks"]) == (30, 0, 0, 0)
    assert {"kill_node", "cut_off", "reset_data", "delay", "lossy"} <= set(row["kinds"])
    assert row["void_per_fault"] <= 2


@pytest.mark.fake
@pytest.mark.heavy
def test_faults_of_gpus_and_of_nccl_spoil_no_sum(build):
    """Two jobs on two daemons with a fake GPU each; the script judges void steps and broken rules."""
    kinds = ["kill", "fork_and_die", "kill_node", "fail_nccl", "fail_gpu", "hold"]
    command = [sys.executable, FAULTS.with_name("nccl.py"), "--build", build, "--json", "--faults", "12",
               "--each", "1", "--hosts", "2", "--members", "4", "--seed", "1", "--hang", "60",
               *(word for kind in kinds for word in ("--only", kind))]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, made.stderr
    row = json.loads(made.stdout)
    assert (row["faults"], row["wrong_sums"], row["hangs"], row["leaks"]) == (12, 0, 0, 0)
    assert set(row["kinds"]) == set(kinds)
