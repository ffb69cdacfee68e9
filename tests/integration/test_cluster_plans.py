# SPDX-License-Identifier: Apache-2.0
"""Plans of a job over several daemons that are not the same, or that some member never makes."""
import pytest

from clusters import opened, planned
from trainers import ask, join, step, together

pytestmark = pytest.mark.host


def crew_of(it, member, options=""):
    """Ranks 0 and 2 are on one daemon, 1 and 3 on the other."""
    members = opened(it, member, 0, 1, 0, 1)
    join(members, options=options)
    return members


PLAIN = ("layer.weight f32 4 2", "layer.bias f32 4")


@pytest.mark.parametrize("other, said", [
    (("layer.weight f32 4 2", "layer.scale f32 4"),
     'parameter 1 is "layer.scale" on {b} but "layer.bias" on {a}: '
      'register the same parameters in the same order'),
    (("layer.weight f32 2 4", "layer.bias f32 4"),
     'parameter 0 "layer.weight" has shape [2, 4] on {b} but [4, 2] on {a}'),
    (("layer.weight f64 4 2", "layer.bias f32 4"), 'parameter 0 "layer.weight" is f64 on {b} but f32 on {a}'),
    (("layer.bias f32 4", "layer.weight f32 4 2"),
      'parameter 0 is "layer.bias" on {b} but "layer.weight" on {a}'),
    (("layer.weight f32 4 2",),
     '{b} has 1 parameters, {a} has 2; the first one too many is parameter 1 "layer.bias"'),
])
def test_all_members_are_told_who_differs_in_what(cluster, member, other, said):
    members = crew_of(cluster(), member)
    for rank, each in enumerate(members):
        for param in other if rank % 2 else PLAIN:
            ask(each, f"param {param}")
    told = set(together(members, "plan", "PLAN_MISMATCH"))
    assert len(told) == 1, told
    text, = told
    named = [(f"rank {a} (pid {members[a].pid})", f"rank {b} (pid {members[b].pid})")
             for a in range(4) for b in range(4) if a % 2 != b % 2]
    assert any(said.format(a=a, b=b) in text for a, b in named), text
    planned(members, *PLAIN)                        # the next attempt is a new plan
    assert step(members) == 1


def test_members_that_make_no_plan_are_named(cluster, member):
    """Rank 0 waits for two members of another daemon, and for one of its own."""
    members = crew_of(cluster(), member, "timeout=5000")
    ask(members[0], "param a f32 5")
    text = ask(members[0], "plan", "TIMEOUT")
    assert "was not agreed within 5.0 s" in text, text
    for rank in (1, 2, 3):
        assert f"rank {rank} (pid {members[rank].pid})" in text, text
    for each in members[1:]:
        ask(each, "param a f32 5")
    for each in members[1:]:
        assert ask(each, "plan", "TIMEOUT") == text
    planned(members)
    assert step(members) == 1
