# SPDX-License-Identifier: Apache-2.0
"""Trainers of a machine that work together: member.c of the integration tests, driven line by line."""
import json
import re

from harness import wait_until
from trainers import join, together

#: While it is not there trainers go on, at the machine of rank 0.
END = "/var/tmp/end-of-training"
#: The words for systemctl, one command after the other.
RESTART, STOP_START = ("restart",), ("stop", "start")
KILL = ("kill --kill-who=main --signal=KILL",)


def form(members, name, elements=4096):
    """A job with a plan of two parameters."""
    together(members, "open")
    join(members, name)
    for parameter in ("embed.weight", "body.weight"):
        together(members, f"param {parameter} f32 {elements}")
    together(members, "plan first=4096 bucket=4096")
    return members


def leave(members):
    together(members, "leave")
    together(members, "close")


def next_processes(machine, units, commands):
    """Tells systemctl to do that to the units, and waits for the processes that follow."""
    before = [machine.main_pid(unit) for unit in units]
    for command in commands:
        machine.systemctl(*command.split(), *units)
    for unit, pid in zip(units, before):
        wait_until(lambda unit=unit, pid=pid: machine.follows(unit, pid),
                   f"another process of {unit} on {machine.hostname}")


def daemons_of(machine, *flags):
    """The status of each daemon, as `gradsyncctl status` shows it. A daemon that is just starting may be
    missing."""
    told = machine.run("gradsyncctl", "status", "--json", *flags, user="alice", check=False).stdout
    told = json.loads(told or '{"daemons": []}')
    return told.get("daemons", [told])


def step_of(daemon, name="spread"):
    """The step of a job, as a daemon says. A daemon that has just started may not know the job yet."""
    return max((job["step"] for job in daemon["jobs"] if job["name"] == name), default=0)


def go_on(steps, more=20):
    """Waits for that many more steps on all daemons. steps() gives the step of each."""
    wanted = max(steps()) + more
    wait_until(lambda: min(steps()) >= wanted, f"step {wanted}")


def training(machine, members, steps, meanwhile):
    """The members train on, rank 0 on that machine, while things happen: arguments of next_processes(). How
    many steps were void for each."""
    machine.run("rm", "-f", END)
    for each in members:
        each.say(f"train until={END} collect=1")
    go_on(steps)
    for what in meanwhile:
        next_processes(*what)
        go_on(steps)
    machine.run("touch", END)
    lines = [each.line() for each in members]
    found = [re.fullmatch(r"OK .*\bvoid=(\d+)\b.* wrong=0", line or "") for line in lines]
    assert all(found), lines
    return [int(match[1]) for match in found]
