# SPDX-License-Identifier: Apache-2.0
"""Jobs over hosts of their own, with a network between them: a daemon on each host, which meet over TLS."""
import pytest

from clusters import members_of
from hosts import hosts, needed  # noqa: F401
from trainers import ask, crew, step
from trainings import digits, kind, same_training, single  # noqa: F401

pytestmark = [pytest.mark.host, needed]


@pytest.mark.heavy
@pytest.mark.parametrize("members", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_any_number_of_hosts_is_the_same_training(hosts, program, single, n, members):  # noqa: F811
    nodes = hosts(n).nodes
    told = digits(nodes, program, members, "--epochs", 10)
    same_training(told, single)
    assert len(kind(told[0], "epoch")) == 10
    took_part = [node for node in nodes if "formed with" in node.log]
    assert len(took_part) == min(n, members), [node.log for node in nodes]


def test_a_cable_is_out_for_a_moment(hosts, member):  # noqa: F811
    """The step goes on when it is in again, and nothing is void."""
    it = hosts(2)
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    for _ in range(2):
        it.plug(1, False)
        for rank, each in enumerate(members):
            ask(each, f"fill {rank + 1}")
            ask(each, "ready")
            each.say("finish")
        it.plug(1, True)
        for each in members:
            assert each.line().startswith("OK step=")
            assert ask(each, "check 1.5") == "right"
    assert step(members) == 4
