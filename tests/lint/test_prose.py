# SPDX-License-Identifier: Apache-2.0
"""No sentence hides its subject (prose.py)."""
import pytest

import prose
from tree import TREE, tracked


def test_no_sentence_hides_its_subject():
    found = [f"{path.relative_to(TREE)}:{line}: {kind}: {text[:100]}"
             for path in tracked() for line, kind, text in prose.find(path)]
    assert found == [], "\n".join(["say who does what:", *found])


@pytest.mark.parametrize("text, kinds", [
    ("/* What a node says of itself. */", ["what"]),
    ("/* A node. What it says counts. */", ["what"]),
    ("/* What is a node? */", []),
    ("// Of two nodes the first one.", ["of"]),
    ("/* The end\n * Of\n * a node. */", []),
    ("/* So that nobody waits for whoever asks. */", ["somebody", "somebody"]),
    ("/* See --allow-nobody. */", []),
    ("/* … and the other one */", ["bridge"]),
    ("/* the first one, … */", ["bridge"]),
    ("/* of 0 … 3 */", []),
    ('printf("/* What */");', []),
])
def test_a_habit_is_found(tmp_path, text, kinds):
    path = tmp_path / "a.c"
    path.write_text(text)
    assert [kind for _, kind, _ in prose.find(path)] == kinds


def test_pages_and_docstrings_are_read(tmp_path):
    page, module = tmp_path / "a.md", tmp_path / "a.py"
    page.write_text("# What it is\n\n```\nWhat is shown\n```\n- Of two, one.\n")
    module.write_text('"""What it does."""\n\n\ndef f():\n    """Of two."""\n    x = "What"   # nobody\n')
    assert [(line, kind) for line, kind, _ in prose.find(page)] == [(1, "what"), (6, "of")]
    assert sorted((line, kind) for line, kind, _ in prose.find(module)) == [
        (1, "what"), (5, "of"), (6, "somebody")]
