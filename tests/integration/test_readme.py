# SPDX-License-Identifier: Apache-2.0
"""The README, the tour and the manual of the settings are right about files, commands and settings."""
import pathlib
import re
import shutil
import subprocess

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


def test_its_scope_is_in_the_first_screen():
    first = README.splitlines()[:24]
    (top,) = [number for number, line in enumerate(first) if line.startswith("| scope |")]
    rows = first[top + 2:first.index("", top)]
    assert len(rows) > 2 and any("never on hardware" in row for row in rows)


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


def test_what_building_needs_is_one_line():
    done = subprocess.run(["sh", "-c", ". tests/packages.sh; echo $BUILD_PACKAGES"], cwd=SOURCE,
                          stdout=subprocess.PIPE, text=True, check=True)
    (line,) = re.findall(r"^apt install (.*)$", README.replace("\\\n", " "), re.M)
    assert line.split() == done.stdout.split()


def test_its_programs_are_found_in_the_build_tree(program, build):
    """The shell that meson opens finds them, as the README says."""
    shell = program(shutil.which("meson"), "devenv", "-C", build, "sh", "-c",
                    "gradsyncctl run --private -n 3 -- hello && gradsyncd --version && "
                    "/usr/bin/python3 -c 'import gradsync; print(gradsync.__file__)' && "
                    "ls \"$GRADSYNC_LIBRARY\"")
    assert shell.wait() == 0, shell.err
    assert str(SOURCE / "client/python/gradsync") in shell.out
    said = re.findall(r"^\[\d\] (rank \d of 3: the average is 2)$", shell.out, re.M)
    assert sorted(said) == [f"rank {rank} of 3: the average is 2" for rank in range(3)], shell.out


def test_its_examples_are_found_without_a_path(program):
    for command, said in ((["hello"], "rank 0 of 1: the average is 1"),
                          (["digits", "--help"], "usage: digits")):
        run = program(harness.CTL, "run", "--private", "-n", 1, "--", *command)
        assert run.wait() == 0, run.err
        assert said in run.out.lower()
    for name in ("", "examples", "mlp.c", "./hello", "hello.p"):
        run = program(harness.CTL, "run", "--private", "-n", 1, "--", name)
        assert run.wait() in (126, 127), (name, run.out)
        assert f"cannot run {name}" in run.err


def test_a_key_is_made_where_there_was_no_folder(program, build, scratch):
    block, = re.findall(r"^## Several hosts\n.*?^```sh\n(.*?)^```$", README, re.M | re.S)
    made, *_ = block.partition("gradsyncd --device")
    shell = program(shutil.which("meson"), "devenv", "-C", build, "sh", "-ec",
                    made.replace("/etc/", f"{scratch}/"))
    assert shell.wait() == 0, shell.err
    assert (scratch / "gradsync/key").stat().st_mode & 0o777 == 0o600
    checked = program(harness.DAEMON, "--check-config", "--config=/dev/null", "--device=none",
                      "--listen=lo:7700", "--socket", scratch / "socket",
                      "--key-file", scratch / "gradsync/key")
    assert checked.wait() == 0, checked.err


def test_subcommands_exist(program):
    told = program(harness.CTL, "--help")
    assert told.wait() == 0, told.err
    words = set(re.findall(r"gradsyncctl ([a-z]+)\b", README + TOUR))
    assert {"demo", "run", "status"} <= words
    for word in words:
        assert re.search(rf"\b{word}\b", told.out), word
