# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the GPU tests that need no GPU: the probe, on the fake GPU."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import uuid

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
PATIENT = ("--deadline", "240", "--seconds", "3000")    # however busy this machine is


@pytest.fixture(scope="session")
def build():
    """The build directory under test."""
    return pathlib.Path(os.environ["GRADSYNC_BUILD"]).resolve()


def processes(mark):
    """[(pid, its name)] of what has that variable and still runs, except for the fake GPU."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                name = (path / "comm").read_text().strip()
                state = (path / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state != "Z" and not name.startswith("fake-gpu-contex"):
                    found.append((int(path.name), name))
        except (OSError, IndexError):
            continue
    return found


def kill_all(mark):
    for pid, _ in processes(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Run:
    """A run of the probe that has ended: its rows, in order, each complete and valid."""

    def __init__(self, done):
        self.status, self.stderr = done.returncode, done.stderr
        self.lines = done.stdout.splitlines()
        self.rows = [json.loads(line) for line in self.lines]
        for row in self.rows:
            assert list(row) == ["fact", "answer", "detail", "ms"], row
            assert all(isinstance(row[key], str) for key in ("fact", "answer", "detail")), row
            assert isinstance(row["ms"], float) and row["ms"] >= 0, row
        self.facts = [row["fact"] for row in self.rows]

    def __getitem__(self, fact):
        rows = [row for row in self.rows if row["fact"] == fact]
        assert len(rows) == 1, f"{len(rows)} rows of {fact}: {self.lines}"
        return rows[0]

    def answer(self, fact):
        return self[fact]["answer"]


class Probe:
    """Runs the probe on a fake GPU of its own. All its processes have a variable of their environment."""

    def __init__(self, build, scratch):
        self.program, self.scratch, self.machine = build / "tests/gpu/probe", scratch, scratch / "machine"
        self.machine.mkdir()
        self.machine.chmod(0o777)
        self.fakes = build / "tests/fakes"
        self.driver, self.nccl = self.fakes / "gpu/libcuda.so.1", self.fakes / "nccl/libnccl.so.2"
        self.mark = f"PROBE_TEST={uuid.uuid4()}"

    def environment(self, fail="", **more):
        name, value = self.mark.split("=")
        return {**os.environ, name: value, "FAKE_GPU": str(self.machine), "FAKE_GPU_FAIL": fail,
                "FAKE_GPU_KIND": "1", "FAKE_GPU_BYTES": str(8 << 30),
                "LD_LIBRARY_PATH": f"{self.driver.parent}:{self.nccl.parent}",
                "FAKE_GPU_KERNELS": str(self.fakes / "fake-probe-kernels.so"), **more}

    def run(self, *arguments, fail="", env=None, **options):
        """A whole run. `fail`: which calls fail, and how (tests/fakes/gpu/gpu.h). No process of it may be
        left."""
        done = subprocess.run([self.program, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, env={**self.environment(fail), **(env or {})}, timeout=1200,
                              check=False, **options)
        assert self.processes() == []
        return Run(done)

    def start(self, *arguments, fail=""):
        return subprocess.Popen([self.program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=self.environment(fail))

    def processes(self):
        return processes(self.mark)


@pytest.fixture
def probe(build):
    scratch = pathlib.Path("/tmp") / f"probe-{uuid.uuid4()}"
    scratch.mkdir(mode=0o755)
    made = Probe(build, scratch)
    yield made
    kill_all(made.mark)
    shutil.rmtree(scratch, ignore_errors=True)
