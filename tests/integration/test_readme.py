# SPDX-License-Identifier: Apache-2.0
"""What the README, the tour and the manual of the settings say about files, commands and settings is so."""
import pathlib
import re

import harness

SOURCE = pathlib.Path(__file__).resolve().parents[2]
README = (SOURCE / "README.md").read_text("utf-8")
TOUR = (SOURCE / "docs/TOUR.md").read_text("utf-8")
SETTINGS = (SOURCE / "daemon/man/gradsyncd.conf.5.scd").read_text("utf-8").replace("\\_", "_")
CODE = re.compile(r"^```c\n(.*?)^```$", re.S | re.M)


def test_the_smallest_member_is_the_file_itself():
    text = (SOURCE / "client/examples/hello.c").read_text("utf-8")
    assert len(text.splitlines()) < 60
    assert text in CODE.findall(TOUR)
    quoted = CODE.findall(README)
    assert quoted and [part for part in quoted if part not in text] == []


def test_files_are_where_it_says():
    named = re.findall(r"\]\(([^)#:]+)\)", README.replace("\n", " ")) + re.findall(r"\bsh (\S+\.sh)\b", README)
    assert len(named) > 8
    assert [name for name in named if not (SOURCE / name).exists()] == []


def test_settings_and_defaults_are_those_of_the_daemon(program):
    daemon = program(harness.DAEMON, "--help")
    assert daemon.wait() == 0, daemon.err
    listed = daemon.out[daemon.out.index("\n[daemon]\n"):]
    flags = dict(re.findall(r"^  --([a-z-]+)(?: .*?(?:\[(\S+)\])?)?$", listed, re.M))
    rows = re.findall(r"^\*([a-z_]+)\* =(?: (\w+(?:-\w+)*))?(?: \(R\))?$", SETTINGS, re.M)
    computed = re.findall(r"^\*([a-z_]+)\* = half of ", SETTINGS, re.M)
    assert sorted(key.replace("_", "-") for key in [*dict(rows), *computed]) == sorted(flags)
    assert {key: default for key, default in rows if flags[key.replace("_", "-")] != default} == {}


def test_subcommands_exist(program):
    told = program(harness.CTL, "--help")
    assert told.wait() == 0, told.err
    words = set(re.findall(r"gradsyncctl ([a-z]+)\b", README + TOUR))
    assert {"demo", "run", "status"} <= words
    for word in words:
        assert re.search(rf"\b{word}\b", told.out), word
