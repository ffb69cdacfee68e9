# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/RESULTS.md has the form that results.py gives it, and nothing that a fake GPU has answered."""
import importlib.util
import pathlib

import pytest

GPU = pathlib.Path(__file__).resolve().parents[1] / "gpu"
SPEC = importlib.util.spec_from_file_location("results", GPU / "results.py")
results = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(results)

GOOD = """
## 2030-01-02, Some Card, no MPS

- date: 2030-01-02
- card: Some Card, GPU-1234
- driver: 580.1 (CUDA 13.0)
- mode: no MPS
- gradsync: abc
- run: 0 parts failed or were out of time

| part | question | answer | detail |
|---|---|---|---|
| reductions | card | Some Card | |
"""


def test_results_are_of_hardware():
    assert results.check((GPU / "RESULTS.md").read_text(encoding="utf-8")) == []


def test_the_check_finds_nothing_in_good_results():
    assert results.check(f"# Results\n{GOOD}") == []


@pytest.mark.parametrize("text, words", [
    (GOOD.replace("Some Card", "fake GPU"), "has rows of a fake GPU"),
    (GOOD.replace("GPU-1234", "GPU-fafafafa-fafa"), "has rows of a fake GPU"),
    (GOOD.replace("- mode: no MPS\n", ""), "has not the fields"),
    (GOOD.partition("|")[0], "has no table"),
    (GOOD + "and so on\n", "has no table of rows, or more"),
    (GOOD + results.NOTHING, results.NOTHING),
    ("", results.NOTHING),
])
def test_the_check_finds(text, words):
    assert any(words in problem for problem in results.check(f"# Results\n{text}\n"))
