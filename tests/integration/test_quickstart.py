# SPDX-License-Identifier: Apache-2.0
"""The first command of the README runs as it stands there, except that packages are there already and nothing
is written into the source tree. It builds from nothing, so it has to ask the build for all that it needs.

Here its Python has no PyTorch; tests/torch/test_examples.py has the other case."""
import pathlib
import re
import shutil
import subprocess

import pytest

import harness

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = "client/examples/quickstart.sh"
LEAST_ACCURACY = 0.95                   # as in the script
PART = re.compile(r"^==> (.*)$", re.M)


def first_command():
    """The words in front of the remark."""
    text = (SOURCE / "README.md").read_text("utf-8")
    return re.search(r"^```sh\n(.*?) *#", text, re.M).group(1).split()


@pytest.mark.heavy
def test_the_first_command_of_the_readme(program, scratch):
    command = first_command()
    assert command == ["sh", SCRIPT]
    temporary = scratch / "tmp"
    temporary.mkdir()
    python = scratch / "python"
    python.write_text("#!/bin/sh\necho \"$@\" >>$0.asked\nexit 1\n")
    python.chmod(0o755)
    run = program("/bin/sh", *command[1:], cwd=SOURCE, stdin=subprocess.DEVNULL,
                  env={"NO_INSTALL": 1, "BUILD": scratch / "build", "TMPDIR": temporary,
                       "PYTHON": python})
    assert run.wait(harness.LONG) == 0, run.told()
    assert run.err == ""
    assert not list(temporary.iterdir()), "it leaves temporary files behind"

    _, *rest = PART.split(run.out)
    parts = dict(zip(rest[::2], rest[1::2]))
    assert list(parts) == [f"Build in {scratch}/build/", "gradsyncctl run -n 2 -- digits", "gradsyncctl status, while they train",
                           "Summary", "PyTorch"]
    status = parts["gradsyncctl status, while they train"]
    assert "2 clients, 1 job" in status, status
    assert re.search(r"^digits  \w+, step [1-9]\d*,", status, re.M), status
    assert re.findall(r"^ +([01])  .* digits$", status, re.M) == ["0", "1"], status
    summary = parts["Summary"]
    assert float(re.search(r"^  accuracy +([\d.]+) ", summary, re.M).group(1)) >= LEAST_ACCURACY
    assert re.search(r"^  parameters +equal on all members, bit by bit: [0-9a-f]{16}$", summary, re.M), summary
    assert (scratch / "python.asked").read_text() == "-c import torch\n"
    line, _, rest = parts["PyTorch"].lstrip("\n").partition("\n")
    library, ctl, asked, example = re.fullmatch(
        r".* has none\. With it: GRADSYNC_LIBRARY=(\S+) PYTHONPATH=client/python "
        r"(\S+) run -n 2 -- (\S+) (\S+)", line).groups()
    assert asked == str(python)
    assert all(pathlib.Path(each).exists() for each in (library, ctl, SOURCE / example))
    assert '"gradsyncctl demo" shows' in rest
    shell = re.search(r'"meson devenv -C (\S+)" opens a shell', rest).group(1)
    asked = program(shutil.which("meson"), "devenv", "-C", shell, "sh", "-c",
                    "for name in gradsyncctl gradsyncd hello digits; do command -v $name; done", cwd=SOURCE)
    assert asked.wait() == 0, asked.err
    assert [*map(pathlib.Path, asked.out.split())] == [
        scratch / "build" / made for made in (harness.CTL, harness.DAEMON, harness.HELLO, harness.DIGITS)]
