# SPDX-License-Identifier: Apache-2.0
"""Which files the checks of this folder look at, and what several of them ask of these."""
import os
import pathlib
import re
import shutil
import subprocess

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GRADSYNC_BUILD", TREE / "build-test/gcc"))
HEADER = TREE / "include/gradsync/gradsync.h"


def tracked():
    """Files of the tree: what git knows; without git, or in a tarball, what is there."""
    names = None
    if shutil.which("git"):
        command = ["git", "-C", str(TREE), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 0:
            names = [TREE / name for name in done.stdout.decode().split("\0") if name]
    if names is None:
        names = [path for path in TREE.rglob("*")
                 if not path.relative_to(TREE).parts[0].startswith(("build", ".git"))]
    return sorted(path for path in names if path.is_file() and not path.is_symlink())


def write(folder, files):
    """Lays out a tree of these files, {name: text}. Returns its folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def code_of_header():
    """The public header without comments and directives."""
    code = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    return re.sub(r"^\s*#.*?(?<!\\)$", "", code, flags=re.M)


def complaints(page):
    """The complaints of mandoc about a page. Macros that do nothing are scdoc's own habit."""
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True,
                          text=True, check=False)
    assert lint.returncode <= 2
    return [line for line in lint.stdout.splitlines() if "skipping paragraph macro" not in line]
