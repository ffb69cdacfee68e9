# SPDX-License-Identifier: Apache-2.0
"""Steps and collectives through the package: their results, and the information about them."""
import math
import struct

import numpy
import pytest

import gradsync
from gradsync import DType, Reduce

PARAMS = [("first", DType.F32, (5,)), ("wide", DType.F64, (3, 2)), ("scalar", DType.F32, ())]
NUMPY = {DType.F32: "f4", DType.F64: "f8", DType.F16: "f2", DType.I32: "i4", DType.I64: "i8", DType.U8: "u1"}


def values(plan, param):
    return numpy.frombuffer(plan.gradient(param), NUMPY[plan.params[param].dtype])


def fill(plan, value):
    for i in range(len(plan)):
        values(plan, i)[:] = value


def step(plan, value):
    fill(plan, value)
    for i in reversed(range(len(plan))):
        plan.ready(i)
    return plan.finish()


def test_alone():
    """Without a daemon and without a launcher there is a world of one."""
    with gradsync.Connection() as gs, gs.join("alone", world_size=1) as job, job.plan(PARAMS) as plan:
        info = step(plan, 2)
        assert (job.rank, job.local_rank, job.world_size, job.name) == (0, 0, 1, "alone")
        assert info.step == 1 and info.norm == pytest.approx(math.sqrt(12 * 4))
        assert values(plan, 1).tolist() == [2] * 6
    assert repr(gs) == "<gradsync.Connection, closed>"


def test_averages(crew):
    made = crew(3)
    plans = made.plan(PARAMS)
    for number in (1, 2):
        infos = made.each(lambda r: step(plans[r], 2 * r))
        assert [info.step for info in infos] == [number] * 3
        assert {info.norm for info in infos} == {math.sqrt(12 * 4)}
        assert infos[0].bytes == plans[0].nbytes == 4 * 6 + 8 * 6
        assert infos[0].nonfinite == 0 and infos[0].nonfinite_rank is None
        for plan in plans:
            assert [values(plan, i).tolist() for i in range(3)] == [[2] * 5, [2] * 6, [2]]
    assert made.each(lambda r: (made.jobs[r].rank, made.jobs[r].world_size)) == [(0, 3), (1, 3), (2, 3)]
    assert len({job.member_id for job in made.jobs}) == 3
    assert {job.generation for job in made.jobs} == {1}
    made.each(lambda r: made.jobs[r].leave())


def test_one_member_in_an_arena_and_one_in_its_own_memory(crew):
    """Buckets are the same, also where types are mixed: no difference is found."""
    params = [(f"p{i}", (DType.F32, DType.F16, DType.F64)[i % 3], (i + 1, 7)) for i in range(20)]
    made = crew(2)
    options = {"first_bucket_bytes": 300, "bucket_bytes": 700}
    plans = made.each(lambda r: made.jobs[r].plan(params, arena=r == 1, **options))
    assert plans[0].buckets == plans[1].buckets > 6
    assert [plans[0].bucket_of(i) for i in range(20)] == [plans[1].bucket_of(i) for i in range(20)]
    made.each(lambda r: step(plans[r], 4 * r))
    for plan in plans:
        assert all((values(plan, i) == 2).all() for i in range(20))
        assert all(plan.address(i) % 64 == 0 for i in range(20))


def test_types(crew):
    made = crew(2)
    params = [(each.name, each, (2,)) for each in DType]
    plans = made.plan(params, reduce=Reduce.MAX)
    for i, dtype in enumerate(DType):
        for rank, plan in enumerate(plans):
            if dtype == DType.BF16:     # the upper half of an F32
                plan.gradient(i)[:] = [struct.unpack("<I", struct.pack("<f", rank + 1))[0] >> 16] * 2
            else:
                values(plan, i)[:] = rank + 1
    made.each(lambda r: [plans[r].ready(i) for i in range(len(params))] and plans[r].finish())
    for i, dtype in enumerate(DType):
        for plan in plans:
            if dtype == DType.BF16:
                assert list(plan.gradient(i)) == [0x4000] * 2
            else:
                assert values(plan, i).tolist() == [2, 2]


def test_absent_unused_divisor_accumulate(crew):
    made = crew(2)
    plans = made.plan(PARAMS)

    def uneven(rank):
        plan = plans[rank]
        plan.accumulate(True)
        plan.ready(0)                   # does nothing
        plan.accumulate(False)
        plan.divisor(4)
        fill(plan, 8)
        plan.ready(0)
        plan.absent(1)
        plan.ready(2) if rank == 0 else plan.absent(2)
        plan.finish()
    made.each(uneven)
    for plan in plans:
        assert [values(plan, i)[0] for i in range(3)] == [4, 0, 2]
        assert [plan.unused(i) for i in range(3)] == [False, True, False]


def test_statistics_name_who_brought_what_is_not_finite(crew):
    made = crew(2)
    plans = made.plan(PARAMS)
    bucket = plans[0].bucket_of(0)
    for who, other in ((1, 0), (0, 1)):
        fill(plans[other], 3)
        fill(plans[who], 1)
        values(plans[who], 0)[2:4] = math.nan, math.inf
        info, _ = made.each(lambda r: [plans[r].ready(i) for i in range(3)] and plans[r].finish())
        assert info.nonfinite == 2 and info.nonfinite_rank == who
        assert plans[0].bucket_stats(bucket, other) == gradsync.BucketStats(math.sqrt(6 * 9), 0)
        assert plans[0].bucket_stats(bucket, who).nonfinite == 2
        assert plans[0].bucket_stats(plans[0].bucket_of(1)) == gradsync.BucketStats(math.sqrt(6 * 4), 0)


def test_wait_gives_one_parameter_before_the_end(crew):
    made = crew(2)
    plans = made.plan(PARAMS, first_bucket_bytes=1, bucket_bytes=1)

    def early(rank):
        plan = plans[rank]
        fill(plan, rank)
        plan.ready(2)
        plan.wait(2)
        seen = values(plan, 2)[0]
        plan.ready(0), plan.ready(1)
        plan.finish()
        return seen
    assert made.each(early) == [0.5, 0.5]


def test_places_in_memory_of_ones_own(crew):
    """Parameters lie where they were put, and what lies between them is left alone."""
    made = crew(2)

    def place(rank):
        memory = made.jobs[rank].memory(8192)
        memory.buffer[:] = [7] * len(memory.buffer)
        places = [(memory, 4096), None, (memory, 64)]
        return memory, made.jobs[rank].plan(PARAMS, places=places)
    memories, plans = zip(*made.each(place))
    assert plans[0].address(0) == memories[0].address + 4096
    made.each(lambda r: step(plans[r], r))
    for memory, plan in zip(memories, plans):
        assert numpy.frombuffer(memory.buffer, "f4", 1, 64)[0] == 0.5
        assert memory.buffer[68:128] == [7] * 60
        assert values(plan, 1).tolist() == [0.5] * 6

    def give_back(rank):
        with pytest.raises(gradsync.StateError):
            memories[rank].unregister()
        plans[rank].free()
        memories[rank].unregister()
        memories[rank].unregister()
        return memories[rank].buffer[64]
    made.each(give_back)


def test_collectives(crew):
    made = crew(2)

    def all_of_them(rank):
        job = made.jobs[rank]
        job.barrier()
        told = bytearray(b"from %d" % rank)
        job.broadcast(told, root=1)
        gathered = bytearray(4)
        job.allgather(bytes([rank, 9]), gathered)
        part = numpy.zeros(2, "f4")
        job.reduce_scatter(numpy.arange(4, dtype="f4") * (rank + 1), part, DType.F32)
        whole = numpy.array([rank, 4.0])
        job.allreduce(whole, DType.F64, Reduce.AVG)
        job.allreduce(bytearray(), DType.U8)
        return bytes(told), bytes(gathered), part.tolist(), whole.tolist()
    assert made.each(all_of_them) == [(b"from 1", b"\0\x09\x01\x09", [0, 3], [0.5, 4]),
                                      (b"from 1", b"\0\x09\x01\x09", [6, 9], [0.5, 4])]


def test_memory_by_its_address(crew):
    made = crew(2)
    arrays = [numpy.full(3, rank, "i8") for rank in range(2)]
    raws = [gradsync.Raw(each.ctypes.data, each.nbytes) for each in arrays]
    made.each(lambda r: made.jobs[r].allreduce(raws[r], DType.I64))
    assert [each.tolist() for each in arrays] == [[1, 1, 1]] * 2


def test_sync_state(crew):
    made = crew(2)
    states = [(bytearray([rank] * 3), numpy.full(2, rank, "f4")) for rank in range(2)]
    steps = made.each(lambda r: made.jobs[r].sync_state(states[r], step=0))
    assert steps == [0, 0]
    assert [bytes(state[0]) for state in states] == [b"\0\0\0"] * 2
    assert states[1][1].tolist() == [0, 0]


def test_several_plans_and_jobs_over_one_connection(daemon):
    served = daemon()
    with gradsync.Connection(served.socket, program="many") as gs:
        jobs = [gs.join(name, world_size=1) for name in ("one", "two")]
        plans = [job.plan([("x", DType.F32, (n + 1,))]) for job in jobs for n in range(3)]
        assert [step(plan, 3).step for plan in plans] == [1] * 6
        assert served.status()["clients"][0]["program"] == "many"
        for job in jobs:
            job.leave()
            job.leave()
