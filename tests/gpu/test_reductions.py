# SPDX-License-Identifier: Apache-2.0
"""The questions to hardware about the reduction kernels, on the fake GPU: the right kernels pass, and each
wrong kernel is found."""
import json
import os

import pytest

from test_fake import machine, run  # noqa: F401  pylint: disable=unused-import


def ask(build, machine, *arguments, **more):
    """(status, rows by fact, stderr) of tests/gpu/reductions."""
    done = run([build / "tests/gpu/reductions", "--small", *arguments], machine.environment(**more))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for row in rows:
        assert list(row) == ["fact", "answer", "detail", "ms"], row
    facts = {row["fact"]: row for row in rows}
    assert len(facts) == len(rows)
    return done.returncode, facts, done.stderr


@pytest.mark.heavy
def test_all_kernels_are_right(build, machine):
    status, facts, error = ask(build, machine)
    assert (status, error) == (0, ""), facts
    listed = run([build / "tests/gpu/reductions", "--small", "--list"], os.environ).stdout.split()
    assert list(facts) == ["card", *listed, "reductions"]
    wrong = {name: row for name, row in facts.items()
             if name.split(".")[0] in ("bits", "statistics", "find", "kernels") and row["answer"] != "yes"}
    assert wrong == {}
    assert "0 skipped, 0 wrong" in facts["reductions"]["detail"]
    machine.wait_until_quiet()
    assert machine.log() == ""


@pytest.mark.parametrize("kernel, how, question, words", [
    ("sum_f32_2", "value", "bits.f32.sum", "2 inputs of 1 elements, at most 0 blocks"),
    ("sum_bf16", "value", "bits.bf16.avg", "gradsync_sum_bf16, 9 inputs"),
    ("greatest_u8", "value", "bits.u8.max", "gradsync_greatest_u8, 1 inputs of 1 elements"),
    ("sum_f16_8", "beyond", "bits.f16.sum", "which is no output's, was changed"),
    ("sum_f32_2", "sum", "bits.f32.avg", "word 0 of its statistics"),
    ("sum_f64_3", "count", "bits.f64.sum", "word 4 of its statistics"),
    pytest.param("sum_bf16_2", "blocks", "statistics.bf16",
                 "the statistics are others than with at most 0 blocks", marks=pytest.mark.heavy),
    ("find_f16", "blocks", "find.f16", "word 0 of its statistics"),
])
def test_a_wrong_kernel_is_found(build, machine, kernel, how, question, words):
    wrong = {"FAKE_GPU_KERNELS": str(build / "tests/gpu/wrong-kernels.so"),
             "WRONG_KERNEL": f"gradsync_{kernel}", "WRONG_RIGHT": str(machine.fakes / "fake-kernels.so")}
    status, facts, _ = ask(build, machine, "--only", question, **wrong, WRONG_HOW=how)
    assert status == 1 and facts[question]["answer"] == "no", facts
    assert words in facts[question]["detail"]
    status, facts, _ = ask(build, machine, "--only", question, **wrong, WRONG_HOW="not at all")
    assert status == 0 and facts[question]["answer"] == "yes", facts


def test_a_driver_that_fails_ends_it(build, machine):
    status, facts, _ = ask(build, machine, "--only", "bits.f32.*", FAKE_GPU_FAIL="cuLaunchKernel:3:719")
    assert status == 1 and list(facts) == ["card", "bits.f32.avg", "reductions"]
    failed = facts["bits.f32.avg"]
    assert failed["answer"] == "error" and "CUDA_ERROR_LAUNCH_FAILED" in failed["detail"]
    assert "the rest could not be asked" in facts["reductions"]["detail"]


def test_a_driver_that_does_not_suffice_is_no_missing_gpu(build, machine):
    for more, words in (({"FAKE_GPU_DRIVER": "12040"}, "13.0 is needed"),
                        ({"FAKE_GPU_LACKS": "cuMemCreate"}, "lacks cuMemCreate"),
                        ({"FAKE_GPU_FAIL": "cuInit:1:999"}, "finds no GPU that it can use")):
        status, facts, _ = ask(build, machine, **more)
        assert status == 1 and list(facts) == ["card"], facts
        assert facts["card"]["answer"] == "error" and words in facts["card"]["detail"]


def test_without_a_gpu_there_are_no_rows(build, machine):
    for more in ({"LD_LIBRARY_PATH": "/nowhere"}, {"FAKE_GPU_FAIL": "cuInit:1:100,cuInit:2:100"}):
        status, facts, error = ask(build, machine, **more)
        assert (status, facts, len(error.splitlines())) == (77, {}, 1) and "no GPU here" in error


def test_without_the_memory_a_question_is_skipped(build, machine):
    done = run([build / "tests/gpu/reductions", "--only", "bandwidth.f32.k8.128MiB", "--only", "find.f64"],
               machine.environment())
    rows = {row["fact"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0 and rows["find.f64"]["answer"] == "yes"
    assert rows["bandwidth.f32.k8.128MiB"]["answer"] == "skipped"
    assert "no memory for 2048 MiB" in rows["bandwidth.f32.k8.128MiB"]["detail"]
    assert "1 skipped, 0 wrong" in rows["reductions"]["detail"]


def test_when_the_time_is_over_questions_are_skipped(build, machine):
    status, facts, _ = ask(build, machine, "--seconds", "0.000001", "--only", "bits.*", "--only", "launch.*")
    assert status == 0
    assert {row["answer"] for name, row in facts.items() if "." in name} == {"skipped"} and len(facts) > 40


@pytest.mark.parametrize("arguments, words", [
    (["--what"], "unrecognized option '--what'"),
    (["word"], "what is 'word'?"),
    (["--seconds", "soon"], "--seconds soon: not a number of seconds"),
    (["--only", "x"] * 17, "--only x: too many patterns"),
])
def test_wrong_arguments(build, arguments, words):
    done = run([build / "tests/gpu/reductions", *arguments], os.environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr and len(done.stderr.splitlines()) == 1
