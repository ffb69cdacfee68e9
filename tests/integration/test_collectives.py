# SPDX-License-Identifier: Apache-2.0
"""Collectives of libgradsync against a real daemon."""
import pytest

from trainers import ask, crew, ending_well, fill, joined, together


@pytest.fixture(name="member")
def member_that_ends_well(member):
    yield from ending_well(member)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_collectives(daemon, member, world):
    """Sizes from one byte to several times the staging memory."""
    served = daemon(settings={"staging_bytes": "1MiB"})
    members = joined(member, served, world)
    together(members, "barrier")
    for size in (0, 1, 63, 64, 65, 4097, (1 << 20) - 1, 1 << 20, 2_500_001):
        for root in range(world):
            assert set(together(members, f"broadcast {size} {root}")) == {"right"}
        assert set(together(members, f"allgather {size}")) == {"right"}
    for count in (0, 1, 17, 1000, 700_001):
        for dtype, reduce in (("f32", "avg" if world != 3 else "sum"), ("f64", "max"), ("i32", "sum"), ("i64", "prod"), ("u8", "min")):
            assert set(together(members, f"allreduce {count} {dtype} {reduce}")) == {"right"}
            assert set(together(members, f"reduce_scatter {count} {dtype} {reduce}")) == {"right"}
    together(members, "barrier", "leave")


@pytest.mark.parametrize("commands", [
    ("barrier", "broadcast 8 0"), ("broadcast 8 0", "broadcast 8 1"), ("broadcast 8 0", "broadcast 16 0"), ("allgather 60", "allgather 61"),
    ("allreduce 4 f32 sum", "allreduce 4 f32 max"), ("allreduce 4 f32 sum", "allreduce 4 i32 sum"),
    ("reduce_scatter 3 f32 sum", "reduce_scatter 4 f32 sum"), ("broadcast 1200000 0", "broadcast 2300000 0"),
], ids=lambda pair: "-".join(pair).replace(" ", "_"))
def test_collectives_that_differ_fail_on_all(daemon, member, commands):
    served = daemon(settings={"staging_bytes": "1MiB"})
    members = joined(member, served, 2)
    for each, command in zip(members, commands):
        each.say(command)
    for each in members:
        line = each.line()
        assert line.startswith("OPERATION_MISMATCH ") and "rank 0" in line and "rank 1" in line, line
    together(members, "barrier")                    # and nothing else is broken


def test_a_collective_while_a_step_is_open(daemon, member):
    members = crew(member, daemon(), 2)
    fill(members)
    ask(members[0], "ready")
    assert set(together(members, "allreduce 100 f32 avg")) == {"right"}
    ask(members[1], "ready")
    together(members, "finish")
    assert ask(members[0], "check 1.5") == "right"
