# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with Prometheus' own programs: the programs, and metrics of daemons of all kinds."""
import pathlib
import subprocess
import sys

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/integration"))

import debian  # noqa: E402
import harness  # noqa: E402
from clusters import STAY, Cluster  # noqa: E402
from fixtures import build, daemon, machine, peers, processes, program, scratch  # noqa: E402,F401
from trainers import crew, step  # noqa: E402


@pytest.fixture(scope="session")
def tools():
    return debian.tools()


@pytest.fixture(scope="session")
def promtool(tools):
    """promtool(*arguments, input=None) -> its output; it must succeed."""
    def run(*arguments, **options):
        done = subprocess.run([tools.promtool, *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, check=False, timeout=harness.DEADLINE,
                              **({} if "input" in options else {"stdin": subprocess.DEVNULL}), **options)
        assert done.returncode == 0, done.stdout
        return done.stdout
    return run


@pytest.fixture
def member(build, processes):  # noqa: F811
    """member(daemon, *arguments) -> harness.Member, a trainer on the public API."""
    def start(served, *arguments, **options):
        processes.append(harness.Member(build, served.socket, *arguments, **options))
        return processes[-1]
    return start


@pytest.fixture
def texts(build, machine, member, request, scratch):  # noqa: F811
    """The metrics of three daemons: one of a cluster with a job, its coordinator, and one with a GPU."""
    daemon = request.getfixturevalue("daemon")  # noqa: F811  it starts in that machine
    cluster = Cluster(daemon, build, f"unix:{scratch}/link", settings=STAY, nodes=1)
    gpu = daemon(device="cuda:0")
    step(crew(member, cluster.nodes[0], 2))
    return [served.ctl("metrics") for served in (cluster.nodes[0], cluster.coordinator, gpu)]
