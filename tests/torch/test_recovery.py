# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed in the middle of an epoch and started again, alone: the training ends as if nothing
had happened."""
import pytest

from launch import passed, trained

STEPS = 24
# All compare with one training.
pytestmark = [pytest.mark.xdist_group("recovery"), pytest.mark.heavy]


@pytest.fixture(scope="module")
def turning(tmp_path_factory):
    """Layers change their order in the middle, and all plan again."""
    return trained(tmp_path_factory.mktemp("lives"), "turning")


def recovered(folder, killed, how, expected):
    """Runs a training that loses `killed`. All ranks end with the parameters of the undisturbed training."""
    results = passed(2, "recovering.py", folder, killed, 2, how, options=["--restart", "3"])
    assert [each["count"] for each in results] == [STEPS] * 2
    assert results[killed]["life"] == (2 if how in ("twice", "plans") else 1), "it was killed, and came again"
    assert results[1 - killed]["life"] == 0, "the other one lived on"
    assert [each["trained"] for each in results] == [each["trained"] for each in expected]
    return results


@pytest.mark.parametrize("killed, how", [(0, ""), (1, ""), (1, "forward"), (0, "twice")])
def test_killed(undisturbed, tmp_path, killed, how):
    results = recovered(tmp_path, killed, how, undisturbed)
    assert results[1 - killed]["restarts"] >= 1
    if killed != 0:  # running means are those of rank 0, and went with it
        assert [each["buffers"] for each in results] == [each["buffers"] for each in undisturbed]


@pytest.mark.parametrize("killed, how", [(0, "plan"), (1, "plans")])
def test_killed_when_all_plan_again(turning, tmp_path, killed, how):
    """The others wait for its plan; who comes in its place has to hear from them which one it is."""
    results = recovered(tmp_path, killed, how, turning)
    assert [each["replanned"] for each in results] == [1] * 2
    assert results[1 - killed]["restarts"] >= 1


@pytest.mark.parametrize("killed", [0, 1])
def test_killed_when_all_plan_for_a_hook(tmp_path, killed):
    """In the first step, which all make again."""
    lives = tmp_path / "undisturbed"
    lives.mkdir()
    results = recovered(tmp_path, killed, "hook", trained(lives, "hooked"))
    assert results[1 - killed]["restarts"] >= 1


@pytest.mark.parametrize("killed", [0, 1])
def test_killed_after_layers_were_frozen(tmp_path, killed):
    """A rank that comes back plans for the layers for which the others have planned."""
    lives = tmp_path / "undisturbed"
    lives.mkdir()
    recovered(tmp_path, killed, "thaw", trained(lives, "thawing"))


@pytest.mark.parametrize("how", ["start", "values"])
def test_killed_before_the_first_step(undisturbed, tmp_path, how):
    recovered(tmp_path, 1, how, undisturbed)
