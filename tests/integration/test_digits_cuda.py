# SPDX-License-Identifier: Apache-2.0
"""The training job with its model on a GPU, a fake one: it is the training that the CPU does, bit by bit.

The fake GPU runs the kernels on the CPU, with the sums in the order of the CPU's own program, so nothing less
than equal parameters after each epoch will do.
"""
import pytest

import harness
from harness import events

EPOCHS = 6
SETTING = ["--json", "--lr", 0.05, "--momentum", 0.9, "--seed", 1]
BATCH = 48

pytestmark = [pytest.mark.fake, pytest.mark.usefixtures("nothing_left")]


def setting(epochs, batch=BATCH):
    return [*SETTING, "--epochs", epochs, "--batch", batch]


def curve(found):
    """The losses and hashes of all members, by epoch, and their ends."""
    epochs = {(event["rank"], event["epoch"]): (event["loss"], event["hash"])
              for event in found if event["event"] == "epoch"}
    ends = {event["rank"]: (event["accuracy"], event["hash"]) for event in found if event["event"] == "end"}
    return epochs, ends


@pytest.fixture(scope="module")
def on_cpu(build):
    """on_cpu(members, epochs, batch=BATCH) -> what so many members tell that train on the CPU."""
    known = {}

    def train(*which):
        if which not in known:
            run = harness.Program(build / harness.CTL, "run", "--private", "-n", which[0], "--",
                                  build / harness.DIGITS, *setting(*which[1:]))
            try:
                assert run.wait(harness.LONG) == 0, run.err
                known[which] = events(run.out)
            finally:
                run.destroy()
        return known[which]
    return train


@pytest.fixture
def start(program, build):
    """start(daemon, members, epochs, *arguments, env={}) -> `gradsyncctl run` with members on the GPU."""
    def one(served, members, epochs, *arguments, env=None):
        return program(harness.CTL, "run", "-n", members, "--job", "digits", "--",
                       build / harness.DIGITS_CUDA, *setting(epochs), *arguments, socket=served.socket,
                       env=env)
    return one


def finish(run):
    assert run.wait(harness.LONG) == 0, run.err
    return events(run.out)


# ---- the training ----

@pytest.mark.parametrize("members, mps", [(1, None), (2, None), (2, "1"), (4, None)])
def test_it_is_the_training_that_the_cpu_does(members, mps, on_cpu, daemon, start, monkeypatch):
    if mps:
        monkeypatch.setenv("FAKE_GPU_MPS", mps)
    found = finish(start(daemon(device="cuda:0"), members, EPOCHS))
    epochs, ends = curve(found)
    assert len(epochs) == members * EPOCHS and len(ends) == members
    assert (epochs, ends) == curve(on_cpu(members, EPOCHS))
    assert len({digest for _, digest in ends.values()}) == 1
    assert ends[0][0] > 0.9
    assert len({epochs[0, number] for number in range(1, EPOCHS + 1)}) == EPOCHS


def test_on_a_slow_gpu_nobody_reads_what_is_not_there_yet(on_cpu, daemon, start):
    """The fake GPU reports who does. A training of one step, in which all work of the members takes long."""
    found = finish(start(daemon(device="cuda:0"), 2, 1, "--batch", 1024, env={"FAKE_GPU_DELAY": 300000}))
    assert curve(found) == curve(on_cpu(2, 1, 1024))


# ---- what cannot be ----

ALONE = {"GRADSYNC_JOB": "digits", "GRADSYNC_WORLD_SIZE": 1, "GRADSYNC_RANK": 0}


def refused(run):
    """The one line that a program has said before it ended."""
    assert run.wait() == 1, run.out + run.err
    line, = run.err.splitlines()
    return line


def test_without_a_driver_it_says_so(program, monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert refused(program(harness.DIGITS_CUDA)).startswith(
        "digits: cannot use a GPU: there is no NVIDIA driver: libcuda.so.1: cannot open")


def test_a_gpu_that_is_not_there(program):
    assert refused(program(harness.DIGITS_CUDA, "--device", 1)) == \
        "digits: there is no GPU 1: the driver shows 1 here, counted from 0"


def test_alone_it_says_that_it_needs_a_daemon(program):
    assert refused(program(harness.DIGITS_CUDA)) == \
        "digits: rank 0: cannot train: this program computes on GPU 0 and needs a gradsyncd that serves " \
        "it; try gradsyncctl --device cuda:0 run"


@pytest.mark.parametrize("device, example, arguments, why", [
    ("cpu", harness.DIGITS_CUDA, [], "gradsyncd serves cpu, and this program computes on GPU 0; choose "
     "another daemon with GRADSYNC_DEVICE, or another GPU with --device"),
    ("cuda:0", harness.DIGITS_CUDA, ["--device", 1], "gradsyncd serves cuda:0, and this program computes on "
     "GPU 1; choose another daemon with GRADSYNC_DEVICE, or another GPU with --device"),
    ("cuda:0", harness.DIGITS, [], "gradsyncd serves cuda:0, and this program computes on the CPU; "
     "digits_cuda is for GPUs"),
])
def test_a_daemon_of_another_device(device, example, arguments, why, daemon, program, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    served = daemon(device=device)
    run = program(example, *arguments, socket=served.socket, env=ALONE)
    assert refused(run) == f"digits: rank 0: cannot train: {why}"


def test_the_second_gpu(on_cpu, daemon, start, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    found = finish(start(daemon(device="cuda:1"), 2, EPOCHS, "--device", 1))
    assert curve(found) == curve(on_cpu(2, EPOCHS))


def test_the_program_for_cpus_has_no_gpu_to_choose(program):
    assert refused(program(harness.DIGITS, "--device", 0)) == \
        "digits: this program computes on the CPU: --device is for digits_cuda"


@pytest.mark.heavy      # a program that ends while threads live is nothing for the search for leaks
def test_a_gpu_that_fails_is_named(daemon, program):
    served = daemon(device="cuda:0")
    run = program(harness.DIGITS_CUDA, socket=served.socket,
                  env={"FAKE_GPU_FAIL": "cuLaunchKernel:100:719", **ALONE})
    line = refused(run)
    assert line.startswith("digits: GPU 0: digits_") and line.endswith(": CUDA_ERROR_LAUNCH_FAILED"), line
