# SPDX-License-Identifier: Apache-2.0
"""The cost of a hostile user for a training job: its step time beside a user that attacks the daemon in all
ways open to a client, compared with its step time beside a process that burns as much CPU and never connects.
"""

import collections
import json
import os
import signal
import statistics
import subprocess
import sys

from contender import Failed
from peers import MIB, Quiet

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration", "hostile.py")
STRANGER = 61666                # uid of the hostile user, if the benchmark may choose it
# The numbers let every attack come round several times a second.
ATTACKS = ["garbage=200", "idle=400", "fds=40", "halves=100", "lies=20", "slow=5", "chatter=5", "hog=20", "churn=20"]
# Is busy and sleeps in turns of 4 ms, so that it takes the given share of a CPU.
BURN = """
import sys, time
share = float(sys.argv[1])
print("began", flush=True)
while True:
    end = time.monotonic() + 0.004
    busy = time.process_time() + 0.004 * share
    while time.process_time() < busy:
        pass
    time.sleep(max(0, end - time.monotonic()))
"""
SIZES = [(MIB, 16), (25 * MIB, 25)]     # bytes, parameters
STEPS_MS = 1500                 # of a turn, undisturbed


class Neighbour:
    """A process beside the job. It has begun when the constructor returns."""

    def __init__(self, arguments, prefix=()):
        self.process = subprocess.Popen([*prefix, sys.executable, "-B", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "began":
            raise Failed("a neighbour did not start: " + self.process.communicate()[1])

    def end(self):
        """Ends the process. Returns its output."""
        self.process.send_signal(signal.SIGTERM)
        out, error = self.process.communicate(timeout=60)
        if error:
            raise Failed("a neighbour failed: " + error)
        return out


class Hostile(Neighbour):
    def __init__(self, path, own_uid):
        super().__init__([SCRIPT, *(["--uid", str(STRANGER)] if own_uid else []), "--seconds", "600", path, *ATTACKS])


def let_in(bench):
    """Lets another uid reach the daemon. Returns whether this process may use another uid."""
    if os.geteuid() != 0:
        return False
    os.chmod(bench.directory, 0o711)
    os.chmod(bench.daemon.socket, 0o666)
    return True


def in_trouble(rounds, say, step, trouble, cpu_s):
    """Each round takes a step alone, beside the process of trouble(), and beside one that burns as much CPU.
    Returns the measurements, {name: values}, and the number of disturbed rounds. The measurements include the
    last output of the process, and how much each of cpu_s() grew beside it."""
    found, quiet = collections.defaultdict(list), Quiet(say)
    for number in range(rounds):
        quiet.wait()
        say(f"round {number + 1}/{rounds}")
        found["alone"].append(step())
        neighbour, before = trouble(), cpu_s()
        found["beside"].append(step())
        found["cpu_s"].append([after - each for each, after in zip(before, cpu_s())])
        told = json.loads(neighbour.end().splitlines()[-1])
        found["told"].append(told)
        neighbour = Neighbour(["-c", BURN, str(min(1, told["cpu_s"] / told["wall_s"]))])
        found["burning"].append(step())
        neighbour.end()
    return found, quiet.disturbed


def step_ms(contender, steps):
    answers = [int(answer.split()[3]) / steps / 1e6 for answer in contender.command(f"steps {steps} 0 1")]
    return max(answers)


def measure(bench, contender, members, size, params, own_uid):
    contender.command(f"prepare {size} 2 {params} 0 0")
    step_ms(contender, 5)
    steps = max(20, int(STEPS_MS / step_ms(contender, 10)))
    rounds = 3 if bench.quick else 9
    say = lambda text: bench.say(f"beside a hostile user, {size} bytes: {text}")
    found, disturbed = in_trouble(rounds, say, lambda: step_ms(contender, steps),
                                  lambda: Hostile(bench.daemon.socket, own_uid), bench.daemon.times)
    contender.release()
    median, told = statistics.median, found["told"]
    alone, beside, burning = (median(found[each]) for each in ("alone", "beside", "burning"))
    loop = median(spent[0] / (step * steps / 1000) for spent, step in zip(found["cpu_s"], found["beside"]))
    return {"table": "hostile", "members": members, "bytes": size, "step_alone_ms": round(alone, 3),
            "step_hostile_ms": round(beside, 3), "step_burning_ms": round(burning, 3),
            "hostile_over_burning": round(beside / burning, 2),
            "hostile_cpu_share": round(median(t["cpu_s"] / t["wall_s"] for t in told), 2),
            "loop_cpu_share": round(loop, 2),
            "connections_per_s": round(median(t["connections"] / t["wall_s"] for t in told)),
            "own_uid": own_uid, "steps": steps * rounds, "rounds": rounds, "disturbed_rounds": disturbed}


def hostile(bench, members, sizes):
    own_uid = let_in(bench)
    for count in members:
        contender = bench.gradsync(count)
        try:
            for size, params in SIZES:
                if sizes and size not in sizes:
                    continue
                yield measure(bench, contender, count, size, params, own_uid)
        finally:
            contender.stop()
