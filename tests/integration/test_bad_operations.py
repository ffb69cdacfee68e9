# SPDX-License-Identifier: Apache-2.0
"""Operations outside steps that cannot be, and operations that members disagree on."""
import struct

import pytest

from peer import PAGE
from wire import frame, varint

MIB = 1 << 20
TOP = (1 << 64) - 1
STAGING = 8 * MIB
F32, I32, SUM, AVG = 1, 5, 2, 1


def staged(served, world=2, name="operating"):
    """A crew without a plan, with staging memory mapped."""
    crew = served.crew(name, world, plan=None)
    crew.memory = [served.adopt(peer.staging()) for peer in crew.peers]
    return crew


def barrier(crew):
    """The crew can still do something together."""
    requests = [peer.operation("BARRIER") for peer in crew.peers]
    for peer, request in zip(crew.peers, requests):
        peer.expect("OPERATION_DONE", request)


def whole(**changes):
    return {"dtype": F32, "reduce": SUM, "bytes": 4096, "input": 0, "output": 0, **changes}


ODD = {
    "no-bytes": ("ALLREDUCE", whole(bytes=0)),
    "all-bytes": ("ALLREDUCE", whole(bytes=TOP)),
    "bytes-and-offset-beyond": ("ALLREDUCE", whole(input=STAGING - 64, output=STAGING - 64)),
    "input-beyond": ("ALLREDUCE", whole(input=STAGING)),
    "input-far-beyond": ("ALLREDUCE", whole(input=1 << 40)),
    "input-wraps": ("ALLREDUCE", whole(input=TOP - 63)),
    "output-wraps": ("ALLREDUCE", whole(output=TOP - 63)),
    "bytes-wrap-with-offset": ("ALLREDUCE", whole(bytes=TOP - 4095, input=4096)),
    "input-unaligned": ("ALLREDUCE", whole(input=4)),
    "output-unaligned": ("ALLREDUCE", whole(output=8196)),
    "no-dtype": ("ALLREDUCE", whole(dtype=0)),
    "no-reduce": ("ALLREDUCE", whole(reduce=0)),
    "average-of-integers": ("ALLREDUCE", whole(dtype=I32, reduce=AVG)),
    "gather-into-itself": ("ALLGATHER", {"bytes": 64, "input": 0, "output": 0}),
    "gather-odd-part": ("ALLGATHER", {"bytes": 100, "input": 0, "output": PAGE}),
    "scatter-times-world": ("REDUCE_SCATTER", whole(bytes=STAGING, output=0)),
    "scatter-odd-part": ("REDUCE_SCATTER", whole(bytes=100, output=PAGE)),
    "broadcast-of-nobody": ("BROADCAST", {"root": 2, "bytes": 64, "input": 0, "output": 0}),
    "broadcast-of-nobody-at-all": ("BROADCAST", {"root": 0xFFFFFFFF, "bytes": 64, "input": 0, "output": 0}),
    "nothing": ("OPERATION_NONE", whole()),
}


@pytest.mark.parametrize("what", sorted(ODD))
def test_odd_operation(serve, what):
    """The one who asks is told; the number of the operation is not spent, and the job goes on."""
    served = serve()
    crew = staged(served)
    kind, fields = ODD[what]
    peer = crew.peers[0]
    sequence = peer.sequence
    answer = peer.refusal(peer.operation(kind, **fields))
    assert answer.code == "INVALID" and answer.text, answer
    peer.sequence = type(sequence)(0)
    barrier(crew)


def test_numbers_beyond_the_enumerations(serve):
    served = serve()
    crew = staged(served)
    for kind in (6, 255, 0x7FFFFFFF):
        request = crew.peers[0].send("OPERATION", job=crew.peers[0].job, generation=crew.peers[0].generation,
                                     sequence=0)
        crew.peers[0].refusal(request)
        payload = b"".join([b"\x08", varint(crew.peers[0].job), b"\x10", varint(crew.peers[0].generation),
                            b"\x18\x00", b"\x20", varint(kind)])
        crew.peers[0].send_raw(frame("OPERATION", payload, 99))
        assert crew.peers[0].refusal(99).code in ("INVALID", "PROTOCOL"), kind


@pytest.mark.parametrize("first, second", [
    (("BARRIER", {}), ("BROADCAST", {"root": 0, "bytes": 64, "input": 0, "output": 0})),
    (("ALLREDUCE", whole()), ("ALLREDUCE", whole(bytes=8192))),
    (("ALLREDUCE", whole()), ("ALLREDUCE", whole(dtype=I32))),
    (("ALLREDUCE", whole()), ("ALLREDUCE", whole(reduce=3))),
    (("BROADCAST", {"root": 0, "bytes": 64, "input": 0, "output": 0}),
     ("BROADCAST", {"root": 1, "bytes": 64, "input": 0, "output": 0})),
    (("ALLGATHER", {"bytes": 64, "input": 0, "output": 64}), ("ALLREDUCE", whole(bytes=64))),
], ids=["kind", "bytes", "dtype", "reduce", "root", "kind-of-data"])
def test_operations_that_differ(serve, first, second):
    """All are told, before a byte moves; afterwards the job goes on."""
    served = serve()
    crew = staged(served, 3)
    calls = [first, second, first]
    for memory in crew.memory:
        memory.map[:8192] = b"\x11" * 8192
    requests = []
    for peer, (kind, fields) in zip(crew.peers, calls):
        requests.append(peer.operation(kind, **fields))
    for peer, request in zip(crew.peers, requests):
        answer = peer.refusal(request)
        assert answer.code == "OPERATION_MISMATCH" and answer.rank == 1 and "rank 1" in answer.text, answer
    assert all(memory.map[:8192] == b"\x11" * 8192 for memory in crew.memory)
    barrier(crew)


@pytest.mark.parametrize("sequence", [1, 7, TOP])
def test_operation_out_of_sequence(serve, sequence):
    served = serve()
    crew = staged(served)
    peer = crew.peers[0]
    request = peer.send("OPERATION", job=peer.job, generation=peer.generation, sequence=sequence, kind=1)
    answer = peer.refusal(request)
    assert answer.code == "STATE" and str(sequence) in answer.text, answer
    barrier(crew)


@pytest.mark.parametrize("generation", [0, 2, 0xFFFFFFFF])
def test_operation_of_another_generation(serve, generation):
    served = serve()
    crew = staged(served)
    peer = crew.peers[0]
    request = peer.send("OPERATION", job=peer.job, generation=generation, sequence=0, kind=1)
    assert peer.refusal(request).code == "STALE"
    barrier(crew)


def test_staging_twice(serve):
    served = serve()
    crew = staged(served)
    peer = crew.peers[0]
    assert peer.refusal(peer.send("STAGING", job=peer.job)).code == "STATE"
    assert peer.refusal(peer.send("STAGING_MAPPED", job=peer.job)).code == "STATE"
    barrier(crew)


def test_operations_beside_steps(serve):
    """An open step and an operation do not wait for each other."""
    served = serve()
    crew = served.crew("both", 2)
    memory = [served.adopt(peer.staging()) for peer in crew.peers]
    crew.peers[0].ready(crew.plans[0][0], 0)
    for number, each in enumerate(memory):
        each.map[:16] = struct.pack("<4f", *[number + 1.0] * 4)
    requests = [peer.operation("ALLREDUCE", **whole(bytes=16)) for peer in crew.peers]
    for peer, request in zip(crew.peers, requests):
        peer.expect("OPERATION_DONE", request)
    assert all(struct.unpack("<4f", each.map[:16]) == (3.0,) * 4 for each in memory)
    crew.peers[1].ready(crew.plans[0][1], 0)
    crew.commits()
