# SPDX-License-Identifier: Apache-2.0
"""The benchmark of recoveries works, and finds that nothing was lost: what it says of times is not
asserted."""
import json
import os
import subprocess
import sys

import pytest

from launch import BUILD, DEADLINE, ROOT

# All look at the same rows.
pytestmark = [pytest.mark.xdist_group("recovery-bench"), pytest.mark.heavy]


@pytest.fixture(scope="module")
def rows():
    env = os.environ | {"PYTHON": sys.executable, "GRADSYNC_BUILD": str(BUILD)}
    command = ["sh", str(ROOT / "tests/bench/recovery.sh"), "--json", "--quick", "--only", "gradsync",
               "gradsync-spare", "torchrun"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return {row["contender"]: row for row in map(json.loads, ended.stdout.splitlines())}


@pytest.mark.parametrize("contender", ["gradsync", "gradsync-spare", "torchrun"])
def test_nothing_is_lost(rows, contender):
    row = rows[contender]
    assert (row["ranks"], row["kills"], row["steps_lost"], row["undisturbed"]) == (2, 1, 0, True), row


def test_times_are_there(rows):
    """A spare has been started before."""
    for row in rows.values():
        missing = {key for key, value in row.items() if value is None}
        assert missing == ({"spawn_ms", "start_ms"} if row["contender"] == "gradsync-spare" else set()), row
