# SPDX-License-Identifier: Apache-2.0
"""The journal of the machine: records that can be looked up by job, rank, process and step."""
import json

import pytest

from job import form
from machine import SERVICE
from trainers import ask, step


@pytest.fixture
def job(machine, trainers):
    """A job of alice on a daemon that soon says whom it waits for, and the pids of its ranks."""
    machine.write("/etc/gradsync/gradsyncd.conf", "[daemon]\nstall_notice = 100ms\n")
    machine.systemctl("start", SERVICE)
    members = form(trainers("alice", 2), "journalled")
    step(members)
    told = json.loads(machine.run("gradsyncctl", "status", "--json", user="alice").stdout)
    return members, {member["rank"]: str(member["pid"]) for member in told["jobs"][0]["members"]}


def about(machine, pattern, *matches):
    return machine.wait_journal(pattern, f"_PID={machine.main_pid(SERVICE)}", *matches)


def test_records_say_who_wrote_them(machine, job):
    record = about(machine, "serves device cpu")
    assert record["SYSLOG_IDENTIFIER"] == "gradsyncd" and record["PRIORITY"] == "6"
    assert record["_SYSTEMD_UNIT"] == SERVICE and record["_TRANSPORT"] == "journal"
    assert record["_UID"] == machine.uid("gradsync")
    assert not [field for field in record if field.startswith("GRADSYNC_")]
    formed = about(machine, "formed with 2 members")
    assert formed["GRADSYNC_JOB"] == "journalled"


def test_a_stall_is_found_by_its_job(machine, job):
    members, pids = job
    for each in members:
        ask(each, "fill 1")
    ask(members[0], "ready")
    record = about(machine, "rank 1", "GRADSYNC_JOB=journalled", "GRADSYNC_STEP=2")
    assert record["PRIORITY"] == "4"
    fields = {field: value for field, value in record.items() if field.startswith("GRADSYNC_")}
    assert fields.pop("GRADSYNC_BUCKET").isdigit()
    assert fields.pop("GRADSYNC_PARAMETER") in ("embed.weight", "body.weight")
    assert fields == {"GRADSYNC_JOB": "journalled", "GRADSYNC_GENERATION": "1", "GRADSYNC_RANK": "1",
                      "GRADSYNC_STEP": "2", "GRADSYNC_CLIENT_PID": pids[1],
                      "GRADSYNC_CLIENT_UID": machine.uid("alice")}
    # As the manual page says it.
    said = machine.run("journalctl", "--unit=gradsyncd@cpu", "GRADSYNC_JOB=journalled", "--output=cat").stdout
    assert record["MESSAGE"] in said.splitlines()


def test_a_death_is_found_by_its_process(machine, job):
    _, pids = job
    machine.run("kill", "-KILL", pids[1])
    record = about(machine, "rank 1", f"GRADSYNC_CLIENT_PID={pids[1]}")
    assert (record["GRADSYNC_JOB"], record["GRADSYNC_RANK"], record["PRIORITY"]) == ("journalled", "1", "4")
