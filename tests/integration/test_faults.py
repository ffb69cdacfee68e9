# SPDX-License-Identifier: Apache-2.0
"""A short run of tests/faults; with more faults, and other seeds, it is run by itself."""
import json
import pathlib
import subprocess
import sys

import pytest

import harness

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
