# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with a machine of its own: what is installed, the root, the booted machine.

There is one machine for all tests, and another one for those over two. Each is set up once, by the very
commands of the README, and each test finds it with no daemon running and without the settings of another
test.
"""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/integration"))

import fakes  # noqa: E402
import machine as machines  # noqa: E402
import root as roots  # noqa: E402
from staging import Staging  # noqa: E402

CACHE = SOURCE / "build-test/systemd"
MEMBER = "/opt/trainers/member"
INSTANCES = ("cpu", "cpu:two", *(f"cuda:{number}" for number in range(fakes.GPUS)))


def pytest_collection_modifyitems(items):
    """A test looks at the results of the README's commands before another test changes them."""
    items.sort(key=lambda item: "machine" in item.fixturenames)


@pytest.fixture(scope="session")
def build():
    """The build directory under test."""
    path = pathlib.Path(os.environ["GRADSYNC_BUILD"]).resolve()
    assert (path / "daemon/core/gradsyncd").exists(), f"{path} holds no daemon: build it first"
    return path


@pytest.fixture(scope="session")
def staging(build, tmp_path_factory):
    """The files that `meson install` puts into a staging directory."""
    return Staging(build, tmp_path_factory.mktemp("staging") / "root")


def readme_commands():
    """The lines of "Installing it" that come after the installation itself, without their comments."""
    text = (SOURCE / "README.md").read_text("utf-8")
    block = re.search(r"^## Installing it\n\n```sh\n(.*?)^```$", text, re.S | re.M)[1].splitlines()
    (last,) = [i for i, line in enumerate(block) if "meson install" in line]
    assert block[0].startswith("apt install ") and len(block) > last + 3
    return [line.split("   #")[0].strip() for line in block[last + 1:]]


def discard(folder):
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)


@pytest.fixture(scope="session")
def shared():
    """A folder that all machines have as machines.SHARED."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for left in CACHE.glob("machine-*"):                # by a run that was killed
        discard(left)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="machine-", dir=CACHE))
    folder.chmod(0o755)
    yield folder
    discard(folder)


@contextlib.contextmanager
def booted(staging, shared, hostname):
    """A machine that gradsync has been copied to, and on which nothing else has been done."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="machine-", dir=CACHE))
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    roots.unpack(CACHE, folder / "root")
    made = machines.Machine(folder, scratch, shared, hostname)
    try:
        staging.copy_to(made.root)
        trainers = made.root / MEMBER.lstrip("/")
        trainers.parent.mkdir()
        shutil.copy2(staging.build / "tests/integration/member", trainers)
        staging.compile(SOURCE / "client/examples/hello.c", trainers.parent / "hello")
        made.boot()
        for user in ("alice", "bob", "mallory"):
            made.run("useradd", "--create-home", user)
        yield made
        made.power_off()
    finally:
        made.destroy()
        discard(folder)
        discard(scratch)


@pytest.fixture(scope="session")
def bare(staging, shared):
    if os.geteuid() != 0:
        pytest.fail("only root can boot a machine: run this as root")
    with booted(staging, shared, "node") as made:
        yield made


def install(made):
    """Does what the README says. `.said` has the commands' outputs."""
    made.said = {line: made.run("sh", "-ec", line) for line in readme_commands()}
    return made


@pytest.fixture(scope="session")
def installed(bare):
    """The machine after its administrator did what the README says."""
    return install(bare)


@pytest.fixture(scope="session")
def other_installed(bare, staging, shared):
    """Another one."""
    with booted(staging, shared, "other") as made:
        yield install(made)


@contextlib.contextmanager
def cleaned(made):
    """The machine with nothing of gradsync running, and afterwards again."""
    def clean():
        units = [f"gradsyncd@{instance}.{kind}" for instance in INSTANCES for kind in ("socket", "service")]
        units += ["gradsyncd-coordinator.socket", "gradsyncd-coordinator.service"]
        made.systemctl("stop", *units)
        made.systemctl("disable", "--quiet", *units)
        made.systemctl("reset-failed", "gradsyncd@*", "gradsyncd-coordinator*", check=False)
        shutil.rmtree(made.root / "etc/gradsync", ignore_errors=True)
        shutil.rmtree(made.root / "etc/systemd/system/gradsyncd@.service.d", ignore_errors=True)
        made.systemctl("daemon-reload")

    clean()
    yield made
    clean()


@pytest.fixture
def machine(installed):
    with cleaned(installed) as made:
        yield made


@pytest.fixture
def other_machine(other_installed):
    with cleaned(other_installed) as made:
        yield made


@pytest.fixture
def trainers(machine):
    """trainers(user, count, on=machine, **environment) -> members that read commands; killed when the test
    ends."""
    started = []

    def start(user, count, on=machine, **env):
        made = [on.start(MEMBER, user=user, env=env) for _ in range(count)]
        started.extend(made)
        return made

    yield start
    for each in started:
        each.destroy()
