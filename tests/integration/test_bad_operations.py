# SPDX-License-Identifier: Apache-2.0
"""Operations outside steps that cannot be. Those that members disagree on are in test_collectives.py."""

import pytest

import wire
from peer import PAGE

MIB = 1 << 20
TOP = (1 << 64) - 1
STAGING = 8 * MIB
F32, I32, SUM, AVG = 1, 5, 2, 1


def staged(served, world=2, name="operating"):
    """A crew without a plan, with staging memory mapped."""
    crew = served.crew(name, world, plan=None)
    crew.memory = [served.adopt(peer.staging()) for peer in crew.peers]
    return crew


def whole(**changes):
    return {"dtype": F32, "reduce": SUM, "bytes": 4096, "input": 0, "output": 0, **changes}


ODD = {
    "all-bytes": ("ALLREDUCE", whole(bytes=TOP)),
    "bytes-and-offset-beyond": ("ALLREDUCE", whole(input=STAGING - 64, output=STAGING - 64)),
    "input-beyond": ("ALLREDUCE", whole(input=STAGING)),
    "input-wraps": ("ALLREDUCE", whole(input=TOP - 63)),
    "output-wraps": ("ALLREDUCE", whole(output=TOP - 63)),
    "bytes-wrap-with-offset": ("ALLREDUCE", whole(bytes=TOP - 4095, input=4096)),
    "input-unaligned": ("ALLREDUCE", whole(input=4)),
    "output-unaligned": ("ALLREDUCE", whole(output=8196)),
    "no-dtype": ("ALLREDUCE", whole(dtype=0)),
    "no-reduce": ("ALLREDUCE", whole(reduce=0)),
    "average-of-integers": ("ALLREDUCE", whole(dtype=I32, reduce=AVG)),
    "gather-into-itself": ("ALLGATHER", {"bytes": 64, "input": 0, "output": 0}),
    "scatter-times-world": ("REDUCE_SCATTER", whole(bytes=STAGING, output=0)),
    "scatter-odd-part": ("REDUCE_SCATTER", whole(bytes=100, output=PAGE)),
    "broadcast-of-nobody": ("BROADCAST", {"root": 2, "bytes": 64, "input": 0, "output": 0}),
    "nothing": ("OPERATION_NONE", whole()),
    "sequence-ahead": ("BARRIER", {"sequence": 7}, "STATE"),
    "no-generation": ("BARRIER", {"generation": 0}, "VOID_RETRY"),
    "generation-ahead": ("BARRIER", {"generation": 2}, "STALE"),
}


@pytest.mark.parametrize("what", sorted(ODD))
def test_odd_operation(serve, what):
    """The one who asks is told; the number of the operation is not spent, and the job goes on."""
    crew = staged(serve())
    kind, fields, code = (*ODD[what], "INVALID")[:3]
    peer = crew.peers[0]
    right = {"job": peer.job, "generation": peer.generation, "sequence": 0}
    request = peer.send("OPERATION", kind=wire.pb.OperationKind.Value(kind), **{**right, **fields})
    answer = peer.refusal(request)
    assert answer.code == code and answer.text, answer
    crew.operate("BARRIER")             # it can still do something together
