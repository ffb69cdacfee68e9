# SPDX-License-Identifier: Apache-2.0
"""Ranks on two GPUs with a daemon each. A PyTorch without CUDA has no tensors on a GPU, fake or not, so this
is in two halves: the package on fake GPUs and a fake NCCL, without PyTorch; and the two lines with
gradients that are lent and marked as on a GPU, but lie in memory of the host, over two daemons."""
import sys

import pytest

import launch
from clusters import Cluster
from fixtures import machine, nothing_left  # noqa: F401
from harness import Program
from test_binding_gpu import DRIVER

NCCL = "tests/fakes/nccl/libnccl.so.2"
CASES = "mlp.streams unused_by_some.streams accumulation.streams"

RANK = DRIVER + """
rank = int(os.environ["GRADSYNC_RANK"])
Driver().make_current(rank)
with gradsync.Connection() as gs, gs.join() as job:
    assert gs.device.name == f"cuda:{rank}" and gs.device.ordinal == rank
    memory = job.memory(8000)       # as gradsync.torch has its gradients
    with job.plan([("a", DType.F32, (1000,)), ("b", DType.F32, (7,))],
                  places=[(memory, 0), (memory, 4096)]) as plan:
        gradients = plan.gradient(0), plan.gradient(1)
        with gs.join(f"own{rank}", world_size=1, scope="host") as own:
            for number in range(1, 4):
                for i, each in enumerate(gradients):
                    own.allgather(array.array("f", [number * (rank + 1.)]) * each.elements,
                                  Raw(each.address, each.nbytes))
                    plan.ready_on(i, 0)
                assert plan.finish().step == number
                for each in gradients:
                    host = array.array("f", [0.]) * each.elements
                    own.allgather(Raw(each.address, each.nbytes), host)
                    assert set(host) == {number * 1.5}, (number, set(host))
        del gradients, each
    memory.unregister()
    job.barrier()       # the other one is done with its plan before this one leaves
"""


def place(rank):
    return {"GRADSYNC_JOB": "two", "GRADSYNC_WORLD_SIZE": "2", "GRADSYNC_RANK": str(rank)}


@pytest.fixture
def gpus(machine, nothing_left, daemon, build, scratch, monkeypatch):  # noqa: F811
    """Where the library looks for the daemons of both GPUs, which are one cluster."""
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    cluster = Cluster(daemon, build, f"unix:{scratch}/link", 0, common={"nccl_library": build / NCCL})
    for device in ("cuda:0", "cuda:1"):
        folder = scratch / "user/gradsync" / device
        folder.mkdir(parents=True)
        (folder / "socket").symlink_to(cluster.add(device=device).socket)
    return {"XDG_RUNTIME_DIR": str(scratch / "user"), "GRADSYNC_SOCKET": ""}


def test_each_rank_finds_the_daemon_of_its_gpu(gpus, script):
    """And the averages are those over both."""
    ranks = [script(RANK, env={**gpus, **place(rank)}) for rank in range(2)]
    for each in ranks:
        assert each.wait() == 0, each.told()


@pytest.mark.heavy
def test_three_lines_as_on_a_gpu_over_two_daemons(daemon, build, scratch, processes):
    cluster = Cluster(daemon, build, f"unix:{scratch}/link", 2)
    ranks = [Program(sys.executable, "-u", launch.HERE / "worker.py", scratch, *CASES.split(),
                     env=launch.environment(GRADSYNC_SOCKET=node.socket, **place(rank)))
             for rank, node in enumerate(cluster.nodes)]
    processes.extend(ranks)
    for each in ranks:
        assert each.wait(launch.DEADLINE) == 0, each.told()
    launch.check_cases(CASES.split(), *(each.out for each in ranks))
