# SPDX-License-Identifier: Apache-2.0
"""`man CALL` works for each call of the library: there is a page of that name, it shows the declaration and
what the header says, and an index of the pages finds the call."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tree import BUILD, HEADER, TREE, code_of_header, complaints

MAKER = TREE / "client/lib/man/pages.py"
CALLS = sorted(re.findall(r"^\s+(gradsync_\w+);", (TREE / "client/lib/libgradsync.map").read_text(), re.M))
PRINCIPAL = ["gradsync_open", "gradsync_join", "gradsync_plan", "gradsync_ready", "gradsync_barrier"]


def installed():
    """{path in the build folder: where it is installed}"""
    shown = subprocess.run(["meson", "introspect", "--installed", str(BUILD)], capture_output=True, text=True,
                           check=True)
    return {pathlib.Path(path): pathlib.Path(to) for path, to in json.loads(shown.stdout).items()}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A folder with the pages of the library as they are installed."""
    tree = tmp_path_factory.mktemp("man")
    for path, to in installed().items():
        if path.parent == BUILD / "client/lib/man":
            place = tree / to.parent.name / to.name
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(path.read_bytes())
    subprocess.run(["makewhatis", str(tree)], check=True, capture_output=True)
    return tree


def shown(command, *words):
    done = subprocess.run([command, *map(str, words)], capture_output=True, text=True, check=False,
                          env={**os.environ, "MANPAGER": "cat", "PAGER": "cat", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    return re.sub(".\b", "", done.stdout)


def squeezed(text):
    return " ".join(text.split())


def declarations():
    """{call: its declaration in the header}"""
    code = code_of_header()
    return {call: squeezed(re.search(rf"^\w[^;{{}}]*\b{call}\([^;]*;", code, re.M)[0]) for call in CALLS}


def test_there_are_calls():
    assert len(CALLS) > 40


@pytest.mark.parametrize("call", CALLS)
def test_man_shows_the_page_of_a_call(pages, call):
    text = squeezed(shown("mman", "-M", pages, "3", call))
    assert declarations()[call] in text
    assert re.search(rf"NAME .*\b{call}\b.* - .* SYNOPSIS", text)
    described = text.split(" DESCRIPTION ", 1)[1].rsplit(" RETURN VALUE ", 1)[0]
    assert f"{call}()" in described


@pytest.mark.parametrize("call", CALLS)
def test_an_index_finds_the_call(pages, call):
    assert re.search(rf"\b{call}\b.*\(3\) - \w+", shown("mwhatis", "-M", pages, call), re.M)


@pytest.mark.parametrize("page", [*(f"{call}.3" for call in PRINCIPAL), "gradsync.7"])
def test_pages_made_of_the_header_are_clean(pages, page):
    assert complaints(pages / f"man{page[-1]}" / page) == []


def test_what_the_header_says_is_there(pages):
    """Each sentence of the header's comments is on one of the pages."""
    everything = squeezed(" ".join(shown("mandoc", "-T", "utf8", "-O", "width=400", path)
                                   for path in sorted(pages.glob("man?/*")) if path.stat().st_size > 100))
    lost = []
    for comment in re.findall(r"^/\*\n \*.*?\*/$", HEADER.read_text(), re.M | re.S):
        for paragraph in re.split(r"\n \*\n", comment.removeprefix("/*").removesuffix("*/")):
            for sentence in re.split(r"(?<=\.)\s", re.sub(r"^ \* ?", "", paragraph, flags=re.M)):
                if squeezed(sentence.replace("`", "")) not in everything:
                    lost.append(squeezed(sentence))
    assert lost == []


def test_the_manual_has_each_chapter(pages):
    text = shown("mman", "-M", pages, "7", "gradsync")
    chapters = re.findall(r"^ \* ([A-Z][A-Z0-9 ,'?]+)$", HEADER.read_text(), re.M)
    assert len(chapters) > 12
    assert [chapter for chapter in chapters if not re.search(rf"^{re.escape(chapter)}$", text, re.M)] == []


def test_the_overview_names_each_call(pages):
    text = shown("mman", "-M", pages, "3", "gradsync")
    assert [call for call in CALLS if not re.search(rf"\b{call}\b", text)] == []


def test_a_call_that_no_page_has_stops_the_build():
    done = subprocess.run([sys.executable, str(MAKER), "calls", str(HEADER), "gradsync_barrier",
                           "gradsync_broadcast"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and done.stdout == ""
    assert "gradsync_sync_state" in done.stderr and "client/lib/man/meson.build" in done.stderr
