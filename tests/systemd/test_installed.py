# SPDX-License-Identifier: Apache-2.0
"""The state of a machine whose administrator did what "Installing it" in the README says."""
import re

HELLO = "/opt/trainers/hello"


def test_the_user_and_the_group_were_made(installed):
    user = installed.run("getent", "passwd", "gradsync").stdout.strip()
    name, _, uid, gid, _, home, shell = user.split(":")
    assert name == "gradsync" and 0 < int(uid) < 1000 and shell.endswith("nologin") and home == "/"
    group = installed.run("getent", "group", "gradsync").stdout.strip().split(":")
    assert (group[0], group[2], group[3]) == ("gradsync", gid, "alice")
    password = installed.run("getent", "shadow", "gradsync").stdout.split(":")[1]
    assert password[:1] in ("!", "*"), "none opens it"


def test_the_folder_was_made(installed):
    assert installed.stat("/run/gradsync") == ["755 root:root directory"]


def test_the_socket_waits_for_the_group(installed):
    assert installed.active("gradsyncd@cpu.socket") == "active"
    assert installed.stat("/run/gradsync/cpu", "/run/gradsync/cpu/socket") == [
        "755 root:root directory", "660 root:gradsync socket"]


def test_the_doctor_was_content(installed):
    told = installed.said["gradsyncctl doctor"].stdout
    assert "gradsyncd answers at /run/gradsync/cpu/socket" in told
    assert {line.split()[0] for line in told.splitlines()} == {"ok"}, told


def test_the_smallest_member_is_served(installed):
    """Compiled against the installed header and library, and run by a user whom the group lets in."""
    done = installed.run("gradsyncctl", "run", "-n", "3", "--", HELLO, user="alice")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] rank {rank} of 3: the average is 2"
                                                for rank in range(3)]
    record = installed.wait_journal(r"formed with 3 members", "_SYSTEMD_UNIT=gradsyncd@cpu.service")
    assert record["_UID"] == installed.uid("gradsync")


def test_the_examples_are_found_by_name(installed):
    done = installed.run("gradsyncctl", "run", "-n", "2", "--", "hello", user="alice")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] rank {rank} of 2: the average is 1.5"
                                                for rank in range(2)]
    done = installed.run("gradsyncctl", "run", "-n", "2", "--", "digits", "--epochs", "1", user="alice")
    assert len(re.findall(r"\[\d\] rank \d: accuracy ", done.stdout)) == 2, done.stdout


def test_others_are_refused_and_told_what_to_do(installed):
    told = installed.run("gradsyncctl", "status", user="mallory", check=False)
    assert told.returncode == 5 and "/run/gradsync/cpu/socket: permission denied" in told.stderr
    doctor = installed.run("gradsyncctl", "doctor", user="mallory", check=False)
    assert doctor.returncode == 1 and "usermod -aG gradsync mallory" in doctor.stdout, doctor.stdout
    job = {"GRADSYNC_JOB": "mine", "GRADSYNC_WORLD_SIZE": "1", "GRADSYNC_RANK": "0"}
    hello = installed.run(HELLO, user="mallory", env=job, check=False)
    assert hello.returncode == 1
    assert "hello: no permission to connect to /run/gradsync/cpu/socket" in hello.stderr


def test_manual_pages_are_found(installed):
    """By name, below the prefix, and the reader shows them. A page of several calls has a link for each."""
    for section, page, file in ((1, "gradsyncctl", "gradsyncctl"), (3, "gradsync", "gradsync"),
                                (3, "gradsync_ready", "gradsync_ready"),
                                (3, "gradsync_finish", "gradsync_ready"),
                                (5, "gradsyncd.conf", "gradsyncd.conf"), (7, "gradsync", "gradsync"),
                                (8, "gradsyncd", "gradsyncd")):
        found = installed.run("man", "-w", section, page).stdout
        assert re.fullmatch(rf"/usr/local(/share)?/man/man{section}/{file}\.{section}\n", found), found
        shown = installed.run("man", section, page).stdout
        assert "\nNAME\n" in shown and page in shown, shown[:500]
