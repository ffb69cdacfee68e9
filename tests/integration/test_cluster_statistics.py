# SPDX-License-Identifier: Apache-2.0
"""The statistics of a step in a job over several daemons, and the parts that must be the same on all of
them."""
import math
import re

import pytest

from clusters import members_of
from trainers import ask, crew, fields, step, together

pytestmark = pytest.mark.host


def test_the_divisor_of_a_step(cluster, member):
    members = crew(members_of(cluster(), member), None, 4)
    together(members, "fill 4 0", "divisor 2", "ready", "finish")
    assert {float(ask(each, "get 0 0")) for each in members} == {8}
    assert step(members) == 2                       # and the next one divides by the world size again


SIZES = (5, 300, 40)


def stats(each, bucket, rank):
    said = fields(ask(each, f"stats {bucket} {rank}"))
    return said["norm"], int(said["nonfinite"])


def check_statistics(start, reduce, dtype):
    """Checks a job of 4 members: norms of each rank's input to each bucket and of the whole result, and the
    ranks whose values were not finite."""
    params = [f"p{number} {dtype} {size}" for number, size in enumerate(SIZES)]
    members = crew(start, None, 4, params, options=f"reduce={reduce} first=8 bucket=16")
    bucket = [int(ask(members[0], f"bucket_of {param}")) for param in range(len(SIZES))]
    assert len(set(bucket)) == len(SIZES)
    for spoiled in (None, 3, 2):
        for rank, each in enumerate(members):
            ask(each, f"fill {rank + 1}")
            if rank == spoiled:
                ask(each, "fill nan 2")
        together(members, "ready")
        ends = [fields(rest) for rest in together(members, "finish")]
        assert len({end["norm"] for end in ends}) == 1
        assert {(end["nonfinite"], end["nonfinite_rank"]) for end in ends} == \
            {("0", "-1") if spoiled is None else ("40", str(spoiled))}
        for param, size in enumerate(SIZES):
            for rank in range(4):
                said, = {stats(each, bucket[param], rank) for each in members}
                if rank == spoiled and param == 2:
                    assert said == ("nan", 40)
                else:
                    assert said == (f"{math.sqrt(sum((rank + 1 + j % 4) ** 2 for j in range(size))):.17g}", 0)
            assert len({stats(each, bucket[param], -1) for each in members}) == 1


@pytest.mark.parametrize("nodes, reduce, dtype", [
    (2, "avg", "f32"), (3, "avg", "bf16"), (3, "max", "f64"), (2, "prod", "bf16")])
def test_all_members_hear_the_same_of_all_ranks(cluster, member, nodes, reduce, dtype):
    check_statistics(members_of(cluster(nodes), member), reduce, dtype)


def test_who_brought_what_is_not_finite_is_known_everywhere(cluster, member):
    """Each log and each status names the rank and the parameter; the pid is known where the process is."""
    it = cluster(3)
    members = crew(members_of(it, member), None, 4, ["weight f32 300", "bias f32 6"])
    assert step(members) == 1
    for rank, each in enumerate(members):
        ask(each, f"fill {'inf' if rank == 1 else rank + 1} 1")
    together(members, "ready")
    ends = [fields(rest) for rest in together(members, "finish")]
    assert {(end["nonfinite"], end["nonfinite_rank"]) for end in ends} == {("6", "1")}
    for number, node in enumerate(it.nodes):
        who = f"pid {members[1].pid}" if number == 1 else "on another node"
        node.wait_log(re.escape(f"job 'job', step 2: rank 1 ({who}) brought 6 values that are not finite: "
                                'bucket 0, parameter "bias"'))
        job, = node.status()["jobs"]
        first = job["nonfinite_first"]
        assert (first["rank"], first["pid"], first["step"], first["parameter"], first["values"]) == \
            (1, members[1].pid if number == 1 else None, 2, "bias", 6)
        assert job["nonfinite"] == 6 and job["nonfinite_steps"] == 1
        assert f"step 2: rank 1 ({who}) brought 6 non-finite values: bucket 0" in node.ctl("status")
