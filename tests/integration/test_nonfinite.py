# SPDX-License-Identifier: Apache-2.0
"""A gradient that is not finite is named: step, rank, bucket and parameter, once per burst, in the log and in status."""
import re
import struct

import pytest

from peer import Crew, Plan, small_plan

NAN, INF = float("nan"), float("inf")
LINE = re.compile(r"job '\w+', step (\d+): rank (\d+) \(pid \d+\) brought (\d+) values? that (?:is|are) not finite: bucket (\d+)"
                  r"(?:, parameter \"([^\"]*)\")?(; so did \d+ more ranks?)?")


def told(served):
    """[(step, rank, count, bucket, parameter, others)] of the log."""
    return [tuple(int(part) for part in match.groups()[:4]) + match.groups()[4:] for match in LINE.finditer(served.log)]


def step(crew, spoiled=()):
    """One step of ones, except for `spoiled`: (rank, parameter, index, value)."""
    plans = crew.plans[0]
    for peer, plan in zip(crew.peers, plans):
        for param, (_, shape, _) in enumerate(plan.params):
            peer.write(plan, param, [1.0] * (plan.size_of(shape) // 4))
        for rank, param, index, value in spoiled:
            if rank == peer.rank:
                at = plan.places[param][0] + 4 * index
                plan.arena.map[at:at + 4] = struct.pack("<f", value)
        for bucket in range(len(plan.buckets)):
            peer.ready(plan, bucket)
    results = [peer.outcome(plan) for peer, plan in zip(crew.peers, plans)]
    assert {result[0] for result in results} == {"COMMITTED"}
    return results[0][2]


def layers(ordinal):
    return Plan([(f"layer{number}.weight", [300 + 40 * number], number // 7) for number in range(21)], ordinal)


@pytest.mark.parametrize("param", [0, 3, 6, 7, 13, 20])
def test_rank_and_parameter(served, peers, param):
    crew = peers(Crew(served.socket, "model", 3, layers))
    step(crew)
    results = step(crew, [(2, param, 5, NAN), (2, param, 290, INF)])
    assert list(results[param // 7].rank_nonfinite) == [0, 0, 2]
    assert told(served) == [(2, 2, 2, param // 7, f"layer{param}.weight", None)]
    first = served.job("model")["nonfinite_first"]
    assert (first["step"], first["rank"], first["plan"], first["bucket"], first["parameter"], first["values"]) == \
        (2, 2, 0, param // 7, f"layer{param}.weight", 2)
    assert re.search(rf'^  step 2: rank 2 \(pid \d+\) brought 2 non-finite values: bucket {param // 7}, '
                     rf'parameter "layer{param}\.weight"$', served.ctl("status"), re.M)
    assert "GRADSYNC" not in served.log and f"parameter=layer{param}.weight" in served.log


@pytest.mark.parametrize("elements", [10, 30_000])
@pytest.mark.parametrize("spoiled, named", [([2], "c"), ([], None)])
def test_padding_has_no_name(served, peers, elements, spoiled, named):
    """It is reduced like data, but its contents mean nothing."""
    names = ["a", "b", "c", "d"]
    params = [(name, [elements + 5], 0) for name in names]
    crew = peers(Crew(served.socket, "padded", 2, lambda ordinal: Plan(params, ordinal)))
    plan = crew.plans[0][1]
    for before in range(3):
        start, end = sum(plan.places[before]), plan.places[before + 1][0]
        assert end - start >= 4
        plan.arena.map[start:end] = struct.pack("<f", NAN) * ((end - start) // 4)
    step(crew, [(1, param, 7, NAN) for param in spoiled])
    assert [entry[4] for entry in told(served)] == [named]


def test_the_first_parameter_and_the_lowest_rank(served, peers):
    crew = peers(Crew(served.socket, "model", 3, layers))
    step(crew, [(2, 4, 0, NAN), (1, 5, 7, INF), (1, 6, 0, NAN)])
    assert told(served) == [(1, 1, 2, 0, "layer4.weight", "; so did 1 more rank")]


def test_large_buckets_are_searched_by_workers(served, peers):
    """Above what the loop thread does itself; the members hear of the bucket when the search is over."""
    crew = peers(Crew(served.socket, "large", 2, lambda ordinal: Plan(
        [(f"w{number}", [200_000 + number], 0) for number in range(9)], ordinal)))
    crew.plan(lambda ordinal: small_plan(1, ordinal=ordinal))
    for param in (8, 0, 5):
        step(crew, [(1, param, 199_999, INF)])
        crew.go(100, ordinal=1)         # quiet steps of any plan end a burst
    assert [entry[4] for entry in told(served)] == ["w8", "w0", "w5"]
    for peer, plan in zip(crew.peers, crew.plans[0]):
        assert peer.read(plan, 5)[199_999] == INF and set(peer.read(plan, 8)) == {1.0}
