# SPDX-License-Identifier: Apache-2.0
"""The smallest member does what its comments say."""
import os
import re

import harness


def test_three_members_get_the_average(daemon, program, build):
    d = daemon()
    run = program(harness.CTL, "run", "-n", 3, "--job", "hello", "--", build / harness.HELLO, socket=d.socket)
    assert run.wait() == 0, run.err
    said = sorted(re.findall(r"rank \d of \d: the average is \S+", run.out))
    assert said == [f"rank {rank} of 3: the average is 2" for rank in range(3)], run.out


def test_private_daemon_is_made_and_removed(program, build, scratch):
    run = program(harness.CTL, "run", "-n", 2, "--", build / harness.HELLO, env={"TMPDIR": scratch, "XDG_RUNTIME_DIR": scratch})
    assert run.wait() == 0, run.err
    assert len(re.findall(r"rank \d of 2: the average is 1\.5\b", run.out)) == 2, run.out
    assert os.listdir(scratch) == [], "something was left behind"


def test_alone_it_needs_no_daemon(program):
    hello = program(harness.HELLO)
    assert hello.wait() == 0, hello.err
    assert hello.out == "rank 0 of 1: the average is 1\n"


def test_without_the_daemon_of_its_job_it_names_the_socket(program, scratch):
    socket = scratch / "nobody"
    hello = program(harness.HELLO, socket=socket, env={"GRADSYNC_JOB": "j", "GRADSYNC_WORLD_SIZE": 2, "GRADSYNC_RANK": 0})
    assert hello.wait() == 1
    assert hello.err.startswith("hello: ") and str(socket) in hello.err, hello.err
