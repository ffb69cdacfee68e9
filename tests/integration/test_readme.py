# SPDX-License-Identifier: Apache-2.0
"""What the README says about files and settings is so."""
import pathlib
import re

import harness

SOURCE = pathlib.Path(__file__).resolve().parents[2]
README = (SOURCE / "README.md").read_text("utf-8")


def test_the_smallest_member_is_the_file_itself():
    text = (SOURCE / "client/examples/hello.c").read_text("utf-8")
    assert len(text.splitlines()) < 60
    assert text in re.findall(r"^```c\n(.*?)^```$", README, re.S | re.M)


def test_files_are_where_it_says():
    named = re.findall(r"\]\(([^)#:]+)\)", README.replace("\n", " ")) + re.findall(r"\bsh (\S+\.sh)\b", README)
    assert len(named) > 8
    assert [name for name in named if not (SOURCE / name).exists()] == []


def test_settings_and_defaults_are_those_of_the_daemon(program):
    daemon = program(harness.DAEMON, "--help")
    assert daemon.wait() == 0, daemon.err
    flags = dict(re.findall(r"^  --([a-z-]+)(?: .*?(?:\[(\S+)\])?)?$", daemon.out, re.M))
    rows = re.findall(r"^\| `([a-z_]+)` \| (?:`(\w+)`)?", README, re.M)
    assert len(rows) >= 10
    for key, default in rows:
        assert key.replace("_", "-") in flags, key
        if default:
            assert flags[key.replace("_", "-")] == default, key


def test_subcommands_exist(program):
    told = program(harness.CTL, "--help")
    assert told.wait() == 0, told.err
    for word in set(re.findall(r"gradsyncctl ([a-z]+)\b", README)):
        assert re.search(rf"\b{word}\b", told.out), word
