# SPDX-License-Identifier: Apache-2.0
"""The example digits.py over two hosts with a daemon each, started on each host as a user would: the ranks of
both hosts are one job, end with the same parameters, and with those of DDP.

Hosts are network namespaces. The messages of torchrun's agents travel between them as well.
"""
import re
import sys

import pytest
import torch

from conftest import ENVIRONMENT
from harness import LONG, Program
from hosts import hosts, needed  # noqa: F401
from launch import HERE, results_of

pytestmark = [needed, pytest.mark.heavy, pytest.mark.xdist_group("hosts")]
PORT = 29500
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2"]
SCRIPT = [HERE / "over_hosts.py"]
EXAMPLE = ["digits.py", "--epochs", "1"]
NO_GRADIENT = (1, 5)                    # what a convolution adds, BatchNorm takes away


def static(it, host, ranks):
    """The first host is told to all, and no id."""
    return [*TORCHRUN, f"--node-rank={host}", f"--master-addr={it.address(0)}", f"--master-port={PORT}",
            f"--nproc-per-node={ranks // 2}"], {}


def c10d(it, host, ranks):
    """The agents meet at the first host, and decide themselves which of them begins."""
    return [*TORCHRUN, "--rdzv-backend=c10d", f"--rdzv-endpoint={it.address(0)}:{PORT}",
            f"--rdzv-conf=is_host={int(host == 0)}", f"--local-addr={it.address(host)}",
            f"--nproc-per-node={ranks // 2}"], {}


def named(it, host, ranks):
    """The same with an id."""
    command, variables = c10d(it, host, ranks)
    return [*command, "--rdzv-id=digits"], variables


def by_hand(it, host, ranks):
    """No launcher: a rank on each host, which is told who it is."""
    assert ranks == 2
    return [sys.executable], {"GRADSYNC_JOB": "digits", "GRADSYNC_WORLD_SIZE": "2",
                              "GRADSYNC_RANK": str(host)}


@pytest.fixture
def train(hosts, processes, tmp_path):  # noqa: F811
    """train(launcher, ranks, *arguments) -> (the hosts, parameters of each rank)."""
    def run(launcher, ranks, *arguments, it=None):
        it = it or hosts(2)
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        agents = []
        for host in range(2):
            command, variables = launcher(it, host, ranks)
            env = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", **variables}
            agents.append(Program(*command, *SCRIPT, folder, *EXAMPLE, *arguments, env=env,
                                  socket=it.nodes[host].socket, prefix=it.inside(host)))
            processes.append(agents[-1])
        for each in agents:
            assert each.wait(LONG) == 0, "\n".join([each.told(), *(node.log for node in it.nodes)])
        told = results_of(*(each.out for each in agents))
        assert [(each["rank"], each["world"]) for each in told] == [(rank, ranks) for rank in range(ranks)]
        return it, [torch.load(folder / f"rank{rank}.pt") for rank in range(ranks)]
    return run


def equal(some, others):
    return all(map(torch.equal, some, others))


def names(it):
    """The names of the jobs that the daemons have formed."""
    return {name for node in it.nodes
            for name in re.findall(r"formed with \d+ members \[job=(\S+)", node.log)}


@pytest.mark.parametrize("ranks", [2, 4])
def test_as_ddp(train, ranks):
    """Two ranks give DDP's bits. More ranks add in another order, and the optimiser makes steps of a
    parameter's gradient that is nothing but rounding, so those parameters are left out."""
    it, ours = train(static, ranks)
    assert all(equal(ours[0], other) for other in ours[1:])
    assert names(it) == {f"{it.address(0)}:{PORT}"}
    _, theirs = train(static, ranks, "--ddp", it=it)
    if ranks == 2:
        assert equal(ours[0], theirs[0])
    for i, (mine, other) in enumerate(zip(ours[0], theirs[0])):
        if i not in NO_GRADIENT:
            assert torch.allclose(mine, other, rtol=1e-3, atol=1e-4), (i, (mine - other).abs().max())


@pytest.mark.parametrize("launcher", [c10d, named, by_hand])
def test_launchers_name_one_job(train, launcher):
    it, ours = train(launcher, 2)
    assert equal(*ours)
    name, = names(it)
    assert name == "digits" or launcher is c10d and re.fullmatch(rf"{re.escape(it.address(0))}:\d+", name)
