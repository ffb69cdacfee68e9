# SPDX-License-Identifier: Apache-2.0
"""The units as systemd's own tools see them: they load, they are hardened, and the user and the folder come out as meant."""
import os
import pathlib
import re
import stat
import subprocess

import pytest

from harness import DAEMON

TREE = pathlib.Path(__file__).resolve().parents[2]
COORDINATOR = ("gradsyncd-coordinator.service", "gradsyncd-coordinator.socket")
EXPOSURE = 20                           # ten times what systemd-analyze prints


def adapted(build, folder, kind=""):
    """The units of a kind in a folder of their own, the service starting the daemon of this build."""
    names = ("gradsyncd@.service", "gradsyncd@.socket", *(() if kind else COORDINATOR))
    for name in names:
        text = (build / "systemd" / kind / name).read_text()
        (folder / name).write_text(re.sub(r"^ExecStart=\S+/gradsyncd ", f"ExecStart={build / DAEMON} ", text, flags=re.M))
    return folder


@pytest.fixture
def units(build, tmp_path):
    return adapted(build, tmp_path)


@pytest.fixture
def user_units(build, tmp_path):
    return adapted(build, tmp_path, "user")


def analyze(*arguments, env=None):
    return subprocess.run(["systemd-analyze", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env={**os.environ, **(env or {})})


def keys(path):
    """{key: [value, …]} of a unit, whatever the section."""
    found = {}
    for line in path.read_text().splitlines():
        match = re.match(r"([A-Za-z]+)=(.*)", line)
        if match:
            found.setdefault(match[1], []).append(match[2])
    return found


@pytest.mark.parametrize("names", [("gradsyncd@.service", "gradsyncd@.socket"), COORDINATOR])
def test_units_load_without_a_complaint(units, names):
    done = analyze("verify", "--man=no", *(units / name for name in names))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_mistake_would_be_noticed(units):
    service = units / "gradsyncd@.service"
    service.write_text(service.read_text().replace("NoNewPrivileges=", "NoNewPrivilegs="))
    done = analyze("verify", "--man=no", service, units / "gradsyncd@.socket")
    assert "NoNewPrivilegs" in done.stdout


@pytest.mark.parametrize("name", ["gradsyncd@.service", "gradsyncd-coordinator.service"])
def test_the_service_is_hardened(units, name):
    done = analyze("security", "--offline=yes", f"--threshold={EXPOSURE}", "--no-pager", units / name)
    assert done.returncode == 0, done.stdout
    assert re.search(r"Overall exposure level .*: [01]\.\d", done.stdout), done.stdout


def test_hardening_leaves_what_the_daemon_needs(units):
    """Each of these would break something that no start of the service shows."""
    service, socket = keys(units / "gradsyncd@.service"), keys(units / "gradsyncd@.socket")
    assert not service.keys() & {"ProtectProc", "ProcSubset", "PrivateUsers", "PrivateNetwork", "PrivateDevices", "RemoveIPC"}
    assert service["KillMode"] == ["mixed"], "the helpers of engines must outlive the steps that they are in"
    assert service["RuntimeDirectory"] == ["gradsyncd/%i"], "the socket's folder is the socket unit's"
    assert service["RuntimeDirectoryMode"] == ["0700"] and service["RuntimeDirectoryPreserve"] == ["yes"]
    assert service["Type"] == ["notify"] and "WatchdogSec" in service and service["ExecReload"] == ["kill -HUP $MAINPID"]
    assert service["LimitMEMLOCK"] == ["infinity"]
    assert service["MemoryMax"] == ["1536M"], "the default of daemon_bytes, and 512M more"
    assert "MemoryHigh" not in service, "it would make the event thread wait"
    assert service["StateDirectory"] == ["gradsync/%i"] and service["StateDirectoryMode"] == ["0700"]
    assert set(service["RestrictAddressFamilies"][0].split()) == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}
    devices = {value.split()[0] for value in service["DeviceAllow"]}
    assert {"char-nvidia-frontend", "char-nvidia", "char-nvidiactl", "char-nvidia-uvm", "char-infiniband_verbs"} <= devices
    assert not any("@resources" in value for value in service["SystemCallFilter"])
    assert socket["ListenSequentialPacket"] == ["/run/gradsync/%i/socket"]
    assert "--socket=/run/gradsync/%i/socket" in service["ExecStart"][0] and "--device=%i" in service["ExecStart"][0]
    assert (socket["SocketMode"], socket["SocketGroup"]) == (["0660"], ["gradsync"])
    assert socket["FileDescriptorName"] == ["socket"], "that of an instance with a colon would be two names"


def test_a_coordinator_differs_in_what_it_has_no_use_for(units):
    """A device, and memory that stays in place; its configuration and its key are its own."""
    ours, its = keys(units / "gradsyncd@.service"), keys(units / "gradsyncd-coordinator.service")
    differ = {key for key in ours.keys() | its.keys() if ours.get(key) != its.get(key)}
    assert differ == {"Description", "Requires", "After", "Wants", "ExecStart", "LoadCredential",
                      "StateDirectory", "RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve",
                      "LimitMEMLOCK", "PrivateDevices", "DeviceAllow", "RemoveIPC", "Also",
                      "DefaultInstance"}
    assert its["MemoryMax"] == ours["MemoryMax"]
    assert {"--device=none", "--config=/etc/gradsync/coordinator.conf"} <= set(its["ExecStart"][0].split())
    assert its["LoadCredential"] == ["gradsync-key:/etc/gradsync/key"] and its["PrivateDevices"] == ["yes"]


def test_units_of_users_load_without_a_complaint(user_units, scratch):
    """Those of the machine are loaded with them, and their sockets are in that directory too: its name must be short."""
    done = analyze("--user", "verify", "--man=no", user_units / "gradsyncd@.service", user_units / "gradsyncd@.socket",
                   env={"XDG_RUNTIME_DIR": str(scratch)})
    assert (done.returncode, done.stdout) == (0, "")


def test_a_daemon_of_a_user_differs_in_its_place_alone(units, build, tmp_path_factory):
    """Settings that only the system's manager can apply differ as well."""
    user_units = adapted(build, tmp_path_factory.mktemp("user"), "user")
    ours, theirs = keys(units / "gradsyncd@.service"), keys(user_units / "gradsyncd@.service")
    for key in ("Type", "ExecReload", "Restart", "RestartSec", "StartLimitIntervalSec", "StartLimitBurst", "WatchdogSec", "TimeoutStopSec", "NoNewPrivileges", "SystemCallFilter",
                "RestrictAddressFamilies", "MemoryDenyWriteExecute"):
        assert theirs[key] == ours[key], key
    assert theirs.keys() <= ours.keys() and not theirs.keys() & {"User", "Group", "LimitMEMLOCK", "OOMScoreAdjust"}
    assert theirs["StateDirectory"] == ["gradsync/%m/%i"], "machines may share the home directory"
    assert theirs["ExecStart"][0] == ours["ExecStart"][0].replace("/run/", "%t/")
    socket = keys(user_units / "gradsyncd@.socket")
    assert socket["ListenSequentialPacket"] == ["%t/gradsync/%i/socket"]
    assert (socket["SocketMode"], socket["DirectoryMode"]) == (["0600"], ["0700"])


@pytest.mark.parametrize("kind, name", [("", "gradsyncd@"), ("user", "gradsyncd@"),
                                        ("", "gradsyncd-coordinator")])
def test_the_service_starts_what_is_installed(build, kind, name):
    """The path in the unit is the one that the program is installed to."""
    plan = (build / "meson-info/intro-installed.json").read_text()
    command = keys(build / "systemd" / kind / f"{name}.service")["ExecStart"][0].split()[0]
    assert f'"{command}"' in plan


def test_the_user_is_made(tmp_path):
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", TREE / "systemd" / "gradsync.sysusers.conf"], check=True, capture_output=True)
    (user,) = [line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines()]
    groups = {line.split(":")[0]: line.split(":") for line in (tmp_path / "etc/group").read_text().splitlines()}
    group = groups.pop("gradsync")
    assert user[0] == "gradsync" and set(groups) == {"gradsync-admin"}
    assert user[3] == group[2] and int(user[2]) < 1000
    assert user[6].endswith("nologin")


def test_the_folder_is_made(tmp_path):
    if os.geteuid() != 0:
        pytest.fail("run as root: the folder is root's")
    subprocess.run(["systemd-tmpfiles", "--create", f"--root={tmp_path}", TREE / "systemd" / "gradsync.tmpfiles.conf"], check=True)
    made = (tmp_path / "run/gradsync").stat()
    assert stat.S_IMODE(made.st_mode) == 0o755 and (made.st_uid, made.st_gid) == (0, 0)
