# SPDX-License-Identifier: Apache-2.0
"""gradsyncd --check-config: what it finds begins as a start says it, and it starts and makes nothing. The
sample configuration that is installed passes it, and says the truth about each key."""
import os
import pathlib
import re
import signal

import pytest

import harness
from clusters import write_key

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "daemon/sample/gradsyncd.conf"
# Settings whose defaults depend on the machine.
COMPUTED = {"fds_per_uid", "bytes_per_uid"}
# A link-local address without its interface: no start can wait for that.
NEVER_HERE = "[fe80::1]:9464"
NODE = "[daemon]\ndevice = cpu\n[cluster]\ncoordinator = 127.0.0.1:7700\n"

WRONG = {
    "key": ("[daemon]\ncolour = red\n", "unknown key 'colour'"),
    "section": ("[limits]\nworkers = 1\n", "it belongs to section [daemon]"),
    "value": ("[daemon]\nstep_deadline = soon\n", "'soon' is not a time"),
    "group": ("[daemon]\nsocket_group = no-such-group\n", "socket_group: there is no group 'no-such-group'"),
    "times": (NODE + "death = 1s\n", "heartbeat, patience, death and abandon must each be longer"),
    "death": (NODE + "heartbeat = 2s\npatience = 3s\ndeath = 4s\n", "and death longer than two heartbeats"),
    "address": ("[cluster]\nlisten = somewhere\ninsecure_no_auth = yes\n", "'somewhere' is no address"),
    "no key": (NODE, "127.0.0.1:7700: there is no TCP between daemons without a key"),
    "no key to listen": ("[cluster]\nlisten = 127.0.0.1:7701\n",
                         "127.0.0.1:7701: there is no TCP between daemons without a key"),
    "key file": (NODE + "key_file = /nonexistent/key\n", "key_file /nonexistent/key: No such file"),
    "metrics": (f"[daemon]\nmetrics_listen = {NEVER_HERE}\n",
                f"metrics_listen: cannot listen on {NEVER_HERE}"),
    "listen elsewhere": ("[cluster]\nlisten = 192.0.2.1:7700\ninsecure_no_auth = yes\n",
                         "cannot listen on 192.0.2.1:7700: Cannot assign requested address"),
    "listen": ("[cluster]\nlisten = no-such-interface:7700\ninsecure_no_auth = yes\n",
               "listen: 'no-such-interface' is neither an address nor an interface"),
}


@pytest.fixture(name="check")
def _check(program, scratch):
    """check(text, *flags) -> the ended program; nothing may have been made meanwhile."""
    path = scratch / "gradsyncd.conf"

    def run(text, *flags, env=None):
        path.write_text(text)
        before = sorted(scratch.rglob("*"))
        made = program(harness.DAEMON, "--check-config", "--config", path,
                       "--socket", scratch / "made/socket", *flags, env=env)
        made.wait()
        assert sorted(scratch.rglob("*")) == before
        return made
    return run


@pytest.mark.parametrize("name", WRONG)
def test_it_says_what_a_start_would(check, program, scratch, name):
    text, expected = WRONG[name]
    made = check(text)
    assert made.wait() == 1
    first = made.err.splitlines()[0]
    assert first.startswith("gradsyncd: ") and expected in first
    assert "is right" not in made.out
    started = program(harness.DAEMON, "--config", scratch / "gradsyncd.conf",
                      "--socket", scratch / "made/socket")
    assert started.wait() == 1
    last = started.err.splitlines()[-1]
    assert first.split(": ", 1)[1].startswith(last.split(": ", 1)[1])


@pytest.fixture(name="starts")
def _starts(program, scratch):
    """starts() -> whether a start with the checked configuration gets as far as its socket."""
    def run():
        path = scratch / "started/socket"
        path.parent.mkdir(exist_ok=True)
        made = program(harness.DAEMON, "--config", scratch / "gradsyncd.conf", "--socket", path)
        harness.wait_until(lambda: path.exists() or made.process.poll() is not None, "the socket, or the end")
        return made.process.poll() is None and made.kill(signal.SIGTERM) == 0
    return run


def test_a_metrics_address_that_may_come_later(check, starts):
    made = check("[daemon]\nmetrics_listen = 192.0.2.1:9464\n")
    assert made.wait() == 0 and "cannot listen on 192.0.2.1:9464: Cannot assign" in made.err and starts()


def test_it_says_all_that_is_wrong(check):
    made = check("[daemon]\ndevice = cpu\n[cluster]\nlisten = nothere0:1, 192.0.2.1:2\n"
                 "coordinator = 127.0.0.1:7700\ndata_address = 192.0.2.1\ndeath = 1s\n")
    assert made.wait() == 1
    times, first, second, data, key = made.err.splitlines()
    assert "must each be longer" in times
    assert "listen: 'nothere0' is neither" in first and "; choose one that `ip address` shows" in first
    assert "cannot listen on 192.0.2.1:2: Cannot assign" in second
    assert "cannot exchange data on 192.0.2.1: Cannot assign" in data
    assert "nothere0:1: there is no TCP between daemons without a key; make one (gradsyncctl key new)" in key


def test_a_key_that_others_can_read(check, scratch):
    key = scratch / "key"
    key.write_text(f"one {'5a' * 32}\n")
    key.chmod(0o644)
    made = check(NODE + f"key_file = {key}\n")
    assert made.wait() == 1 and "may be read or written by others" in made.err
    key.chmod(0o600)
    made = check(NODE + f"key_file = {key}\n")
    assert made.wait() == 0 and made.err == ""


def test_keys_on_unix_sockets(check, starts, scratch):
    """A start takes keys that are over; a build without TLS takes none."""
    key = write_key(scratch / "key")
    text = f"[cluster]\nlisten = unix:{scratch}/peers\nkey_file = {key}\n"
    made = check(text)
    good = starts()
    assert made.wait() == (0 if good else 1)
    assert made.err == "" if good else "there is a key, but this gradsyncd was built without TLS" in made.err
    write_key(key, rest="until=2020-01-01T00:00:00Z")
    made = check(text)
    assert made.wait() == (0 if good else 1) and starts() == good
    assert (f"{key} has no key that is in force" in made.err) == good


def test_a_key_that_is_over_is_no_key_for_tcp(check, scratch):
    key = write_key(scratch / "key", rest="until=2020-01-01T00:00:00Z")
    made = check(NODE + f"key_file = {key}\n")
    assert made.wait() == 1 and f"key 'main' of {key} is over" in made.err
    assert f"{key} has no key that is in force" in made.err


def test_the_units_credential_has_a_name(check, scratch):
    write_key(scratch / "gradsync-key", rest="until=2020-01-01T00:00:00Z")
    made = check(NODE, env={"CREDENTIALS_DIRECTORY": scratch})
    assert made.wait() == 1
    assert "key 'main' of the credential gradsync-key is over" in made.err
    assert "the credential gradsync-key has no key that is in force" in made.err


def test_a_credential_is_the_services(check):
    made = check(NODE + "key_file = credential:gradsync-key\n")
    assert made.wait() == 0
    assert "credential:gradsync-key is the service manager's: it cannot be read outside" in made.err


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a mount namespace")
@pytest.mark.parametrize("text,expected", [
    ("[cluster]\nlisten = 127.0.0.1:7700\n", "key_file is not set: the credential gradsync-key"),
    ("[daemon]\nsocket_group = no-such-group\n", "there is no group 'no-such-group': only a gradsyncd whose"),
])
def test_what_a_unit_passes_cannot_be_seen(program, scratch, text, expected):
    """Where systemd runs, as /run says."""
    (scratch / "gradsyncd.conf").write_text(text)
    run = ["unshare", "--mount", "sh", "-c",
           'mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec "$0" "$@"']
    made = program(harness.DAEMON, "--check-config", "--config", scratch / "gradsyncd.conf",
                   "--socket", scratch / "made/socket", prefix=run)
    assert made.wait() == 0 and expected in made.err and "is right" in made.out, made.err


def test_what_was_read_is_listed(check, scratch):
    (scratch / "gradsyncd.conf.d").mkdir()
    (scratch / "gradsyncd.conf.d/10.conf").write_text("[daemon]\ndevice = cpu:two\n")
    made = check("")
    assert made.wait() == 0 and made.err == ""
    path = scratch / "gradsyncd.conf"
    assert made.out == f"{path}\n{path}.d/10.conf\nthe configuration is right: device cpu:two, " \
                       f"socket {scratch}/made/socket\n"
    (scratch / "gradsyncd.conf.d/10.conf").write_text("[daemon]\ndevice = gpu\n")
    assert f"{path}.d/10.conf:2: device: 'gpu' is not a device" in check("").err


def test_flags_are_checked_too(check):
    assert "--workers: 'x' is not a number" in check("", "--workers=x").err
    assert check("", "--workers=x").wait() == 2


# ---- affinity ----

def cpus(name):
    found = set()
    for part in pathlib.Path(f"/sys/devices/system/cpu/{name}").read_text("ascii").strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


ABSENT = max(set(range(1024)) - cpus("present"))


def test_cpus_that_do_not_exist_are_named(check, program, scratch):
    said = f"affinity: no CPU is left for the workers: there is no CPU {ABSENT} in this machine, which has "
    made = check(f"[daemon]\naffinity = {ABSENT}\n")
    assert made.wait() == 1 and said in made.err
    started = program(harness.DAEMON, "--config=/dev/null", "--socket", scratch / "socket",
                      f"--affinity={ABSENT}")
    assert started.wait() == 1 and said in started.err
    assert check(f"[daemon]\ndevice = none\naffinity = {ABSENT}\n").wait() == 0


def test_workers_do_without_cpus_that_do_not_exist(check, daemon):
    """Also where each worker would get a CPU of its own."""
    first = min(os.sched_getaffinity(0))
    said = f"affinity: there is no CPU {ABSENT} in this machine, which has "
    made = check(f"[daemon]\naffinity = {first},{ABSENT}\n")
    assert made.wait() == 0 and said in made.err
    served = daemon("--workers=2", f"--affinity={first},{ABSENT}")
    assert said in served.log
    tasks = [int(task.name) for task in pathlib.Path(f"/proc/{served.pid}/task").iterdir()
             if (task / "comm").read_text().startswith("gs-worker-")]
    assert [os.sched_getaffinity(task) for task in tasks] == [{first}] * 2
    served.reload("")
    served.wait_log(r"configuration reloaded")
    assert "need a restart" not in served.log


# ---- the sample ----

def sample():
    """{section: {key: value}} of what stands in comments."""
    found = {}
    for line in SAMPLE.read_text("utf-8").splitlines():
        header = re.fullmatch(r"\[(\w+)\]", line)
        if header:
            keys = found.setdefault(header[1], {})
        default = re.fullmatch(r"#(\w+) =(?: (.*))?", line)
        if default:
            assert default[1] not in keys
            keys[default[1]] = default[2] or ""
    return found


def test_the_sample_has_each_key_with_its_default(program):
    made = program(harness.DAEMON, "--help")
    assert made.wait() == 0
    known = {}
    for line in made.out.splitlines():
        header = re.fullmatch(r"\[(\w+)\]", line)
        if header:
            keys = known.setdefault(header[1], {})
        flag = re.fullmatch(r"  --([a-z-]+) .*?(?:\[([^][]*)\])?", line)
        if flag and known:
            keys[flag[1].replace("-", "_")] = flag[2] or ""
    assert sum(map(len, known.values())) > 40
    found = sample()
    for computed in COMPUTED:
        found["limits"][computed] = known["limits"][computed]
    assert found == known


def test_the_sample_passes(check):
    text = SAMPLE.read_text("utf-8")
    made = check(text)
    assert made.wait() == 0 and made.err == ""
    made = check(re.sub(r"^#(?=\w+ =)", "", text, flags=re.M))
    assert made.wait() == 0 and made.err == ""
    assert "the configuration is right: device cpu" in made.out
