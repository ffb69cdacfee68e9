# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed into an empty virtual environment on a machine that has nothing of ours: a bare Debian
with Python, in which the libraries that the wheel brings are deleted besides."""
import configparser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import pytest

from conftest import PACKAGE, TREE
from harness import FOREIGN

sys.path.insert(0, str(TREE / "tests/systemd"))

import root as roots  # noqa: E402

# One root for all.
pytestmark = pytest.mark.xdist_group("wheel")

CACHE = TREE / "build-test/torch-root"
PACKAGES = ("python3", "python3-venv")
TRAIN = '''
import os
import gradsync
with gradsync.Connection() as gs, gs.join() as job:
    plan = job.plan([("weight", gradsync.DType.F32, (1000,))])
    for step in range(1, 4):
        plan.gradient(0)[:] = [float(job.rank * step)] * 1000
        plan.ready(0)
        plan.finish()
        print(f"step {step}: {plan.gradient(0)[999]}")
print("environment", os.environ["RANK"], os.environ["WORLD_SIZE"])
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if "libgradsync" in line}))
'''
# /dev and /proc of this machine, no network, and no process that outlives the command.
INSIDE = ('mount --make-rprivate /; mount --rbind /dev "$1/dev"; mount -t proc proc "$1/proc"; '
          'exec chroot "$1" sh -ec "$2"')


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built by pip."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "-w", folder,
                           PACKAGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made, = folder.glob("*.whl")
    return made


class Bare:
    """The root, and commands in it."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, command, code=0):
        clean = {name: value for name, value in os.environ.items()
                 if not FOREIGN.match(name) and not name.startswith(("PYTHON", "PIP_", "GRADSYNC_"))}
        clean.update(PATH="/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root")
        done = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-ec",
                               INSIDE, "sh", str(self.folder), command], stdin=subprocess.DEVNULL, env=clean,
                              capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


def libraries_of(wheel):
    """Names of the libraries that the wheel brings, such as libjansson.so.4."""
    with zipfile.ZipFile(wheel) as opened:
        names = map(pathlib.PurePath, opened.namelist())
        return {name.name for name in names if name.parent == pathlib.PurePath("gradsync/_bundle/lib")}


@pytest.fixture(scope="module")
def bare(wheel):
    """A bare root with the wheel installed."""
    if os.geteuid() != 0:
        pytest.fail("only root can enter a root of its own: run this as root")
    CACHE.mkdir(parents=True, exist_ok=True)
    for left in CACHE.glob("bare-*"):                   # by a run that was killed
        shutil.rmtree(left)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bare-", dir=CACHE))
    try:
        roots.unpack(CACHE, folder / "root", PACKAGES)
        made = Bare(folder / "root")
        for name in libraries_of(wheel) - {"libz.so.1"}:        # of which Python itself has need
            for path in (made.folder / "usr/lib").rglob(f"{name.partition('.so')[0]}*.so*"):
                path.unlink()
        shutil.copy(wheel, made.folder / "opt")
        (made.folder / "opt/train.py").write_text(TRAIN)
        made.run("/usr/bin/python3 -m venv /opt/venv")
        made.run(f"pip install --no-index --no-deps --disable-pip-version-check /opt/{wheel.name}")
        yield made
    finally:
        shutil.rmtree(folder)


def test_its_name_says_what_it_needs(wheel):
    assert re.fullmatch(r"gradsync-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
    brought = libraries_of(wheel)
    assert {"libgradsync.so.0", "libprotobuf-c.so.1", "libjansson.so.4", "libinih.so.1"} <= brought
    with zipfile.ZipFile(wheel) as opened:
        texts = {pathlib.PurePath(name).name for name in opened.namelist() if "/licenses/" in name}
    assert texts == {"LICENSE"} | {f"{name}.copyright" for name in brought - {"libgradsync.so.0"}}


def test_torch_is_told_of_the_backend(wheel):
    said = configparser.ConfigParser()
    with zipfile.ZipFile(wheel) as opened:
        name, = (name for name in opened.namelist() if name.endswith("/entry_points.txt"))
        said.read_string(opened.read(name).decode())
    assert dict(said["torch.backends"]) == {"gradsync": "gradsync._backend:register"}
    assert set(said["console_scripts"]) == {"gradsyncctl", "gradsyncd"}


def test_a_job_of_two(bare):
    out = bare.run("cd /opt && gradsyncctl run -n 2 -- python train.py")
    for rank in (0, 1):
        lines = [line[4:] for line in out.splitlines() if line.startswith(f"[{rank}] ")]
        assert lines[:3] == ["step 1: 0.5", "step 2: 1.0", "step 3: 1.5"]
        assert lines[3] == f"environment {rank} 2"
        assert re.fullmatch(r"/opt/venv/.*/gradsync/_bundle/lib/libgradsync\.so\.0", lines[4])


def test_the_commands_are_the_programs(bare):
    own = "/opt/venv/lib/python3*/site-packages/gradsync/_bundle"
    for command, program in (("gradsyncctl", "bin/gradsyncctl"), ("gradsyncd", "sbin/gradsyncd")):
        assert bare.run(f"{command} --help") == bare.run(f"{own}/{program} --help") != ""
        assert bare.run(f"{command} --version") == bare.run(f"{own}/{program} --version") != ""
    assert "no-such-command" in bare.run("gradsyncctl no-such-command 2>&1", code=2)


@pytest.mark.heavy
def test_the_demo_runs(bare):
    """The trainer, its data and the story are there too."""
    assert json.loads(bare.run("gradsyncctl demo --json"))


def test_torch_is_said_to_be_missing(bare):
    said = bare.run("python -c 'import gradsync.torch' 2>&1", code=1)
    assert "torch" in said.splitlines()[-1] and "gradsync" in said
