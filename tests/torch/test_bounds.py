# SPDX-License-Identifier: Apache-2.0
"""With three and four ranks gradients differ from DDP's by no more than rounding."""
import pytest

from launch import run


@pytest.mark.parametrize("case, ranks", [("mlp", 3), ("cnn", 3), ("branches", 3), ("mlp", 4)])
def test_gradients(case, ranks, tmp_path):
    ended = run(ranks, "bounds.py", case, tmp_path)
    assert ended.status == 0, ended.out + ended.err
    results = ended.results()
    assert [each["rank"] for each in results] == list(range(ranks))
    for each in results:
        assert each["unset"] == []
        assert each["worst"] <= 1
