# SPDX-License-Identifier: Apache-2.0
"""What a step reports in a job over several daemons, and what has to be the same on all of them."""
import pytest

from clusters import members_of
from test_cluster import cluster  # noqa: F401
from trainers import ask, crew, fields, step, together

pytestmark = pytest.mark.host


def test_the_divisor_of_a_step(cluster, member):  # noqa: F811
    members = crew(members_of(cluster(), member), None, 4)
    for each in members:
        ask(each, "fill 4 0")
        ask(each, "divisor 2")
    together(members, "ready")
    together(members, "finish")
    assert {float(ask(each, "get 0 0")) for each in members} == {8}
    assert step(members) == 2                       # and the next one divides by the world size again


def test_divisors_that_differ_are_named(cluster, member):  # noqa: F811
    it = cluster()
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    for each, divisor in zip(members, (3, 5)):
        ask(each, f"divisor {divisor}")
    together(members, "ready")
    for each in members:
        each.say("finish")
    for rank, each in enumerate(members):
        name, _, rest = each.line().partition(" ")
        mine, other = ((3, 5), (5, 3))[rank]
        assert name == "OPERATION_MISMATCH", (name, rest)
        assert f"job 'job', step 2: rank {rank} (pid {each.pid}) divides by {mine}, members of another node by {other}; " \
            "set the same divisor on all members" in rest
