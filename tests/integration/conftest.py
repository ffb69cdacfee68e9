# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the black-box tests: real daemons, real members, and the build they come from.

Each daemon started here is stopped with SIGTERM when its test ends and must then exit 0, without a report of
a sanitizer. What the fixtures are made of is in harness.py.
"""
import os
import pathlib
import shutil
import tempfile

import pytest

import harness
import served
from peer import small_plan
from returning import Returning
from teams import GRACE, Team


@pytest.fixture(scope="session")
def build():
    """The build directory under test."""
    path = os.environ.get("GRADSYNC_BUILD")
    if not path:
        pytest.exit("GRADSYNC_BUILD must name a build directory", returncode=4)
    path = pathlib.Path(path).resolve()
    if not (path / harness.DAEMON).exists():
        pytest.exit(f"{path} holds no {harness.DAEMON}: build it first", returncode=4)
    return path


@pytest.fixture
def scratch():
    """A short-named directory that every uid may enter: socket paths must fit into 107 bytes."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def processes():
    """Whatever a test starts and leaves running is killed when it ends."""
    started = []
    yield started
    for process in started:
        process.destroy()


@pytest.fixture
def daemon(build, scratch, processes):
    """daemon(*flags, config="", settings={}, env={}, uid=None, nofile=None, device="cpu", socket=True) -> a
    running harness.Daemon.

    `config` is the text of the configuration file, `settings` are keys to add to it. Flags are added to
    --device, --socket and --config. On teardown each daemon that the test has not ended itself must finish on
    SIGTERM with status 0; set `.expect_clean = False` on one whose end the test judges itself.
    """
    daemons = []

    def start(*flags, **options):
        made = harness.Daemon(build, scratch / f"d{len(daemons)}", *flags, **options)
        daemons.append(made)
        made.start()
        return made

    yield start
    for process in processes:           # members first: a daemon waits for open steps when it ends
        process.destroy()
    problems = []
    for made in daemons:
        try:
            made.finish()
        except AssertionError as problem:
            problems.append(str(problem))
        finally:
            made.destroy()
    assert not problems, "\n".join(problems)


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
def program(build, processes):
    """program(path in the build, *arguments, env={}, socket=None, uid=None) -> harness.Program, any of our
    programs."""

    def start(path, *arguments, **options):
        made = harness.Program(build / path, *arguments, **options)
        processes.append(made)
        return made

    return start


@pytest.fixture
def peers():
    """Adopts peers and crews: peers(thing) returns it, and closes it when the test ends."""
    adopted = []

    def adopt(thing):
        adopted.append(thing)
        return thing

    yield adopt
    for thing in adopted:
        thing.close()


@pytest.fixture
def serve(daemon, peers):
    """serve(*flags, **options) -> a served.Served: a daemon with a healthy job on it, watched for what others
    cost it.

    When the test ends, whatever else it opened is closed, the healthy job must still commit steps, and the
    daemon must hold exactly what it held at first; without the healthy job, nothing.
    """
    made = []

    def start(*flags, **options):
        made.append(served.Served(daemon(*flags, **options), peers))
        return made[-1]

    yield start
    for each in made:
        each.verify()


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
def pair(peers):
    """pair(daemon, name, buckets, uid, control) -> two Returning members of one job with a plan, no step
    begun."""
    def start(served, name="pair", buckets=2, uid=None, control=False):
        made = [peers(Returning(served.socket, uid)) for _ in range(2)]
        requests = [each.join_send(name, 2, rank, rejoin_grace_ms=0) for rank, each in enumerate(made)]
        for each, request in zip(made, requests):
            each.name, each.member = name, each.joined(request).member
        plans = [small_plan(buckets, control=control) for _ in made]
        requests = [each.plan_send(plan) for each, plan in zip(made, plans)]
        mapped = [each.plan_arena(plan, request) for each, plan, request in zip(made, plans, requests)]
        for each, request in zip(made, mapped):
            each.expect("PLAN_AGREED", request)
        return made
    return start
