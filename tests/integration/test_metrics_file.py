# SPDX-License-Identifier: Apache-2.0
"""`gradsyncctl metrics --output`: a file for collectors that is always whole."""
import os

import pytest

import harness
from exposition import parse


def test_the_device_is_on_each_sample(daemon):
    """So that the files of several daemons can be read together."""
    for device in ("cpu:left", "cpu:right"):
        text = daemon(device=device).ctl("metrics")
        assert parse(text)
        samples = [line for line in text.splitlines() if not line.startswith("#")]
        assert samples and all(f'{{device="{device}"' in line for line in samples)


def test_a_file_is_replaced_as_a_whole(served, scratch):
    folder = scratch / "collector"
    folder.mkdir()
    path = folder / "gradsync.prom"
    path.write_text("old")
    path.chmod(0o600)
    with open(path, encoding="utf-8") as reader:            # it has begun to read: it has the old one
        mask = os.umask(0o077)
        try:
            assert served.ctl("metrics", "--output", path) == ""
        finally:
            os.umask(mask)
        assert reader.read() == "old"
    assert parse(path.read_text())["gradsync_jobs"] == {(): 0}
    assert path.stat().st_mode & 0o777 == 0o644             # a collector is another user
    assert os.listdir(folder) == ["gradsync.prom"]
    assert parse(served.ctl("metrics", "-o", "-"))          # and this is the standard output


@pytest.mark.parametrize("broken", ["daemon", "folder", "target"])
def test_what_cannot_be_written_leaves_the_old_file(served, ctl, scratch, broken):
    folder = scratch / "collector"
    folder.mkdir()
    path = folder / "gradsync.prom"
    path.write_text("old")
    if broken == "daemon":
        harness.stop(served)
        made = ctl("metrics", "-o", path, socket=served.socket, code=3)
        served.start()
    elif broken == "folder":
        made = ctl("metrics", "-o", folder / "none" / "gradsync.prom", socket=served.socket, code=1)
        assert f"cannot write {folder}/none/gradsync.prom: No such file" in made.err
    else:
        (folder / "folder.prom").mkdir()
        made = ctl("metrics", "-o", folder / "folder.prom", socket=served.socket, code=1)
        assert f"cannot write {folder}/folder.prom: Is a directory" in made.err
        (folder / "folder.prom").rmdir()
    assert made.out == "" and path.read_text() == "old" and os.listdir(folder) == ["gradsync.prom"]


def test_what_does_not_fit_leaves_the_old_file(served, program, scratch):
    """The file may not grow to its size, as on a full disk."""
    path = scratch / "gradsync.prom"
    path.write_text("old")
    made = program("/bin/sh", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$0" metrics -o "$1" -s "$2"',
                   served.build / harness.CTL, path, served.socket)
    assert made.wait() == 1 and "cannot write" in made.err
    assert path.read_text() == "old" and not list(scratch.glob("gradsync.prom.*"))
