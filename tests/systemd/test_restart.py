# SPDX-License-Identifier: Apache-2.0
"""The service is restarted, or killed, under trainers that do step after step: none of them ends."""
from harness import wait_until
from job import END, KILL, daemons_of, form, leave
from machine import SERVICE


def does_steps(machine):
    """Whether the daemon that runs now has the job, and has done some step of it."""
    return any(job["bytes_reduced"] > 0 for daemon in daemons_of(machine) for job in daemon["jobs"])


def loaded(machine, trainers):
    machine.run("rm", "-f", END)
    machine.systemctl("start", SERVICE)
    members = form(trainers("alice", 2), "loaded")
    for each in members:
        each.say(f"train until={END}")
    return members


def next_daemon(machine, end):
    """Ends the daemon once it has done some steps, and waits for the one that follows."""
    wait_until(lambda: does_steps(machine), "steps at this daemon")
    before = machine.main_pid(SERVICE)
    end()
    wait_until(lambda: machine.follows(SERVICE, before), "another daemon")
    wait_until(lambda: does_steps(machine), "steps at the next daemon")


def void_steps(machine, members):
    machine.run("touch", END)
    lines = [each.line() for each in members]
    print(*lines, sep="\n")              # gap_ms with it: how long the trainers were without a step
    assert all(line.startswith("OK ") and line.endswith("wrong=0") for line in lines), lines
    return [int(line.split("void=")[1].split()[0]) for line in lines]


def test_an_upgrade_costs_no_step(machine, trainers):
    members = loaded(machine, trainers)
    for _ in range(3):
        next_daemon(machine, lambda: machine.systemctl("restart", SERVICE))
    assert void_steps(machine, members) == [0, 0]
    leave(members)
    assert machine.show(SERVICE, "Result") == "success"


def test_a_crash_costs_one_step_at_most(machine, trainers):
    members = loaded(machine, trainers)
    crashes = 8                         # more than a manager allows unless it is told otherwise
    for _ in range(crashes):
        next_daemon(machine, lambda: machine.systemctl(*KILL, SERVICE))
    assert all(count <= crashes for count in void_steps(machine, members))
    leave(members)


def test_stopped_and_started_as_by_a_package(machine, trainers):
    """Some packages stop the service before they replace its files, and start it afterwards."""
    members = loaded(machine, trainers)

    def replace():
        machine.systemctl("stop", SERVICE)
        machine.systemctl("start", SERVICE)

    next_daemon(machine, replace)
    assert void_steps(machine, members) == [0, 0]
    leave(members)
