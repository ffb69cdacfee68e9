# SPDX-License-Identifier: Apache-2.0
"""All questions to a machine with a GPU in one call (run.sh), on the fake GPU."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import cluster_rows
from conftest import kill_all, processes
from test_fake import DEADLINE, wait_until

TREE = pathlib.Path(__file__).resolve().parents[2]
PARTS = ["conformance", "reductions", "integration", "digits", "members", "torch", "probe", "nccl", "risks"]


class Suite:
    """Runs of run.sh, whose processes are known by the variable OUT of their environment."""

    def __init__(self, build, out):
        self.build, self.out, self.script = build, out, TREE / "tests/gpu/run.sh"

    def environment(self, **more):
        return {**os.environ, "GRADSYNC_BUILD": str(self.build), "OUT": str(self.out), **more}

    def start(self, *arguments, **more):
        return subprocess.Popen(["sh", self.script, *arguments], env=self.environment(**more), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *arguments, **more):
        """(status, rows, stderr)"""
        process = self.start(*arguments, **more)
        out, error = process.communicate(timeout=900)
        kept = self.out / "rows.jsonl"
        assert (kept.read_text() if kept.exists() else "") == out
        return process.returncode, [json.loads(line) for line in out.splitlines()], error

    def processes(self):
        return processes(f"OUT={self.out}")


@pytest.fixture
def suite(build, tmp_path):
    made = Suite(build, tmp_path / "out")
    yield made
    kill_all(f"OUT={made.out}")


def only(*parts):
    return [word for part in parts for word in ("--only", part)]


def of(rows, part):
    return {row["fact"]: row["answer"] for row in rows if row["part"] == part}


def nccl_is_good(rows):
    told = of(rows, "nccl")
    added = [fact for fact in told if fact.startswith("added per bucket of ")]
    return told == {"nccl version": "2.28.9", "cluster one gpu": "yes",
                    "cluster member killed": "yes", "cluster daemon killed": "yes",
                    **{fact: told[fact] for fact in added}} and len(added) == 2


@pytest.mark.heavy
def test_everything_is_asked_in_order(suite):
    parts = [part for part in PARTS if part not in ("integration", "probe", "risks")]
    status, rows, _ = suite.run("--fake", *only(*parts), "--seconds", "2000")
    assert status == 0, rows
    for row in rows:
        assert list(row) == ["part", "fact", "answer", "detail", "ms", "fake"] and row["fake"] is True, row
    assert list(of(rows, "run")) == ["begin", *parts, "end"]
    order = list(dict.fromkeys(row["part"] for row in rows if row["part"] != "run"))
    assert order == [part for part in parts if of(rows, "run")[part] == "done"]
    assert set(of(rows, "conformance").values()) == {"yes"}
    assert of(rows, "reductions")["kernels"] == "yes"
    assert [of(rows, "digits")[f"digits.{name}.equal"] for name in ("1", "2", "4", "member", "daemon")] == \
        ["yes"] * 5
    assert [of(rows, "members")[f"average of {n}"] for n in (1, 2, 4)] == ["yes"] * 3
    assert "overlap of 4" in of(rows, "members")
    assert nccl_is_good(rows)


@pytest.mark.heavy
def test_the_probe_is_asked_everything(suite, build):
    status, rows, _ = suite.run("--fake", *only("probe", "risks"), "--seconds", "2000",
                                FAKE_GPU_FAIL="cuStreamCreateWithPriority:0:801")
    assert status == 0 and list(of(rows, "run")) == ["begin", "probe", "risks", "end"]
    listed = subprocess.run([build / "tests/gpu/probe", "--list"], text=True, capture_output=True, check=True)
    asked = [row["fact"] for row in rows if row["part"] in ("probe", "risks")]
    assert sorted(fact for fact in asked if fact not in ("machine", "probe")) == \
        sorted(fact for fact in listed.stdout.split() if fact != "machine")
    risky = of(rows, "risks")
    assert {"kill.exporter", "hardened:kill.queued", "nccl.two_ranks", "vmm.touch_beyond",
            "fault.neighbour"} <= set(risky) and "vmm.same_uid" not in risky


def test_what_a_driver_refuses_is_an_answer(suite):
    status, rows, _ = suite.run("--fake", *only("probe"), "--seconds", "1000",
                                FAKE_GPU_FAIL="cuStreamCreateWithPriority:0:801")
    refused = [row for row in rows if "cuStreamCreateWithPriority: CUDA_ERROR_NOT_SUPPORTED" in row["detail"]]
    assert status == 0 and {row["answer"] for row in refused} == {"error"}
    assert of(rows, "probe")["machine"] == "fake GPU"
    assert not {"hang", "crash"} & set(of(rows, "probe").values())


def wrong_kernel(build, name):
    return {"FAKE_GPU_KERNELS": str(build / "tests/gpu/wrong-kernels.so"), "WRONG_HOW": "value",
            "WRONG_KERNEL": name, "WRONG_RIGHT": str(build / "tests/fakes/fake-kernels.so")}


def test_a_gpu_that_conforms_not_fails_it(suite):
    status, rows, _ = suite.run("--fake", *only("conformance"), FAKE_GPU_FAIL="cuStreamQuery:1:999")
    assert status == 1 and "no" in of(rows, "conformance").values()
    assert of(rows, "run")["conformance"] == "failed"
    assert rows[-1]["detail"] == "1 parts failed or were out of time"


@pytest.mark.heavy
def test_tests_are_rows(suite):
    status, rows, _ = suite.run("--fake", *only("integration"), "--seconds", "1000", GPU_TESTS="gpu_rows")
    assert (status, of(rows, "integration")) == (1, {}), "there is no such file"
    assert of(rows, "run")["integration"] == "failed"
    status, rows, _ = suite.run("--fake", *only("integration"), "--seconds", "1000", GPU_TESTS="void_plan")
    assert status == 0, rows
    tests = of(rows, "integration")
    assert tests and set(tests.values()) == {"yes"}
    assert all(name.startswith("tests/integration/test_void_plan.py::") for name in tests)


def test_wrong_averages_of_daemons_fail_it(suite, build):
    status, rows, _ = suite.run("--fake", *only("nccl"), "--seconds", "1000", GPU_QUESTIONS="one-gpu",
                                **wrong_kernel(build, "gradsync_sum_f32_1"))
    assert status == 1 and of(rows, "nccl") == {"cluster one gpu": "no"}
    assert of(rows, "run")["nccl"] == "failed"


def test_nccl_that_fails_is_an_answer(suite):
    status, rows, _ = suite.run("--fake", *only("nccl"), "--seconds", "1000",
                                GPU_QUESTIONS="added version",
                                FAKE_NCCL_FAIL="ncclCommInitRankConfig:1:5")
    assert status == 1 and of(rows, "run")["nccl"] == "failed"
    assert of(rows, "nccl") == {"nccl version": "2.28.9", "added per bucket": "error"}
    one, = (row["detail"] for row in rows if row["fact"] == "added per bucket")
    assert "inprocess: ncclCommInitRankConfig: invalid usage" in one


def test_nccl_that_hangs_is_an_answer_to_each_question(suite):
    status, rows, _ = suite.run("--fake", *only("nccl"), "--seconds", "40", GPU_QUESTIONS="added one-gpu",
                                FAKE_NCCL_STUCK="init")
    told = of(rows, "nccl")
    assert status == 1 and of(rows, "run")["nccl"] == "failed"
    assert list(told) == ["cluster one gpu", "added per bucket"]
    assert "hang" in told.values() and set(told.values()) <= {"hang", "error"}
    wait_until(lambda: suite.processes() == [], "all processes to end")


def test_without_nccl_there_are_no_answers_of_it(suite):
    status, rows, _ = suite.run("--fake", *only("nccl"), GPU_NCCL="/nowhere/libnccl.so.2")
    assert (status, of(rows, "nccl"), of(rows, "run")["nccl"]) == (0, {}, "skipped")
    assert any(row["detail"].startswith("there is no NCCL: ") for row in rows)


@pytest.mark.parametrize("version, words", [(22809, "NCCL_HOSTID=gradsync-1 "), (23002, "NCCL_HOSTID="),
                                            (23003, "NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=8 ")])
def test_ranks_share_a_gpu_as_their_release_lets_them(version, words, build):
    settings, _ = cluster_rows.settings_of(version, 1)
    assert settings.startswith(words) and len(f"nccl_settings = {settings}") < 198
    assert ("NCCL_HOSTID" in settings) == (version < 23003)
    done = subprocess.run([build / "tests/gpu/inprocess", "--nccl", build / "tests/fakes/nccl/libnccl.so.2",
                           "--settings", settings, "find"], text=True, capture_output=True, check=False)
    assert done.returncode == 0 and done.stdout.endswith("libnccl.so.2 22809\n"), done.stderr


def test_nccl_is_found_where_python_has_it(build, tmp_path):
    """In a virtual environment that is on the PATH."""
    library = tmp_path / "venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True)
    shutil.copy(build / "tests/fakes/nccl/libnccl.so.2", library)
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python3").symlink_to(sys.executable)
    done = subprocess.run([build / "tests/gpu/inprocess", "find"], text=True, capture_output=True,
                          check=False, env={"PATH": f"{tmp_path}/venv/bin",
                                            "LD_LIBRARY_PATH": str(build / "tests/fakes/gpu")})
    assert (done.returncode, done.stdout) == (0, f"{library} 22809\n"), done.stderr


def first_rows(process, n):
    return [process.stdout.readline() for _ in range(n)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_is_known_is_kept_when_it_is_killed(how, suite):
    process = suite.start("--fake", *only("reductions", "digits"), TMPDIR=str(suite.out.parent))
    seen = first_rows(process, 4)
    process.send_signal(how)
    if how == signal.SIGKILL:
        process.wait(timeout=DEADLINE)
    else:
        seen += process.communicate(timeout=DEADLINE)[0].splitlines(keepends=True)
        assert process.returncode == 1
        wait_until(lambda: suite.processes() == [], "all processes to end")
    rows = (suite.out / "rows.jsonl").read_text().splitlines(keepends=True)
    assert rows[:len(seen)] == seen and json.loads(rows[1])["fact"] == "card"
    assert "digits" not in {json.loads(row)["part"] for row in rows}
    if how == signal.SIGTERM:
        assert rows == seen
        assert json.loads(rows[-1])["answer"] == "stopped"


STUCK = """#!/bin/sh
[ "$1" = --present ] && exit 0
trap '' TERM
echo '{"fact": "card", "answer": "stuck", "detail": "", "ms": 0.0}'
while :; do :; done
"""


def test_a_part_that_forgets_the_time_is_ended(suite, tmp_path):
    program = tmp_path / "build/tests/gpu/reductions"
    program.parent.mkdir(parents=True)
    program.write_text(STUCK)
    program.chmod(0o755)
    suite.build = tmp_path / "build"
    status, rows, _ = suite.run("--seconds", "8", *only("reductions"))
    assert status == 1 and of(rows, "reductions") == {"card": "stuck"} and "fake" not in rows[0]
    assert of(rows, "run")["reductions"] == "out of time"
    wait_until(lambda: suite.processes() == [], "all processes to end")


def test_without_time_nothing_is_begun(suite):
    status, rows, _ = suite.run("--fake", "--seconds", "1")
    assert status == 1 and list(of(rows, "run")) == ["begin", *PARTS, "end"]
    assert {of(rows, "run")[part] for part in PARTS} == {"skipped"}


def test_what_is_not_built_is_skipped_in_words(suite, build, tmp_path):
    for name in ("tests/gpu/reductions", "tests/fakes/gpu/libcuda.so.1", "tests/fakes/gpu/fake-gpu-context"):
        (tmp_path / "build" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "build" / name).symlink_to(build / name)
    suite.build = tmp_path / "build"
    parts = [part for part in PARTS if part != "reductions"]
    status, rows, _ = suite.run("--fake", *only(*parts))
    assert status == 0
    skipped = {row["fact"]: row["detail"] for row in rows if row["answer"] == "skipped"}
    assert list(skipped) == parts and "there is no tests/gpu/probe in" in skipped["risks"]


def test_without_a_gpu_there_are_no_rows(suite):
    status, rows, error = suite.run("--fake", FAKE_GPU_FAIL="cuInit:1:100,cuInit:2:100")
    assert (status, rows, len(error.splitlines())) == (77, [], 1)


def test_a_driver_that_does_not_work_is_a_failure(suite):
    status, rows, error = suite.run("--fake", FAKE_GPU_LACKS="cuMemCreate")
    assert (status, rows) == (1, []) and "lacks cuMemCreate" in error


@pytest.mark.parametrize("arguments, words", [
    (["--what"], "what is '--what'?"),
    (["--only"], "--only '': there is no such part"),
    (["--only", "40"], "--only '40': there is no such part"),
    (["--seconds", "soon"], "--seconds 'soon': not a number of seconds"),
])
def test_wrong_arguments(suite, arguments, words):
    status, rows, error = suite.run(*arguments)
    assert (status, rows, len(error.splitlines())) == (2, [], 1) and words in error


def test_all_parts_end_within_ten_minutes(suite):
    """By the clock of the script, with the last one ended by force."""
    text = suite.script.read_text()
    settings = dict(line.split("#")[0].strip().split("=") for line in text.splitlines()
                    if line.startswith("SECONDS_"))
    assert int(settings["SECONDS_ALL"]) + int(settings["SECONDS_GRACE"]) <= 600
    assert int(settings["SECONDS_NCCL"]) < 180
    listed = subprocess.run(["sh", suite.script, "--list"], text=True, capture_output=True, check=True)
    assert listed.stdout.split() == PARTS


def bundle(build, folder):
    return subprocess.run(["sh", TREE / "tests/gpu/bundle.sh", folder], text=True, capture_output=True,
                          check=False, stdin=subprocess.DEVNULL,
                          env={**os.environ, "GRADSYNC_BUILD": str(build)})


@pytest.mark.heavy
def test_a_bundle_is_all_that_is_needed(build, tmp_path):
    """In an empty folder, without the variables of this test, and without a tool of the build."""
    done = bundle(build, tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    (tmp_path / "bundle").rename(tmp_path / "elsewhere")
    (tmp_path / "empty").mkdir()
    parts = [part for part in PARTS if part not in ("integration", "reductions")]
    ran = subprocess.run(["sh", tmp_path / "elsewhere/run.sh", "--fake", *only(*parts), "--seconds", "1000"],
                         cwd=tmp_path / "empty", text=True, capture_output=True, check=False,
                         stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"})
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(of(rows, "run")) == ["begin", *parts, "end"]
    assert of(rows, "digits")["digits.2.equal"] == of(rows, "members")["average of 4"] == "yes"
    assert nccl_is_good(rows)
    assert (tmp_path / "empty/gpu-results/rows.jsonl").read_text() == ran.stdout
    assert rows[0]["detail"].startswith(f"gradsync {(tmp_path / 'elsewhere/version').read_text().strip()};")


def linked(build, to, besides):
    """A build with the same files, except for those."""
    for path in build.rglob("*"):
        name = str(path.relative_to(build))
        if path.is_file() and name.startswith(("daemon/core", "client", "tests")) and ".p/" not in name:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            if name not in besides:
                (to / name).symlink_to(path)


def test_a_bundle_that_is_not_complete_is_none(build, tmp_path):
    linked(build, tmp_path / "build", ["tests/integration/member"])
    done = bundle(tmp_path / "build", tmp_path / "bundle")
    assert done.returncode == 1 and "there is no tests/integration/member in" in done.stderr
    assert bundle(build, tmp_path / "bundle").returncode == 1, "the folder exists"


def test_a_bundle_is_not_too_large(build, tmp_path):
    linked(build, tmp_path / "build", ["tests/gpu/probe"])
    (tmp_path / "build/tests/gpu/probe").write_bytes(bytes(40 << 20))
    done = bundle(tmp_path / "build", tmp_path / "bundle")
    assert done.returncode == 1 and "40960 are the most" in done.stderr
