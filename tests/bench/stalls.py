# SPDX-License-Identifier: Apache-2.0
"""The time until status shows the process that a step waits for, and its state."""

import json
import os
import signal
import statistics
import subprocess
import time

from contender import Failed
from peers import MIB, Quiet
from tables import open_step

PATIENCE_S = 10


def named(bench, victim):
    """The wait that names the stopped process, from gradsyncctl status; None: there is none yet."""
    told = subprocess.run([os.path.join(bench.build, "client/cli/gradsyncctl"), "status", "--json", "--socket", bench.daemon.socket],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if told.returncode:
        raise Failed("gradsyncctl status failed: " + told.stderr)
    for job in json.loads(told.stdout)["jobs"]:
        for wait in job["waiting_for"]:
            if (wait["pid"], wait["process_state"]) == (victim.pid, "stopped"):
                return wait
    return None


def one_stop(bench, members, size, params):
    """Milliseconds from SIGSTOP to the answer of status that names rank, pid, state, bucket and parameter."""
    contender = bench.gradsync(members)
    try:
        victim, survivors = open_step(contender, size, params)
        stopped = time.monotonic_ns()
        os.kill(victim.pid, signal.SIGSTOP)
        wait = None
        while not wait:
            wait = named(bench, victim)
            took = (time.monotonic_ns() - stopped) / 1e6
            if took > PATIENCE_S * 1000:
                raise Failed(f"status has not named the stopped member within {PATIENCE_S} s")
        if wait["rank"] != victim.number or not wait["parameter"]:
            raise Failed(f"status named {wait} instead of rank {victim.number} and a parameter")
        os.kill(victim.pid, signal.SIGKILL)
        contender.hear(survivors)
        return took
    finally:
        contender.stop()


def stalls(bench, counts):
    rounds = 5 if bench.quick else 30
    for members in counts:
        times = []
        quiet = Quiet(bench.say)
        for number in range(rounds):
            quiet.wait()
            bench.say(f"{members} members, one stopped: {number + 1}/{rounds}")
            times.append(one_stop(bench, members, 25 * MIB, 25))
        yield {"table": "stalls", "members": members, "bytes": 25 * MIB, "named_ms_median": round(statistics.median(times), 3),
               "named_ms_worst": round(max(times), 3), "stops": rounds, "rounds": rounds, "disturbed_rounds": quiet.disturbed}
