# SPDX-License-Identifier: Apache-2.0
"""Both sides of MPS, and faults that clients of one server share; the GPU is a fake one."""
import subprocess

import pytest

from test_cuda import FLOATS, gpu  # noqa: F401
from trainers import ask, bring, crew, end, join, step


def fault(build, monkeypatch, scratch):
    """Another process faults on the GPU."""
    done = subprocess.run([build / "tests/fakes/gpu/rules", "rule_unmap_before_use"], check=False,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    log = scratch / "gpu/log"
    assert "uses memory that is not mapped" in log.read_text()
    log.unlink()


def mps(monkeypatch, on):
    if on:
        monkeypatch.setenv("FAKE_GPU_MPS", "1")
    else:
        monkeypatch.delenv("FAKE_GPU_MPS", raising=False)


@pytest.mark.parametrize("daemons", [True, False], ids=["daemon_inside", "daemon_outside"])
def test_a_trainer_on_the_other_side_of_mps_is_told_so(daemons, gpu, member, monkeypatch):  # noqa: F811
    mps(monkeypatch, daemons)
    served = gpu()
    members = crew(member, served, 2, params=FLOATS)
    mps(monkeypatch, not daemons)
    other = member(served)
    ask(other, "open")
    join([other], "other")
    ask(other, "param a f32 5")
    said = ask(other, "plan", "UNSUPPORTED")
    if daemons:
        assert "gradsyncd uses the GPU cuda:0 through an MPS server, and this process does not" in said
    else:
        assert "this process uses the GPU cuda:0 through an MPS server, and gradsyncd does not" in said
    assert "CUDA_MPS_PIPE_DIRECTORY" in said
    assert step(members) == 1


def test_a_fault_is_shared_by_the_clients_of_an_mps_server(gpu, member, build, monkeypatch,  # noqa: F811
                                                           scratch):
    mps(monkeypatch, True)
    served = gpu()
    assert "a GPU fault of one of its clients ends the work of all" in served.log
    members = crew(member, served, 2, params=FLOATS)
    step(members)
    fault(build, monkeypatch, scratch)
    members[0].say("fill 1")
    assert members[0].wait() != 0 and "CUDA error 700" in members[0].err
    assert served.program.wait() == 3       # when it frees the memory of that member
    members[1].kill()
    served.start()
    other = member(served)
    ask(other, "open")
    join([other], "next")
    ask(other, "param a f32 5")
    ask(other, "plan")
    step([other])


def test_a_fault_is_a_processes_own_without_mps(gpu, member, build, monkeypatch, scratch):  # noqa: F811
    members = crew(member, gpu(), 2, params=FLOATS)
    step(members)
    bring(members)
    fault(build, monkeypatch, scratch)
    end(members)
    assert step(members) == 3
