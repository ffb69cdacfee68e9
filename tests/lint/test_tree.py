# SPDX-License-Identifier: Apache-2.0
"""Habits of the tree that a machine can check: licence lines, opening words, lengths, nothing left undone."""
import re

from tree import TREE, tracked

LONGEST_FILE, LONGEST_FUNCTION = 1000, 100
CODE = (".c", ".h", ".cc", ".cu", ".py", ".sh", ".proto")

FILES = [path for path in tracked()
         if path.suffix in CODE or path.name in ("meson.build", "meson_options.txt")]


def functions(text):
    """(name, lines) of each function of a C file: it starts in the first column, and its closing brace stands
    there alone."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not line.endswith("{") or line.startswith(("#", "}", "/", " *")):
            continue
        if line.rstrip("{ ").endswith("="):
            continue
        start = number
        while start and lines[start][:1] in (" ", "\t", "{"):       # a parameter list over several lines
            start -= 1
        head = re.search(r"(\w+)\([^;=]*\)\s*\{$", " ".join(lines[start:number + 1]))
        end = next((at for at in range(number, len(lines)) if lines[at].startswith("}")), None)
        if start == number or all(lines[at][:1] in (" ", "\t") for at in range(start + 1, number)):
            type_of = re.match(r"(class|struct|union|enum|namespace)\b[^(]*[{:]", lines[start])
            if head and not type_of and end is not None and lines[start][:1].strip():
                yield head.group(1), end - start + 1


def test_there_is_something_to_check():
    assert len(FILES) > 50


def test_licence_lines():
    assert [str(path.relative_to(TREE)) for path in FILES
            if "SPDX-License-Identifier: Apache-2.0" not in path.read_text()[:200]] == []


def test_files_open_with_a_paragraph():
    """A file says what it owns before it does anything."""
    bare = []
    for path in FILES:
        if path.suffix in (".c", ".h", ".cc", ".py", ".sh", ".proto") and path.stat().st_size:
            head = [line for line in path.read_text().split("\n")[:12] if not line.startswith("#!")
                    and "SPDX" not in line]
            if not re.match(r'\s*(/\*|//|#\s*\S|"""|\*)', "\n".join(head).lstrip("\n")):
                bare.append(str(path.relative_to(TREE)))
    assert bare == []


def test_nothing_left_undone():
    words = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
    assert [str(path.relative_to(TREE)) for path in FILES if words.search(path.read_text())] == []


def test_files_are_short():
    assert {str(path.relative_to(TREE)): count for path in FILES
            if (count := path.read_text().count("\n")) > LONGEST_FILE} == {}


def test_functions_are_short():
    long = {}
    sizes = []
    for path in FILES:
        if path.suffix in (".c", ".cc"):
            for name, lines in functions(path.read_text()):
                sizes.append(lines)
                if lines > LONGEST_FUNCTION:
                    long[f"{path.relative_to(TREE)}:{name}"] = lines
    assert long == {}
    sizes.sort()
    assert sizes
    median, most = sizes[len(sizes) // 2], sizes[len(sizes) * 9 // 10]
    assert median <= 25 and most <= 60, (median, most)
