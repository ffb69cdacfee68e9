# SPDX-License-Identifier: Apache-2.0
"""Which files the checks of this folder look at."""
import pathlib
import shutil
import subprocess

TREE = pathlib.Path(__file__).resolve().parents[2]


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
