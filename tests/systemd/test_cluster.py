# SPDX-License-Identifier: Apache-2.0
"""Daemons with devices and the coordinator as services, and a job over both daemons that goes on while each
of them is restarted. They read what the manual says, and find each other over TCP."""
import json
import re

import pytest

from harness import wait_until
from job import form, leave

COORDINATOR = "gradsyncd-coordinator.service"
DAEMONS = ("gradsyncd@cpu.service", "gradsyncd@cpu:two.service")
SOCKETS = ("/run/gradsync/cpu/socket", "/run/gradsync/cpu:two/socket")
END = "/var/tmp/end-of-training"


@pytest.fixture
def cluster(machine):
    machine.run("mkdir", "-p", "/etc/gradsync")
    machine.run("sh", "-ec", "umask 077; gradsyncctl key new > /etc/gradsync/key")
    machine.write("/etc/gradsync/coordinator.conf", "[cluster]\nlisten = lo:7700\n")
    machine.write("/etc/gradsync/gradsyncd.conf", "[cluster]\ncoordinator = 127.0.0.1:7700\n")
    machine.write("/etc/systemd/system/gradsyncd@.service.d/key.conf",
                  "[Service]\nLoadCredential=gradsync-key:/etc/gradsync/key\n")
    machine.systemctl("daemon-reload")
    machine.systemctl("start", COORDINATOR, *DAEMONS)
    return machine


def step_of(machine, socket):
    told = machine.run("gradsyncctl", "status", "--json", "--socket", socket, user="alice",
                       check=False).stdout
    found = [job["step"] for job in json.loads(told or '{"jobs": []}')["jobs"] if job["name"] == "spread"]
    return found[0] if found else 0


def goes_on(machine, more=20):
    """Twenty more steps, as each daemon says. One that has just begun may not know of any yet."""
    wanted = max(step_of(machine, socket) for socket in SOCKETS) + more
    for socket in SOCKETS:
        wait_until(lambda socket=socket: step_of(machine, socket) >= wanted, f"step {wanted}")


def next_process(machine, unit, end):
    before = machine.main_pid(unit)
    end()
    wait_until(lambda: machine.follows(unit, before), f"another process of {unit}")


def test_a_job_over_two_services_and_their_coordinator(cluster, trainers):
    cluster.run("rm", "-f", END)
    members = form([*trainers("alice", 1, GRADSYNC_SOCKET=SOCKETS[0]),
                    *trainers("alice", 1, GRADSYNC_SOCKET=SOCKETS[1])], "spread")
    for each in members:
        each.say(f"train until={END} collect=1")
    goes_on(cluster)
    for unit in (DAEMONS[1], COORDINATOR, DAEMONS[0]):
        next_process(cluster, unit, lambda unit=unit: cluster.systemctl("restart", unit))
        goes_on(cluster)
    cluster.run("touch", END)
    lines = [each.line() for each in members]
    assert all(re.fullmatch("OK .* void=0 .* wrong=0", line) for line in lines), lines

    cluster.run("rm", "-f", END)
    for each in members:
        each.say(f"train until={END} collect=1")
    goes_on(cluster)
    for unit in (DAEMONS[1], COORDINATOR):
        next_process(cluster, unit,
                     lambda unit=unit: cluster.systemctl("kill", "--kill-who=main", "--signal=KILL", unit))
        goes_on(cluster)
    cluster.run("touch", END)
    lines = [each.line() for each in members]
    assert all(line.startswith("OK ") and line.endswith("wrong=0") for line in lines), lines
    leave(members)


def test_a_coordinator_without_a_key_says_so(machine):
    machine.write("/etc/gradsync/coordinator.conf", "[cluster]\nlisten = lo:7700\n")
    assert machine.systemctl("start", COORDINATOR, check=False).returncode != 0
    machine.wait_journal("[Cc]redentials", f"UNIT={COORDINATOR}")
