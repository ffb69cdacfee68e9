#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Finds code that is not formatted: C files that clang-format would change, and long lines in all code.

Prints "PATH LONG CHANGES" of each file that has any: its lines of more than 110 columns, and the places that
clang-format would change. With --lower it writes figures that have fallen into unformatted.txt, beside it.

    python3 tests/lint/formatting.py [--lower]
"""
import collections
import pathlib
import re
import subprocess
import sys

import tree

COLUMNS = 110
C = (".c", ".h", ".cc", ".cu")
CODE = (*C, ".py", ".sh")
# Versions of the formatter differ in their results, so there is one for all.
FORMATTER, VERSION = "clang-format-14", "version 14."
LEFT = pathlib.Path(__file__).with_name("unformatted.txt")


def long_lines(text):
    return sum(len(line) > COLUMNS for line in text.split("\n"))


def changes(paths):
    """{path: places that the formatter would change} of C files."""
    command = [FORMATTER, "--dry-run", "--ferror-limit=0", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    place = r"^(.+?):\d+:\d+: warning: code should be clang-formatted"
    return collections.Counter(re.findall(place, done.stderr, re.M))


def is_code(path):
    return path.suffix in CODE or path.name in ("meson.build", "meson_options.txt")


def unformatted():
    """{path in the tree: (long lines, changes)} of the files that have any."""
    paths = [path for path in tree.tracked() if is_code(path)]
    changed = changes([path for path in paths if path.suffix in C])
    counts = {path.relative_to(tree.TREE).as_posix(): (long_lines(path.read_text()), changed[str(path)])
              for path in paths}
    return {path: both for path, both in counts.items() if any(both)}


def left():
    """The figures that are allowed: {path: (long lines, changes)}."""
    rows = [line.split() for line in LEFT.read_text().split("\n") if line and not line.startswith("#")]
    return {path: (int(long), int(changed)) for path, long, changed in rows}


def lower(now, before):
    """The figures that are allowed from now on: never more than before."""
    both = {path: tuple(map(min, now[path], before[path])) for path in now if path in before}
    return {path: counts for path, counts in both.items() if any(counts)}


def rows(counts):
    return "".join(f"{path} {long} {changed}\n" for path, (long, changed) in sorted(counts.items()))


def main(arguments):
    now = unformatted()
    if arguments == ["--lower"]:
        head = [line for line in LEFT.read_text().split("\n") if line.startswith("#")]
        LEFT.write_text("\n".join(head) + "\n" + rows(lower(now, left())))
    else:
        print(rows(now), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
