# SPDX-License-Identifier: Apache-2.0
"""The service under its manager: start, stop, restart, reload, enable, activation, several instances."""
import json
import os
import re

import pytest

from harness import wait_until
from job import form, leave
from machine import SERVICE, SOCKET
from trainers import ask, step, together

COORDINATOR = "gradsyncd-coordinator.service"
PATH = "/run/gradsync/cpu/socket"
LOG = f"_SYSTEMD_UNIT={SERVICE}"
DROP_IN = "/etc/gradsync/gradsyncd.conf.d/10-test.conf"
UNIT_DROP_IN = "/etc/systemd/system/gradsyncd@.service.d/10-test.conf"
# With the socket named there is no private daemon when this one cannot be reached.
HELLO = ("gradsyncctl", "run", "--socket", PATH, "-n", "2", "--", "/opt/trainers/hello")


def status(machine, *flags, user="alice"):
    return json.loads(machine.run("gradsyncctl", "status", "--json", *flags, user=user).stdout)


def member_of_rank(machine, rank):
    """The only job's member of this rank, as status shows it."""
    (job,) = status(machine)["jobs"]
    (member,) = [member for member in job["members"] if member["rank"] == rank]
    return member


def test_start_and_stop(machine):
    machine.systemctl("start", SERVICE)                 # returns when the daemon has said that it is ready
    assert (machine.active(SERVICE), machine.active(SOCKET)) == ("active", "active")
    pid = machine.main_pid(SERVICE)
    assert machine.run("ps", "-o", "user=,comm=", "-p", pid).stdout.split() == ["gradsync", "gradsyncd"]
    assert machine.show(SERVICE, "StatusText")
    machine.run(*HELLO, user="alice")

    machine.systemctl("stop", SERVICE)
    assert (machine.active(SERVICE), machine.show(SERVICE, "Result")) == ("inactive", "success")
    assert machine.run("ps", "-p", pid, check=False).returncode == 1
    assert machine.active(SOCKET) == "active", "clients can still connect, which starts it again"

    machine.systemctl("start", SERVICE)
    machine.systemctl("stop", SOCKET)                   # ends both
    assert (machine.active(SERVICE), machine.active(SOCKET)) == ("inactive", "inactive")
    assert not machine.exists(PATH)


def test_a_client_starts_it(machine):
    machine.systemctl("start", SOCKET)
    assert machine.active(SERVICE) == "inactive"
    told = machine.run(*HELLO, user="alice").stdout
    assert "[0] rank 0 of 2: the average is 1.5" in told.splitlines()
    assert machine.active(SERVICE) == "active"
    pid = machine.main_pid(SERVICE)
    machine.run(*HELLO, user="alice")
    assert machine.main_pid(SERVICE) == pid, "it goes on when its clients have left"


def test_stopping_lets_a_step_end(machine, trainers):
    """Between the end of the service and its next start no client is told that there is no daemon."""
    machine.write(DROP_IN, "[daemon]\ndrain_timeout = 60s\n")      # the journal may be slow to tell
    machine.systemctl("start", SERVICE)
    daemon = machine.main_pid(SERVICE)
    members = form(trainers("alice", 2), "draining")
    for each in members:
        ask(each, "fill 1")
    ask(members[0], "ready")
    stop = machine.start("systemctl", "stop", SERVICE)
    machine.wait_journal("ends on SIGTERM: open steps have", f"_PID={daemon}")
    ask(members[1], "ready")
    together(members, "finish")
    assert stop.wait() == 0, stop.told()
    stop.destroy()
    assert machine.show(SERVICE, "Result") == "success"
    machine.run(*HELLO, user="alice")


def test_restart(machine):
    machine.systemctl("start", SERVICE)
    before, inode = machine.main_pid(SERVICE), machine.run("stat", "--format=%i", PATH).stdout
    machine.systemctl("restart", SERVICE)
    assert machine.main_pid(SERVICE) != before and machine.show(SERVICE, "NRestarts") == "0"
    assert machine.run("stat", "--format=%i", PATH).stdout == inode, "the socket has been there all the time"
    machine.run(*HELLO, user="alice")


def test_the_identity_lies_in_the_state_directory(machine):
    """Each instance has an identity in a directory of its own. It stays over restarts and crashes."""
    for service, kept in ((SERVICE, "cpu"), ("gradsyncd@cpu:left.service", "cpu:left")):
        machine.systemctl("start", service)
        assert machine.stat(f"/var/lib/gradsync/{kept}", f"/var/lib/gradsync/{kept}/identity") == [
            "700 gradsync:gradsync directory", "600 gradsync:gradsync regular file"]
    machine.systemctl("stop", "gradsyncd@cpu:left.service", "gradsyncd@cpu:left.socket")
    before = status(machine, "--socket", PATH)["daemon"]
    assert before["no_identity"] is None
    machine.systemctl("restart", SERVICE)
    after = status(machine, "--socket", PATH)["daemon"]
    assert (after["node"], after["starts"]) == (before["node"], before["starts"] + 1)


def test_reload(machine, trainers):
    def third():
        return machine.run("gradsyncctl", "status", user="alice", check=False).returncode == 0

    machine.systemctl("start", SERVICE)
    pid = machine.main_pid(SERVICE)
    members = form(trainers("alice", 2), "reloaded")
    step(members)

    machine.write(DROP_IN, "[limits]\nclients_per_uid = 2\n")
    machine.systemctl("reload", SERVICE)
    machine.wait_journal("configuration reloaded", LOG)
    assert not third(), "two clients of this user are there already"

    machine.write(DROP_IN, "[limits]\nclients_per_uid = 3\nno_such_key = 1\n")
    machine.systemctl("reload", SERVICE)
    told = machine.wait_journal("configuration not reloaded", LOG)["MESSAGE"]
    assert f"{DROP_IN}:3" in told and "no_such_key" in told
    assert not third(), "the old settings stay"

    machine.write(DROP_IN, "[limits]\nclients_per_uid = 3\n")
    machine.systemctl("reload", SERVICE)
    wait_until(third, "a third client")
    step(members)
    leave(members)
    assert machine.main_pid(SERVICE) == pid and machine.active(SERVICE) == "active"


def scrape(machine, host):
    """The machine has nothing but a shell to ask with."""
    asked = machine.run("bash", "-c", f"exec 3<>/dev/tcp/{host}/9464 && "
                        "printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3", user="alice")
    assert asked.stdout.startswith("HTTP/1.1 200 OK"), asked.stdout
    return asked.stdout


@pytest.mark.parametrize("address, host", [("127.0.0.1:9464", "127.0.0.1"), ("[::1]:9464", "::1")])
def test_metrics_over_tcp(machine, address, host):
    """In the sandbox; the next daemon gets the port, and one for another device is told that it is taken."""
    machine.write(DROP_IN, f"[daemon]\nmetrics_listen = {address}\n")
    machine.systemctl("start", SERVICE)
    assert 'gradsync_jobs{device="cpu"} 0' in scrape(machine, host)
    machine.systemctl("restart", SERVICE)
    assert 'gradsync_jobs{device="cpu"} 0' in scrape(machine, host)
    before = machine.main_pid(SERVICE)
    machine.systemctl("kill", "--kill-who=main", "--signal=KILL", SERVICE)
    wait_until(lambda: machine.follows(SERVICE, before), "the service, restarted")
    machine.run(*HELLO, user="alice")
    assert 'gradsync_jobs{device="cpu"}' in scrape(machine, host)
    machine.systemctl("start", "gradsyncd@cpu:two.service", check=False)
    told = machine.wait_journal("metrics_listen", "_SYSTEMD_UNIT=gradsyncd@cpu:two.service")["MESSAGE"]
    assert f"another process listens on {address}" in told and "a port of its own" in told
    assert machine.active("gradsyncd@cpu:two.service") == "active", "jobs do not wait for it"


def test_a_mistake_in_the_settings_stops_the_start(machine):
    machine.write(DROP_IN, "[daemon]\nworkers = many\n")
    # The unit's attempts take longer than its interval on a slow machine, and then there is no last one.
    machine.write(UNIT_DROP_IN, "[Unit]\nStartLimitIntervalSec=60s\nStartLimitBurst=5\n")
    machine.systemctl("daemon-reload")
    assert machine.systemctl("start", SERVICE, check=False).returncode != 0
    told = machine.wait_journal(re.escape(DROP_IN), LOG)["MESSAGE"]
    assert f"{DROP_IN}:2" in told and "many" in told
    # The manager tries again a few times; then it gives up, on the socket too.
    wait_until(lambda: machine.active(SERVICE) == machine.active(SOCKET) == "failed", "the last attempt")
    assert machine.run("gradsyncctl", "status", user="alice", check=False).returncode == 3
    machine.write(DROP_IN, "")
    machine.systemctl("reset-failed", SERVICE)          # what the manual page asks for
    machine.systemctl("start", SOCKET)
    machine.run(*HELLO, user="alice")


def test_a_coordinator_without_a_key_says_so(machine):
    machine.write("/etc/gradsync/coordinator.conf", "[cluster]\nlisten = lo:7700\n")
    assert machine.systemctl("start", COORDINATOR, check=False).returncode != 0
    machine.wait_journal("[Cc]redentials", f"UNIT={COORDINATOR}")


def test_two_instances_do_not_touch_each_other(machine, trainers):
    units = [f"gradsyncd@{instance}" for instance in ("cpu", "cpu:two")]
    for unit in units:
        machine.systemctl("start", f"{unit}.service")
    pids = [machine.main_pid(f"{unit}.service") for unit in units]
    assert pids[0] != pids[1]
    first, second = (trainers("alice", 2, GRADSYNC_DEVICE=device) for device in ("cpu", "cpu:two"))
    for members in (first, second):
        step(form(members, "same-name"))                # jobs of the same name, one on each
    for device in ("cpu", "cpu:two"):
        told = status(machine, "--device", device)
        assert [(job["name"], len(job["members"])) for job in told["jobs"]] == [("same-name", 2)]

    leave(first)
    machine.systemctl("stop", "gradsyncd@cpu.service", "gradsyncd@cpu.socket")
    assert not machine.exists(PATH)
    assert machine.stat("/run/gradsync", "/run/gradsync/cpu:two", "/run/gradsync/cpu:two/socket") == [
        "755 root:root directory", "755 root:root directory", "660 root:gradsync socket"]
    step(second)
    assert machine.main_pid("gradsyncd@cpu:two.service") == pids[1]
    machine.run("gradsyncctl", "status", "--device", "cpu:two", user="alice")

    machine.systemctl("start", "gradsyncd@cpu.socket")  # and the other way round
    machine.run(*HELLO, user="alice")
    leave(second)
    machine.systemctl("stop", "gradsyncd@cpu:two.service", "gradsyncd@cpu:two.socket")
    machine.run(*HELLO, user="alice")


@pytest.mark.parametrize("unit, links", [
    (SOCKET, {"sockets.target.wants/gradsyncd@cpu.socket"}),
    (SERVICE, {"sockets.target.wants/gradsyncd@cpu.socket", "multi-user.target.wants/gradsyncd@cpu.service"}),
])
def test_enabled_it_is_there_after_a_boot(machine, unit, links):
    """A boot makes everything below /run anew."""
    machine.systemctl("enable", unit)
    folder = machine.root / "etc/systemd/system"
    assert {str(path.relative_to(folder)) for path in folder.glob("*.wants/gradsync*")} == links
    machine.power_off()
    machine.boot()
    assert machine.stat("/run/gradsync") == ["755 root:root directory"]
    assert machine.active(SOCKET) == "active"
    assert machine.active(SERVICE) == ("active" if unit == SERVICE else "inactive")
    machine.run(*HELLO, user="alice")
    machine.systemctl("disable", unit)
    assert not list(folder.glob("*.wants/gradsync*"))


def test_what_the_sandbox_takes_and_what_it_leaves(machine, trainers):
    machine.systemctl("start", SERVICE)
    members = form(trainers("alice", 2), "boxed", elements=1 << 20)
    for _ in range(3):
        step(members)
    together(members, "allreduce 4096 f32 sum")         # outside of steps, with memory of its own

    pid = machine.host_pid(machine.main_pid(SERVICE))
    facts = dict(re.findall(r"^(\w+):\s+(.*)$", open(f"/proc/{pid}/status", encoding="utf-8").read(), re.M))
    assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    for path in ("/", "/usr", "/etc", "/var"):
        assert os.statvfs(f"/proc/{pid}/root{path}").f_flag & os.ST_RDONLY, path
    assert os.listdir(f"/proc/{pid}/root/home") == [], "homes are hidden"
    assert os.listdir(f"/proc/{pid}/root/tmp") == []

    # It sees the processes of its clients all the same: status says what state one is in.
    pid = member_of_rank(machine, 1)["pid"]
    machine.run("kill", "-STOP", pid)
    for each in members:
        each.say("ready")
    wait_until(lambda: "stopped" in json.dumps(member_of_rank(machine, 1)), "a stopped member")
    assert member_of_rank(machine, 1)["uid"] == int(machine.uid("alice"))
    machine.run("kill", "-CONT", pid)
    assert all(each.line().startswith("OK") for each in members)
    together(members, "finish")
    leave(members)
