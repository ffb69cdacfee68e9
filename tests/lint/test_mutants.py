# SPDX-License-Identifier: Apache-2.0
"""The lists of planted slips (tests/mutants/) fit the tree: the text that each replaces occurs once, and the
tests that it names exist."""
import functools
import re
import shlex
import sys

import pytest

from tree import TREE

sys.path.insert(0, str(TREE / "tests"))

import mutants  # noqa: E402

LEAST = 150
SLIPS = mutants.read_lists()


def unit_programs():
    """The unit tests with a line in meson.build, and those that are made of a script."""
    text = (TREE / "tests/unit/meson.build").read_text("utf-8")
    scripts = (TREE / "tests/unit/scripts").glob("*.txt")
    return {*re.findall(r"'(test_\w+)': *\[", text), *(f"test_{path.stem}" for path in scripts)}


def test_there_are_enough():
    assert len(SLIPS) >= LEAST


def test_names_are_unique():
    names = [slip.name for slip in SLIPS]
    assert [name for name in set(names) if names.count(name) > 1] == []


@pytest.mark.parametrize("area", sorted({slip.area for slip in SLIPS}))
def test_each_old_text_is_there_once(area):
    counts = {slip.name: (TREE / slip.file).read_text("utf-8").count(slip.old)
              for slip in SLIPS if slip.area == area}
    assert {name: count for name, count in counts.items() if count != 1} == {}


def test_each_slip_changes_something():
    assert [slip.name for slip in SLIPS if slip.old == slip.new] == []


def wanted(arguments):
    """The words that tests are chosen by: pytest finds none if no name has them."""
    words = re.findall(r"\w+", " ".join(arguments[arguments.index("-k") + 1:])) if "-k" in arguments else []
    return [word for word in words if word not in ("and", "or", "not")]


@functools.cache
def words_of(path):
    """The text of a file of tests, and of modules beside it that it imports, which may have parameters."""
    text = path.read_text("utf-8")
    beside = [path.with_name(f"{name}.py") for name in re.findall(r"^(?:import|from) (\w+)", text, re.M)]
    return text + "".join(each.read_text("utf-8") for each in beside if each.is_file())


def missing(test, programs):
    """The parts of a test's name that do not exist."""
    kind, *rest = shlex.split(test)
    if kind == "simulation":
        return [] if len(rest) == 1 and rest[0].isdigit() else ["simulation and a number of schedules"]
    if "/" in kind:
        path = TREE / "tests" / kind
        return [word for word in wanted(rest) if word not in words_of(path)] if path.is_file() else [kind]
    return [] if kind in programs and not rest else [kind]


def test_each_test_exists():
    programs = unit_programs()
    assert all(slip.tests for slip in SLIPS)
    assert {slip.name: found for slip in SLIPS for test in slip.tests
            if (found := missing(test, programs))} == {}
