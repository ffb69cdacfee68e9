# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with two releases: this tree's build, and that of an earlier commit."""
import os
import pathlib
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/integration"))

import harness  # noqa: E402
from clusters import STAY, Cluster  # noqa: E402
from fixtures import build, daemon, processes, scratch  # noqa: E402, F401
from releases import config_of  # noqa: E402


@pytest.fixture(scope="session")
def previous():
    """The build of the earlier commit."""
    path = pathlib.Path(os.environ["GRADSYNC_PREVIOUS"]).resolve()
    assert (path / harness.DAEMON).exists(), f"{path} holds no daemon: tests/versions/run.sh builds it"
    return path


@pytest.fixture
def cluster(daemon, build, previous, scratch):  # noqa: F811
    """cluster(coordinator, *nodes) -> a Cluster whose daemons are of these releases; True is the earlier."""
    def start(*earlier):
        releases = iter([previous if each else build for each in earlier])

        def one(config, **options):
            release = next(releases)
            return daemon(config=config_of(release, config), release=release, **options)
        return Cluster(one, build, f"unix:{scratch}/link", len(earlier) - 1, settings=STAY)
    return start


@pytest.fixture
def member(build, previous, processes):  # noqa: F811
    """member(daemon, earlier=False) -> a harness.Member, with that release's library."""
    def start(served, earlier=False, **options):
        made = harness.Member(previous if earlier else build, served.socket, **options)
        processes.append(made)
        return made
    return start
