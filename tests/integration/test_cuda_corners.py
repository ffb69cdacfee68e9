# SPDX-License-Identifier: Apache-2.0
"""Both sides of MPS, and faults that clients of one server share; the GPU is a fake one."""
import subprocess
import sys

import pytest

import harness
from peer import Peer, Refused
from test_cuda import FLOATS
from trainers import ask, connected, crew, join, script, step


def fault(build, monkeypatch, scratch):
    """Another process faults on the GPU while no other work is under way: it waits until its own work is all
    there is."""
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
def test_a_trainer_on_the_other_side_of_mps_is_told_so(daemons, gpu, member, monkeypatch):
    mps(monkeypatch, daemons)
    served = gpu()
    members = crew(member, served, 2, params=FLOATS)
    mps(monkeypatch, not daemons)
    other = connected(member(served))
    join([other], "other")
    ask(other, "param a f32 5")
    said = ask(other, "plan", "UNSUPPORTED")
    if daemons:
        assert "gradsyncd uses the GPU cuda:0 through an MPS server, and this process does not" in said
    else:
        assert "this process uses the GPU cuda:0 through an MPS server, and gradsyncd does not" in said
    assert "CUDA_MPS_PIPE_DIRECTORY" in said
    assert step(members) == 1


def test_a_fault_is_shared_by_the_clients_of_an_mps_server(gpu, member, build, monkeypatch,
                                                           scratch):
    mps(monkeypatch, True)
    served = gpu()
    assert "a GPU fault of one of its clients ends the work of all" in served.log
    members = crew(member, served, 2, params=FLOATS)
    step(members)
    fault(build, monkeypatch, scratch)
    members[0].say("fill 1")
    assert members[0].wait() != 0 and "CUDA error 700" in members[0].err
    assert served.program.wait() == 70      # when it frees the memory of that member
    members[1].kill()
    served.start()
    other = connected(member(served))
    join([other], "next")
    script(other, "param a f32 5", "plan")
    step([other])


def test_a_fault_is_a_processes_own_without_mps(gpu, member, build, monkeypatch, scratch):
    members = crew(member, gpu(), 2, params=FLOATS)
    step(members)
    fault(build, monkeypatch, scratch)
    assert step(members) == 2


#: Allocates on a GPU, says the handle, and frees the memory when it is told to.
OWNER = """
import ctypes, sys
find = ctypes.CDLL("libcuda.so.1").cuGetProcAddress_v2
def call(name, version, *arguments):
    function, found = ctypes.c_void_p(), ctypes.c_int()
    assert find(name.encode(), ctypes.byref(function), version, ctypes.c_uint64(1), ctypes.byref(found)) == 0
    kinds = [ctypes.c_int if isinstance(each, int) else type(each) for each in arguments]
    assert ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(function.value)(*arguments) == 0, name
context, address, handle = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_ubyte * 64)()
call("cuInit", 2000, 0)
call("cuDevicePrimaryCtxRetain", 7000, ctypes.pointer(context), int(sys.argv[1]))
call("cuCtxSetCurrent", 4000, context)
call("cuMemAlloc", 3020, ctypes.pointer(address), ctypes.c_size_t(1 << 20))
call("cuIpcGetMemHandle", 4010, ctypes.pointer(handle), address)
print(bytes(handle).hex(), flush=True)
sys.stdin.readline()
call("cuMemFree", 3020, address)
print("freed", flush=True)
sys.stdin.readline()
call("cuDevicePrimaryCtxRelease", 11000, int(sys.argv[1]))
"""


@pytest.mark.heavy      # Python cannot load a driver that a sanitizer has instrumented
@pytest.mark.parametrize("number, freed", [(0, False), (0, True), (1, False)], ids=["good", "freed", "other"])
def test_handles_of_memory(number, freed, gpu, member, peers, processes, monkeypatch):
    """A handle of memory that is gone, or of another GPU's, is refused by name, and no other member
    notices."""
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    served = gpu()
    members = crew(member, served, 2, params=FLOATS)
    owner = harness.Program(sys.executable, "-c", OWNER, str(number))
    processes.append(owner)
    handle = bytes.fromhex(owner.line())
    if freed:
        assert owner.ask("free") == "freed"
    peer = peers(Peer(served.socket))
    peer.joined(peer.join_send("other", 1, rank=0))
    request = {"job": peer.job, "offset": 0, "bytes": 4096, "ipc": handle}
    if number == 0 and not freed:
        told = peer.ask("REGISTER", "REGISTERED", **request)
        peer.ask("UNREGISTER", "UNREGISTERED", job=peer.job, memory=told.memory)
    else:
        with pytest.raises(Refused) as refused:
            peer.ask("REGISTER", "REGISTERED", **request)
        assert "of the GPU that the daemon serves (fake GPU, GPU-fa" in str(refused.value)
    assert step(members) == 1
    owner.say("end" if freed else "free")
    if not freed:
        assert owner.line() == "freed"
        owner.say("end")
    assert owner.wait() == 0


@pytest.mark.parametrize("offset, size", [(64, 0), (2 ** 64 - (64 << 20), (64 << 20) + 4096)],
                         ids=["none", "wraps"])
def test_ranges_that_are_none(offset, size, gpu, member, peers):
    served = gpu()
    members = crew(member, served, 2, params=FLOATS)
    peer = peers(Peer(served.socket))
    peer.joined(peer.join_send("other", 1, rank=0))
    with pytest.raises(Refused) as refused:
        peer.ask("REGISTER", "REGISTERED", job=peer.job, offset=offset, bytes=size, ipc=bytes(64))
    assert "are no range of an allocation" in str(refused.value)
    assert step(members) == 1
