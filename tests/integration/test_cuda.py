# SPDX-License-Identifier: Apache-2.0
"""Jobs on one GPU, which is a fake one: real daemons and members, kernels that run on the CPU.

The members do as those of other tests do; their gradients lie on the GPU, and are marked after a stream's
work.
"""
import subprocess
from random import Random

import pytest

import gpus
from harness import DAEMON, kill, stop, wait_until
from trainers import ask, bring, connected, crew, end, ended, join, restart, say, script, step, together

FLOATS = ("a f32 5", "b f32 300 20", "c bf16 70000")


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.usefixtures("nothing_left")
def test_averages(world, gpu, member):
    members = crew(member, gpu(), world, params=FLOATS)
    for number in range(1, 4):
        assert step(members) == number
    together(members, "leave")


@pytest.mark.usefixtures("nothing_left")
def test_absent_parameters_add_zero(gpu, member):
    members = crew(member, gpu(), 2, params=FLOATS)
    step(members)
    together(members, "fill 4")
    ask(members[0], "ready 0 1 2")
    script(members[1], "ready 0 2", "absent 1")
    together(members, "finish")
    for each in members:
        assert ask(each, "get 1 0") == "2"
        assert ask(each, "get 0 0") == "4"


PLACED = ("a f32 5", "b f32 300 20", "c f32 1000")


def placed(members, bytes_=1 << 20, offset=0):
    """A plan in memory that the members have allocated on the GPU."""
    join(members)
    together(members, f"register 0 {bytes_} offset={offset}")
    for each in members:
        at = 0
        for param in PLACED:
            ask(each, f"param_at 0 {at} {param}")
            elements = 1
            for dim in param.split()[2:]:
                elements *= int(dim)
            at += (elements * 4 + 63) // 64 * 64
    together(members, "plan")


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("offset", [0, 4096])
def test_memory_of_the_trainers_own(offset, gpu, member):
    served = gpu()
    members = [member(served) for _ in range(2)]
    together(members, "open")
    placed(members, offset=offset)
    assert step(members) == 1
    kill(served)
    served.start()
    assert step(members) == 2
    together(members, "plan_free", "unregister 0", "leave")


def test_memory_that_cannot_be_registered(gpu, member):
    served = gpu()
    each = connected(member(served))
    join([each])
    for number, (command, text) in enumerate([
            ("2000000 of=1000000", "are not all of one allocation"),
            ("600000 offset=500032 of=1000000", "are not all of one allocation"),
            ("64 offset=99000000 of=4096", "no address of a GPU's memory"),
            ("64 offset=4", "begins at a multiple of 64 bytes")]):
        assert text in ask(each, f"register {number} {command}", "INVALID")
    ask(each, "leave")


def test_memory_of_another_user_is_refused_by_name(gpu, member):
    served = gpu(settings={"socket_mode": "0666"})
    each = connected(member(served, uid=65533))
    join([each])
    said = ask(each, "register 0 4096", "DENIED")
    assert "this trainer has uid 65533, gradsyncd has 0. Let gradsyncd allocate the gradients" in said
    script(each, "param a f32 5", "plan")
    step([each])


@pytest.mark.fake
def test_marks_in_a_stream_that_is_captured_are_refused(gpu, member):
    members = crew(member, gpu(), 2, params=FLOATS)
    for each in members:
        script(each, "fill 1", "capture 1")
        assert "the stream is being captured into a graph" in ask(each, "ready 1", "UNSUPPORTED")
        ask(each, "capture 0")
    bring(members)
    end(members)


def test_without_a_driver_it_says_so_in_one_line(build, scratch, monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    done = subprocess.run([build / DAEMON, "--device", "cuda:0", "--socket", scratch / "s", "--cuda-driver",
                           scratch / "libcuda.so.1"],
                          capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    line, = done.stderr.splitlines()
    assert "there is no NVIDIA driver" in line and "libcuda.so.1" in line


@pytest.mark.fake
def test_a_trainer_without_a_driver_is_told_so(gpu, member, monkeypatch):
    served = gpu()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    monkeypatch.delenv("MEMBER_CUDA")
    each = connected(member(served))
    join([each])
    ask(each, "param a f32 5")
    said = ask(each, "plan", "UNSUPPORTED")
    assert "gradsyncd serves the GPU cuda:0, and this process cannot use it: there is no NVIDIA" in said


@pytest.mark.fake
def test_a_gpu_that_fails_ends_the_daemon_and_the_next_one_goes_on(gpu, member, monkeypatch, machine):
    monkeypatch.setenv("FAKE_GPU_FAIL", "cuLaunchKernel:3:719")
    served = gpu()
    monkeypatch.delenv("FAKE_GPU_FAIL")
    members = crew(member, served, 2, params=("a f32 5",))
    step(members)
    step(members)
    bring(members)
    say(members, "finish")
    assert served.program.wait() == 70
    assert "the GPU (fake GPU) failed: a reduction could not be launched: CUDA_ERROR_LAUNCH_FAILED; " \
           "this gradsyncd ends with status 70" in served.log
    served.start()
    ended(members, "VOID_RETRY")
    assert step(members) == 3


def test_memory_stays_where_it_is_over_an_orderly_restart(gpu, member):
    served = gpu()
    members = crew(member, served, 3, params=FLOATS)
    step(members)
    addresses = together(members, "address 1")
    restart(served, stop)
    assert step(members) == 2
    assert together(members, "address 1") == addresses


@pytest.mark.fake
def test_kernels_of_a_killed_daemon_are_left_to_end(gpu, member, build, monkeypatch):
    """The fake GPU reports who touches memory that a late kernel still writes."""
    late = {"FAKE_GPU_DELAY": "400000", "FAKE_GPU_LATE": "200000"}   # a look at it takes a process
    served = gpu(env=late)
    members = crew(member, served, 2, params=FLOATS)
    for _ in range(3):
        bring(members)
        say(members, "finish")
        wait_until(lambda: served.pid in gpus.at_work(build), "a kernel of the daemon's to run")
        kill(served)
        served.start()
        settle(members, [2, 2])
    settle_all(members)
    step(members)


@pytest.mark.parametrize("marks", ["ready 1", "ready"])
def test_members_killed_in_the_middle_of_a_step(marks, gpu, member, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_DELAY", "20000")
    served = gpu(settings={"rejoin_grace": "30s"})
    members = crew(member, served, 3, params=FLOATS)
    step(members)
    together(members, "fill 1")
    ask(members[0], marks)
    for each in members[1:]:
        ask(each, "ready")
        each.say("finish")
    members[0].kill()
    members[0] = connected(member(served))
    members[0].say("join name=job world=3 rank=0")
    for each in members[1:]:
        code = each.line().partition(" ")[0]
        assert code == ("VOID_BEHIND" if marks == "ready 1" else code) and code in ("OK", "VOID_BEHIND")
    assert members[0].line().startswith("OK ")


@pytest.mark.usefixtures("nothing_left")
def test_killed_at_any_point(gpu, member):
    """Members and daemons end without notice, again and again; nothing of them is left on the GPU."""
    random = Random(12)
    served = gpu(settings={"rejoin_grace": "60s"})
    members = crew(member, served, 3, params=FLOATS)
    for _ in range(50):
        for rank, each in enumerate(members):
            for command in (f"fill {rank + 1}", "ready", "finish"):
                each.say(command)
        said = random.randrange(0, 4)        # lines that the victim's neighbour has answered by then
        for _ in range(said):
            if said < 3:
                members[0].line()
        answered = said if said < 3 else 0
        if random.random() < 0.5:
            kill(served)
            served.start()
            settle(members, [answered, 0, 0])
        else:
            members[2].kill()
            members[2] = connected(member(served))
            members[2].say("join name=job world=3 rank=2")
            settle(members[:2], [answered, 0])
            assert members[2].line().startswith("OK ")
            script(members[2], *(f"param {param}" for param in FLOATS), "plan")
            together(members, "sync 0")
    settle_all(members)
    step(members)
    together(members, "leave")


def settle_all(members):
    """A member that knows of a commit that another one missed hears of the kill with its next step."""
    for _ in range(3):
        for each in members:
            for command in ("fill 1", "ready", "finish"):
                each.say(command)
        settle(members, [0] * len(members))


def settle(members, answered):
    """Until each has the outcome of its step, be it void or not."""
    for each, had in zip(members, answered):
        for _ in range(3 - had):
            line = each.line()
        assert line.partition(" ")[0] in ("OK", "VOID_RETRY", "VOID_BEHIND"), line
