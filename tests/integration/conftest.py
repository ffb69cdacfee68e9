# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the black-box tests: real daemons, real members, and the build they come from.

Fixtures that need no more than processes are in fixtures.py; their parts are in harness.py.
"""
import pytest

import gpus
import harness
from clusters import Cluster
from fake import FakeDaemon
from fixtures import build, ctl, daemon, machine  # noqa: F401
from fixtures import nothing_left, peers, processes, program, scratch  # noqa: F401
from memory_group import MemoryGroup
from peer import agree, form, small_plan
from returning import Returning
from running import Runner
from served import Served
from targets import Target
from teams import GRACE, Team


def pytest_addoption(parser):
    parser.addoption("--on-gpu", action="store_true", help="daemons serve a fake GPU; see gpus.py")


def pytest_configure(config):
    gpus.everywhere = config.getoption("on_gpu")


def pytest_collection_modifyitems(config, items):
    marks = [mark for mark, apply in (("host", gpus.everywhere), ("fake", gpus.hardware)) if apply]
    left = [item for item in items if any(map(item.get_closest_marker, marks))]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture
def served(daemon):
    """A daemon with the usual settings."""
    return daemon()


@pytest.fixture
def member(build, processes):
    """member(daemon, *arguments, env={}, uid=None) -> harness.Member: the test's own trainer, driven line by
    line."""

    def start(daemon, *arguments, **options):
        made = harness.Member(build, daemon.socket, *arguments, **options)
        processes.append(made)
        return made

    return start


@pytest.fixture
def gpu(machine, monkeypatch, request):
    """gpu(device="cuda:0", **options) -> a daemon that serves a GPU. Members that are started keep their
    gradients there."""
    daemon = request.getfixturevalue("daemon")  # after the machine
    monkeypatch.setenv("MEMBER_CUDA", "1")
    return lambda device="cuda:0", **options: daemon(device=device, **options)


@pytest.fixture
def fake(scratch, peers):
    """fake(name="socket", kind=FakeDaemon, **options) -> a daemon that the test plays, closed when the test
    ends."""
    return lambda name="socket", kind=FakeDaemon, **options: peers(kind(scratch / name, **options))


@pytest.fixture
def cluster(daemon, build, scratch):
    """cluster(nodes=2, **options) -> a Cluster whose daemons meet over a Unix socket."""
    return lambda nodes=2, **options: Cluster(daemon, build, f"unix:{scratch}/link", nodes, **options)


@pytest.fixture
def runner(build, program, scratch):
    """gradsyncctl run: see running.py."""
    return Runner(build, program, scratch)


@pytest.fixture
def group():
    """A memory cgroup for a daemon. Tests that need it have the mark `cgroup`."""
    made = MemoryGroup()
    if made.path is None:
        pytest.skip("no memory cgroup can be made here")
    yield made
    made.close()


@pytest.fixture
def serve(daemon, peers):
    """serve(*flags, **options) -> a Served: a daemon with a healthy job on it, watched for what others
    cost it.

    When the test ends, whatever else it opened is closed, the healthy job must still commit steps, and the
    daemon must hold exactly what it held at first; without the healthy job, nothing.
    """
    made = []

    def start(*flags, **options):
        made.append(Served(daemon(*flags, **options), peers))
        return made[-1]

    yield start
    for each in made:
        each.verify()


@pytest.fixture
def watched(serve):
    """serve() with the usual settings."""
    return serve()


@pytest.fixture
def team(member, daemon, build):
    def start(settings=None, **options):
        served = daemon(settings=GRACE if settings is None else settings)

        def one(daemon_):
            made = member(daemon_)
            made.build_ctl = build / harness.CTL
            return made
        return Team(one, served, **options)
    return start


@pytest.fixture
def trio(team):
    """A team of three whose lost members have time to be replaced."""
    return team()


@pytest.fixture
def pair(peers):
    """pair(daemon, name, token) -> two Returning members of one job with a plan of two buckets, no step
    begun."""
    def start(served, name="pair", token=None):
        made = form([peers(Returning(served.socket)) for _ in range(2)], name, rejoin_grace_ms=0, token=token)
        agree(made, [small_plan(2) for _ in made])
        return made
    return start


@pytest.fixture
def target(daemon, build, scratch, member):
    """target(**options) -> a Target, whose job has to be undisturbed until the test ends."""
    made = []

    def start(**options):
        made.append(Target(daemon, build, scratch, member, **options))
        return made[-1]

    yield start
    for each in made:
        each.undisturbed()
