# SPDX-License-Identifier: Apache-2.0
"""A user's own daemon: under `systemd --user`, for a user whom the system's service would not serve."""
import json

import pytest

from harness import wait_until
from machine import SERVICE, SOCKET, Manager


class Bob(Manager):
    """The user, and a service manager that runs for the user without a login."""

    def __init__(self, machine):
        self.machine = machine
        self.uid = machine.uid("bob")
        self.manager = f"user@{self.uid}.service"
        self.runtime = f"/run/user/{self.uid}"
        self.path = f"{self.runtime}/gradsync/cpu/socket"
        machine.run("loginctl", "enable-linger", "bob")
        wait_until(lambda: machine.active(self.manager) == "active", "bob's manager")

    def run(self, *command, **options):
        return self.machine.run(*command, user="bob", env={"XDG_RUNTIME_DIR": self.runtime}, **options)

    def systemctl(self, *words, **options):
        return self.run("systemctl", "--user", *words, **options)

    def hello(self):
        """The output of a job of two, which this user's daemon and no other serves."""
        done = self.run("gradsyncctl", "run", "--socket", self.path, "-n", "2", "--", "/opt/trainers/hello")
        return sorted(done.stdout.splitlines())

    def leave(self):
        self.systemctl("disable", "--quiet", "--now", SOCKET, SERVICE)
        self.machine.run("loginctl", "disable-linger", "bob")
        self.machine.systemctl("stop", self.manager)


@pytest.fixture
def bob(machine):
    user = Bob(machine)
    yield user
    user.leave()


def test_it_serves_its_user_alone(machine, bob):
    bob.systemctl("start", SOCKET)
    assert machine.stat(bob.path) == ["600 bob:bob socket"]
    assert bob.show(SERVICE, "ActiveState") == "inactive"
    assert bob.hello()[1] == "[1] rank 1 of 2: the average is 1.5"

    assert bob.show(SERVICE, "ActiveState") == "active" and bob.show(SERVICE, "StatusText")
    pid = bob.show(SERVICE, "MainPID")
    assert machine.run("ps", "-o", "user=,comm=", "-p", pid).stdout.split() == ["bob", "gradsyncd"]
    told = json.loads(bob.run("gradsyncctl", "status", "--json").stdout)
    assert told["daemon"]["pid"] == int(pid), told
    assert bob.path in bob.run("gradsyncctl", "status").stdout
    assert bob.run("gradsyncctl", "doctor").stdout.count("ok ") > 5
    assert machine.active(SERVICE) == "inactive", "the system's daemon was not asked"

    for user in ("alice", "mallory"):
        refused = machine.run("gradsyncctl", "status", "--socket", bob.path, user=user, check=False)
        assert refused.returncode == 5 and "ermission denied" in refused.stderr, refused
    record = machine.wait_journal("formed with 2 members", f"_PID={pid}")
    assert record["_SYSTEMD_USER_UNIT"] == SERVICE and record["_UID"] == bob.uid and record["GRADSYNC_JOB"]


def test_its_verbs_are_those_of_the_system(machine, bob):
    bob.systemctl("start", SERVICE)
    pid = bob.show(SERVICE, "MainPID")
    bob.systemctl("reload", SERVICE)
    machine.wait_journal("configuration reloaded", f"_PID={pid}")
    bob.systemctl("restart", SERVICE)
    assert bob.show(SERVICE, "MainPID") not in (pid, "0")
    bob.systemctl("kill", "--kill-who=main", "--signal=KILL", SERVICE)
    bob.hello()
    wait_until(lambda: bob.show(SERVICE, "ActiveState") == "active", "the service, restarted")
    assert bob.show(SERVICE, "WatchdogUSec") == "30s"

    bob.systemctl("start", "gradsyncd@cpu:two.socket")
    bob.systemctl("stop", SERVICE, SOCKET)
    assert not machine.exists(bob.path)
    bob.run("gradsyncctl", "status", "--device", "cpu:two")
    bob.systemctl("stop", "gradsyncd@cpu:two.socket", "gradsyncd@cpu:two.service")


def test_enabled_it_comes_with_its_manager(machine, bob):
    bob.systemctl("enable", SOCKET)
    machine.systemctl("restart", bob.manager)
    assert bob.show(SOCKET, "ActiveState") == "active"
    bob.hello()
    assert bob.show(SERVICE, "ActiveState") == "active"


def test_its_sandbox(machine, bob):
    bob.systemctl("start", SERVICE)
    pid = machine.host_pid(int(bob.show(SERVICE, "MainPID")))
    with open(f"/proc/{pid}/status", encoding="utf-8") as text:
        facts = dict(line.split(":", 1) for line in text)
    assert int(facts["CapEff"], 16) == 0
    assert (facts["NoNewPrivs"].strip(), facts["Seccomp"].strip()) == ("1", "2")
