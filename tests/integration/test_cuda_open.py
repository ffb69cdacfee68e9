# SPDX-License-Identifier: Apache-2.0
"""Which daemon gradsync_open() takes for the GPU, which is a fake one, and which it goes on with later."""
import pathlib
import signal
import socket

import pytest

import harness
from harness import kill
from test_cuda import FLOATS
from test_cuda_corners import mps
from trainers import ask, crew, fields, join, step

UUID = "GPU-fafafafa-fafa-fafa-fafa-fafafafafa00"

pytestmark = pytest.mark.fake


@pytest.fixture
def places(scratch):
    """places(device, path) gives the daemon that listens at `path` the default place of that device."""
    def give(device, path):
        folder = scratch / "user/gradsync" / device
        folder.mkdir(parents=True)
        (folder / "socket").symlink_to(path)
        return folder / "socket"
    return give


@pytest.fixture
def silent(scratch):
    """silent() -> a listening socket whose owner never looks at it, as that of a stopped daemon."""
    opened = []

    def listen():
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opened.append(made)
        made.bind(str(scratch / f"silent{len(opened)}"))
        made.listen(8)
        made.setblocking(False)
        return made
    yield listen
    for each in opened:
        each.close()


@pytest.fixture
def trainer(machine, program, scratch, monkeypatch):
    """A member that names no daemon; the context of GPU 0 is current in it."""
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    one = program(harness.MEMBER, env={"MEMBER_CUDA": "1", "XDG_RUNTIME_DIR": str(scratch / "user")})
    ask(one, "capture 0")
    return one


def was_asked(listener):
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("name", [f"cuda:{UUID}", "cuda:0"], ids=["uuid", "number"])
def test_the_likeliest_is_asked_first(name, trainer, gpu, places, silent):
    others = [silent() for _ in range(4)]
    for number, other in enumerate(others):
        places(f"cuda:-{number}", other.getsockname())       # in the order of names they come before both
    places(name, gpu().socket)
    ask(trainer, "open")
    join([trainer])
    assert not any(map(was_asked, others))


def test_a_daemon_of_another_uuid_is_not_asked(trainer, daemon, places, silent):
    other = silent()
    places(f"cuda:{UUID[:-1]}1", other.getsockname())
    places("cpu", daemon(device="cpu").socket)
    ask(trainer, "open")
    join([trainer])
    assert not was_asked(other)


def test_one_with_an_unlikely_name_is_found_after_a_silent_one(trainer, gpu, places, silent):
    """They share one time-out, of which enough is left for it, on a busy machine too: half."""
    places("cuda:0", silent().getsockname())
    served = gpu()
    places("cuda:9", served.socket)
    ask(trainer, "open")
    assert fields(ask(trainer, "join name=job world=1"))["world"] == "1"
    assert served.job("job")


def test_many_that_do_not_answer_share_one_time(trainer, gpu, daemon, places):
    """If each daemon had 10 s, the member would not answer within the time that a line has. The CPU's daemon
    is no substitute."""
    stopped = gpu()
    stopped.program.stop()
    for number in range(int(harness.DEADLINE // 10) + 6):
        places(f"cuda:{number}", stopped.socket)
    places("cpu", daemon(device="cpu").socket)
    said = ask(trainer, "open", "NO_DAEMON")
    assert "stopped" in said and f"may be that of the GPU {UUID}" in said
    stopped.signal(signal.SIGCONT)


def test_a_success_leaves_the_error_text_alone(trainer, gpu, places, silent):
    gone = silent()
    places("cuda:0", gone.getsockname())
    gone.close()
    places("cuda:7", gpu().socket)
    before = ask(trainer, "open size=1", "INVALID")
    assert before and ask(trainer, "open") == before


def test_alone_leaves_the_error_text_alone(program, scratch):
    one = program(harness.MEMBER, env={"XDG_RUNTIME_DIR": scratch, "GRADSYNC_DEVICE": "cpu:nowhere"})
    assert ask(one, "open") == ""


def test_all_sockets_that_were_tried_are_named(trainer, daemon, places, silent):
    gone = silent()
    refused = places("cuda:0", gone.getsockname())
    gone.close()
    other = places("cuda:1", daemon(device="cuda:1").socket)
    ask(trainer, "env GRADSYNC_WORLD_SIZE=1")       # so it is not alone
    said = ask(trainer, "open", "NO_DAEMON")
    assert f"{refused} (Connection refused)" in said
    assert f"{other} (serves {UUID[:-1]}1)" in said
    assert f"{pathlib.Path(refused).parent.parent}/cpu/socket (No such file or directory)" in said


# -- a daemon that follows


def follow(served, device=None):
    kill(served)
    if device:
        served.flags[served.flags.index("--device") + 1] = device
    served.start()


@pytest.mark.parametrize("first, then", [("cuda:0", "cuda:1"), ("cuda:0", "cpu"), ("cpu", "cuda:0")])
def test_one_that_follows_with_another_device_is_refused(first, then, daemon, machine, member,
                                                         monkeypatch):
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    if first == "cpu":
        monkeypatch.delenv("MEMBER_CUDA", raising=False)
    else:
        monkeypatch.setenv("MEMBER_CUDA", "1")
    served = daemon(device=first)
    members = crew(member, served, 2, params=FLOATS)
    assert step(members) == 1
    follow(served, then)
    for each in members:
        said = ask(each, "barrier", "DAEMON_LOST")
        assert f"the one that follows serves another device: {then}" in said and f"not {first}" in said
        ask(each, "finish", "DAEMON_LOST")
    assert not served.job("job")


@pytest.mark.parametrize("before", [True, False], ids=["inside", "outside"])
def test_one_that_follows_on_the_other_side_of_mps(before, gpu, member, monkeypatch):
    mps(monkeypatch, before)
    served = gpu()
    members = crew(member, served, 2, params=FLOATS)
    assert step(members) == 1
    mps(monkeypatch, not before)
    follow(served)
    for each in members:
        said = ask(each, "barrier", "DAEMON_LOST")
        assert f"{'without' if before else 'through'} an MPS server, unlike the one before" in said
    assert not served.job("job")


def test_the_same_gpu_by_another_name_is_taken(gpu, member):
    served = gpu()
    members = crew(member, served, 2, params=FLOATS)
    assert step(members) == 1
    follow(served, f"cuda:{UUID}")
    assert step(members) == 2
