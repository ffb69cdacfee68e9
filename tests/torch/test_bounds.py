# SPDX-License-Identifier: Apache-2.0
"""With three and four ranks gradients differ from DDP's by no more than rounding, and trainings end no
further from DDP's than these from each other."""
import pytest

from launch import passed

pytestmark = pytest.mark.heavy
CASES = ("mlp", "cnn", "branches")


@pytest.mark.parametrize("ranks", [3, 4])
def test_bounds(ranks, tmp_path):
    found = passed(ranks, "bounds.py", tmp_path, 7, *CASES)
    assert {(each["case"], each["rank"]) for each in found} == {
        (case, rank) for case in CASES for rank in range(ranks)}
    for each in found:
        assert each["unset"] == []
        assert each["worst"] <= 1
        assert max(each["spreads"]) < 1e-4, "the training is not chaotic"
        assert all(apart is not None and apart <= 2 for apart in each["apart"]), each
