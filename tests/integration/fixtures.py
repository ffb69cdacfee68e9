# SPDX-License-Identifier: Apache-2.0
"""The fixtures that know nothing but processes: the build under test, a place for files, daemons, programs.

They are those of other folders of tests, too. Each daemon started here is stopped with SIGTERM when its test
ends and must then exit 0, without a report of a sanitizer.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import gpus
import harness


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
    """Processes that a test adds to this list are killed when it ends."""
    started = []
    yield started
    for process in started:
        process.destroy()


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
def machine(build, scratch, monkeypatch):
    """A machine with a fake GPU, for all processes that the test starts. No rule of the GPU may be broken."""
    for name, value in gpus.settings(build, scratch).items():
        monkeypatch.setenv(name, value)
    yield
    gpus.check_rules(scratch)


@pytest.fixture
def nothing_left(machine, build):
    """A test asks for this before members and daemons, since it looks when these have ended."""
    yield
    gpus.check_nothing_left(build)


@pytest.fixture
def daemon(build, scratch, processes, request):
    """daemon(*flags, config="", settings={}, env={}, uid=None, nofile=None, device="cpu", socket=True,
    release=build) -> a running harness.Daemon.

    `config` is the text of the configuration file, `settings` are keys to add to it; `release` is another
    build whose daemon it is. Flags are added to --device, --socket and --config.
    On teardown each daemon that the test has not ended itself must finish on
    SIGTERM with status 0; set `.expect_clean = False` on one whose end the test judges itself.
    """
    daemons = []
    if gpus.everywhere:
        request.getfixturevalue("machine")
        request.getfixturevalue("monkeypatch").setenv("MEMBER_CUDA", "complete")

    def start(*flags, release=build, **options):
        if gpus.everywhere:
            options.setdefault("device", "cuda:0")
        made = harness.Daemon(release, scratch / f"d{len(daemons)}", *flags, **options)
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
def program(build, processes):
    """program(path in the build, *arguments, env={}, socket=None, uid=None) -> harness.Program, any of our
    programs."""

    def start(path, *arguments, **options):
        made = harness.Program(build / path, *arguments, **options)
        processes.append(made)
        return made

    return start


@pytest.fixture
def ctl(program):
    """ctl(*arguments, code=0, **options) -> the ended gradsyncctl, its exit status checked (None: any)."""

    def run(*arguments, code=0, **options):
        made = program(harness.CTL, *arguments, stdin=subprocess.DEVNULL, **options)
        status = made.wait()
        assert code in (status, None), f"gradsyncctl {arguments} ended with {status}: {made.out}{made.err}"
        assert not harness.SANITIZER.search(made.err), made.err
        return made

    return run
