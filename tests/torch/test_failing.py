# SPDX-License-Identifier: Apache-2.0
"""What a training script is told when something is wrong: by name, and without a hang. After that all
processes have ended as expected, and the daemon, which lives on, holds nothing of them."""
import json
import pathlib

import pytest

import harness
import launch


class Trainings:
    """Ranks on a daemon that outlives them."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.before = daemon.fds()

    def __call__(self, *cases, ranks=2, options=("--keep-going",), status=0):
        """What the ranks were told: a list, and how all ended, which must be with this status."""
        ended = launch.run(ranks, "failing.py", *cases, options=options, socket=self.daemon.socket)
        self.nothing_left()
        assert ended.status == status, (ended.status, ended.out, ended.err)
        return ended.results(), ended

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


@pytest.fixture(scope="module")
def mistakes():
    """What was told in cases after which a job goes on; all of them run in the same processes."""
    made = {}

    def told(case, trainings):
        if not made:
            for each in trainings(*CASES)[0]:
                made.setdefault(each["case"], []).append(each)
        assert case in made, made
        return made[case]

    return told


DIFFER = {"other_shape": "0.weight", "other_count": "2.weight", "other_type": "2.weight",
          "other_strides": "first.weight"}
CHANGED = {"added": "more.weight", "replaced": "0.weight"}
CASES = [*DIFFER, *CHANGED, "backward_again", "graph_gone", "small_floats", "refused"]
together = pytest.mark.xdist_group("mistakes")


@together
@pytest.mark.parametrize("case", DIFFER)
def test_models_that_differ(mistakes, trainings, case):
    """Each rank hears which parameter it is, and of whom."""
    found = mistakes(case, trainings)
    assert [each["rank"] for each in found] == [0, 1], found
    for each in found:
        assert each["error"] == "PlanMismatchError", each
        assert each["parameter"] == DIFFER[case], each
        assert "rank 1" in each["text"] and DIFFER[case] in each["text"], each


@together
@pytest.mark.parametrize("case", CHANGED)
def test_model_changed(mistakes, trainings, case):
    found = mistakes(case, trainings)
    for each in found:
        assert (each["error"], each["parameter"]) == ("ModelChangedError", CHANGED[case])
        assert f"rank {each['rank']}" in each["text"]
    assert len(found) == 2


@together
def test_backward_twice(mistakes, trainings):
    found = mistakes("backward_again", trainings)
    assert [(each["twice"], each["same"]) for each in found] == [(True, True)] * 2
    found = mistakes("graph_gone", trainings)
    assert [each["error"] for each in found] == ["RuntimeError"] * 2


@together
def test_small_floats(mistakes, trainings):
    found = mistakes("small_floats", trainings)
    assert [(each["error"], each["parameter"]) for each in found] == [("GradientKindError", "tiny")] * 2


@together
def test_refused_arguments(mistakes, trainings):
    assert {each["given"]: each["error"] for each in mistakes("refused", trainings)} == {
        "mixed_precision": "UnsupportedError", "device_mesh": "UnsupportedError", "nonsense": "TypeError",
        "process_group": "TypeError", "hook": "UnsupportedError"}


def test_uncaught(trainings):
    """The script ends by the exception, as any script does."""
    _, ended = trainings("uncaught", status=1)
    for rank in (0, 1):
        assert "Traceback" in ended.text(rank) and "PlanMismatchError" in ended.text(rank), ended.err
        assert "0.weight" in ended.text(rank)


def test_an_exception_that_is_caught(trainings):
    """The ranks leave in the end: no place is kept for them."""
    found, _ = trainings("caught")
    assert [each["count"] for each in found] == [1, 1]
    ended, = json.loads(trainings.daemon.ctl("list", "jobs", "--ended", "--json"))["ended_jobs"]
    assert ended["reason"] == "left", ended


def test_parameters_without_gradient(trainings):
    """All of them are named, and no others."""
    found, _ = trainings("unfinished")
    assert [each["error"] for each in found] == ["UnfinishedStepError"] * 2
    for each in found:
        named = [f"branches.{i}.{kind}" in each["text"] for i in range(4) for kind in ("weight", "bias")]
        assert named == [False, False, True, True] * 2, each
        assert f"rank {each['rank']}" in each["text"] and each["parameter"] in each["text"]


def test_exception_in_backward(trainings):
    """The rank that has failed sees its exception, the other one that it was lost."""
    found, _ = trainings("exception_in_backward", status=3)
    mine = {each["when"]: each for each in found if each["rank"] == 1}
    assert (mine["backward"]["error"], mine["backward"]["text"]) == ("ValueError", "the lamp has gone out")
    assert mine["forward"]["error"] == "UnfinishedStepError"
    assert "0.weight" in mine["forward"]["text"]
    theirs, = [each for each in found if each["rank"] == 0]
    assert theirs["error"] in ("VoidRetry", "MemberLostError"), theirs
    assert "rank 1" in theirs["text"], theirs


def test_uncaught_in_backward(trainings):
    _, ended = trainings("uncaught_in_backward", status=1)
    assert "ValueError: the lamp has gone out" in ended.text(1)
    text = ended.text(0)
    assert ("VoidRetry" in text or "MemberLostError" in text) and "rank 1" in text, text


def test_member_gone(trainings):
    found, _ = trainings("member_gone", status=3)
    mine, = found
    assert mine["error"] in ("VoidRetry", "MemberLostError"), mine
    assert "rank 1" in mine["text"]


def test_daemon_gone(tmp_path):
    """With the daemon the job's memory goes; gradsyncctl leaves nothing in TMPDIR."""
    ended = launch.run(2, "failing.py", "daemon_gone", options=("--keep-going",), TMPDIR=str(tmp_path))
    assert [(each["rank"], each["error"]) for each in ended.results()] == [(0, "DaemonLostError"),
                                                                          (1, "DaemonLostError")]
    assert ended.status == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case, ranks", [("interrupted", [0]), ("interrupted_all", [0, 1])])
def test_interrupted(trainings, case, ranks):
    """A process that is interrupted says so by its end; the job's exit status is that of SIGINT."""
    found, ended = trainings(case, options=(), status=130)
    assert [(each["rank"], each["error"]) for each in found] == [(rank, "KeyboardInterrupt")
                                                                for rank in ranks]
    for rank in ranks:
        assert "Traceback" in ended.text(rank)


def test_sparse(trainings):
    found, _ = trainings("sparse")
    assert {(each["rank"], each["when"]): (each["error"], each["parameter"]) for each in found} == {
        (rank, when): ("GradientKindError", "words.weight") for rank in (0, 1) for when in ("wrapping",
                                                                                            "backward")}


def test_workers_alive(trainings):
    """The others hear of a trainer's death although its data loader workers live; these end with the job."""
    found, ended = trainings("threads_and_children", options=(), status=137)
    assert "rank 1" in ended.err
    assert {each["rank"] for each in found} == {0, 1}
    pids = {pid for each in found for pid in (each["pid"], *each["workers"])}
    assert len(pids) == 6
    assert [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()] == []
