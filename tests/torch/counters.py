# SPDX-License-Identifier: Apache-2.0
"""The daemon's status of the job of this process."""
import json
import os
import subprocess
import time

from launch import CTL, DEADLINE


def job():
    """The job as `gradsyncctl status --json` shows it; None if there is none. gradsyncctl gives up after 5
    s; a daemon on a busy machine may need longer, so it is asked again."""
    end = time.monotonic() + DEADLINE
    while (made := subprocess.run([str(CTL), "status", "--json"], capture_output=True, text=True,
                                  timeout=DEADLINE, check=False)).returncode:
        assert time.monotonic() < end, made.stderr
    found = [each for each in json.loads(made.stdout)["jobs"] if each["name"] == os.environ["GRADSYNC_JOB"]]
    return found[0] if found else None


def until(predicate):
    """Asks again and again until predicate(job()) is true."""
    end = time.monotonic() + DEADLINE
    while not predicate(found := job()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found
