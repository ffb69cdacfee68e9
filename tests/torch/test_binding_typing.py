# SPDX-License-Identifier: Apache-2.0
"""The package is typed, and says so."""
import subprocess
import sys

from conftest import PACKAGE


def check(tmp_path, *paths):
    return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, *paths],
                          cwd=PACKAGE, env={"PATH": "/usr/bin:/bin", "MYPYPATH": str(PACKAGE)},
                          capture_output=True, text=True, check=False)


def test_the_package_is_typed(tmp_path):
    modules = sorted(str(path) for path in (PACKAGE / "gradsync").glob("*.py"))
    done = check(tmp_path, *modules)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (PACKAGE / "gradsync/py.typed").exists()


def test_a_trainer_is_checked(tmp_path):
    """A mistake of the caller's is found."""
    trainer = tmp_path / "trainer.py"
    right = ("import gradsync\nwith gradsync.Connection() as gs, gs.join('x', world_size=2) as job:\n"
             "    plan = job.plan([('w', gradsync.DType.F32, (2, 3))])\n    plan.ready(0)\n"
             "    norm: float = plan.finish().norm\n")
    trainer.write_text(right)
    assert check(tmp_path, trainer).returncode == 0
    trainer.write_text(right.replace("ready(0)", "ready('w')"))
    assert 'incompatible type "str"; expected "int"' in check(tmp_path, trainer).stdout
