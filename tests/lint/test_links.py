# SPDX-License-Identifier: Apache-2.0
"""The targets of links in the tree's Markdown exist: files, folders, headings."""
import re

import pytest

from test_tree import TREE, tracked

PAGES = [path for path in tracked() if path.suffix == ".md"]
FOLDERS = sorted({path.relative_to(TREE).parts[0] for path in tracked() if path.parent != TREE})
FENCED = re.compile(r"^```.*?^```$", re.S | re.M)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`\s]+)`")
FILE = re.compile(r"[\w@./-]+\.(?:c|h|cc|cu|py|sh|md|proto|scd|in|json|txt|csv\.gz)|[\w@./-]+/")


def heading_anchors(page):
    heads = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_there_is_something_to_check():
    assert {"README.md", "PROTOCOL.md"} <= {path.name for path in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TREE)))
def test_links(page):
    missing = []
    for target in LINK.findall(FENCED.sub("", page.read_text("utf-8")).replace("\n", " ")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in heading_anchors(file)):
            missing.append(target)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TREE)))
def test_quoted_files(page):
    """`daemon/job/` and `frame.h` in backticks are files of this tree; without a folder they may be anywhere.
    A path that begins with no folder of the tree is not checked."""
    names = {path.name for path in tracked()}
    missing = []
    for name in QUOTED.findall(FENCED.sub("", page.read_text("utf-8"))):
        if not FILE.fullmatch(name) or name.startswith("/"):
            continue
        if "/" not in name:
            if name not in names:
                missing.append(name)
        elif name.split("/")[0] in (".", "..", *FOLDERS):
            if not any(at.exists() for at in ((page.parent / name), TREE / name)):
                missing.append(name)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TREE)))
def test_prose_is_wrapped(page):
    """At 120 columns, except for tables, code, and words that cannot be broken."""
    prose = FENCED.sub("", page.read_text("utf-8")).split("\n")
    assert [line for line in prose
            if len(line) > 120 and not line.startswith("|") and " " in line.strip()] == []
