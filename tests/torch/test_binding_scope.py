# SPDX-License-Identifier: Apache-2.0
"""Where the members of a job can be: an option of join(), which goes before the environment."""
import threading

import pytest

import gradsync
from clusters import Cluster
from gradsync import DType, Reduce


def test_members_of_a_host_and_of_a_cluster(daemon, build, scratch, monkeypatch):
    it = Cluster(daemon, build, f"unix:{scratch}/link")
    monkeypatch.setenv("GRADSYNC_SCOPE", "host")
    sums = {}

    def train(name, rank, place, scope):
        with gradsync.Connection(it.nodes[place].socket) as gs, \
                gs.join(name, world_size=2, rank=rank, scope=scope, timeout=30) as job:
            plan = job.plan([("x", DType.F32, (2,))], reduce=Reduce.SUM)
            gradient = memoryview(plan.gradient(0)).cast("B").cast("f")
            gradient[0] = rank + 1
            plan.ready(0)
            plan.finish()
            sums[name, rank] = gradient[0]

    for name, places, scope in (("spread", (0, 1), "cluster"), ("here", (1, 1), None),
                                ("said", (0, 0), "host")):
        members = [threading.Thread(target=train, args=(name, rank, place, scope))
                   for rank, place in enumerate(places)]
        for each in members:
            each.start()
        for each in members:
            each.join()
        assert (sums[name, 0], sums[name, 1]) == (3, 3)


def test_scopes_that_cannot_be(daemon):
    with gradsync.Connection(daemon().socket) as gs:
        with pytest.raises(gradsync.UnsupportedError, match="has no coordinator"):
            gs.join("job", world_size=1, scope="cluster")
        with pytest.raises(gradsync.InvalidError, match="scope=planet is neither 'host' nor 'cluster'"):
            gs.join("job", world_size=1, scope="planet")  # type: ignore[arg-type]
        with gs.join("job", world_size=1, scope="host") as job:
            assert job.world_size == 1
