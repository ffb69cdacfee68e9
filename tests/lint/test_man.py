# SPDX-License-Identifier: Apache-2.0
"""The man pages are built, complete and without a complaint of mandoc."""
import re
import subprocess

import pytest

from tree import BUILD, TREE, complaints

SOURCES = sorted(path for path in TREE.rglob("*.scd")
                 if not path.relative_to(TREE).parts[0].startswith("build"))


def test_each_program_has_a_page():
    names = {path.name for path in SOURCES}
    assert {"gradsyncd.8.scd", "gradsyncctl.1.scd", "gradsyncd.conf.5.scd"} <= names


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_page(source, tmp_path):
    with open(source, "rb") as text:
        made = subprocess.run(["scdoc"], stdin=text, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr.decode()
    page = tmp_path / source.stem
    page.write_bytes(made.stdout)
    assert list(BUILD.rglob(source.stem)), "not built by meson"
    assert complaints(page) == []
    text = subprocess.run(["mandoc", "-T", "utf8", str(page)], capture_output=True, text=True,
                          check=True).stdout
    assert re.search(r"^N.*A.*M.*E", text, re.M) and len(text) > 500
