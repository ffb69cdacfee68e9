# SPDX-License-Identifier: Apache-2.0
"""C files are as clang-format leaves them, and no line of code is longer than 110 columns, comments included.

Files that were there before this check, and still break it, stand in unformatted.txt with their counts, which
may only fall.
"""
import subprocess

import pytest

import formatting


@pytest.fixture(name="now", scope="module")
def what_is_there():
    return formatting.unformatted()


def test_the_formatter_is_the_one_for_all():
    done = subprocess.run([formatting.FORMATTER, "--version"], capture_output=True, text=True, check=True)
    assert formatting.VERSION in done.stdout


@pytest.mark.parametrize("which", [0, 1], ids=["lines of more than 110 columns", "places to be formatted"])
def test_no_file_gets_worse(now, which):
    left = formatting.left()
    may_be = {path: left.get(path, (0, 0))[which] for path in now}
    assert {path: f"{counts[which]} instead of {may_be[path]}" for path, counts in now.items()
            if counts[which] > may_be[path]} == {}


def test_the_formatter_is_asked(tmp_path):
    good, bad = tmp_path / "good.c", tmp_path / "bad.c"
    (tmp_path / ".clang-format").write_text((formatting.tree.TREE / ".clang-format").read_text())
    good.write_text("int good(void) {\n        return 1;\n}\n")
    bad.write_text("int bad( void )\n{\n  return 1;\n}\n")
    found = formatting.changes([good, bad])
    assert str(good) not in found and found[str(bad)] >= 3


def test_long_lines_are_counted():
    assert formatting.long_lines("x" * 110 + "\n" + "x" * 111 + "\n" + "ä" * 110 + "\n" + " " * 200) == 2


def test_counts_only_fall():
    before = {"a": (3, 0), "b": (1, 2), "c": (1, 1)}
    assert formatting.lower({"a": (4, 1), "b": (1, 0), "new": (5, 5)}, before) == {"a": (3, 0), "b": (1, 0)}
