# SPDX-License-Identifier: Apache-2.0
"""The package is typed, and says so."""
import subprocess
import sys

import pytest

from conftest import PACKAGE

# One cache for all.
pytestmark = pytest.mark.xdist_group("mypy")


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """check(paths) -> the type checker's output for these files, and its exit status. It skips what they
    import of torch, which takes most of the time, unless torch=True."""
    folder = tmp_path_factory.mktemp("mypy")
    skip = folder / "skip.ini"
    skip.write_text("[mypy]\n[mypy-torch.*,gradsync.torch.*]\nfollow_imports = skip\n")

    def run(*paths, torch=False):
        cache = folder / f"torch-{torch}"
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache,
                               "--config-file", "pyproject.toml" if torch else skip, *map(str, paths)],
                              cwd=PACKAGE, env={"PATH": "/usr/bin:/bin", "MYPYPATH": str(PACKAGE)},
                              capture_output=True, text=True, check=False)
        return done.stdout + done.stderr, done.returncode
    return run


def test_the_binding_is_typed(check):
    said, status = check(*sorted((PACKAGE / "gradsync").glob("*.py")))
    assert status == 0, said
    assert (PACKAGE / "gradsync/py.typed").exists()


@pytest.mark.heavy
def test_the_package_is_typed(check):
    said, status = check(*sorted((PACKAGE / "gradsync").rglob("*.py")), torch=True)
    assert status == 0, said


def test_a_trainer_is_checked(check, tmp_path):
    """A mistake of the caller's is found."""
    trainer = tmp_path / "trainer.py"
    right = ("import gradsync\nwith gradsync.Connection() as gs, gs.join('x', world_size=2) as job:\n"
             "    plan = job.plan([('w', gradsync.DType.F32, (2, 3))])\n    plan.ready(0)\n"
             "    norm: float = plan.finish().norm\n")
    trainer.write_text(right)
    said, status = check(trainer)
    assert status == 0, said
    trainer.write_text(right.replace("ready(0)", "ready('w')"))
    said, status = check(trainer)
    assert status == 1 and 'incompatible type "str"; expected "int"' in said
