# SPDX-License-Identifier: Apache-2.0
"""Two machines with a network between them, set up as the manual says: the coordinator is a service of one,
and each has a daemon for its CPUs. A job with a member on each goes on while these services are restarted and
killed."""
import pytest

from harness import wait_until
from job import KILL, RESTART, daemons_of, form, leave, step_of, training
from machine import SERVICE, cable

COORDINATOR = "gradsyncd-coordinator.service"
ADDRESSES = ("10.79.0.1", "10.79.0.2")


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


def steps(pair):
    """The step of each daemon, as it says."""
    return [max(map(step_of, daemons_of(machine)), default=0) for machine in pair]


def places(machine):
    job, = daemons_of(machine)[0]["jobs"]
    return [(member["rank"], member["host"]) for member in job["members"]]


def test_a_job_over_two_machines(pair, trainers):
    one, other = pair
    members = form([*trainers("alice", 1, on=one), *trainers("alice", 1, on=other)], "spread")
    wait_until(lambda: places(one) == [(0, "node"), (1, "other")],
               "what the other machine has shown of itself")

    def train(command, *units):
        return training(one, members, lambda: steps(pair),
                        [(where, [unit], command) for where, unit in units])

    assert train(RESTART, (other, SERVICE), (one, COORDINATOR), (one, SERVICE)) == [0, 0]
    void = train(KILL, (other, SERVICE), (one, COORDINATOR))
    assert max(void) <= 2, void        # of the daemon; the coordinator was back within its patience
    leave(members)
