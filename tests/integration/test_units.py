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
EXPOSURE = 20                           # ten times what systemd-analyze prints


@pytest.fixture
def units(build, tmp_path):
    """The units in a folder of their own, the service starting the daemon of this build."""
    for name in ("gradsyncd@.service", "gradsyncd@.socket"):
        text = (build / "systemd" / name).read_text()
        (tmp_path / name).write_text(re.sub(r"^ExecStart=\S+/gradsyncd ", f"ExecStart={build / DAEMON} ", text, flags=re.M))
    return tmp_path


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)


def keys(path):
    """{key: [value, …]} of a unit, whatever the section."""
    found = {}
    for line in path.read_text().splitlines():
        match = re.match(r"([A-Za-z]+)=(.*)", line)
        if match:
            found.setdefault(match[1], []).append(match[2])
    return found


def test_units_load_without_a_complaint(units):
    done = analyze("verify", "--man=no", units / "gradsyncd@.service", units / "gradsyncd@.socket")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_mistake_would_be_noticed(units):
    service = units / "gradsyncd@.service"
    service.write_text(service.read_text().replace("NoNewPrivileges=", "NoNewPrivilegs="))
    done = analyze("verify", "--man=no", service, units / "gradsyncd@.socket")
    assert "NoNewPrivilegs" in done.stdout


def test_the_service_is_hardened(units):
    done = analyze("security", "--offline=yes", f"--threshold={EXPOSURE}", "--no-pager", units / "gradsyncd@.service")
    assert done.returncode == 0, done.stdout
    assert re.search(r"Overall exposure level .*: [01]\.\d", done.stdout), done.stdout


def test_hardening_leaves_what_the_daemon_needs(units):
    """Each of these would break something that no start of the service shows."""
    service, socket = keys(units / "gradsyncd@.service"), keys(units / "gradsyncd@.socket")
    assert not service.keys() & {"ProtectProc", "ProcSubset", "PrivateUsers", "PrivateNetwork", "PrivateDevices", "RemoveIPC"}
    assert not service.keys() & {"RuntimeDirectory"}, "it would take the socket's folder away when the service stops"
    assert service["Type"] == ["notify"] and "WatchdogSec" in service and service["ExecReload"] == ["kill -HUP $MAINPID"]
    assert service["LimitMEMLOCK"] == ["infinity"]
    assert set(service["RestrictAddressFamilies"][0].split()) == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}
    devices = {value.split()[0] for value in service["DeviceAllow"]}
    assert {"char-nvidia-frontend", "char-nvidia", "char-nvidiactl", "char-nvidia-uvm", "char-infiniband_verbs"} <= devices
    assert not any("@resources" in value for value in service["SystemCallFilter"])
    assert socket["ListenSequentialPacket"] == ["/run/gradsync/%i/socket"]
    assert "--socket=/run/gradsync/%i/socket" in service["ExecStart"][0] and "--device=%i" in service["ExecStart"][0]
    assert (socket["SocketMode"], socket["SocketGroup"]) == (["0660"], ["gradsync"])


def test_the_service_starts_what_is_installed(build):
    """The path in the unit is the one that the program is installed to."""
    plan = subprocess.run(["meson", "introspect", "--installed", str(build)], capture_output=True, text=True, check=True).stdout
    command = keys(build / "systemd" / "gradsyncd@.service")["ExecStart"][0].split()[0]
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
