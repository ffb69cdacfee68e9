# SPDX-License-Identifier: Apache-2.0
"""A machine of its own: a folder booted by systemd-nspawn, and commands run in it.

Neither machined nor a bus of this system is asked for: systemd-nspawn registers nothing, and commands enter
the namespaces of the machine's first process. That process says itself when it has booted.

The machine's control groups are below one that is made for it and removed with it, and systemd-nspawn sees
this system's files through a mount of them, because it wants its / to be one, which it is not in a chroot.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import time

import harness
from harness import wait_until

SERVICE, SOCKET = "gradsyncd@cpu.service", "gradsyncd@cpu.socket"
SHARED = "/srv/shared"

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START = """
mount --make-rprivate / 2>/dev/null
mount --rbind / "$1" && mount --make-rprivate "$1" || exit 1
host=$1
shift
exec chroot "$host" "$@"
"""
PR_SET_PDEATHSIG = 1


def own_groups():
    """Our folders in the hierarchies of control groups that a service manager makes its own groups in."""
    found = []
    for line in pathlib.Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for mount in {"": (".", "unified"), "name=systemd": ("systemd",)}.get(controllers, ()):
            folder = pathlib.Path("/sys/fs/cgroup", mount, path.lstrip("/"))
            if (folder / "cgroup.procs").exists():
                found.append(folder)
    return found


class Inside(harness.Program):
    """A program in the machine. The process here is nsenter's, which waits for it."""

    def destroy(self):
        """Kills the program, not nsenter, which would leave it as a zombie: no other process waits for it."""
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children")
        if self.process.poll() is None:
            for child in children.read_text("ascii").split():
                with contextlib.suppress(ProcessLookupError):   # it may be ending just now
                    os.kill(int(child), signal.SIGKILL)
            self.resume()               # it stops itself when the program is stopped
            self.wait()
        super().destroy()


class Manager:
    """Questions to a service manager, through the systemctl() of a subclass."""

    def show(self, unit, key):
        return self.systemctl("show", "--property", key, "--value", unit).stdout.strip()


class Machine(Manager):
    """`folder` holds the root and what else belongs to the machine; its name is in no socket path. `shared`
    is a folder of this system that it has as SHARED."""

    def __init__(self, folder, scratch, shared, hostname="node"):
        self.hostname = hostname
        self.shared = shared
        self.root = folder / "root"
        self.console = folder / "console"
        self.host = folder / "host"
        self.host.mkdir()
        self.scratch = scratch
        self.name = f"gradsync-test-{os.getpid()}-{hostname}"
        self.groups = [group / self.name for group in own_groups()]
        self.nspawn = self.leader = None

    def _become_child(self):
        """Before exec: into the control groups, and not to outlive the tests."""
        for group in self.groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def boot(self):
        """Returns when the machine's manager has finished its start."""
        for group in self.groups:
            group.mkdir(exist_ok=True)
        path = self.scratch / "notify"
        path.unlink(missing_ok=True)
        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot",
                   "--notify-ready=yes", "--console=pipe", "--private-network", "--link-journal=no",
                   "--resolv-conf=off", "--timezone=off", f"--machine={self.name}",
                   f"--hostname={self.hostname}", f"--directory={self.root}",
                   f"--bind={self.shared}:{SHARED}"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notices, \
                open(self.console, "ab") as console:
            notices.bind(str(path))
            self.nspawn = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", START, "sh", str(self.host),
                 *command],
                env=harness.environment({"NOTIFY_SOCKET": path}), stdin=subprocess.DEVNULL, stdout=console,
                stderr=subprocess.STDOUT, preexec_fn=self._become_child)
            self._wait_booted(notices)
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        assert state == "running", f"the machine is {state}:\n{self.run('systemctl', '--failed').stdout}"
        return self

    def _wait_booted(self, notices):
        end = time.monotonic() + harness.DEADLINE
        ended = os.pidfd_open(self.nspawn.pid)
        booted = False
        try:
            while not (booted and self.leader):
                ready, _, _ = select.select([notices, ended], [], [], max(end - time.monotonic(), 0))
                assert notices in ready, "systemd-nspawn did not boot the machine:\n" + self.told()
                text = notices.recv(65536).decode()
                booted |= re.search("^READY=1$", text, re.M) is not None
                leader = re.search(r"^X_NSPAWN_LEADER_PID=(\d+)$", text, re.M)
                self.leader = int(leader[1]) if leader else self.leader
        finally:
            os.close(ended)

    def told(self):
        return self.console.read_text("utf-8", "replace")[-3000:]

    def prefix(self, user=None, env=None):
        """The words that make a command one of the machine, run by root or by the user of that name."""
        words = ["nsenter", "--target", self.leader, "--all", "--root", "--wd", "--", "env", "-i",
                 f"PATH={PATH}", "LC_ALL=C.UTF-8", "HOME=/root"]
        if user:
            words += [f"HOME=/home/{user}", f"USER={user}", "setpriv", f"--reuid={user}", f"--regid={user}",
                      "--init-groups"]
        return [*map(str, words), "env", *(f"{key}={value}" for key, value in (env or {}).items())]

    def run(self, *command, user=None, env=None, check=True):
        """A command in the machine, to its end."""
        done = subprocess.run([*self.prefix(user, env), *map(str, command)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=2 * harness.DEADLINE, check=False)
        assert not check or done.returncode == 0, \
            f"{shlex.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    def start(self, *command, user=None, env=None):
        """A command in the machine that goes on meanwhile. It has another pid there than what is returned."""
        return Inside(command[0], *command[1:], prefix=self.prefix(user, env))

    def stat(self, *paths):
        """One line for each path: mode, owner, kind."""
        return self.run("stat", "--format=%a %U:%G %F", *paths).stdout.splitlines()

    def exists(self, path):
        return self.run("test", "-e", path, check=False).returncode == 0

    def uid(self, user):
        return self.run("id", "-u", user).stdout.strip()

    def systemctl(self, *words, **options):
        return self.run("systemctl", *words, **options)

    def active(self, unit):
        return self.show(unit, "ActiveState")

    def main_pid(self, unit):
        """The main process of a service, by its number in the machine; there is one."""
        pid = int(self.show(unit, "MainPID"))
        assert pid > 0, f"{unit} has no process: {self.systemctl('status', unit, check=False).stdout}"
        return pid

    def follows(self, unit, before):
        """Whether a service is active with another main process than this one. Both are asked for at once: between two
        questions a manager may hear that the process has ended."""
        lines = self.systemctl("show", "--property=ActiveState,MainPID", unit).stdout.split()
        fields = dict(line.split("=") for line in lines)
        return fields["ActiveState"] == "active" and int(fields["MainPID"]) not in (0, before)

    def host_pid(self, pid):
        """The number that a process of the machine has here."""
        namespace = os.readlink(f"/proc/{self.leader}/ns/pid")
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                numbers = re.search(r"^NSpid:\s+(.*)$", status.read_text("utf-8"), re.M)[1].split()
                if numbers[-1] == str(pid) and os.readlink(status.parent / "ns/pid") == namespace:
                    return int(status.parent.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
        raise AssertionError(f"the machine has no process {pid}")

    def journal(self, *matches):
        """Records of the journal since the boot, oldest first."""
        self.run("journalctl", "--sync")
        text = self.run("journalctl", "--output=json", "--no-pager", "--quiet", "--boot", *matches).stdout
        return [json.loads(line) for line in text.splitlines()]

    def wait_journal(self, pattern, *matches):
        """The last record whose message has the pattern."""
        def look():
            return [record for record in self.journal(*matches)
                    if re.search(pattern, str(record.get("MESSAGE")))]

        return wait_until(look, f"a record of {pattern!r} in the machine's journal")[-1]

    def write(self, path, text):
        """A file of the machine's root; not for /run, /tmp and other places that it mounts something on."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def power_off(self):
        """An orderly end."""
        self.systemctl("poweroff")
        try:
            assert self.nspawn.wait(2 * harness.DEADLINE) == 0, self.told()
        finally:
            self.destroy()

    def destroy(self):
        if self.nspawn is not None:
            self.nspawn.kill()
            self.nspawn.wait()
            shutil.rmtree(f"/run/systemd/nspawn/propagate/{self.name}", ignore_errors=True)
        self.nspawn = self.leader = None
        for group in self.groups:
            for folder, _, _ in os.walk(group, topdown=False):
                wait_until(lambda: remove_group(folder), f"an empty {folder}")


def run_here(*command):
    subprocess.run([*map(str, command)], check=True, capture_output=True)


@contextlib.contextmanager
def cable(machines, addresses):
    """An Ethernet between two machines that are up: eth0 in each of them, with these addresses."""
    one, other = machines
    ends = ["ip", "link", "add", "eth0", "netns", one.leader, "type", "veth",
            "peer", "name", "eth0", "netns", other.leader]
    run_here(*ends)
    for each, address in zip(machines, addresses):
        inside = ["nsenter", "--target", each.leader, "--net", "ip"]
        run_here(*inside, "address", "add", f"{address}/24", "dev", "eth0")
        run_here(*inside, "link", "set", "eth0", "up")
    try:
        yield
    finally:
        run_here("nsenter", "--target", one.leader, "--net", "ip", "link", "delete", "eth0")


def remove_group(folder):
    """Removes a control group; False as long as its last process is still on its way out."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
