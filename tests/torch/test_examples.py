# SPDX-License-Identifier: Apache-2.0
"""The examples of client/examples/torch: with gradsync and with --ddp, under gradsyncctl run or under
torchrun; and that the quickstart shows the first one."""
import re
import sys

import pytest

from conftest import BUILD, ENVIRONMENT, TREE
from harness import CTL, LONG, Program

pytestmark = pytest.mark.heavy
EXAMPLES = TREE / "client/examples/torch"
PROGRESS = re.compile(r"step (\d+)/(\d+)  loss (\d+\.\d+)  (\d+\.\d) ms a step")


@pytest.fixture
def output(processes):
    """output(command, …) -> what it printed; it must end well."""
    def run(*command, **options):
        made = Program(*command, env={**ENVIRONMENT, **options.pop("env", {})}, **options)
        processes.append(made)
        assert made.wait(LONG) == 0, made.told()
        return made.out
    return run


def progress(told):
    """[(step, steps, loss)] of the lines of progress, each of which also has a time."""
    found = [match[:3] for match in PROGRESS.findall(told)]
    assert len(found) >= 2 and found[-1][0] == found[-1][1], told
    assert float(found[-1][2]) < float(found[0][2]), "it learns"
    return found


def test_characters(output):
    """One flag is all the difference, and what is trained is the same."""
    command = [BUILD / CTL, "run", "--private", "-n", "2", "--", sys.executable, EXAMPLES / "characters.py",
               "--steps", "40", "--batch", "2"]
    ours, theirs = output(*command), output(*command, "--ddp")
    assert progress(ours) == progress(theirs)
    written = [re.search(r"This program is .+", told).group() for told in (ours, theirs)]
    assert written[0] == written[1]


@pytest.mark.parametrize("ddp", [False, True], ids=["gradsync", "ddp"])
def test_digits_by_torchrun(output, daemon, ddp):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               EXAMPLES / "digits.py", "--epochs", "2"]
    told = output(*command, "--ddp") if ddp else output(*command, socket=daemon().socket)
    progress(told)
    assert re.search(r"rank 0: accuracy 0\.\d+ on 297 held-out images", told), told


def test_the_quickstart_shows_it(output, scratch):
    """The quickstart runs the example where there is PyTorch. Its build is skipped here;
    tests/integration/test_quickstart.py runs it."""
    tools = scratch / "tools"
    tools.mkdir()
    for name in ("meson", "ninja"):
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
        (tools / name).chmod(0o755)
    told = output("/bin/sh", "client/examples/quickstart.sh", cwd=TREE,
                  env={"NO_INSTALL": "1", "BUILD": str(BUILD), "PYTHON": sys.executable,
                       "TMPDIR": str(scratch), "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
                       "GRADSYNC_LIBRARY": None, "PYTHONPATH": None})
    part = told.split("==> ")[-1]
    head = f"gradsyncctl run -n 2 -- {sys.executable} client/examples/torch/digits.py\n"
    assert part.startswith(head), told
    accuracy = dict(re.findall(r"rank ([01]): accuracy (0\.\d+) on 297 held-out images", part))
    assert set(accuracy) == {"0", "1"} and all(float(each) > 0.9 for each in accuracy.values()), part
    # Each rank has its own BatchNorm statistics of the last batch, as in DDP: the ranks may differ in a few
    # # images.
    assert abs(float(accuracy["0"]) - float(accuracy["1"])) < 0.02, part
