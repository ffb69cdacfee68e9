# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl run: N processes as one job, their output and their ends, and nothing left behind."""
import fcntl
import json
import os
import pathlib
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios

import pytest

import harness
from harness import process_state, wait_until
from fake import FakeDaemon
from running import lines_of, pidfds, said

TELL = 'echo "$GRADSYNC_RANK $GRADSYNC_WORLD_SIZE $GRADSYNC_LOCAL_RANK $GRADSYNC_JOB $GRADSYNC_SOCKET"'


def unread(pipe):
    """Bytes that wait in a pipe."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, struct.pack("i", 0)))[0]


def pending_signals(pid):
    """Mask of the signals that a process has been sent and has not taken yet."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^ShdPnd:\s*(\w+)", text, re.MULTILINE)[1], 16)


# -- what a member sees

def test_each_process_learns_who_it_is(runner):
    made = runner.run("-n", "3", "--", "sh", "-c", TELL)
    told = [lines_of(made.out, rank) for rank in range(3)]
    sockets = {line.split()[4] for line, in told}
    job = told[0][0].split()[3]
    assert re.fullmatch("run-[0-9a-f]{16}", job)
    assert [line.split()[:4] for line, in told] == [[str(rank), "3", str(rank), job] for rank in range(3)]
    assert len(sockets) == 1 and re.fullmatch(rf"{runner.scratch}/tmp/gradsync-{os.geteuid()}\.\w{{6}}/socket", sockets.pop())
    assert len(made.out.splitlines()) == 3


OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
               "OMP_NUM_THREADS", "PYTHONUNBUFFERED")
TELL_TORCHRUN = "echo " + " ".join(f"${name}" for name in OF_TORCHRUN)


def test_scripts_for_torchrun_find_its_variables(runner):
    """All of them agree on a port, on which they can listen."""
    unset = dict.fromkeys(OF_TORCHRUN)
    one_cpu = ("taskset", "-c", min(os.sched_getaffinity(0)))
    made = runner.run("-n", "2", "--", "sh", "-c", TELL_TORCHRUN, env=unset, prefix=one_cpu)
    (first,), (second,) = (lines_of(made.out, rank) for rank in range(2))
    port = first.split()[5]
    assert first.split() == ["0", "2", "0", "2", "127.0.0.1", port, "1", "1"]
    assert second.split() == ["1", "2", "1", "2", "127.0.0.1", port, "1", "1"]
    with socket.create_server(("127.0.0.1", int(port))):
        pass


def test_the_cpus_are_shared_by_the_members(runner):
    cpus = len(os.sched_getaffinity(0))
    made = runner.run("-n", "1", "--", "sh", "-c", TELL_TORCHRUN, env={"OMP_NUM_THREADS": None})
    assert lines_of(made.out, 0)[0].split()[6] == str(cpus)


def test_variables_of_torchrun_that_are_set(runner):
    """The place in the job is this job's; the rest is what the user has said."""
    env = {"RANK": "7", "WORLD_SIZE": "8", "LOCAL_RANK": "7", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "::1",
           "MASTER_PORT": "4711", "OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "x"}
    made = runner.run("-n", "1", "--", "sh", "-c", TELL_TORCHRUN, env=env)
    assert lines_of(made.out, 0) == ["0 1 0 1 ::1 4711 3 x"]


def test_members_join_one_job_on_the_private_daemon(runner, build):
    """Each process is a member of the job, as status sees it from inside."""
    script = f"""
import json, subprocess, sys, os
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from peer import Peer
peer = Peer(os.environ["GRADSYNC_SOCKET"])
peer.joined(peer.join_send(os.environ["GRADSYNC_JOB"], int(os.environ["GRADSYNC_WORLD_SIZE"]), int(os.environ["GRADSYNC_RANK"])))
job, = json.loads(subprocess.check_output([{str(build / harness.CTL)!r}, "--json"]))["jobs"]
members = [(member["rank"], member["pid"]) for member in job["members"]]
assert (peer.rank, os.getpid()) in members, members
print(job["name"], job["world_size"], len(members))
"""
    made = runner.run("-n", "2", "--job", "seen", "--", sys.executable, "-c", script)
    assert lines_of(made.out, 0)[0].split()[:2] == ["seen", "2"]


def test_a_reachable_daemon_is_used(runner, served):
    for arguments, env in ((["--socket", served.socket], {}), ([], {"GRADSYNC_SOCKET": served.socket})):
        made = runner.run(*arguments, "-n", "2", "sh", "-c", TELL + "; ls $TMPDIR", env=env)
        assert lines_of(made.out, 1)[0].split()[4] == served.socket
        assert len(made.out.splitlines()) == 2
    made = runner.run("--private", "-n", "1", "sh", "-c", TELL, env={"GRADSYNC_SOCKET": served.socket})
    assert lines_of(made.out, 0)[0].split()[4] != served.socket


def test_a_named_daemon_must_be_there(runner, scratch):
    made = runner.run("--socket", scratch / "nowhere", "-n", "1", "echo", "x", code=3)
    assert made.out == "" and str(scratch / "nowhere") in made.err


def test_a_stale_variable_is_told(runner, scratch):
    """The environment names a daemon that is gone: a private one serves the job, and the user is told."""
    made = runner.run("-n", "1", "sh", "-c", TELL, env={"GRADSYNC_SOCKET": scratch / "nowhere"})
    assert str(scratch / "nowhere") in made.err and "private" in made.err
    assert str(scratch / "nowhere") not in made.out


def test_the_default_place_of_the_device_is_used(runner, scratch):
    (scratch / "gradsync" / "cpu:mine").mkdir(parents=True)
    served = FakeDaemon(scratch / "gradsync" / "cpu:mine" / "socket")
    try:
        made = runner.run("--device", "cpu:mine", "-n", "1", "sh", "-c", TELL, env={"XDG_RUNTIME_DIR": scratch})
    finally:
        served.close()
    assert lines_of(made.out, 0)[0].split()[4] == served.path


def test_arguments_reach_the_private_daemon(runner, scratch):
    config = scratch / "conf"
    config.write_text("[daemon]\nworkers = 3\n")
    made = runner.run("--daemon-arg", "--config", "--daemon-arg", config, "-n", "1", "--", runner.ctl, "--json")
    document = json.loads("\n".join(lines_of(made.out, 0)))
    assert document["daemon"]["workers"] == 3 and document["daemon"]["device"] == "cpu:run-test"


def test_a_daemon_that_does_not_notify(build, runner, scratch):
    """Built without libsystemd it says nothing when it is ready: then its socket is waited for."""
    ctl, mute = scratch / "gradsyncctl", scratch / "gradsyncd"
    ctl.write_bytes((build / harness.CTL).read_bytes())
    mute.write_text(f'#!/bin/sh\nunset NOTIFY_SOCKET\nexec {build / harness.DAEMON} "$@"\n')
    for path in (ctl, mute):
        path.chmod(0o755)
    made = subprocess.run([ctl, "run", "-n", "2", "--", ctl, "status"], check=False, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=harness.environment(runner.env), timeout=harness.DEADLINE)
    assert made.returncode == 0, made
    assert [lines_of(made.stdout, rank)[0].split()[0] for rank in range(2)] == ["gradsyncd"] * 2, made
    runner.nothing_left()


# -- output

def test_output_is_prefixed_and_kept_apart(runner):
    made = runner.run("-n", "2", "sh", "-c", 'echo out; echo err >&2; printf "partial"; printf "10 %%\\r20 %%\\rend" >&2')
    for rank in range(2):
        assert lines_of(made.out, rank) == ["out", "partial"]
        assert lines_of(made.err, rank) == ["err", "10 %", "20 %", "end"]
    assert "\x1b" not in made.out + made.err


def test_lines_of_several_ranks_are_never_mixed(runner):
    count = 20000
    script = f'i=0; while [ $i -lt {count} ]; do echo "$GRADSYNC_RANK line $i of rank $GRADSYNC_RANK"; i=$((i+1)); done'
    made = runner.run("-n", "3", "sh", "-c", script)
    for rank in range(3):
        assert lines_of(made.out, rank) == [f"{rank} line {number} of rank {rank}" for number in range(count)]
    assert len(made.out.splitlines()) == 3 * count


def test_long_lines_and_bytes(runner):
    made = runner.run("-n", "1", sys.executable, "-c", "import os; os.write(1, b'x' * 200000 + b'\\n\\xff\\x00y\\n')")
    assert "".join(lines_of(made.out, 0)[:-1]) == "x" * 200000
    assert lines_of(made.out, 0)[-1] == "\ufffd\x00y"


def test_only_rank_0_reads_our_input(runner):
    made = runner.start("-n", "2", "cat")
    made.say("hello")
    assert made.line() == "[0] hello"
    made.process.stdin.close()
    assert made.wait() == 0 and made.out == ""
    runner.nothing_left()


# -- how it ends

def test_the_first_failure_ends_the_others(runner):
    made = runner.run("-n", "3", "sh", "-c", 'if [ $GRADSYNC_RANK = 1 ]; then exit 7; fi; exec sleep 1000', code=7)
    assert re.search(r"rank 1 \(pid \d+\) ended with status 7", made.err)
    assert len(said(made.err)) == 1, made.err


def test_a_member_killed_by_a_signal(runner):
    made = runner.run("-n", "2", "sh", "-c", 'if [ $GRADSYNC_RANK = 0 ]; then kill -9 $$; fi; exec sleep 1000', code=128 + 9)
    assert re.search(r"rank 0 \(pid \d+\) was killed by signal 9", made.err)


def test_the_others_may_go_on(runner, scratch):
    """The survivor reads from a pipe that only we close, after the failure was told."""
    made = runner.start("--keep-going", "-n", "2", "sh", "-c", 'if [ $GRADSYNC_RANK = 1 ]; then exit 5; fi; cat; echo survived')
    wait_until(lambda: "rank 1" in made.err, "the failure told")
    made.process.stdin.close()
    assert made.wait() == 5
    assert lines_of(made.out, 0) == ["survived"]
    runner.nothing_left()


def test_a_member_that_will_not_end_is_killed(runner):
    os.mkfifo(runner.scratch / "tmp" / "go")
    script = 'if [ $GRADSYNC_RANK = 1 ]; then read x < $TMPDIR/go; exit 3; fi; trap "" TERM; echo go > $TMPDIR/go; while :; do sleep 9; done'
    made = runner.run("--grace", "0.1", "-n", "2", "sh", "-c", script, code=3)
    assert re.search(r"rank 0 \(pid \d+\) has not ended: killed", made.err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_reach_all_members(runner, number):
    made = runner.start("-n", "2", "sh", "-c", f'trap "echo caught; exit 0" {number.value}; echo up; while :; do sleep 1000 & wait $!; done')
    assert sorted((made.line(), made.line())) == ["[0] up", "[1] up"]
    made.signal(number)
    assert made.wait() == 128 + number
    assert sorted(made.out.splitlines()) == ["[0] caught", "[1] caught"]
    runner.nothing_left()


def test_suspended_and_continued_together(runner):
    """Ctrl-Z stops the job, fg continues it."""
    made = runner.start("-n", "2", "sh", "-c", "echo $$; exec sleep 1000")
    pids = [made.pid, *(int(made.line().split()[1]) for _ in range(2))]
    made.signal(signal.SIGTSTP)
    wait_until(lambda: [process_state(pid) for pid in pids] == ["T"] * 3, "all stopped")
    made.signal(signal.SIGCONT)
    wait_until(lambda: "T" not in [process_state(pid) for pid in pids], "all going on")
    made.signal(signal.SIGTERM)
    assert made.wait() == 128 + signal.SIGTERM
    runner.nothing_left()


def test_an_interrupt_while_nobody_reads_our_output(runner):
    """The pipe to the reader is full: we are stuck in writing, but not deaf."""
    made = runner.start("-n", "1", "sh", "-c", 'trap "" INT; echo up; exec yes')
    made.line()
    wait_until(lambda: unread(made.process.stdout) > 60000, "a full pipe")
    pidfd = os.pidfd_open(made.pid)
    made.signal(signal.SIGINT)
    wait_until(lambda: not pending_signals(made.pid), "the first interrupt taken")
    made.signal(signal.SIGINT)
    assert select.select([pidfd], [], [], harness.DEADLINE)[0]
    os.close(pidfd)
    runner.nothing_left()


def test_a_reader_that_goes_away_ends_the_job(runner):
    made = subprocess.run(["bash", "-c", f'{runner.ctl} run -n 2 yes | head -n 1; exit ${{PIPESTATUS[0]}}'], check=False,
                          env=harness.environment(runner.env), stdin=subprocess.DEVNULL, capture_output=True, timeout=harness.DEADLINE)
    assert made.returncode == 128 + signal.SIGPIPE and made.stdout in (b"[0] y\n", b"[1] y\n")
    runner.nothing_left()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_is_closed(runner, closed):
    """The stream's number is not that of a descriptor of ours: output that cannot be written ends the job."""
    made = subprocess.run(["bash", "-c", f"{runner.ctl} run -n 2 sh -c 'echo out; echo err >&2' {closed}"], check=False,
                          env=harness.environment(runner.env), stdin=subprocess.DEVNULL, capture_output=True, timeout=harness.DEADLINE)
    assert made.returncode == 1
    assert "2>&-" in closed or b"cannot write the output: Bad file descriptor" in made.stderr, made.stderr
    runner.nothing_left()


def test_what_members_leave_behind_is_ended(runner):
    """Background processes, one of them in a session of its own and deaf to SIGTERM."""
    made = runner.run("-n", "2", "sh", "-c", 'sleep 1000 & setsid sh -c "trap \\"\\" TERM; echo away; sleep 1000" > $TMPDIR/away.$GRADSYNC_RANK & '
                      'while [ ! -s $TMPDIR/away.$GRADSYNC_RANK ]; do sleep 0.01; done; echo main')
    assert sorted(made.out.splitlines()) == ["[0] main", "[1] main"]


def test_killed_itself_it_takes_everything_along(runner):
    made = runner.start("-n", "2", "sh", "-c", "echo $$ $PPID; exec sleep 1000")
    pids = [int(made.line().split()[1]) for _ in range(2)]
    directory, = runner.private()
    daemon = int((directory / "daemon.pid").read_text())
    assert process_state(daemon) not in "-XZ"
    made.kill()
    for pid in [*pids, daemon]:
        wait_until(lambda: process_state(pid) in "-Z", f"end of {pid}")


def serving(ctl, directory, before):
    """The pid of a private daemon that has none of the pids `before`, once it has a job that does steps; else None."""
    pid = fresh(directory, before)
    told = subprocess.run([ctl, "status", "--json", "--socket", directory / "socket"], capture_output=True, text=True,
                          check=False)
    jobs = json.loads(told.stdout)["jobs"] if told.returncode == 0 else []
    return pid if [job for job in jobs if job["bytes_reduced"] > 0] else None


def fresh(directory, before):
    """The pid of a private daemon that has none of the pids `before`; None if there is none now."""
    try:
        pid = int((directory / "daemon.pid").read_text() or 0)
    except FileNotFoundError:
        return None                     # its run has ended, too
    return pid if pid not in (0, *before) else None


def test_a_private_daemon_that_ends_is_started_again(runner, build):
    """The members do not notice, whatever ended it, until that has happened too often."""
    made = runner.start("-n", "2", "sh", "-c", f"echo up; exec {build / harness.DIGITS} --epochs 1000000 >/dev/null")
    assert sorted((made.line(), made.line())) == ["[0] up", "[1] up"]
    directory, = runner.private()
    pids = []
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        pid = wait_until(lambda: serving(runner.ctl, directory, pids), "a daemon that has the job")
        pids.append(pid)
        os.kill(pid, number)
    pids.append(wait_until(lambda: serving(runner.ctl, directory, pids), "the last one"))
    assert len(set(pids)) == 4 and made.process.poll() is None
    os.kill(pids[-1], signal.SIGKILL)
    # Three are too often only within a minute, which is not long everywhere.
    while wait_until(lambda: made.process.poll() is not None or fresh(directory, pids), "another one, or the end") is not True:
        pids.append(fresh(directory, pids))
        os.kill(pids[-1], signal.SIGKILL)
    assert made.wait() == 1
    assert made.err.count("started again as pid") == len(pids) - 1, made.err
    assert f"the private daemon (pid {pids[-1]}) was killed by signal 9 (Killed), and is not started again" in made.err
    runner.nothing_left()


# -- started again

@pytest.mark.parametrize("restart", [0, 1])
def test_how_long_a_place_is_kept(runner, restart):
    """No process comes back without a restart; with one it may be slow. A value that is set is kept, also the
    empty one, by which the daemon decides."""
    tell = 'echo "${GRADSYNC_REJOIN_GRACE-not set}"'
    for env, kept in (({}, "120" if restart else "0"), ({"GRADSYNC_REJOIN_GRACE": "7.5"}, "7.5"), ({"GRADSYNC_REJOIN_GRACE": ""}, "")):
        made = runner.run("--restart", restart, "-n", "1", "sh", "-c", tell, env=env)
        assert lines_of(made.out, 0) == [kept]


def test_restarts_are_used_up(runner):
    """Each failure says how often it was made good; the last one, that it is not."""
    made = runner.run("--restart", "2", "-n", "2", "sh", "-c", 'if [ $GRADSYNC_RANK = 1 ]; then exit 7; fi; exec sleep 1000', code=7)
    told = said(made.err)
    assert len(told) == 3, made.err
    for (count, when), line in zip(((1, ""), (2, r" in 0\.5 s")), told[:2]):
        assert re.fullmatch(rf"gradsyncctl: rank 1 \(pid \d+\) ended with status 7; started again{when} "
                            rf"\({count} of 2\)", line)
    assert re.fullmatch(r"gradsyncctl: rank 1 \(pid \d+\) ended with status 7 after 2 restarts; the others are ended", told[2])


def test_nobody_is_started_again_once_one_has_ended(runner):
    """The job cannot have all its members any more: a new process would wait for the one that has ended."""
    fifo = runner.scratch / "go"
    os.mkfifo(fifo)
    script = f"echo $$; case $GRADSYNC_RANK in 0) exit 0;; 1) exec sleep 1000;; esac; read go < {fifo}; kill -9 $$"
    made = runner.start("--restart", "5", "-n", "3", "sh", "-c", script)
    pids = {int(line[1]): int(line.split()[1]) for line in (made.line() for _ in range(3))}
    wait_until(lambda: pids[0] not in pidfds(made.pid), "the end of rank 0, noticed")
    with open(fifo, "w", encoding="ascii") as go:
        go.write("go\n")
    assert made.wait() == 128 + signal.SIGKILL
    assert said(made.err) == [
        f"gradsyncctl: rank 2 (pid {pids[2]}) was killed by signal 9 (Killed); not started again, because "
        "rank 0 has ended and the job cannot have all its members any more; the others are ended"]
    runner.nothing_left()


def test_a_failure_for_good_counts_as_an_end(runner):
    """With --keep-going: rank 0 has used up its restarts, so rank 1 has no job to come back to."""
    fifo = runner.scratch / "go"
    os.mkfifo(fifo)
    script = f"if [ $GRADSYNC_RANK = 0 ]; then exit 3; fi; read go < {fifo}; exit 4"
    made = runner.start("--restart", "1", "--keep-going", "-n", "2", "sh", "-c", script)
    wait_until(lambda: "after 1 restart\n" in made.err, "rank 0 given up")
    with open(fifo, "w", encoding="ascii") as go:
        go.write("go\n")
    assert made.wait() == 3
    assert re.search(r"rank 1 \(pid \d+\) ended with status 4; not started again, because rank 0 has ended "
                     r"and the job cannot have all its members any more$", said(made.err)[-1]), made.err
    runner.nothing_left()


# -- what cannot start

def test_a_command_that_is_not_there(runner):
    assert "cannot run /nonexistent/trainer" in runner.run("-n", "2", "/nonexistent/trainer", code=127).err
    assert "cannot run /etc/passwd" in runner.run("-n", "2", "/etc/passwd", code=126).err


def test_a_private_daemon_that_cannot_start(runner):
    made = runner.run("--daemon-arg", "--nonsense", "-n", "2", "echo", "x", code=1)
    assert made.out == "" and "the private daemon could not start" in made.err and "[gradsyncd] " in made.err


def test_no_place_for_a_private_daemon(runner, scratch):
    assert "cannot make a directory" in runner.run("-n", "1", "true", code=1, env={"TMPDIR": scratch / "nowhere"}).err
    long = scratch / ("x" * 100)
    long.mkdir()
    assert "too long" in runner.run("-n", "1", "true", code=1, env={"TMPDIR": long}).err


def test_no_descriptor_for_a_private_daemon(runner):
    made = runner.run("-n", "1", "true", code=1, nofile=5)
    assert "gradsync-" in made.err and "Too many open files" in made.err, made.err
