# SPDX-License-Identifier: Apache-2.0
"""tests/run.sh and results: it counts them, shows lines of a failure, and runs some tests once more. And its
suites are listed."""
import json
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "runner"))

import reports          # noqa: E402
import steps            # noqa: E402
import suites           # noqa: E402

PROGRAM = """#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
static void adds_up(void **state) { assert_int_equal(1 + 1, 2); }
static void lacks(void **state) { skip(); }
static void
differs(void **state)
{
        int three = 3;
        assert_int_equal(three, 4);
}
static void crashes(void **state) { raise(11); }
int main(void) {
        const struct CMUnitTest tests[] = { cmocka_unit_test(adds_up), cmocka_unit_test(lacks), MORE };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
"""


def ran(folder, more):
    """The cases of a program of cmocka, as meson records them."""
    (folder / "source.c").write_text("#include <signal.h>\n" + PROGRAM)
    subprocess.run(["gcc", "-w", f"-DMORE={more}", "source.c", "-o", "program", "-lcmocka"], cwd=folder,
                   check=True)
    made = subprocess.run(["./program"], cwd=folder, capture_output=True, text=True, check=False)
    log = folder / "testlog.json"
    result = "FAIL" if made.returncode else "OK"
    log.write_text(json.dumps({"name": "project:unit / test_it", "stdout": made.stdout, "stderr": made.stderr,
                               "result": result, "duration": 0.1}) + "\n")
    return reports.of_meson(log, folder)


def outcomes(cases):
    return {case.name.rpartition(" ")[2]: case.outcome for case in cases}


def test_cases_of_cmocka_count_one_by_one(tmp_path):
    cases = ran(tmp_path, "cmocka_unit_test(adds_up)")
    assert [case.outcome for case in cases] == ["passed", "passed", "skipped"]


@pytest.mark.parametrize("name, shown", [
    ("differs", ["0x3 != 0x4", ">    13         assert_int_equal(three, 4);", "int three = 3;"]),
    ("crashes", ["Segmentation fault"])])
def test_a_failed_case_shows_its_assertion(tmp_path, name, shown):
    cases = ran(tmp_path, f"cmocka_unit_test({name})")
    assert outcomes(cases) == {"adds_up": "passed", "lacks": "skipped", name: "failed"}
    assert all(line in cases[-1].why for line in shown), cases[-1].why
    assert cases[-1].alone == "test_it"


def test_a_program_that_did_not_end(tmp_path):
    log = tmp_path / "testlog.json"
    log.write_text(json.dumps({"name": "project:unit / test_it", "result": "TIMEOUT", "duration": 120.4,
                               "stdout": "[ RUN      ] waits\n"}) + "\n")
    (case,) = reports.of_meson(log, tmp_path)
    assert case.outcome == "failed" and "120 s" in case.why and "waits" in case.why


def test_a_failed_python_test_shows_its_assertion(tmp_path):
    (tmp_path / "test_it.py").write_text("def inner():\n    raise OSError('no such thing')\n\n"
                                         "def test_values():\n    x = [1, 2]\n    assert x == [1, 3]\n\n"
                                         "def test_deep():\n    inner()\n\n"
                                         "def test_good():\n    pass\n")
    written = tmp_path / "it.xml"
    subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={written}", "-o",
                    "junit_family=xunit1", "test_it.py"], cwd=tmp_path, check=False, capture_output=True)
    cases = reports.of_pytest(written, "folder")
    assert outcomes(cases) == {"test_it.py::test_values": "failed", "test_it.py::test_deep": "failed",
                               "test_it.py::test_good": "passed"}
    values, deep = cases[:2]
    assert "assert x == [1, 3]" in values.why and "x = [1, 2]" in values.why
    assert "inner()" in deep.why and "no such thing" in deep.why
    assert values.alone == "folder/test_it.py::test_values"


@pytest.mark.parametrize("name", ["test_x", "test_x[a]", "test_x[a@b]"])
@pytest.mark.parametrize("group", ["", "@group", "@worker.py 2 layers"])
def test_a_test_is_known_without_its_group(tmp_path, name, group):
    written = tmp_path / "it.xml"
    written.write_text(f'<testsuite><testcase file="torch/test_it.py" name="{name}{group}"><failure/>'
                       "</testcase></testsuite>")
    (case,) = reports.of_pytest(written, "tests")
    assert case.alone == f"tests/torch/test_it.py::{name}"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "OUT", tmp_path)
    return steps.Run(1, 0)


def failed(*names):
    return [reports.Case(name, "failed", f"why {name}", name) for name in names]


def test_what_passes_alone_is_flaky(run, tmp_path, capsys):
    cases = failed("passes", "fails")
    run.retry(cases, lambda test: ["sh", "-c", f"echo so {test}; test {test} = passes"], tmp_path / "it.log")
    assert [case.outcome for case in cases] == ["passed", "failed"] and run.flaky == ["passes"]
    told = capsys.readouterr().out
    assert "FLAKY passes" in told and "why passes" in told and "so passes" in told
    run.totals.add(cases)
    assert not run.end(0)
    told = capsys.readouterr().out
    assert "FLAKY passes" in told and told.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_two_of_a_run_may_be_flaky(run, tmp_path):
    cases, more = failed("a", "b"), failed("c")
    for these in (cases, more):
        run.retry(these, lambda test: ["true"], tmp_path / "it.log")
    assert [case.outcome for case in cases + more] == ["passed", "passed", "failed"]
    run = steps.Run(1, 0)
    many = failed("a", "b", "c")
    run.retry(many, lambda test: ["true"], tmp_path / "it.log")
    assert {case.outcome for case in many} == {"failed"}


def test_the_suites_are_listed():
    told = subprocess.run(["sh", TESTS / "run.sh", "--help"], check=True, capture_output=True,
                          text=True).stdout
    readme = (TESTS / "README.md").read_text()
    for name, suite in suites.SUITES.items():
        assert f"| {name} | {suite.seconds} | {suite.what} |" in readme
        assert f"  {name} " in told and suite.what in told


def test_wrong_usage():
    made = subprocess.run(["sh", TESTS / "run.sh", "no-such-suite"], check=False, capture_output=True,
                          text=True, env={"NO_INSTALL": "1", "PATH": "/usr/bin:/bin"})
    assert made.returncode == 2 and "no suite no-such-suite" in made.stderr


def test_files_that_suites_name_are_there():
    named = [f"integration/test_{name}.py" for name in {*suites.ON_GPU, *suites.OUTSIDE, *suites.THREADED}]
    named += [f"unit/{name}.c" for name in suites.THREADED_UNITS]
    assert [name for name in named if not (TESTS / name).exists()] == []
