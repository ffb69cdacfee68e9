# SPDX-License-Identifier: Apache-2.0
"""Two machines with a network between them, set up as the manual says: the coordinator is a service of one,
and each has a daemon for its CPUs. A job with a member on each goes on while these services are restarted and
killed."""
import json
import re

import pytest

from harness import wait_until
from job import form, leave
from machine import SERVICE, cable

COORDINATOR = "gradsyncd-coordinator.service"
ADDRESSES = ("10.79.0.1", "10.79.0.2")
END = "/var/tmp/end-of-training"


@pytest.fixture
def pair(machine, other_machine):
    """Both, the first one with the coordinator. To the kernel they are one machine, hence host_id."""
    machine.run("mkdir", "-p", "/etc/gradsync")
    machine.run("sh", "-ec", "umask 077; gradsyncctl key new > /etc/gradsync/key")
    machine.write("/etc/gradsync/coordinator.conf", "[cluster]\nlisten = eth0:7700\n")
    for each in (machine, other_machine):
        each.write("/etc/gradsync/gradsyncd.conf",
                   f"[cluster]\ncoordinator = {ADDRESSES[0]}:7700\nhost_id = {each.hostname}\n")
        each.write("/etc/systemd/system/gradsyncd@.service.d/key.conf",
                   "[Service]\nLoadCredential=gradsync-key:/etc/gradsync/key\n")
        each.systemctl("daemon-reload")
    key = other_machine.write("/etc/gradsync/key", (machine.root / "etc/gradsync/key").read_text("utf-8"))
    key.chmod(0o600)
    with cable((machine, other_machine), ADDRESSES):
        machine.systemctl("start", COORDINATOR)
        for each in (machine, other_machine):
            each.systemctl("start", SERVICE)
        yield machine, other_machine


def job_at(machine):
    """The job as the daemon of that machine shows it; None: it does not know it, or does not answer."""
    told = machine.run("gradsyncctl", "status", "--json", user="alice", check=False).stdout
    found = [job for job in json.loads(told or '{"jobs": []}')["jobs"] if job["name"] == "spread"]
    return found[0] if found else None


def step_at(machine):
    return (job_at(machine) or {"step": 0})["step"]


def goes_on(pair, more=20):
    """That many steps more, as both daemons say. One that has just begun may not know of any yet."""
    wanted = max(step_at(each) for each in pair) + more
    for each in pair:
        wait_until(lambda each=each: step_at(each) >= wanted, f"step {wanted} on {each.hostname}")


def next_process(machine, unit, *command):
    before = machine.main_pid(unit)
    machine.systemctl(*command, unit)
    wait_until(lambda: machine.follows(unit, before), f"another process of {unit} on {machine.hostname}")


KILL = ("kill", "--kill-who=main", "--signal=KILL")


def training(pair, members, meanwhile):
    """How many steps were void for each; `meanwhile` are (machine, unit, what systemctl is told)."""
    pair[0].run("rm", "-f", END)        # where rank 0 is
    for each in members:
        each.say(f"train until={END} collect=1")
    goes_on(pair)
    for machine, unit, command in meanwhile:
        next_process(machine, unit, *command)
        goes_on(pair)
    pair[0].run("touch", END)
    lines = [each.line() for each in members]
    found = [re.fullmatch(r"OK .*\bvoid=(\d+)\b.* wrong=0", line or "") for line in lines]
    assert all(found), lines
    return [int(match[1]) for match in found]


def test_a_job_over_two_machines(pair, trainers):
    one, other = pair
    members = form([*trainers("alice", 1, on=one), *trainers("alice", 1, on=other)], "spread")
    places = [(member["rank"], member["host"]) for member in job_at(one)["members"]]
    assert places == [(0, "node"), (1, "other")]

    restarts = [(other, SERVICE), (one, COORDINATOR), (one, SERVICE)]
    assert training(pair, members, [(*each, ("restart",)) for each in restarts]) == [0, 0]
    void = training(pair, members, [(other, SERVICE, KILL), (one, COORDINATOR, KILL)])
    assert max(void) <= 2, void        # of the daemon; the coordinator was back within its patience
    leave(members)
