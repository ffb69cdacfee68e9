# SPDX-License-Identifier: Apache-2.0
"""Each kind of mistake raises an exception of its own class, which names the object that it is about."""
import os
import subprocess
import sys

import numpy
import pytest

import gradsync
from conftest import PACKAGE
from gradsync import DType, Reduce

ONE = [("x", DType.F32, (2,))]


@pytest.fixture
def alone():
    with gradsync.Connection() as gs, gs.join("alone", world_size=1) as job:
        yield job


def test_no_daemon(scratch):
    with pytest.raises(gradsync.NoDaemonError, match=f"{scratch}/nothing") as raised:
        gradsync.Connection(scratch / "nothing")
    assert raised.value.result is gradsync.Result.NO_DAEMON
    assert raised.value.rank is raised.value.pid is raised.value.parameter is None


def test_without_torch(scratch):
    """An interpreter without other packages than its own: the package works, what needs torch says so."""
    def run(code):
        return subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False,
                              env=os.environ | {"PYTHONPATH": str(PACKAGE)})

    trained = run("import gradsync\n"
                  "with gradsync.Connection() as gs, gs.join('alone', world_size=1) as job:\n"
                  "    print(job.world_size, gradsync.library_version())")
    assert trained.stdout == f"1 {gradsync.library_version()}\n", trained.stderr
    for code in ("import gradsync.torch", "import gradsync; gradsync.State"):
        refused = run(code)
        assert refused.returncode == 1
        assert "ImportError: gradsync.torch needs PyTorch, which is not installed" in refused.stderr


def test_names_and_shapes(alone):
    for name, shape in (("", (1,)), ("a\0b", (1,)), ("\udcff", (1,)), ("x" * 256, ()), ("x", (2, 0)),
                        ("x", (-1,)), ("x", (1,) * 9), ("x", (1 << 62,))):
        with pytest.raises(gradsync.InvalidError) as raised:
            alone.plan([("fine", DType.F32, (1,)), (name, DType.F32, shape)])
        assert isinstance(raised.value, ValueError)
        assert raised.value.parameter == name
    with pytest.raises(gradsync.InvalidError, match='"x"') as raised:
        alone.plan(ONE + ONE)
    assert raised.value.parameter == "x"
    with pytest.raises(ValueError):
        alone.plan([("x", 99, (1,))])
    with pytest.raises(gradsync.InvalidError):
        alone.plan([("x", DType.I32, (1,))], reduce=Reduce.AVG)
    with pytest.raises(gradsync.StateError, match="needs parameters"):
        alone.plan([])
    with alone.plan(ONE) as plan:                               # nothing of all that is left
        assert plan.nbytes == 8


def test_marks(alone):
    with alone.plan([*ONE, ("y", DType.F32, ())]) as plan:
        plan.ready(0)
        with pytest.raises(gradsync.StateError, match='"x" is marked ready already') as raised:
            plan.ready(0)
        assert raised.value.parameter == "x"
        with pytest.raises(gradsync.StateError, match='1 of 2 parameters .* "y"') as raised:
            plan.finish()
        assert raised.value.parameter == "y"
        with pytest.raises(gradsync.InvalidError):
            plan.ready(2)
        with pytest.raises(gradsync.StateError, match="step 1"):
            plan.free()
        plan.absent(1)
        plan.finish()


def test_after_the_end(alone):
    plan = alone.plan(ONE)
    memory = alone.memory(100)
    plan.free()
    plan.free()
    for call in (plan.finish, lambda: plan.ready(0), lambda: plan.absent(0), lambda: plan.wait(0),
                 lambda: plan.gradient(0), lambda: plan.accumulate(True), lambda: plan.divisor(1)):
        with pytest.raises(gradsync.StateError, match="freed"):
            call()
    other = alone.plan(ONE)
    alone.leave()
    with pytest.raises(gradsync.StateError, match="left"):
        other.ready(0)
    for call in (alone.barrier, lambda: alone.plan(ONE), lambda: alone.memory(1)):
        with pytest.raises(gradsync.StateError, match="left"):
            call()
    memory.unregister()
    assert "left" in repr(alone) and "freed" in repr(plan)
    alone.connection.close()
    alone.connection.close()
    for call in (alone.connection.join, alone.connection.dispatch):
        with pytest.raises(gradsync.StateError, match="closed"):
            call()


def test_buffers(alone):
    with pytest.raises(BufferError):
        alone.broadcast(b"cannot be written")
    with pytest.raises(ValueError, match="contiguous"):
        alone.broadcast(numpy.zeros((4, 4))[:, 1])
    with pytest.raises(TypeError):
        alone.broadcast("text")
    with pytest.raises(gradsync.InvalidError, match="7 bytes are no whole number of F32"):
        alone.allreduce(bytearray(7), DType.F32)
    with pytest.raises(gradsync.InvalidError, match="3 bytes are not 1 times 2"):
        alone.allgather(b"ab", bytearray(3))
    with pytest.raises(gradsync.InvalidError, match="rank 1 of 1"):
        alone.broadcast(bytearray(1), root=1)


def test_members_that_differ(crew):
    made = crew(2)

    def differ(rank):
        with pytest.raises(gradsync.PlanMismatchError) as raised:
            made.jobs[rank].plan([("same", DType.F32, (3,)), ("weight", DType.F32, (3, rank + 1))])
        return raised.value
    told = made.each(differ)
    for error in told:
        assert error.rank in (0, 1) and f"rank {error.rank}" in str(error)
        assert error.pid == os.getpid()
        assert error.parameter == "weight"
        assert '"weight"' in str(error)
    plans = made.plan(ONE)              # the job goes on
    made.each(lambda r: plans[r].ready(0) or plans[r].finish())


def test_rank_taken_full_and_late(crew):
    made = crew(2)
    with gradsync.Connection(made.daemon.socket) as other:
        for rank in (0, 1):
            with pytest.raises(gradsync.RankTakenError) as raised:
                other.join("crew", world_size=2, rank=rank)
            assert (raised.value.rank, raised.value.pid) == (rank, os.getpid())
        with pytest.raises(gradsync.TimedOutError, match="missing ranks 1") as raised:
            other.join("late", world_size=2, rank=0, timeout=0.05)
        assert isinstance(raised.value, TimeoutError)
        with pytest.raises(TypeError):
            other.join("x", world_size=2, max_world=3)
        with pytest.raises(gradsync.InvalidError):
            other.join("sla/sh", world_size=1)
    with gradsync.Connection(made.daemon.socket) as other, other.join("free", world_size=1):
        with gradsync.Connection(made.daemon.socket) as another, pytest.raises(gradsync.JobFullError):
            another.join("free", world_size=1)


def test_memory_that_cannot_be_registered(alone):
    fd = os.memfd_create("loose")
    os.ftruncate(fd, 4096)
    with pytest.raises(gradsync.InvalidError, match="seal"):
        alone.register(fd, 0, 4096)
    os.close(fd)
    with pytest.raises(gradsync.InvalidError):
        alone.memory(0)


def test_the_scope_of_a_job(daemon, monkeypatch):
    """The option goes before the environment."""
    monkeypatch.setenv("GRADSYNC_SCOPE", "cluster")
    with gradsync.Connection(daemon().socket) as gs:
        with pytest.raises(gradsync.UnsupportedError, match="has no coordinator"):
            gs.join("job", world_size=1)
        with pytest.raises(gradsync.InvalidError, match="scope=planet is neither 'host' nor 'cluster'"):
            gs.join("job", world_size=1, scope="planet")  # type: ignore[arg-type]
        with gs.join("job", world_size=1, scope="host") as job:
            assert job.world_size == 1


@pytest.mark.parametrize("library, words", [
    ("/nowhere/libgradsync.so.0", ["/nowhere/libgradsync.so.0", "GRADSYNC_LIBRARY"]),
    ("libc.so.6", ["libc.so.6 is too old: it has no gradsync_"])], ids=["missing", "lacks a function"])
def test_a_library_of_no_use(script, library, words):
    """The package imports all the same, and the first call says what was looked for."""
    made = script("""
        import gradsync
        try:
            gradsync.Connection()
        except gradsync.LibraryNotFoundError as error:
            print(isinstance(error, ImportError), error)
    """, env={"GRADSYNC_LIBRARY": library})
    line = made.line()
    assert made.wait() == 0, made.err
    assert line.startswith("True ") and all(word in line for word in words), line
