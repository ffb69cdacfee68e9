# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed in the middle of an epoch and started again, alone: the training ends as if nothing
had happened."""
import pytest

from launch import run

STEPS = 24
# All compare with one training.
pytestmark = pytest.mark.xdist_group("recovery")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a training ends with in which nobody is lost; the same parameters on all ranks."""
    ended = run(2, "recovering.py", tmp_path_factory.mktemp("lives"), -1, 2)
    assert ended.status == 0, ended.err
    results = ended.results()
    assert [each["count"] for each in results] == [STEPS] * 2
    assert results[0]["trained"] == results[1]["trained"]
    return results


@pytest.mark.parametrize("killed, how", [(0, ""), (1, ""), (1, "forward"), (0, "twice")])
def test_killed(undisturbed, tmp_path, killed, how):
    ended = run(2, "recovering.py", tmp_path, killed, 2, how, options=["--restart", "3"])
    assert ended.status == 0, ended.out + ended.err
    results = ended.results()
    assert [each["count"] for each in results] == [STEPS] * 2
    assert results[killed]["life"] == (2 if how == "twice" else 1), "it was killed, and came again"
    assert results[1 - killed]["life"] == 0, "the other one lived on"
    assert results[1 - killed]["restarts"] >= 1
    assert [each["trained"] for each in results] == [each["trained"] for each in undisturbed]
    if killed != 0:  # running means are those of rank 0, and went with it
        assert [each["buffers"] for each in results] == [each["buffers"] for each in undisturbed]
