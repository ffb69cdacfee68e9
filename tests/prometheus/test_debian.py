# SPDX-License-Identifier: Apache-2.0
"""How the programs are got."""
import subprocess

import pytest

import debian


def pack(path, *files):
    """A package of that name with such files."""
    folder = path.parent / path.stem
    (folder / "DEBIAN").mkdir(parents=True)
    (folder / "DEBIAN/control").write_text(f"Package: {path.stem}\nVersion: 1\nArchitecture: all\n"
                                           "Maintainer: Nobody <nobody@example.org>\nDescription: none\n")
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    subprocess.run(["dpkg-deb", "-b", folder, path], check=True, capture_output=True)


def both(folder):
    pack(folder / "prometheus.deb", "usr/bin/prometheus", "usr/bin/promtool")
    pack(folder / "prometheus-node-exporter.deb", "usr/bin/prometheus-node-exporter")


def test_they_are_fetched_once(tmp_path):
    fetched = []
    for _ in range(2):
        tools = debian.tools(tmp_path / "cache", lambda folder: (fetched.append(folder), both(folder)))
        assert all(path.exists() for path in tools.all())
    assert len(fetched) == 1


def test_half_of_them_is_nothing(tmp_path):
    """The next try gets them all."""
    with pytest.raises(debian.Missing, match="there are 1 packages"):
        debian.tools(tmp_path, lambda folder: pack(folder / "prometheus.deb", "usr/bin/promtool"))
    with pytest.raises(debian.Missing, match="not in Debian's packages: .*usr/bin/promtool"):
        debian.tools(tmp_path, lambda folder: [pack(folder / f"{name}.deb") for name in debian.PACKAGES])
    assert debian.tools(tmp_path, both).promtool.exists()


def test_who_cannot_fetch_says_why(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    apt = tmp_path / "bin/apt-get"
    apt.write_text('#!/bin/sh\necho "apt-get $*: no mirror"\nexit 100\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    with pytest.raises(debian.Missing) as told:
        debian.tools(tmp_path / "cache")
    assert "apt-get download prometheus prometheus-node-exporter: no mirror" in str(told.value)
    assert "apt-get -q update: no mirror" in str(told.value)
