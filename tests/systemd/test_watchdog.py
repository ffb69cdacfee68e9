# SPDX-License-Identifier: Apache-2.0
"""A daemon that does not get on, all of it or one worker, is killed by its manager and comes back."""
import pytest

from harness import wait_until
from machine import SERVICE
from traced import Traced, thread


@pytest.fixture
def watched(machine):
    """The host's number of the daemon's main process, which the manager watches closely."""
    machine.write("/etc/systemd/system/gradsyncd@.service.d/watchdog.conf",
                  "[Service]\nWatchdogSec=10s\nRestartSec=100ms\n")
    machine.systemctl("daemon-reload")
    machine.systemctl("start", SERVICE)
    return machine.host_pid(machine.main_pid(SERVICE))


def came_back(machine, before):
    """Waits for the daemon that follows, which must serve."""
    wait_until(lambda: int(machine.show(SERVICE, "NRestarts")) > 0 and machine.active(SERVICE) == "active",
               "the restart of the daemon")
    assert machine.host_pid(machine.main_pid(SERVICE)) != before
    machine.wait_journal("Failed with result 'watchdog'", "_PID=1", f"UNIT={SERVICE}")
    machine.run("gradsyncctl", "run", "--socket", "/run/gradsync/cpu/socket", "-n", "2", "--",
                "/opt/trainers/hello", user="alice")


def test_a_stopped_daemon(machine, watched):
    machine.systemctl("kill", "--kill-who=main", "--signal=STOP", SERVICE)
    came_back(machine, watched)


def test_a_stopped_worker(machine, watched):
    """The event loop goes on all the time; it is what notices."""
    daemon = machine.main_pid(SERVICE)
    worker = Traced(thread(watched, "gs-worker-0"))
    try:
        machine.wait_journal("worker threads do not answer; the watchdog is not fed", f"_PID={daemon}")
        wait_until(worker.killed, "the end of the stopped thread")
    except AssertionError:
        worker.release()
        raise
    came_back(machine, watched)
