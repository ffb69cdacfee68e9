# SPDX-License-Identifier: Apache-2.0
"""The parts of black-box tests: processes with deadlines, the daemon among them.

Nothing here sleeps to let something happen. A test waits for an event (a datagram, a line, the end of a
process), or, where only a state can be looked at, in wait_until(), whose deadline is a bound and never a
measurement.
"""
import contextlib
import ctypes
import fcntl
import functools
import itertools
import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import termios
import time

DAEMON = "daemon/core/gradsyncd"
CTL = "client/cli/gradsyncctl"
HELLO = "client/examples/hello"
DIGITS = "client/examples/digits"
DIGITS_CUDA = "client/examples/digits_cuda"
MEMBER = "tests/integration/member"

# A bound for events that normally take milliseconds. Sanitizers and loaded machines stretch everything.
DEADLINE = float(os.environ.get("GRADSYNC_TEST_DEADLINE", "60"))
# For what computes all the time, as a whole training does.
LONG = 10 * DEADLINE

SANITIZER = re.compile(r"(ERROR|WARNING): (Address|Leak|Thread|Memory)Sanitizer|runtime error:|"
                       r"SUMMARY: \w+Sanitizer")

# Variables that would tell a process of another job, daemon or terminal than the test's own.
FOREIGN = re.compile(r"^(GRADSYNC_(?!BUILD$|TEST_)|SLURM_|OMPI_|PMIX_|PMI_|MPI_LOCAL|TORCHELASTIC_|"
                     r"JOB_COMPLETION_INDEX$|WORLD_SIZE$|"
                     r"RANK$|LOCAL_RANK$|MASTER_|NOTIFY_SOCKET$|WATCHDOG_|LISTEN_|XDG_RUNTIME_DIR$|"
                     r"JOURNAL_STREAM$|NO_COLOR$|CLICOLOR)")


def environment(extra=None):
    """The tests' environment without what could reach the programs by accident, plus `extra` (None removes a
    variable)."""
    env = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
    env["LC_ALL"] = "C.UTF-8"
    for key, value in (extra or {}).items():
        if value is None:
            env.pop(key, None)
        else:
            env[key] = str(value)
    return env


def wait_until(predicate, what="the condition", deadline=DEADLINE):
    """Waits until predicate() is true and returns its value. The one place that looks again and again."""
    end = time.monotonic() + deadline
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {deadline:.0f} s")
        time.sleep(0.01)


PORTS = 50          # of each process of tests


@functools.cache
def own_ports():
    """Ports that no other process of tests in this network namespace has, round and round, and the socket
    that claims them until this process ends. They lie below the ports that the kernel chooses itself."""
    chosen_by_kernel, _ = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()
    for first in range(int(chosen_by_kernel) - PORTS, 1024, -PORTS):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0gradsync-test-ports-{first}")
        except OSError:
            claim.close()
            continue
        return itertools.cycle(range(first, first + PORTS)), claim
    raise AssertionError("all ports belong to other processes of tests")


def free_port():
    """A port on which no process listens, and no other test will."""
    ports, _ = own_ports()
    for port in itertools.islice(ports, PORTS):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("something listens on all of the ports of this process")


def settings_text(settings):
    """A configuration file with these keys."""
    parts = {"daemon": [], "limits": []}
    for key, value in settings.items():
        limit = key.endswith(("_per_uid", "uids", "daemon_bytes"))
        parts["limits" if limit else "daemon"].append(f"{key} = {value}\n")
    return "".join(f"[{name}]\n{''.join(lines)}" for name, lines in parts.items() if lines)


def guarded():
    """Whether a process here may use userfaultfd(2) for its own accesses: then holes that members punch are
    noticed by the access that meets them."""
    calls = {"x86_64": 323, "aarch64": 282}
    fd = ctypes.CDLL(None, use_errno=True).syscall(calls[os.uname().machine], os.O_CLOEXEC | 1)
    if fd >= 0:
        os.close(fd)
    return fd >= 0


def sanitized(build):
    """Whether the daemon of this build runs under a sanitizer."""
    data = (pathlib.Path(build) / DAEMON).read_bytes()
    return b"__asan_init" in data or b"__tsan_init" in data


class Program:
    """A process of ours with captured output, lines by request, and no life beyond its test."""

    def __init__(self, path, *arguments, env=None, socket=None, uid=None, nofile=None, cwd=None,
                 stdin=subprocess.PIPE,
                 stderr=subprocess.PIPE, prefix=(), new_session=False, cgroup=None):
        extra = {"GRADSYNC_SOCKET": socket} if socket else {}
        extra.update(env or {})
        self.name = pathlib.Path(path).name

        def before():
            if nofile is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))
            if cgroup is not None:
                with open(os.path.join(cgroup, "cgroup.procs"), "w", encoding="ascii") as procs:
                    procs.write(str(os.getpid()))
            if uid is not None:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)

        self.process = subprocess.Popen([*map(str, prefix), str(path), *map(str, arguments)],
                                        env=environment(extra), cwd=cwd,
                                        stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, preexec_fn=before,
                                        start_new_session=new_session)
        self.pid = self.process.pid
        self.buffers = {}
        self.ended = set()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self.buffers[stream.fileno()] = bytearray()

    def _pump(self, timeout):
        """Takes what stdout and stderr have; False if nothing came within `timeout` seconds."""
        open_fds = [fd for fd in self.buffers if fd not in self.ended]
        ready, _, _ = select.select(open_fds, [], [], max(timeout, 0))
        for fd in ready:
            data = os.read(fd, 65536)
            if data:
                self.buffers[fd] += data
            else:
                self.ended.add(fd)
        return bool(ready)

    @property
    def out(self):
        """Standard output not yet taken by line()."""
        return self.buffers[self.process.stdout.fileno()].decode("utf-8", "replace")

    @property
    def err(self):
        """All of standard error so far."""
        if self.process.stderr is None:
            return ""
        while self.process.stderr.fileno() not in self.ended and self._pump(0):
            pass
        return self.buffers[self.process.stderr.fileno()].decode("utf-8", "replace")

    def told(self):
        """The end of what it said, for messages."""
        return (self.out + self.err)[-2000:]

    def line(self, deadline=DEADLINE):
        """The next line of standard output; None at its end."""
        fd = self.process.stdout.fileno()
        end = time.monotonic() + deadline
        while True:
            buffer = self.buffers[fd]
            cut = buffer.find(b"\n")
            if cut >= 0:
                text = buffer[:cut].decode("utf-8", "replace")
                del buffer[:cut + 1]
                return text
            if fd in self.ended:
                return None
            left = end - time.monotonic()
            if left < 0:
                raise AssertionError(f"{self.name} ({self.pid}) wrote no line within {deadline:.0f} s; "
                                     f"so far: {self.told()}")
            self._pump(left)

    def say(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, text, deadline=DEADLINE):
        self.say(text)
        return self.line(deadline)

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """SIGSTOP, and waits until the kernel says that it has stopped."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: process_state(self.pid) in "Tt", f"{self.name} stopped")

    def resume(self):
        self.signal(signal.SIGCONT)

    def kill(self, number=None):
        """Ends it with SIGKILL, or another signal; returns its exit status."""
        self.signal(number or signal.SIGKILL)
        return self.wait()

    def wait(self, deadline=DEADLINE):
        """Exit status (negative: signal), with all output taken meanwhile."""
        end = time.monotonic() + deadline
        while any(fd not in self.ended for fd in self.buffers):
            if self.process.poll() is not None:         # another process may hold the other end of the pipe
                while self._pump(0):
                    pass
                break
            if time.monotonic() > end:
                raise AssertionError(f"{self.name} ({self.pid}) did not end within {deadline:.0f} s: "
                                     f"{self.told()}")
            self._pump(0.05)
        try:
            return self.process.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} ({self.pid}) did not end within {deadline:.0f} s: "
                                 f"{self.told()}") from None

    def destroy(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        self.buffers = {fd: data for fd, data in self.buffers.items()}
        self.ended = set(self.buffers)


class Member(Program):
    """The test's own trainer (member.c) on one daemon."""

    def __init__(self, build, socket_path, *arguments, binary=MEMBER, **options):
        super().__init__(build / binary, *arguments, socket=socket_path, **options)


# Except in tests that are about these: a loss is the end, tests connect as fast as they like, and speak as
# late as a slow machine lets them, without a notice of a late member.
USUAL = {"rejoin_grace": "0", "connects_per_uid": 1000000, "handshake_timeout": "60s", "stall_notice": "1h"}


class Daemon:
    """One gradsyncd. Ready when start() returns: it has said so through NOTIFY_SOCKET."""

    def __init__(self, build, directory, *flags, config="", settings=None, env=None, uid=None, nofile=None,
                 device="cpu", socket=True,
                 prefix=(), cgroup=None):
        self.build = build
        self.directory = directory
        self.directory.mkdir(mode=0o755)
        if uid is not None:
            os.chown(self.directory, uid, uid)
        self.socket = str(directory / "socket")
        self.config = directory / "gradsyncd.conf"
        self.config.write_text(config + settings_text({**USUAL, **(settings or {})}))
        self.log_path = directory / "log"
        self.flags = ["--config", str(self.config), *map(str, flags)]
        if device:
            self.flags[:0] = ["--device", device]
        if socket:
            self.flags[:0] = ["--socket", self.socket]
        self.env = dict(env or {})
        self.uid, self.nofile, self.prefix, self.cgroup = uid, nofile, prefix, cgroup
        self.expect_clean = True
        self.program = None
        self.notices = []               # datagrams heard on the notification socket
        self._notify = None

    def spawn(self):
        """Starts it without waiting for anything."""
        path = self.directory / "notify"
        if self._notify is None:
            self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._notify.bind(str(path))
            path.chmod(0o777)
        with open(self.log_path, "ab") as log:
            self.program = Program(self.build / DAEMON, *self.flags,
                                   env={"NOTIFY_SOCKET": str(path), **self.env}, uid=self.uid,
                                   nofile=self.nofile, prefix=self.prefix, cgroup=self.cgroup,
                                   stdin=subprocess.DEVNULL, stderr=log)

    def start(self):
        self.notices.clear()
        self.spawn()
        self.wait_notice(lambda text: "READY=1" in text.split("\n"))
        return self

    def wait_notice(self, wanted, deadline=DEADLINE):
        """Waits for a notification datagram for which wanted(text) is true; ends early when the daemon
        does."""
        pidfd = os.pidfd_open(self.pid)
        try:
            end = time.monotonic() + deadline
            while True:
                ready, _, _ = select.select([self._notify, pidfd], [], [], max(end - time.monotonic(), 0))
                if self._notify in ready:
                    text = self._notify.recv(65536).decode()
                    self.notices.append(text)
                    if wanted(text):
                        return text
                elif pidfd in ready:
                    raise AssertionError(f"gradsyncd ended with {self.program.wait()}:\n{self.log}")
                elif not ready:
                    raise AssertionError(f"gradsyncd did not notify within {deadline:.0f} s; heard "
                                         f"{self.notices}; log:\n{self.log}")
        finally:
            os.close(pidfd)

    @property
    def pid(self):
        return self.program.pid

    @property
    def log(self):
        return self.log_path.read_text("utf-8", "replace")

    def wait_log(self, pattern, deadline=DEADLINE):
        return wait_until(lambda: re.search(pattern, self.log), f"log line {pattern!r}", deadline)

    def signal(self, number):
        self.program.signal(number)

    @contextlib.contextmanager
    def at_once(self):
        """Messages to the daemon from inside are all there when it looks at its sockets next: no time passes
        for it in between."""
        self.program.stop()
        try:
            yield
        finally:
            self.program.resume()

    def reload(self, text):
        """Gives it this configuration file, and waits until it has taken, or refused, it."""
        self.config.write_text(text)
        self.notices.clear()
        self.signal(signal.SIGHUP)
        self.wait_notice(lambda told: "READY=1" in told.split("\n"))

    def change(self, **settings):
        """Gives the daemon other settings than at its start; all others have their usual values."""
        self.reload(settings_text({**USUAL, **settings}))

    def ctl(self, *arguments, env=None, uid=None, code=0):
        """Output of gradsyncctl, which must exit with `code`."""
        program = Program(self.build / CTL, *arguments, socket=self.socket, env=env, uid=uid,
                          stdin=subprocess.DEVNULL)
        try:
            status = program.wait()
            assert status == code, f"gradsyncctl {arguments} ended with {status}: {program.out}{program.err}"
            assert not SANITIZER.search(program.err), program.err
            return program.out
        finally:
            program.destroy()

    def status(self, **options):
        """The document of `gradsyncctl status --json`."""
        return json.loads(self.ctl("status", "--json", **options))

    def job(self, name, **options):
        """One job of status(), or None."""
        found = [job for job in self.status(**options)["jobs"] if job["name"] == name]
        assert len(found) < 2, found
        return found[0] if found else None

    def fds(self):
        """The targets of the daemon's file descriptors, sorted."""
        found = []
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                target = os.readlink(f"/proc/{self.pid}/fd/{name}")
            except FileNotFoundError:
                continue
            found.append(re.sub(r":\[\d+\]$", "", target))
        return sorted(found)

    def anonymous(self):
        """Bytes of its anonymous memory."""
        return anonymous_of(self.pid)

    def maps(self):
        return pathlib.Path(f"/proc/{self.pid}/maps").read_text()

    def finish(self, deadline=DEADLINE):
        """SIGTERM and a clean end, unless it has been ended already."""
        if self.program is None:
            return
        if self.expect_clean:
            ended = self.program.process.poll()
            assert ended is None, f"gradsyncd had ended with {ended}:\n{self.log}"
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            status = self.program.wait(deadline)
            assert status == 0, f"gradsyncd ended with {status}:\n{self.log}"
            assert not os.path.exists(self.socket), "the socket was left behind"
        assert not SANITIZER.search(self.log), f"sanitizer report:\n{self.log}"

    def destroy(self):
        if self.program is not None:
            self.program.destroy()
        if self._notify is not None:
            self._notify.close()
            self._notify = None


def on_terminal(command, env, lines=None):
    """Output of a program whose stdout is a terminal, of so many lines if that matters. It must end with 0."""
    parent, child = pty.openpty()
    if lines:
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 200, 0, 0))
    with subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=child, stderr=subprocess.PIPE,
                          env=environment({"TERM": "xterm", **env})) as process:
        os.close(child)
        out = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:             # its end
                break
            if not part:
                break
            out += part
        err = process.stderr.read()
        assert process.wait() == 0, err
    os.close(parent)
    return out.decode()


def process_state(pid):
    """One letter, as in /proc/PID/stat; "" when there is no such process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return "-"
    return text[text.rindex(")") + 2]


def process_name(pid):
    """As in /proc/PID/comm; "" when there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children_of(pid):
    """The processes that the first thread of a process has begun, and that have not been waited for. The
    kernel may leave out some while another one ends."""
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for word in text.split()]


def anonymous_of(pid):
    """Bytes of anonymous memory of a process, by its page tables: RssAnon in /proc/PID/status is a sum of counters of which many a
    kernel leaves out what the CPUs, or the threads, have not handed in yet, and that may be megabytes."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous: +(\d+) kB$", text, re.M)[1]) * 1024


def stop(served):
    """As `systemctl stop` would, without waiting for what is open longer than it takes."""
    served.signal(signal.SIGTERM)
    assert served.program.wait() == 0, served.log


def kill(served):
    assert served.program.kill() == -signal.SIGKILL


def restart(served, orderly=False):
    if orderly:
        stop(served)
    else:
        kill(served)
    served.start()


def events(text):
    """The JSON lines of all members, whatever stands before them."""
    return [json.loads(line[line.index("{"):]) for line in text.splitlines() if "{" in line]
