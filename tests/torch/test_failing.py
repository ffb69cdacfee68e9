# SPDX-License-Identifier: Apache-2.0
"""Each error that a training script gets names what is wrong, and no script hangs. After that all processes
have ended as expected, and the daemon, which lives on, holds nothing of them."""
import json
import pathlib

import pytest

import harness
import launch
from launch import Group, cases

MISTAKES = Group("models_that_differ model_changed backward_again small_floats refused_arguments "
                 "parameters_without_gradient sparse", script="failing.py", heavy=False)


class Trainings:
    """Ranks on a daemon that outlives them."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.before = daemon.fds()

    def __call__(self, *arguments, options=("--keep-going",), status=0):
        """How all ended, which must be with this status."""
        ended = launch.run(2, "failing.py", *arguments, options=options, socket=self.daemon.socket)
        self.nothing_left()
        assert ended.status == status, ended.told
        return ended

    def held(self):
        """Jobs and shared memory that the daemon has, and descriptors that it did not have at first."""
        told = self.daemon.status()
        fds = list(self.daemon.fds())
        for each in self.before:
            if each in fds:
                fds.remove(each)
        memory = [line for line in self.daemon.maps().splitlines() if "memfd:" in line]
        return [told["jobs"], told["daemon"]["arenas"], told["daemon"]["arena_bytes"], fds, memory]

    def nothing_left(self):
        """The daemon learns of the end of a process a moment after it."""
        seen = []

        def empty():
            seen[:] = [self.held()]
            return not any(seen[0])

        try:
            harness.wait_until(empty, "a daemon that holds nothing")
        except AssertionError:
            assert not any(seen[0]), seen[0]


@pytest.fixture
def trainings(daemon):
    return Trainings(daemon())


@cases(MISTAKES)
def test_mistakes(group, case):
    group.check(case)


@pytest.mark.heavy
def test_mistakes_leave_nothing(trainings, tmp_path):
    trainings(tmp_path, *MISTAKES.names)


def test_uncaught(trainings):
    """The script ends by the exception, as any script does."""
    ended = trainings("", "uncaught", status=1)
    for rank in (0, 1):
        assert "Traceback" in ended.text(rank) and "PlanMismatchError" in ended.text(rank), ended.told
        assert "0.weight" in ended.text(rank)


@pytest.mark.heavy
def test_an_exception_that_is_caught(trainings):
    """The ranks leave in the end: no place is kept for them."""
    assert [each["count"] for each in trainings("", "caught").results()] == [1, 1]
    ended, = json.loads(trainings.daemon.ctl("list", "jobs", "--ended", "--json"))["ended_jobs"]
    assert ended["reason"] == "left", ended


def check_loss(told):
    """Rank 0 was told that rank 1 is lost."""
    assert told["error"] in ("VoidRetry", "MemberLostError") and "rank 1" in told["text"], told


def test_exception_in_backward(trainings):
    """The rank that has failed sees its exception, the other one that it was lost."""
    theirs, backward, forward = trainings("", "exception_in_backward", status=3).results()
    assert (backward["error"], backward["text"]) == ("ValueError", "the lamp has gone out")
    assert forward["error"] == "UnfinishedStepError" and "0.weight" in forward["text"]
    check_loss(theirs)


@pytest.mark.heavy
def test_uncaught_in_backward(trainings):
    ended = trainings("", "uncaught_in_backward", status=1)
    assert "ValueError: the lamp has gone out" in ended.text(1)
    text = ended.text(0)
    assert ("VoidRetry" in text or "MemberLostError" in text) and "rank 1" in text, text


@pytest.mark.heavy
def test_member_gone(trainings):
    mine, = trainings("", "member_gone", status=3).results()
    check_loss(mine)


@pytest.mark.heavy
def test_daemon_gone(tmp_path):
    """With the daemon the job's memory goes; gradsyncctl leaves nothing in TMPDIR."""
    found = launch.passed(2, "failing.py", "", "daemon_gone", options=("--keep-going",), TMPDIR=str(tmp_path))
    assert [each["error"] for each in found] == ["DaemonLostError"] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case, ranks", [("interrupted", [0]),
                                         pytest.param("interrupted_all", [0, 1], marks=pytest.mark.heavy)])
def test_interrupted(trainings, case, ranks):
    """A process that is interrupted says so by its end; the job's exit status is that of SIGINT."""
    ended = trainings("", case, options=(), status=130)
    assert [(each["rank"], each["error"]) for each in ended.results()] == [(rank, "KeyboardInterrupt")
                                                                          for rank in ranks]
    for rank in ranks:
        assert "Traceback" in ended.text(rank)


@pytest.mark.heavy
def test_workers_alive(trainings):
    """The others hear of a trainer's death although its data loader workers live; these end with the job."""
    ended = trainings("", "threads_and_children", options=(), status=137)
    assert "rank 1" in ended.err
    found = ended.results()
    assert {each["rank"] for each in found} == {0, 1}
    pids = {pid for each in found for pid in (each["pid"], *each["workers"])}
    assert len(pids) == 6
    assert [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()] == []
