# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the Python package: real daemons, as in tests/integration, and members in this
process or in others.

Most tests have all members of a job in this process, each over a connection of its own, driven by a thread of
its own (Crew). Tests about processes start them (script).
"""
import concurrent.futures
import os
import pathlib
import sys
import textwrap

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = TREE / "client/python"
BUILD = pathlib.Path(os.environ.get("GRADSYNC_BUILD", TREE / "build-test/gcc")).resolve()
LIBRARY = BUILD / "client/lib/libgradsync.so.0"
os.environ["GRADSYNC_BUILD"] = str(BUILD)
os.environ["OMP_NUM_THREADS"] = "1"     # of torch, here and in each process that a test starts
os.environ["GRADSYNC_LIBRARY"] = str(LIBRARY)
sys.path[:0] = [str(PACKAGE), str(TREE / "tests/integration")]

import harness  # noqa: E402
import launch  # noqa: E402
from fixtures import build, daemon, processes, scratch  # noqa: E402,F401

#: For each Python process that a test starts.
ENVIRONMENT = {"PYTHONPATH": str(PACKAGE), "GRADSYNC_LIBRARY": str(LIBRARY), "PYTHONUNBUFFERED": "1",
               "PYTHONDONTWRITEBYTECODE": "1"}


def pytest_collection_finish(session):
    """Groups (launch.py) run the cases that were chosen, and no others."""
    chosen = {}
    for item in session.items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if "group" in params:
            chosen.setdefault(params["group"], set()).add(params["case"])
    for group, names in chosen.items():
        group.chosen = [name for name in group.names if name in names]


@pytest.fixture
def script(processes):  # noqa: F811
    """script(text, *arguments, socket=…, env={}) -> harness.Program: this Python runs the text."""
    def start(text, *arguments, env=None, **options):
        made = harness.Program(sys.executable, "-c", textwrap.dedent(text), *arguments,
                               env={**ENVIRONMENT, **(env or {})}, **options)
        processes.append(made)
        return made
    return start


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The results of a training in which no rank is lost. Trainings with losses must end with the same."""
    return launch.trained(tmp_path_factory.mktemp("lives"))


class Crew:
    """Members of one job, each with a thread of its own."""

    def __init__(self, socket, world, name="crew", join=None, **options):
        import gradsync
        self.threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in range(world)]
        self.connections = [gradsync.Connection(socket, **options) for _ in range(world)]
        options = {"world_size": world, **(join or {})}
        self.jobs = self.each(lambda r: self.connections[r].join(name, rank=r, **options))

    def begin(self, rank, function, *arguments):
        """A future of function(rank, …) in the member's thread."""
        return self.threads[rank].submit(function, rank, *arguments)

    def each(self, function):
        """function(rank) of all members at once; their results."""
        begun = [self.begin(rank, function) for rank in range(len(self.threads))]
        return [future.result(harness.DEADLINE) for future in begun]

    def plan(self, params, **options):
        return self.each(lambda r: self.jobs[r].plan(params, **options))

    def close(self):
        for connection in self.connections:
            connection.close()
        for thread in self.threads:
            thread.shutdown()


@pytest.fixture
def crew(daemon):  # noqa: F811
    """crew(world, settings={}, …) -> Crew on a daemon of its own, which is `.daemon`."""
    made = []

    def start(world=2, settings=None, served=None, **options):
        served = served or daemon(settings=settings)
        made.append(Crew(served.socket, world, **options))
        made[-1].daemon = served
        return made[-1]

    yield start
    for each in made:
        each.close()
