# SPDX-License-Identifier: Apache-2.0
"""The memory of gradients stays for as long as anything refers to it, and no longer; no child has it."""
import ctypes
import gc
import os
import pathlib
import re

import numpy
import pytest

import gradsync
import harness
from gradsync import DType

BIG = 3 << 20
PARAMS = [("a", DType.F32, (BIG // 4,)), ("b", DType.F64, (100,))]


def mapped():
    """Bytes of this process's mappings of gradients."""
    gc.collect()
    spans = re.findall(r"^(\w+)-(\w+) .*/memfd:(?:python-gradients|gradsync-arena)",
                       pathlib.Path("/proc/self/maps").read_text(), re.M)
    return sum(int(end, 16) - int(start, 16) for start, end in spans)


def descriptors():
    return sorted(os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                  if os.path.exists(f"/proc/self/fd/{name}") and name.isdigit())


@pytest.fixture
def joined(daemon):
    with gradsync.Connection(daemon().socket) as gs, gs.join("memory", world_size=1) as job:
        yield job


@pytest.mark.parametrize("end", ["free", "leave", "close"])
def test_a_gradient_outlives_everything(joined, end):
    plan = joined.plan(PARAMS)
    array = numpy.frombuffer(plan.gradient(1), "f8")
    array[:] = 5
    {"free": plan.free, "leave": joined.leave, "close": joined.connection.close}[end]()
    assert (array == 5).all()
    array += 1
    assert mapped() >= BIG
    del array, plan
    assert mapped() == 0


def test_a_tensor_outlives_everything(joined):
    torch = pytest.importorskip("torch")
    plan = joined.plan(PARAMS)
    tensor = torch.frombuffer(plan.gradient(0), dtype=torch.float32).view(-1, 4)[1:]
    tensor.fill_(3)
    assert tensor.data_ptr() == plan.address(0) + 16
    plan.free()
    del plan
    assert tensor.sum() == 3 * (BIG // 4 - 4) and mapped() >= BIG
    del tensor
    assert mapped() == 0


def test_plans_that_come_and_go_leave_nothing(joined):
    """Neither mappings nor descriptors, also where a plan cannot be made."""
    joined.plan(PARAMS).free()
    before = descriptors()
    for _ in range(5):
        with joined.plan(PARAMS) as plan:
            plan.ready(0), plan.ready(1), plan.finish()
        with pytest.raises(gradsync.InvalidError):
            joined.plan(PARAMS + PARAMS)
        joined.memory(5000).unregister()
    assert descriptors() == before
    del plan
    assert mapped() == 0


def test_memory_of_the_daemon_is_not_unmapped_under_anybody(joined):
    plan = joined.plan(PARAMS, arena=True)
    array = numpy.frombuffer(plan.gradient(0), "f4")
    for end in (plan.free, joined.leave, joined.connection.close):
        with pytest.raises(BufferError, match="1 gradients of the plan are in use"):
            end()
    assert array.sum() == 0
    del array
    plan.free()
    assert mapped() == 0


def test_the_daemon_keeps_nothing_after_a_plan_is_freed(joined, daemon):
    served = daemon()
    with gradsync.Connection(served.socket) as gs, gs.join("kept", world_size=1) as job:
        with job.plan(PARAMS) as plan:
            assert "python-gradients" in served.maps()
            gradient = plan.gradient(0)
        harness.wait_until(lambda: "python-gradients" not in served.maps(), "the daemon unmapped it")
        assert gradient[0] == 0


def test_a_child_has_neither_gradients_nor_a_connection(joined):
    """Every call says so, and the parent notices nothing, also if the child collects what it inherits."""
    plan = joined.plan(PARAMS)
    address = plan.address(0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = []
        for call in (lambda: plan.ready(0), plan.finish, joined.barrier, joined.connection.dispatch,
                     plan.free, lambda: joined.memory(10), joined.leave):
            try:
                call()
                told.append("OK")
            except gradsync.GradsyncError as error:
                told.append(type(error).__name__)
        maps = pathlib.Path("/proc/self/maps").read_text()
        told.append(str("python-gradients" in maps or f"{address:x}-" in maps))
        told.append(str(joined.connection.fileno()))
        joined.connection.close()
        del plan
        gc.collect()
        told.append(str(any("memfd" in each for each in descriptors())))
        os.write(write, " ".join(told).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read().split()
    assert os.waitpid(child, 0)[1] == 0
    assert told == ["ForkedError"] * 7 + ["False", "-1", "False"]
    plan.gradient(0)[0] = 2
    plan.ready(0), plan.ready(1)
    assert plan.finish().norm == 2


def test_a_connection_that_is_forgotten_is_closed(daemon):
    served = daemon()
    with pytest.warns(ResourceWarning, match="was not closed"):
        gradsync.Connection(served.socket).join("forgotten", world_size=1).plan(PARAMS)
        gc.collect()
    assert mapped() == 0
    with gradsync.Connection(served.socket) as gs:
        gs.join("forgotten", world_size=1).leave()


def test_memory_that_others_have_mapped(joined):
    """Registered by its descriptor; mapped by the library, or by the caller."""
    fd, whole = gradsync.memory.allocate(8192)
    ours = joined.register(fd, 0, 8192, ctypes.addressof(whole))
    theirs = joined.register(fd, 0, 4096)
    assert ours.address == ctypes.addressof(whole) != theirs.address
    with pytest.raises(gradsync.StateError, match="mapped by others"):
        ours.buffer
    with joined.plan([("x", DType.F32, (4,))], places=[(ours, 4096)]) as plan:
        plan.gradient(0)[1] = 9
        assert ctypes.c_float.from_buffer(whole, 4096 + 4).value == 9
    for memory in (ours, theirs):
        memory.unregister()
    os.close(fd)


def test_padding_does_not_count(joined):
    """Old bytes between parameters count neither for the norm nor as values that are not finite."""
    memory = joined.memory(4096)
    numpy.frombuffer(memory.buffer, "f4")[:] = numpy.nan
    params = [(name, DType.F32, (3,)) for name in "abc"]
    with joined.plan(params, places=[(memory, 64 * at) for at in range(3)]) as plan:
        for at in range(3):
            numpy.frombuffer(plan.gradient(at), "f4")[:] = 2
            plan.ready(at)
        info = plan.finish()
    assert (info.norm, info.nonfinite) == (6, 0)
