# SPDX-License-Identifier: Apache-2.0
"""Jobs with made-up names: no two launchers ever mean the same one, wherever each of them runs."""
import os
import re
import shutil

import pytest

import harness
from harness import wait_until
from running import lines_of
from trainers import ask, connected, fields

NAME = r"run-[0-9a-f]{16}"
TELL = 'echo "$GRADSYNC_JOB $GRADSYNC_JOB_TOKEN"'
#: A container: its first process is number 1.
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
ALICE = 61001

as_root = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None,
                             reason="namespaces are root's to make, with unshare(1)")


def test_each_job_has_a_name_and_a_token_of_its_own(runner):
    names, tokens = set(), set()
    for _ in range(2):
        out = runner.run("-n", "2", "--", "sh", "-c", TELL).out
        first, second = (lines_of(out, rank) for rank in range(2))
        assert first == second
        name, token = first[0].split()
        assert re.fullmatch(NAME, name) and re.fullmatch("[0-9a-f]{32}", token)
        names.add(name)
        tokens.add(token)
    assert len(names) == len(tokens) == 2


def test_a_name_and_a_token_that_are_given(runner):
    """Other processes may join a job that the caller has named, so it gets no token; a token that is set is
    kept."""
    tell = ("-n", "1", "--", "sh", "-c", TELL)
    assert lines_of(runner.run("--job", "mine", *tell).out, 0) == ["mine "]
    told, = lines_of(runner.run(*tell, env={"GRADSYNC_JOB_TOKEN": "known"}).out, 0)
    assert re.fullmatch(f"{NAME} known", told)
    told, = lines_of(runner.run(*tell, env={"GRADSYNC_JOB_TOKEN": ""}).out, 0)
    assert re.fullmatch(f"{NAME} [0-9a-f]{{32}}", told)


def waiting(served):
    """By job that forms, the ranks that have not come."""
    return {job["name"]: [wait["rank"] for wait in job["waiting_for"]] for job in served.status()["jobs"]
            if job["state"] == "forming"}


@as_root
def test_two_containers_on_one_daemon(daemon, program, scratch, build):
    """Only one rank of each comes at first, and together they would be ranks 0 and 1 of 2."""
    served, gates = daemon(), [scratch / f"gate.{late}" for late in range(2)]
    for gate in gates:
        os.mkfifo(gate)
    wait = f'[ "$GRADSYNC_RANK" != "$0" ] || read go <{scratch}/gate.$0; exec {build / harness.HELLO}'
    runs = [program(harness.CTL, "run", "-n", 2, "--", "sh", "-c", wait, late, prefix=CONTAINER,
                    socket=served.socket) for late in range(2)]
    wait_until(lambda: sorted(waiting(served).values()) == [[0], [1]], "a rank of each in a job of its own")
    for gate in gates:
        gate.write_text("go\n")
    for run in runs:
        assert run.wait(harness.LONG) == 0, run.err
        assert sorted(run.out.splitlines()) == [f"[{rank}] rank {rank} of 2: the average is 1.5"
                                                for rank in range(2)]


#: The variables of a launcher's ranks, and the address of another launcher that runs beside it.
LAUNCHERS = {
    "torchrun": ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500,
                  "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "RANK": 0}, {"MASTER_PORT": 29501}),
    "mpirun": ({"PMIX_NAMESPACE": "4711", "OMPI_COMM_WORLD_SIZE": 1, "OMPI_COMM_WORLD_LOCAL_SIZE": 1,
                "OMPI_COMM_WORLD_RANK": 0, "PMIX_SERVER_URI4": "4711@0.0;tcp4://127.0.0.1:40333"},
               {"PMIX_SERVER_URI4": "4711@0.0;tcp4://127.0.0.1:40334"}),
    "mpirun without an address": ({"PMIX_NAMESPACE": "4711", "OMPI_COMM_WORLD_SIZE": 1,
                                   "OMPI_COMM_WORLD_LOCAL_SIZE": 1, "OMPI_COMM_WORLD_RANK": 0}, {}),
}


def names_of(served, member, cases):
    """The names of the jobs that processes with that environment and prefix join, one after the other."""
    names = []
    for env, prefix in cases:
        each = connected(member(served, env=env, prefix=prefix))
        names.append(fields(ask(each, "join"))["name"])
        ask(each, "leave")
    return names


@as_root
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_of_another_container_has_chosen_the_same_name(daemon, member, launcher):
    """Two that run at the same time have another network, or another address in it."""
    env, other = LAUNCHERS[launcher]
    containers = [(env, ()), (env, ("unshare", "--net")), ({**env, **other}, CONTAINER)]
    names = names_of(daemon(), member, containers)
    assert len(set(names)) == 3, names


@as_root
@pytest.mark.parametrize("launcher", [name for name, (_, other) in LAUNCHERS.items() if other])
def test_each_rank_of_a_launcher_in_a_container_of_its_own(daemon, member, launcher):
    """The ranks are in one job if they are started as by `mpirun apptainer exec --pid`."""
    env, _ = LAUNCHERS[launcher]
    assert len(set(names_of(daemon(), member, [(env, ()), (env, CONTAINER), (env, CONTAINER)]))) == 1


@as_root
def test_the_owner_gives_orders_without_the_token(daemon, ctl, program, scratch, build):
    """The job's processes show it to their own user and to root alone."""
    served, gate = daemon(settings={"socket_mode": "0666"}), scratch / "gate"
    os.mkfifo(gate)
    os.chmod(gate, 0o666)
    run = program(harness.CTL, "run", "-n", 1, "--", "sh", "-c",
                  f'(printf "open\njoin\n"; read end <{gate}) | {build / harness.MEMBER}',
                  uid=ALICE, socket=served.socket)
    name = wait_until(lambda: next((job["name"] for job in served.status()["jobs"]
                                    if job["state"] != "forming"), None), "the job")
    mine = {"socket": served.socket, "uid": ALICE}
    assert "another token" in ctl("pause", name, "--token", "wrong", **mine, code=5).err
    ctl("pause", name, **mine)
    assert served.job(name)["state"] == "paused"
    ctl("resume", name, **mine)
    assert served.job(name)["state"] != "paused"
    gate.write_text("end\n")
    assert run.wait() == 0, run.err
