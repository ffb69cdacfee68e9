# SPDX-License-Identifier: Apache-2.0
"""A real training job: however many members share it, it is the same training.

Accuracy alone would prove nothing, because members that never hear of each other reach it as well. So the whole loss curve is
compared with that of a single process, the parameters of all members after each epoch, and what the daemon has counted.
"""
import gzip
import json
import shlex
import signal

import pytest

import harness
from harness import events
from trainings import (BATCH, DATA, EPOCHS, SETTING, TOLERANCE, TRAIN_ROWS, curve, difference, kind,
                       single)  # noqa: F401

PARAMETERS = (64 + 1) * 128 + (128 + 1) * 64 + (64 + 1) * 10
STEPS = TRAIN_ROWS // BATCH             # of one epoch


def run_together(program, build, daemon, members, *arguments):
    run = program(harness.CTL, "run", "-n", members, "--job", "digits", "--", build / harness.DIGITS, *SETTING, *arguments,
                  socket=daemon.socket)
    status = run.wait(harness.LONG)
    return status, events(run.out), run.err + run.out


def test_single_process_learns(single):
    losses = curve(single)
    assert len(losses) == EPOCHS
    assert losses[0] > 0.5 and losses[-1] < losses[0] / 50, losses
    assert kind(single, "end")[0]["accuracy"] >= 0.95


@pytest.mark.heavy
def test_another_seed_is_another_curve(single, program):
    """The comparison below would be worthless if all curves were alike."""
    other = program(harness.DIGITS, *SETTING[:-1], 2)
    assert other.wait(harness.LONG) == 0, other.err
    assert difference(curve(single), curve(events(other.out))) > 100 * TOLERANCE


@pytest.mark.parametrize("members", [1, 2, pytest.param(4, marks=pytest.mark.heavy)])
def test_any_number_of_members_is_the_same_training(single, daemon, program, build, scratch, members):
    d = daemon()
    snapshot = scratch / "status.json"
    ask = f"{shlex.quote(str(build / harness.CTL))} status --json >{snapshot}"
    status, found, text = run_together(program, build, d, members, "--exec", ask, "--exec-epoch", EPOCHS)
    assert status == 0, text

    assert difference(curve(single), curve(found)) < TOLERANCE
    ends = [kind(found, "end", rank)[0] for rank in range(members)]
    assert all(end["accuracy"] >= 0.95 for end in ends)
    assert len({end["hash"] for end in ends}) == 1

    epochs = [kind(found, "epoch", rank) for rank in range(members)]
    for number in range(EPOCHS):
        same = [{key: member[number][key] for key in ("epoch", "loss", "norm", "hash")} for member in epochs]
        assert all(one == same[0] for one in same), same
    assert len({epoch["hash"] for epoch in epochs[0]}) == EPOCHS, "the parameters did not change"

    # Asked for after the last epoch, while the members are still there: nothing is rounded or in flight.
    job = next(job for job in json.loads(snapshot.read_text())["jobs"] if job["name"] == "digits")
    start = kind(found, "start")[0]
    assert (start["world"], start["parameters"], start["steps"], start["rows"]) == (members, PARAMETERS, STEPS, TRAIN_ROWS)
    assert job["world_size"] == members and job["step"] == STEPS * EPOCHS
    assert job["bytes_reduced"] == PARAMETERS * 4 * STEPS * EPOCHS
    assert [member["rank"] for member in job["members"]] == list(range(members))
    assert job["buckets"] == start["buckets"] == 3


def mpirun(program, build, scratch, env, *arguments, socket=None):
    """Two ranks of Open MPI, on however few CPUs. Each has a file of its own: mpirun passes on what comes,
    not lines."""
    own_file = 'exec "$0" "$@" >"$SAID.$OMPI_COMM_WORLD_RANK"'
    run = program("/usr/bin/mpirun", "--oversubscribe", "--bind-to", "none", "-n", 2, "sh", "-c", own_file,
                  build / harness.DIGITS, *SETTING, *arguments, socket=socket,
                  env={"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1,
                       "SAID": scratch / "said", **env})
    status = run.wait(harness.LONG)
    return status, [events((scratch / f"said.{rank}").read_text()) for rank in range(2)], run.err


def test_mpirun_starts_one_job(single, daemon, program, build, scratch):
    status, found, text = mpirun(program, build, scratch, {}, "--epochs", 2, socket=daemon().socket)
    assert status == 0, text
    assert [kind(said, "start", rank)[0]["world"] for rank, said in enumerate(found)] == [2, 2]
    assert difference(curve(single)[:2], curve(found[0])) < TOLERANCE
    assert kind(found[0], "end", 0)[0]["hash"] == kind(found[1], "end", 1)[0]["hash"]


def test_mpirun_without_a_daemon_is_refused(program, build, scratch):
    """Otherwise there would be as many trainings as ranks."""
    nowhere = {"XDG_RUNTIME_DIR": scratch, "GRADSYNC_DEVICE": "cpu:nowhere"}
    status, found, text = mpirun(program, build, scratch, nowhere)
    assert status == 1 and found == [[], []], text
    assert "no gradsyncd is reachable" in text and "OMPI_COMM_WORLD_SIZE is set" in text, text


def test_members_that_do_not_average_are_found_out(daemon, program, build):
    status, found, text = run_together(program, build, daemon(), 2, "--no-sync")
    assert status == 1, text
    assert "the parameters are not equal: those of rank" in text
    hashes = [event["hash"] for event in found if event["event"] == "epoch"]
    assert len(set(hashes)) == 2 and not kind(found, "end"), found


def test_a_killed_member_is_named_to_the_others(daemon, program):
    d = daemon()
    members = [program(harness.DIGITS, "--json", "--epochs", 1000000, socket=d.socket,
                       env={"GRADSYNC_JOB": "k", "GRADSYNC_WORLD_SIZE": 2, "GRADSYNC_RANK": rank}) for rank in range(2)]
    while '"event":"epoch"' not in members[0].line():
        pass
    members[1].kill(signal.SIGKILL)
    assert members[0].wait() == 1
    assert "rank 1" in members[0].err and str(members[1].pid) in members[0].err, members[0].err
    harness.wait_until(lambda: d.job("k") is None, "the job is gone")


def test_a_batch_that_cannot_be_shared_is_refused(daemon, program, build):
    status, _, text = run_together(program, build, daemon(), 3, "--batch", 32)
    assert status == 1
    assert "a batch of 32 rows cannot be shared equally by 3 members" in text


def test_a_command_that_fails_fails_the_job(program):
    digits = program(harness.DIGITS, "--epochs", 1, "--exec", "exit 3")
    assert digits.wait(harness.LONG) == 1
    assert "the command failed" in digits.err


@pytest.mark.parametrize("line, at", [("1,2,3", 1), (",".join(["0"] * 65) + "\n" + ",".join(["17"] * 64 + ["0"]), 2),
                                      (",".join(["0"] * 66), 1), (",".join(["0"] * 64 + ["10"]), 1), ("x" * 3000, 1)])
def test_bad_data_is_named(program, scratch, line, at):
    path = scratch / "bad.csv"
    path.write_text(line + "\n")
    digits = program(harness.DIGITS, "--data", path)
    assert digits.wait() == 1
    assert digits.err == f"digits: {path}:{at}: not 64 pixels and a label\n"


def test_missing_and_truncated_data_are_named(program, scratch):
    missing, cut = scratch / "missing", scratch / "cut.csv.gz"
    cut.write_bytes(DATA.read_bytes()[:20000])
    for path in (missing, cut):
        digits = program(harness.DIGITS, "--data", path)
        assert digits.wait() == 1
        assert digits.err.startswith("digits: ") and str(path) in digits.err, digits.err


def test_unpacked_data_is_the_same(program, scratch):
    plain = scratch / "digits.csv"
    plain.write_bytes(gzip.decompress(DATA.read_bytes()))
    runs = [program(harness.DIGITS, "--json", "--epochs", 1, "--data", path) for path in (DATA, plain)]
    assert [run.wait(harness.LONG) for run in runs] == [0, 0]
    hashes = [kind(events(run.out), "end")[0]["hash"] for run in runs]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("arguments", [["--epochs", "0"], ["--epochs", "x"], ["--batch", "-1"], ["--lr", "nan"],
                                       ["--momentum", "1"], ["--exec", "true", "--exec-epoch", "99"], ["--no-such"], ["rest"]])
def test_usage(program, arguments):
    digits = program(harness.DIGITS, *arguments)
    assert digits.wait() == 2
    assert digits.err and not digits.out
