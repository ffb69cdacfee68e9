# SPDX-License-Identifier: Apache-2.0
"""The service is restarted, or killed, under trainers that do step after step: none of them ends."""
from job import KILL, RESTART, STOP_START, daemons_of, form, leave, step_of, training
from machine import SERVICE


def void_steps(machine, trainers, commands):
    """The number of void steps of each of two trainers, over these changes of daemons."""
    machine.systemctl("start", SERVICE)
    members = form(trainers("alice", 2), "loaded")

    def steps():
        return [step_of(each, "loaded") for each in daemons_of(machine)] or [0]

    void = training(machine, members, steps, [(machine, [SERVICE], command) for command in commands])
    leave(members)
    return void


def test_an_upgrade_costs_no_step(machine, trainers):
    assert void_steps(machine, trainers, 3 * [RESTART]) == [0, 0]
    assert machine.show(SERVICE, "Result") == "success"


def test_a_crash_costs_one_step_at_most(machine, trainers):
    crashes = 8                         # more than a manager allows unless it is told otherwise
    assert all(count <= crashes for count in void_steps(machine, trainers, crashes * [KILL]))


def test_stopped_and_started_as_by_a_package(machine, trainers):
    """Some packages stop the service before they replace its files, and start it afterwards."""
    assert void_steps(machine, trainers, [STOP_START]) == [0, 0]
