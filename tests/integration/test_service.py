# SPDX-License-Identifier: Apache-2.0
"""The units under a real service manager: `systemd --user`, alone in mount and pid namespaces of its own.

That manager may not change users or build file system views here, so those lines are taken out; what is left
includes the system call filter, the capability bound, NoNewPrivileges and MemoryDenyWriteExecute, under which
a whole job must work. Machines that allow no new namespaces (most unprivileged containers) skip the test, except
in continuous integration, where that is a failure: the files alone are checked by test_units.py.
"""
import contextlib
import errno
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from harness import wait_until

HERE = pathlib.Path(__file__).resolve().parent
UNSHARE = ["unshare", "--mount", "--pid", "--cgroup", "--fork", "--mount-proc", "--kill-child"]
NOT_HERE = ("User", "Group", "SocketGroup", "PrivateTmp", "PrivateMounts", "ProtectSystem", "ProtectHome", "ProtectControlGroups",
            "ProtectKernelTunables", "ProtectKernelLogs", "ProtectKernelModules")

MANAGER_STARTS = """
    mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/user/0/systemd/user || exit 3
    export XDG_RUNTIME_DIR=/run/user/0
    cp "$1"/gradsyncd@* /run/user/0/systemd/user/
    systemd --user >/run/log 2>&1 &
    for i in $(seq 600); do systemctl --user is-system-running >/run/state 2>/dev/null && break; sleep 0.1; done
    grep -q running /run/state || exit 3
"""


def own_groups():
    """Folders of the control groups that we are in, where a manager makes its own below."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, name, path = line.split(":", 2)
        for root in {"": ("", "unified"), "name=systemd": ("systemd",)}.get(name, ()):
            folder = pathlib.Path("/sys/fs/cgroup", root, path.lstrip("/"))
            if (folder / "cgroup.procs").exists():
                yield folder


@contextlib.contextmanager
def groups_removed():
    """The control groups that a manager leaves behind, empty, when it is killed."""
    left = [folder / name for folder in own_groups() for name in ("app.slice", "init.scope") if not (folder / name).exists()]
    yield
    for top in left:
        for folder, _, _ in os.walk(top, topdown=False):
            wait_until(lambda: remove_group(folder), f"an empty {folder}")


def remove_group(folder):
    try:
        os.rmdir(folder)
    except OSError as problem:          # its last process is still on its way out
        return problem.errno != errno.EBUSY
    return True


def unshared(script, *arguments):
    with groups_removed():
        return subprocess.run([*UNSHARE, "bash", "-c", textwrap.dedent(MANAGER_STARTS) + script, "bash", *map(str, arguments)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=180)


def adapt(build, folder):
    for name in ("gradsyncd@.service", "gradsyncd@.socket"):
        text = (build / "systemd" / name).read_text()
        text = re.sub(r"^ExecStart=\S+/gradsyncd ", f"ExecStart={build}/daemon/core/gradsyncd ", text, flags=re.M)
        text = re.sub(rf"^({'|'.join(NOT_HERE)})=.*\n", "", text, flags=re.M)
        (folder / name).write_text(text)


def manager_starts():
    """Whether one does here at all, without anything of ours."""
    probe = pathlib.Path("/tmp") / f"gs-manager-{os.getpid()}"
    probe.mkdir()
    try:
        return os.geteuid() == 0 and unshared("exit 0", probe).returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        probe.rmdir()


def systemctl(*arguments):
    return subprocess.run(["systemctl", "--user", *arguments], capture_output=True, text=True, check=False)


def show(key):
    return systemctl("show", "-p", key, "--value", "gradsyncd@cpu.service").stdout.strip()


def does_steps(path):
    from peer import Peer

    with contextlib.closing(Peer(path)) as peer:
        return any(job.bytes_reduced > 0 for job in peer.status().get("STATUS_JOB", []))


def trainers_notice_nothing(path):
    """The service is restarted and killed under trainers that do step after step."""
    from harness import MEMBER, Program
    from trainers import crew, fields

    members = crew(lambda _: Program(pathlib.Path(os.environ["GRADSYNC_BUILD"], MEMBER).resolve(), socket=path), None, 2)
    for each in members:
        each.say("train until=/run/end")
    for number in (None, None, None, signal.SIGKILL, signal.SIGKILL):
        before = show("MainPID")
        if number is None:
            done = systemctl("restart", "gradsyncd@cpu.service")
            assert done.returncode == 0, done.stderr + pathlib.Path("/run/log").read_text()
        else:
            os.kill(int(before), number)
        wait_until(lambda: show("MainPID") not in ("0", before) and show("ActiveState") == "active", "the next daemon")
        wait_until(lambda: does_steps(path), "steps at the next daemon")
    pathlib.Path("/run/end").touch()
    for each in members:
        line = each.line()
        assert line.startswith("OK ") and fields(line)["wrong"] == "0" and int(fields(line)["void"]) <= 2, line
        each.kill()


def inside():
    """Runs in the namespaces, beside the manager."""
    from peer import Crew, Peer, small_plan

    path = "/run/gradsync/cpu/socket"
    assert systemctl("start", "gradsyncd@cpu.socket").returncode == 0
    assert show("ActiveState") == "inactive"
    crew = Crew(path, "filtered", 2, lambda ordinal: small_plan(3, elements=1 << 14, ordinal=ordinal))    # the first connection starts it
    crew.go(5)
    staged = crew.peers[0].staging()
    staged.close()
    assert show("ActiveState") == "active" and show("StatusText")
    main = show("MainPID")
    status = pathlib.Path(f"/proc/{main}/status").read_text()
    assert re.search(r"^CapBnd:\s0+$", status, re.M) and re.search(r"^NoNewPrivs:\s1$", status, re.M)
    assert re.search(r"^Seccomp:\s2$", status, re.M)

    assert systemctl("reload", "gradsyncd@cpu.service").returncode == 0
    crew.go(2)
    assert show("MainPID") == main
    crew.leave()
    crew.close()

    assert systemctl("stop", "gradsyncd@cpu.service").returncode == 0
    assert show("Result") == "success"
    assert Peer(path).welcome.device == "cpu"           # the socket outlived the service, and starts it again
    again = int(show("MainPID"))
    os.kill(again, signal.SIGKILL)
    wait_until(lambda: show("NRestarts") == "1" and show("ActiveState") == "active", "a restart after a crash")
    assert Peer(path).welcome.device == "cpu"
    trainers_notice_nothing(path)
    assert systemctl("stop", "gradsyncd@cpu.socket", "gradsyncd@cpu.service").returncode == 0
    assert not os.path.exists(path)
    print("all is well")


if __name__ == "__main__":
    inside()


@pytest.mark.manager
@pytest.mark.heavy                      # a leak check at exit needs ptrace, which the filter does not allow
def test_the_service_under_its_manager(build, tmp_path):
    if not manager_starts():
        pytest.skip("no service manager starts here in namespaces of its own, which takes root and its rights")
    adapt(build, tmp_path)
    done = unshared('exec "$2" "$3"', tmp_path, sys.executable, HERE / "test_service.py")
    assert done.returncode == 0 and done.stdout.endswith("all is well\n"), done.stdout
