# SPDX-License-Identifier: Apache-2.0
"""Ranks on different daemons, with layers that are used now and then: as with PyTorch's DDP, and so as on one
daemon."""
import json
import sys
import textwrap

import pytest

import harness
import launch
from clusters import Cluster

pytestmark = pytest.mark.heavy
CASES = ("unused_by_some unused_by_some.f64 unused_by_all unused_by_all.f64 unused_keeps_zeros "
         "unused_all_used unused_output unused_not_cleared unused_shared undefined_gradients "
         "accumulation_with_unused uneven_from_nothing static_unused_by_some")

# Two branches; which of them a rank uses changes from step to step.
BRANCHES = """
    import hashlib
    import json
    import os
    import torch
    import gradsync.torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = torch.nn.Linear(4, 4)
            self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x, used):
            x = self.trunk(x)
            for branch in used:
                x = x + getattr(self, branch)(x)
            return x

    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank = int(os.environ["GRADSYNC_RANK"])
    model = gradsync.torch.DistributedDataParallel(Model(), find_unused_parameters=True, bucket_cap_mb=1e-5)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    unset, grads = [], []
    for step, users in enumerate(({}, {"one": [0]}, {"one": [2], "two": [0, 1]}, {"two": [2]}, {},
                                  {"one": [0, 1, 2], "two": [0, 1, 2]})):
        optimiser.zero_grad()
        model(torch.full((2, 4), 1.0 + rank + step), [b for b in users if rank in users[b]]).sum().backward()
        unset.append([getattr(model.module, b).weight.grad is None for b in ("one", "two")])
        assert model.module.trunk.weight.grad is not None
        optimiser.step()
    state = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    print(json.dumps({"unset": unset, "state": hashlib.sha256(state).hexdigest()}), flush=True)
"""
UNSET = [[True, True], [False, True], [False, False], [True, False], [True, True], [False, False]]


@pytest.fixture
def ranks(daemon, build, scratch, processes):
    """ranks(places, *command) runs the ranks of a job, each on the daemon that `places` names, and returns
    their outputs."""
    def start(places, *command):
        cluster = Cluster(daemon, build, f"unix:{scratch}/link", max(places) + 1)
        started = [harness.Program(sys.executable, *command, socket=cluster.nodes[place].socket,
                                   env=launch.environment(GRADSYNC_JOB="job", GRADSYNC_RANK=str(rank),
                                                          GRADSYNC_WORLD_SIZE=str(len(places)),
                                                          GRADSYNC_SOCKET=cluster.nodes[place].socket))
                   for rank, place in enumerate(places)]
        processes.extend(started)
        for each in started:
            assert each.wait(launch.DEADLINE) == 0, each.told()
        return [each.out for each in started]
    return start


@pytest.mark.parametrize("how", ["", "start", "begins", "values"])
def test_a_rank_on_another_host_is_replaced(daemon, build, scratch, processes, how):
    """In the middle, after the others have planned again, or while all begin: that they do is proved there,
    once more after the loss."""
    cluster = Cluster(daemon, build, f"unix:{scratch}/link", ["a", "b"], settings={"rejoin_grace": "1h"})

    def start(rank):
        socket = cluster.nodes[rank].socket
        env = launch.environment(GRADSYNC_JOB="job", GRADSYNC_RANK=str(rank), GRADSYNC_WORLD_SIZE="2")
        made = harness.Program(sys.executable, launch.HERE / "recovering.py", scratch, 1, 1, how,
                               socket=socket, env={**env, "GRADSYNC_SOCKET": socket})
        processes.append(made)
        return made
    first, lost = start(0), start(1)
    assert lost.wait(launch.DEADLINE) == -9, lost.told()
    second = start(1)
    for each in (first, second):
        assert each.wait(launch.DEADLINE) == 0, each.told()
    results = launch.results_of(first.out, second.out)
    assert [(each["rank"], each["life"]) for each in results] == [(0, 0), (1, 1)]
    assert len({(each["count"], each["trained"]) for each in results}) == 1


def test_layers_without_a_gradient(ranks, scratch):
    folder = scratch / "cases"
    folder.mkdir()
    command = ["-u", str(launch.HERE / "worker.py"), str(folder), *CASES.split()]
    launch.check_cases(CASES.split(), *ranks([0, 1], *command))


def test_a_group(ranks, scratch):
    """torch.distributed on the backend "gradsync"."""
    folder = scratch / "cases"
    folder.mkdir()
    names = "reductions sparse copies scattered_sums all_to_all objects later groups wrapped sharded".split()
    command = ["-u", str(launch.HERE / "group.py"), str(folder), *names]
    launch.check_cases(names, *ranks([0, 1, 1], *command))


def test_grad_stays_none_where_no_rank_on_any_daemon_used_it(ranks):
    said = [json.loads(out) for out in ranks([0, 0, 1], "-c", textwrap.dedent(BRANCHES))]
    assert [each["unset"] for each in said] == [UNSET] * 3
    assert len({each["state"] for each in said}) == 1
