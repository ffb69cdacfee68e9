# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/FROM_DDP.md (Launchers): a rank is killed in the middle of an epoch, its launcher
starts it again, and the training ends as if nothing had happened.

torchrun is the real one. The tests imitate Slurm and Kubernetes: they set the variables that a process
sees, and start it again. A daemon is there before, and keeps no place by itself: the recipes say for how
long.
"""
import os
import pathlib
import re
import signal
import sys

import pytest

from conftest import ENVIRONMENT
from harness import LONG, Program, wait_until
from launch import HERE, ROOT, results_of

STEPS = 24
SCRIPT = HERE / "recovering.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=3"]
COMMON = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "GRADSYNC_REJOIN_GRACE": "300"}
# All compare with one training, as test_recovery.py does.
pytestmark = [pytest.mark.xdist_group("recovery"), pytest.mark.heavy]


@pytest.fixture
def start(daemon, processes):
    """start(command, arguments of the script, variables) -> a process that may use the daemon."""
    served = daemon()

    def start_one(command, arguments, **variables):
        made = Program(*command, SCRIPT, *arguments, socket=served.socket, env={**COMMON, **variables})
        processes.append(made)
        return made
    return start_one


def results(*programs):
    """The last results of the ranks, by rank. Each program must succeed."""
    for each in programs:
        assert each.wait(LONG) == 0, each.told()
    return results_of(*(each.out for each in programs))


def check(found, lives, undisturbed):
    """`lives`: how often a process of each rank was started again."""
    assert [(each["rank"], each["life"], each["count"]) for each in found] == [
        (rank, life, STEPS) for rank, life in enumerate(lives)]
    assert [each["trained"] for each in found] == [each["trained"] for each in undisturbed]


@pytest.mark.parametrize("killed", [0, 1])
def test_torchrun_with_an_agent_for_each_rank(undisturbed, start, tmp_path, killed):
    agents = [start([*TORCHRUN, "--nproc-per-node=1"], [tmp_path, killed, 2], GRADSYNC_JOB="digits",
                    GRADSYNC_WORLD_SIZE="2", GRADSYNC_RANK=str(rank)) for rank in (0, 1)]
    found = results(*agents)
    check(found, [int(rank == killed) for rank in (0, 1)], undisturbed)
    assert found[1 - killed]["restarts"] >= 1


def test_torchrun_with_one_agent(undisturbed, start, tmp_path):
    """It starts all ranks again, in a new incarnation of the job; they go on from a checkpoint."""
    agent = start([*TORCHRUN, "--nproc-per-node=2"], [tmp_path, 1, 2, "checkpoint"])
    check(results(agent), [1, 1], undisturbed)
    assert (pathlib.Path(tmp_path) / "checkpoint").exists()


def test_slurm(undisturbed, start, tmp_path):
    """Tasks of a step, each in the loop of the recipe."""
    loop = 'for i in 0 1 2 3; do GRADSYNC_INSTANCE=$i "$0" "$@" && exit 0; done; exit 1'
    tasks = [start(["/bin/sh", "-c", loop, sys.executable], [tmp_path, 0, 2], SLURM_JOB_ID="4711",
                   SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2", SLURM_NTASKS="64", SLURM_PROCID=str(rank),
                   SLURM_LOCALID=str(rank)) for rank in (0, 1)]
    check(results(*tasks), [1, 0], undisturbed)


def test_kubernetes(undisturbed, start, tmp_path):
    """The container of a pod is started again, with the index that it had. Its processes have other numbers
    than on the host, as far as this user can try that."""
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if os.geteuid() == 0 else []
    container = [*inside, "/bin/sh", "-c", '"$0" "$@" || exit $?']  # the first process cannot kill itself

    def pod(index):
        return start([*container, sys.executable], [tmp_path, 1, 2], GRADSYNC_JOB="digits",
                     GRADSYNC_WORLD_SIZE="2", JOB_COMPLETION_INDEX=str(index))

    pods = [pod(0), pod(1)]
    assert pods[1].wait(LONG) == 128 + signal.SIGKILL, pods[1].told()
    pods[1] = pod(1)
    check(results(*pods), [0, 1], undisturbed)


def test_systemd(undisturbed, start, tmp_path):
    """The processes of two units, with the variables of the recipe's, started again on failure."""
    unit = re.search(r"^    Environment=(.*)$", (ROOT / "docs/FROM_DDP.md").read_text(), re.M)[1]

    def service(instance):
        variables = dict(each.split("=") for each in unit.replace("%i", str(instance)).split())
        return start(["/bin/sh", "-c", 'until "$0" "$@"; do :; done', sys.executable], [tmp_path, 0, 2],
                     **variables)

    check(results(service(0), service(1)), [1, 0], undisturbed)


def test_spare(undisturbed, start, tmp_path):
    """It waits for the place of a rank that is lost."""
    named = {"GRADSYNC_JOB": "digits", "GRADSYNC_WORLD_SIZE": "2"}
    ranks = [start([sys.executable], [tmp_path, 1, 2], **named, GRADSYNC_RANK=str(rank)) for rank in (0, 1)]
    wait_until(lambda: len(list(tmp_path.glob("rank*"))) == 2, "both ranks", LONG)
    spare = start([sys.executable], [tmp_path, 1, 2], **named, GRADSYNC_SPARE="1")
    assert ranks[1].wait(LONG) == -signal.SIGKILL, ranks[1].told()
    check(results(ranks[0], spare), [0, 1], undisturbed)


def test_alone(processes, tmp_path):
    """No launcher, no daemon: a world of one, which trains with all samples."""
    made = Program(sys.executable, SCRIPT, tmp_path, -1, 2, env=COMMON)
    processes.append(made)
    found, = results(made)
    assert (found["rank"], found["count"], found["restarts"]) == (0, 2 * STEPS, 0)
