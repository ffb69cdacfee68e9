# SPDX-License-Identifier: Apache-2.0
"""The fake GPU: what the project relies on in a driver holds on it, as it shall on hardware, and a
program that breaks a rule is noticed."""
import ctypes
import os
import subprocess
import time

import pytest

DEADLINE = float(os.environ.get("GRADSYNC_TEST_DEADLINE", "60"))


class Machine:
    """A machine with a fake GPU of its own."""

    def __init__(self, build, folder):
        self.fakes, self.folder = build / "tests/fakes", folder
        self.driver = self.fakes / "gpu/libcuda.so.1"

    def environment(self, **more):
        return {**os.environ, "FAKE_GPU": str(self.folder), "LD_LIBRARY_PATH": str(self.driver.parent),
                "FAKE_GPU_KERNELS": str(self.fakes / "fake-kernels.so"), **more}

    def log(self):
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def wait_until_quiet(self):
        """All contexts and memory are gone: of killed processes, too, and after their last work."""
        def check():
            return run([self.fakes / "gpu/fake-gpu-context", "check"], self.environment()).returncode == 0
        wait_until(check, "the GPU to be empty")


def run(command, environment, timeout=None):
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False,
                          timeout=timeout)


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"waited {DEADLINE} s for {what}"
        time.sleep(0.005)


@pytest.fixture
def machine(build, tmp_path):
    yield Machine(build, tmp_path)
    (tmp_path / "hold").unlink(missing_ok=True)     # or contexts stay for ever


@pytest.mark.parametrize("mode", [{}, {"FAKE_GPU_MPS": "1"}, {"FAKE_GPU_DELAY": "10000"},
                                  {"FAKE_GPU_DEVICES": "2"}],
                         ids=["turns", "mps", "slow", "two"])
def test_the_fake_gpu_conforms(mode, machine):
    done = run([machine.fakes / "gpu/conformance", "--driver", machine.driver], machine.environment(**mode))
    assert done.returncode == 0 and "FAILS" not in done.stdout, done.stdout + done.stderr
    machine.wait_until_quiet()
    assert machine.log() == ""


@pytest.mark.gpu
def test_hardware_conforms(build):
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.skip(f"no driver: {error}")
    done = run([build / "tests/fakes/gpu/conformance"], os.environ)
    assert done.returncode == 0 and "FAILS" not in done.stdout, done.stdout + done.stderr


BROKEN = {
    "two_processes_write": "a fill writes bytes 4095 to 8191 of memory",
    "another_process_reads_what_is_being_written": "a copy reads bytes 4095 to 8191 of memory",
    "another_process_writes_what_is_being_read": "a fill writes bytes 4095 to 8191 of memory",
    "two_streams_without_a_wait": "a fill writes bytes 0 to 4096 of memory",
    "unmap_while_in_use": "is unmapped or freed while",
    "unmap_before_use": "a fill uses memory that is not mapped",
    "free_while_another_has_it_open": "is freed while another context has it open",
    "leave_a_handle": "the client has left 1 handles, 0 mappings, 0 streams, 0 events",
    "leave_allocations": "the client has left 0 handles, 2 mappings, 0 streams, 0 events",
    "leave_streams_and_events": "the client has left 0 handles, 0 mappings, 1 streams, 1 events",
}


@pytest.mark.parametrize("rule", BROKEN)
@pytest.mark.parametrize("mode", [{}, {"FAKE_GPU_MPS": "1"}], ids=["turns", "mps"])
def test_who_breaks_a_rule_is_noticed(mode, rule, machine):
    program = subprocess.Popen([machine.fakes / "gpu/rules", f"rule_{rule}"],
                               env=machine.environment(**mode), text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: BROKEN[rule] in machine.log(), f"'{BROKEN[rule]}' in {machine.folder}/log")
    finally:
        (machine.folder / "hold").unlink(missing_ok=True)
        said = program.communicate(timeout=DEADLINE)[1]
    assert program.returncode == 0, said
    machine.wait_until_quiet()
    assert len(machine.log().splitlines()) == 1, machine.log()


@pytest.mark.parametrize("rule", [
    "two_processes_read", "a_copy_to_pinned_memory_does_not_wait", "a_copy_from_pinned_memory_reads_late",
    "an_event_is_its_last_record", "events_are_destroyed_before_they_are_over",
    "work_outlives_its_killed_process"])
@pytest.mark.parametrize("mode", [{}, {"FAKE_GPU_MPS": "1"}], ids=["turns", "mps"])
def test_what_breaks_no_rule_is_left_in_peace(mode, rule, machine):
    done = run([machine.fakes / "gpu/rules", f"good_{rule}"], machine.environment(**mode), timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    machine.wait_until_quiet()
    assert machine.log() == ""
