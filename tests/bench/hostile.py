# SPDX-License-Identifier: Apache-2.0
"""What a hostile user costs a training job: its step time beside one who attacks the daemon with all that a client can do,
against that beside a process that burns as much CPU and never connects."""

import json
import os
import signal
import statistics
import subprocess
import sys

from contender import Failed
from peers import MIB, Quiet

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration", "hostile.py")
STRANGER = 61666                # uid of the hostile one, where the benchmark may choose it
# So many of each that every attack comes round several times a second.
ATTACKS = ["garbage=200", "idle=400", "fds=40", "halves=100", "lies=20", "slow=5", "chatter=5", "hog=20", "churn=20"]
# Busy and asleep in turns of 4 ms, to a share of a CPU that is given.
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
    """A process beside the job, from the moment at which it has begun."""

    def __init__(self, arguments, prefix=()):
        self.process = subprocess.Popen([*prefix, sys.executable, "-B", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "began":
            raise Failed("a neighbour did not start: " + self.process.communicate()[1])

    def end(self):
        """What it says at its end."""
        self.process.send_signal(signal.SIGTERM)
        out, error = self.process.communicate(timeout=60)
        if error:
            raise Failed("a neighbour failed: " + error)
        return out


class Hostile(Neighbour):
    def __init__(self, path, own_uid):
        super().__init__([SCRIPT, *(["--uid", str(STRANGER)] if own_uid else []), "--seconds", "600", path, *ATTACKS])

    def end(self):
        return json.loads(super().end().splitlines()[-1])


def let_in(bench):
    """Opens the daemon's door for another uid; whether there can be one."""
    if os.geteuid() != 0:
        return False
    os.chmod(bench.directory, 0o711)
    os.chmod(bench.daemon.socket, 0o666)
    return True


def step_ms(contender, steps):
    answers = [int(answer.split()[3]) / steps / 1e6 for answer in contender.command(f"steps {steps} 0 1")]
    return max(answers)


def measure(bench, contender, members, size, params, own_uid):
    contender.command(f"prepare {size} 2 {params} 0 0")
    step_ms(contender, 5)
    steps = max(20, int(STEPS_MS / step_ms(contender, 10)))
    rounds = 3 if bench.quick else 9
    alone, beside, burning, told, daemon = [], [], [], [], []
    quiet = Quiet(bench.say)
    for number in range(rounds):
        quiet.wait()
        bench.say(f"beside a hostile user, {size} bytes: round {number + 1}/{rounds}")
        alone.append(step_ms(contender, steps))
        hostile = Hostile(bench.daemon.socket, own_uid)
        before = bench.daemon.times()
        beside.append(step_ms(contender, steps))
        after = bench.daemon.times()
        told.append(hostile.end())
        daemon.append((after[0] - before[0]) / (beside[-1] * steps / 1000))
        neighbour = Neighbour(["-c", BURN, str(min(1, told[-1]["cpu_s"] / told[-1]["wall_s"]))])
        burning.append(step_ms(contender, steps))
        neighbour.end()
    contender.release()
    return {"table": "hostile", "members": members, "bytes": size, "step_alone_ms": round(statistics.median(alone), 3),
            "step_hostile_ms": round(statistics.median(beside), 3), "step_burning_ms": round(statistics.median(burning), 3),
            "hostile_over_burning": round(statistics.median(beside) / statistics.median(burning), 2),
            "hostile_cpu_share": round(statistics.median(t["cpu_s"] / t["wall_s"] for t in told), 2),
            "loop_cpu_share": round(statistics.median(daemon), 2),
            "connections_per_s": round(statistics.median(t["connections"] / t["wall_s"] for t in told)),
            "own_uid": own_uid, "steps": steps * rounds, "rounds": rounds, "disturbed_rounds": quiet.disturbed}


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
