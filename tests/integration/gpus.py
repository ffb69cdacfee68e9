# SPDX-License-Identifier: Apache-2.0
"""A machine with a fake GPU (tests/fakes/gpu): what processes need to find it, and what must hold at the end.

With pytest's option --on-gpu daemons serve that GPU unless a test names another device, and members
(member.c) keep their gradients there. So whole files of tests can be run again on a GPU. Tests that say what
is so in host memory only have the mark `host`.

With GRADSYNC_TEST_GPU=hardware the GPU is that of this machine, which tests need not find and cannot tell to
fail: those with the mark `fake` are left out.
"""
import os
import pathlib
import re
import subprocess

from harness import wait_until

everywhere = False  # --on-gpu was given
hardware = os.environ.get("GRADSYNC_TEST_GPU") == "hardware"


def settings(build, scratch):
    """Environment of all processes of the machine, whose folder is made."""
    if hardware:
        return {}
    folder = scratch / "gpu"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    fakes = build / "tests/fakes"
    kernels = [str(fakes / name) for name in ("fake-kernels.so", "fake-mlp-kernels.so")]
    paths = filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    return {"FAKE_GPU": str(folder), "FAKE_GPU_KERNELS": ":".join(kernels),
            "LD_LIBRARY_PATH": ":".join([str(fakes / "gpu"), *paths])}


def check_rules(scratch):
    """No process has broken a rule of the GPU."""
    log = scratch / "gpu/log"
    assert not log.exists(), log.read_text()


def check(build):
    return subprocess.run([build / "tests/fakes/gpu/fake-gpu-context", "check"], stdout=subprocess.PIPE,
                          text=True, check=False)


def check_nothing_left(build):
    """Neither memory nor contexts, once all processes have ended. A real GPU may have other users."""
    if hardware:
        return
    wait_until(lambda: check(build).returncode == 0, "all memory and contexts of the GPU to be gone")


def at_work(build):
    """Pids of the processes for which the GPU is doing something at this moment."""
    pids = set()
    for context in re.findall(r"^context (\d+) is at work$", check(build).stdout, re.M):
        try:
            arguments = pathlib.Path(f"/proc/{context}/cmdline").read_text("utf-8").split("\0")
        except FileNotFoundError:
            continue
        pids.add(int(arguments[2]))
    return pids
