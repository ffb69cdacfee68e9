# SPDX-License-Identifier: Apache-2.0
"""A machine with a fake GPU (tests/fakes/gpu): what processes need to find it, and what must hold at the end.

With pytest's option --on-gpu daemons serve that GPU unless a test names another device, and members
(member.c) keep their gradients there. So whole files of tests can be run again on a GPU. Tests that say what
is so in host memory only have the mark `host`.
"""
import subprocess

from harness import wait_until

everywhere = False  # --on-gpu was given


def settings(build, scratch):
    """Environment of all processes of the machine, whose folder is made."""
    folder = scratch / "gpu"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    fakes = build / "tests/fakes"
    kernels = [str(fakes / name) for name in ("fake-kernels.so", "fake-mlp-kernels.so")]
    return {"FAKE_GPU": str(folder), "FAKE_GPU_KERNELS": ":".join(kernels),
            "LD_LIBRARY_PATH": str(fakes / "gpu")}


def check_rules(scratch):
    """No process has broken a rule of the GPU."""
    log = scratch / "gpu/log"
    assert not log.exists(), log.read_text()


def check_nothing_left(build):
    """Neither memory nor contexts, once all processes have ended."""
    def nothing():
        return subprocess.run([build / "tests/fakes/gpu/fake-gpu-context", "check"],
                              stdout=subprocess.DEVNULL, check=False).returncode == 0
    wait_until(nothing, "all memory and contexts of the GPU to be gone")
