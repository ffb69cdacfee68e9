# SPDX-License-Identifier: Apache-2.0
"""The parts of status and doctor about a daemon that serves a GPU, and the quota of its memory."""
import json
import os
import pathlib
import subprocess

import pytest

import harness
from test_cli_doctor import Doctor
from trainers import ask, connected, crew, join, script, step, together

MIB = 1 << 20
HIDDEN = ["unshare", "--mount", "sh", "-c"]

mounts = pytest.mark.skipif(
    subprocess.run([*HIDDEN, "mount -t tmpfs tmpfs /dev"], capture_output=True, check=False).returncode != 0,
    reason="no new mount namespaces here")


def gpu_of(served):
    return json.loads(served.ctl("status", "--json"))["daemon"]["gpu"]


def test_status_says_what_the_gpu_is_and_has(gpu, member):
    served = gpu()
    before = gpu_of(served)
    assert before["uuid"].startswith("GPU-") and before["name"] and before["driver"] == 13000
    assert before["bytes"] == 1 << 30 and before["mode"] == "time slices" and before["arena_bytes"] == 0
    members = crew(member, served, 2, params=("a f32 1000000",))
    step(members)
    after = gpu_of(served)
    assert after["arena_bytes"] > 2 * 4 * 1000000
    assert before["free_bytes"] - after["free_bytes"] >= after["arena_bytes"] - 4 * MIB
    text = served.ctl("status")
    assert f"({after['uuid']}), driver of CUDA 13.0: " in text and "of 1.0 GiB free" in text
    assert "no MPS: processes work in turn" in text and "memory of" not in text
    assert "gradsync_gpu_arena_bytes" in served.ctl("metrics")


def test_status_says_who_brought_memory(gpu, member):
    served = gpu()
    members = [member(served) for _ in range(2)]
    together(members, "open")
    join(members)
    for each, call in zip(members, ("param", "param_at 0 0"), strict=True):
        if call != "param":
            ask(each, "register 0 1048576")
        ask(each, f"{call} a f32 1000")
    together(members, "plan")
    step(members)
    assert "1 member has gradients in memory of its own" in served.ctl("status")
    job, = json.loads(served.ctl("status", "--json"))["jobs"]
    assert job["plans"][0]["placed_members"] == 1


def test_a_cpu_has_no_gpu(served):
    assert gpu_of(served) is None and "driver" not in served.ctl("status")
    assert "gradsync_gpu" not in served.ctl("metrics") and "device_bytes" not in served.ctl("metrics")


def test_memory_of_the_gpu_has_a_quota(gpu, member):
    served = gpu(settings={"device_bytes_per_uid": "16M"})
    members = crew(member, served, 2, params=("a f32 1000000",))
    assert step(members) == 1
    for each in members:
        script(each, "slot 1", "param b f32 3000000")
        each.say("plan")
    said = [each.line() for each in members]
    assert any(line.startswith("QUOTA") and "bytes of the GPU's memory" in line and
               "device_bytes_per_uid" in line for line in said), said
    together(members, "slot 0")
    assert step(members) == 2
    served.change(device_bytes_per_uid="64M")


def test_small_plans_count_as_what_the_gpu_gives_them(gpu, member):
    """Whole pages of 2 MiB, however little is asked for."""
    served = gpu(settings={"device_bytes_per_uid": "5M"})
    members = [member(served) for _ in range(3)]
    for number, each in enumerate(members):
        ask(each, "open")
        join([each], name=f"job{number}")
        ask(each, "param a f32 100")
    together(members[:2], "plan")
    assert f"the limit is {5 * MIB}" in ask(members[2], "plan", "QUOTA")
    assert served.status()["daemon"]["gpu"]["arena_bytes"] == 4 * MIB


def test_half_of_the_gpu_is_the_default(gpu, member, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_BYTES", str(64 * MIB))
    each = connected(member(gpu()))
    join([each])
    ask(each, "param a f32 9000000")
    assert f"the limit is {32 * MIB}" in ask(each, "plan", "QUOTA")


@pytest.fixture
def doctor(build, scratch):
    return Doctor(build, scratch)


def test_doctor(gpu, doctor):
    doctor.socket = gpu().socket
    found = doctor()
    gpus = {name: finding for name, (finding,) in found.items() if name.startswith(("gpu", "mps"))}
    tree = pathlib.Path(__file__).resolve().parents[2]
    page = (tree / "client/cli/man/gradsyncctl.1.scd").read_text("utf-8")
    checks = page[page.index("# DOCTOR"):]
    assert not [name for name in found if f"*{name}*" not in checks], "the page names each check"
    assert list(gpus) == ["gpu driver", "gpu", "mps", "gpu sharing", "gpu /dev/shm"]
    assert all(finding["result"] == "ok" for finding in gpus.values())
    assert gpus["gpu driver"]["text"] == "the driver is of CUDA 13.0 and shows 1 GPU"
    assert "is number 0 here" in gpus["gpu"]["text"]
    assert f"for uid {os.geteuid()}, which the daemon runs as, as you do" in gpus["gpu sharing"]["text"]


def test_doctor_says_nothing_of_gpus_where_there_are_none(daemon, doctor):
    doctor.socket = daemon().socket
    assert not [name for name in doctor() if name.startswith(("gpu", "mps"))]


def test_doctor_without_a_driver(gpu, doctor):
    doctor.socket = gpu().socket
    result, text, fix = doctor.one("gpu driver", env={"GRADSYNC_CUDA_DRIVER": "/nowhere/libcuda.so.1"})
    assert result == "fail" and "there is no NVIDIA driver" in text and "580" in fix
    doctor.green("gpu driver")


def test_doctor_where_the_gpu_is_not_seen(gpu, doctor, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    doctor.socket = gpu("cuda:1").socket
    assert "is number 1 here" in doctor.one("gpu")[1]
    result, text, fix = doctor.one("gpu", env={"FAKE_GPU_DEVICES": "1"})
    assert result == "warn" and gpu_uuid(text) and "CUDA_VISIBLE_DEVICES" in fix


def gpu_uuid(text):
    return any(word.startswith("GPU-") for word in text.split())


def test_doctor_of_mps(gpu, doctor, scratch, monkeypatch):
    """doctor says what the driver says. Files that an ended MPS server has left do not count."""
    pipes = scratch / "pipes"
    pipes.mkdir()
    (pipes / "control").touch()
    served = gpu()
    doctor.socket = served.socket
    result, text, _ = doctor.one("mps", env={"CUDA_MPS_PIPE_DIRECTORY": pipes})
    assert result == "ok" and "neither" in text
    result, text, fix = doctor.one("mps", env={"FAKE_GPU_MPS": "1"})
    assert result == "fail" and "programs here use an MPS server" in text
    assert "PrivateTmp=no and Environment=CUDA_MPS_PIPE_DIRECTORY=" in fix
    served.finish()
    served.expect_clean = False
    monkeypatch.setenv("FAKE_GPU_MPS", "1")
    doctor.socket = gpu().socket
    doctor.green("mps")
    result, text, fix = doctor.one("mps", env={"FAKE_GPU_MPS": None})
    assert result == "fail" and "the daemon uses an MPS server" in text and "CUDA_MPS_PIPE_DIRECTORY" in fix


class Elsewhere(Doctor):
    """Runs in a mount namespace of its own."""

    def __init__(self, build, scratch, before):
        super().__init__(build, scratch)
        self.wrapper = scratch / "elsewhere"
        self.wrapper.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{before} && exec \"$@\"' sh "
                                f"{build / harness.CTL} \"$@\"\n")
        self.wrapper.chmod(0o755)
        self.ctl = self.wrapper


@mounts
@pytest.mark.parametrize("missing", ["nvidia-uvm", "nvidiactl", None])
def test_doctor_of_device_nodes(missing, gpu, build, scratch):
    nodes = [name for name in ("nvidiactl", "nvidia-uvm") if name != missing]
    made = "mount -t tmpfs tmpfs /dev && " + " && ".join(f": > /dev/{name}" for name in nodes)
    doctor = Elsewhere(build, scratch, made)
    doctor.socket = gpu().socket
    if missing == "nvidiactl":
        assert "gpu nodes" not in doctor()
        return
    result, text, fix = doctor.one("gpu nodes")
    assert result == ("fail" if missing else "ok")
    if missing:
        assert "there is no /dev/nvidia-uvm" in text and "nvidia-modprobe" in fix


@mounts
def test_doctor_where_nobody_uses_the_gpu(daemon, build, scratch):
    """A driver that is too old, or there in part, is no failure for a user that works on CPUs."""
    doctor = Elsewhere(build, scratch, "mount -t tmpfs tmpfs /dev && : > /dev/nvidiactl")
    doctor.socket = daemon().socket
    for row in ("gpu driver", "gpu nodes"):
        assert doctor.one(row, env={"GRADSYNC_CUDA_DRIVER": "/nowhere/libcuda.so.1"})[0] == "warn"


@mounts
def test_doctor_of_shared_files(gpu, build, scratch):
    assert pathlib.Path("/dev/shm").is_dir()
    doctor = Elsewhere(build, scratch, "mount -t tmpfs tmpfs /dev/shm")
    doctor.socket = gpu().socket
    result, text, fix = doctor.one("gpu /dev/shm")
    assert result == "warn" and "/dev/shm of its own" in text and "mount" in fix
