# SPDX-License-Identifier: Apache-2.0
"""
Faults against jobs whose gradients are on GPUs: those of cluster.py, and faults of NCCL and the GPU.

Each daemon serves a fake GPU of its own, and they exchange by a fake NCCL. Two jobs have members on all
daemons; their buckets become ready in opposite order, so that collectives block each other unless all daemons
launch them in one order. All run on this machine: a host is a daemon. The oracle is that of faults.py, and no
process may break a rule of the GPU or of NCCL, or leave something on a GPU.

Some faults are settings of the fakes, which a daemon reads from its environment: so it is restarted in good
order, and the next daemon has them.
"""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import cluster
import faults
from cluster import DEATH_S, TIMES, ClusterRig
from faults import Fault, now

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import gpus  # noqa: E402

DEVICE_FAILED, ENGINE_FAILED = 70, 71   # exit status of a daemon that a new one is to follow
STICKY = 719
ENDING_S = 10                           # a daemon waits so long for NCCL to end a communicator
PATIENCE_S = 60                         # a daemon has so long to end by itself
# Calls that are made again and again, and the number of calls before one may fail.
NCCL_CALLS = {"ncclCommInitRankConfig": 1, "ncclCommSplit": 1, "ncclAllReduce": 120}
CUDA_CALLS = {"cuLaunchKernel": 40, "cuEventRecord": 80, "cuEventQuery": 400, "cuMemcpyHtoDAsync": 40}


def spread(times):
    """The spread of these times, in milliseconds."""
    times = sorted(times)
    row = {"count": len(times)}
    if times:
        row.update({name: round(times[int(share * (len(times) - 1))], 1) for name, share in
                    (("median_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("worst_ms", 1))})
    return row


class Machine:
    """Stands in for the hosts of cluster.py: all daemons run on this machine."""

    def inside(self, host):
        return []

    def close(self):
        pass


class Daemon(cluster.Daemon):
    """A daemon that may end by itself, with one of the statuses in `ends`; the next one may not."""

    ends = ()

    def start(self, env=None, ends=()):
        super().start(env)
        self.ends = ends


class NcclRig(ClusterRig):
    """Host i is the daemon that serves GPU i."""

    jobs = ["forth", "back"]
    glance = 0.01
    daemon_class = Daemon

    def start_daemon(self):
        os.environ.update(gpus.settings(self.build, self.directory), MEMBER_CUDA="1",
                          FAKE_GPU_DEVICES=str(self.options.hosts))
        self.losses = []                # (time, job, killed members) of faults without another one nearby
        self.changes = collections.defaultdict(collections.Counter)
        self.looked_at = None           # (result of asked() before, kind, jobs that were hit)
        return super().start_daemon()

    def make_hosts(self):
        return Machine()

    def start_daemons(self):
        link = f"unix:{self.directory}/link"
        self.coordinator = self.add("coordinator", 0, {"listen": link, **TIMES}, "--device", "none")
        for i in range(self.n_hosts):
            text = {"coordinator": link, "gloo_helper": self.build / "daemon/engine/gloo/gradsync-gloo",
                    "nccl_library": self.build / "tests/fakes/nccl/libnccl.so.2"}
            self.add(f"gpu{i}", i, text, "--device", f"cuda:{i}")

    def extras(self, trainer):
        extras = {"MEMBER_GPU": str(self.node_of(trainer.rank))}
        if trainer.training.job == "back":
            extras["TRAINER_REVERSED"] = "1"
        return extras

    def members_on(self, host):
        return [trainer for trainer in self.trainers if self.node_of(trainer.rank) == host]

    def look(self):
        for host, node in enumerate(self.nodes):
            if node.ends:
                for trainer in self.members_on(host):
                    trainer.expelled, trainer.back = True, faults.MOST
        super().look()

    def check_daemons(self):
        for host, node in enumerate(self.nodes):
            if not node.away and node.ends and node.process.poll() in node.ends:
                node.start()
                self.readmit(self.members_on(host))
        super().check_daemons()

    # --- what is left

    def on_gpus(self):
        """"N contexts, M memories"; what is at work, and what NCCL has left, are lines before that."""
        return subprocess.run([self.build / "tests/fakes/gpu/fake-gpu-context", "check"],
                              stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()

    def at_rest(self):
        return [*super().at_rest(), self.on_gpus()]

    def left_over(self):
        end = now() + 20
        while (left := self.on_gpus()) != ["0 contexts, 0 memories"] and now() < end:
            time.sleep(0.05)
        log = self.directory / "gpu/log"
        rules = log.read_text().splitlines() if log.exists() else []
        return (left if left != ["0 contexts, 0 memories"] else []) + [f"rule: {line}" for line in rules]

    def last_words(self):
        log = self.directory / "gpu/log"
        return super().last_words() + (log.read_text().splitlines() if log.exists() else [])

    # --- what is measured

    def asked(self):
        """{(job, node, daemon's pid): the job in the status there}"""
        jobs = {}
        for host, node in enumerate(self.nodes):
            made = subprocess.run([self.build / "client/cli/gradsyncctl", "status", "--json", "--socket",
                                   node.socket], capture_output=True, timeout=30, check=False)
            for job in json.loads(made.stdout)["jobs"] if made.returncode == 0 else []:
                jobs[job["name"], host, node.process.pid] = job
        return jobs

    def one(self):
        alone, done = not self.waiting, self.done
        before = self.asked() if alone else {}
        super().one()
        if self.done == done:
            return
        self.looked_at = None
        when, kind = self.begun[-1]
        hit = {trainer.training.job for trainer in self.waiting[-1].without}
        if alone:
            self.looked_at = before, kind, hit
        if alone and kind in ("kill", "kill_several"):
            self.losses.append((when, *hit, set(self.waiting[-1].without)))

    def pass_steps(self, steps):
        super().pass_steps(min(steps, 20))
        if self.looked_at is not None and not self.waiting:
            before, kind, hit = self.looked_at
            self.looked_at = None
            after = {key: job for key, job in self.asked().items() if key in before}
            for key, job in after.items():
                whose = "its job" if key[0] in hit else "other job"
                self.changes[kind, whose][job["communicators"] - before[key]["communicators"]] += 1

    def told_after(self):
        """Milliseconds from a member's death until the last survivor has heard of it, of each such fault in
        which a step was void and nothing else was done before."""
        heard = []
        begun = [when for when, _ in self.begun] + [faults.MOST]
        voids = {trainer: faults.stamps(trainer, "void") for trainer in self.trainers}
        for when, job, killed in self.losses:
            until = min(later for later in begun if later > when)
            first = [min((stamp for stamp, _ in voids[t] if when <= stamp < until), default=None)
                     for t in self.trainers if t.training.job == job and t not in killed]
            if first and None not in first:
                heard.append((max(first) - when) * 1000)
        return heard

    def figures(self):
        changes = {}
        for (kind, whose), counts in sorted(self.changes.items()):
            changes.setdefault(kind, {})[whose] = {f"{n:+}": counts[n] for n in sorted(counts)}
        return {"void_after_death": spread(self.told_after()), "communicators": changes}

    # --- faults

    def wait_for(self, condition, seconds):
        """Waits for the condition; returns whether it holds in time. The wait does not count as a hang."""
        end = now() + seconds
        while not condition() and now() < end:
            self.pause(0.01)
        self.excuse()
        return condition()

    def replace(self, env, ends=()):
        """Restarts a daemon in good order, so that nothing is void, with `env` for the next one. Returns
        (host, members)."""
        host, hit = self.expel()
        if hit:
            self.end(self.nodes[host])
            self.nodes[host].start(env, ends)
            self.readmit(hit)
        return host, hit

    def wait_for_commits(self, hit):
        """Waits until each member, or its successor, has committed a step."""
        since = now()
        self.wait_for(lambda: all(trainer.committed > since for trainer in hit), PATIENCE_S)

    def slow_init(self):
        host, hit = self.replace({"FAKE_NCCL_SLOW": str(self.random.choice([200, 500, 1000]))})
        if hit:
            self.wait_for_commits(hit)
            self.end(self.nodes[host])
            self.nodes[host].start()
        return hit

    def fail_nccl(self):
        """Lets a call of NCCL fail, once."""
        call, least = self.random.choice(sorted(NCCL_CALLS.items()))
        number = self.random.randint(least, 2 * least)
        host, hit = self.replace({"FAKE_NCCL_FAIL": f"{call}:{number}:{self.random.randint(1, 6)}"})
        if hit:
            self.wait_for(lambda: "as FAKE_NCCL_FAIL asks" in self.nodes[host].log.read_text(), 10)
        return hit

    def must_end(self, node, pid, what):
        if not self.wait_for(lambda: node.process.pid != pid, PATIENCE_S):
            raise Fault(f"{node.name} does not end, though {what}")

    def fail_gpu(self):
        """Lets a call fail with an error after which the GPU can do nothing more for that process."""
        call, least = self.random.choice(sorted(CUDA_CALLS.items()))
        number = self.random.randint(least, 2 * least)
        host, hit = self.replace({"FAKE_GPU_FAIL": f"{call}:{number}:{STICKY}"},
                                 (DEVICE_FAILED, ENGINE_FAILED))
        if hit:
            node = self.nodes[host]
            self.must_end(node, node.process.pid, f"call {number} of {call} has failed")
        return hit

    def stick_in_abort(self):
        """The communicators of a daemon do not end when another node is lost."""
        host, hit = self.replace({"FAKE_NCCL_STUCK": "abort"}, (ENGINE_FAILED,))
        if not hit:
            return hit
        node = self.nodes[host]
        pid = node.process.pid
        self.wait_for_commits(hit)
        other, more = self.expel(host)
        if more:
            self.nodes[other].kill()
            self.nodes[other].start()
            self.readmit(more)
            self.must_end(node, pid, "it cannot end its communicators")
        return hit + more

    def silence_node(self):
        """Stops a node for so long that it passes for dead."""
        host, hit = self.expel()
        if hit:
            self.nodes[host].process.send_signal(signal.SIGSTOP)
            self.rest(DEATH_S + 2)
            self.nodes[host].process.send_signal(signal.SIGCONT)
        return self.readmit(hit)

    def hold(self):
        """Lets collectives take a moment longer."""
        file = self.directory / "gpu/nccl-hold"
        file.touch()
        self.rest(self.random.choice([0.05, 0.3, 1]))
        file.unlink()
        return []

    def kinds(self):
        members = [self.kill, self.kill, self.kill_several, self.fork_and_die, self.stop, self.kill_node,
                   self.silence_node, self.slow_init, self.fail_nccl, self.fail_gpu]
        members += [self.stick_in_abort] if self.n_hosts > 2 else []
        others = [self.kill_helper, self.kill_coordinator, self.stop_coordinator, self.stop_node,
                  self.restart_node, self.hold, self.hold]
        return self.wanted(members), self.wanted(others)


def main():
    parser = faults.parser_of("nccl.sh", "Faults against jobs that exchange by NCCL.", 30.0)
    parser.add_argument("--hosts", type=int, default=4, choices=[2, 3, 4])
    parser.set_defaults(members=8)
    cluster.add_only(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)   # also when told to stop, leave nothing
    return faults.main(options, NcclRig)


if __name__ == "__main__":
    sys.exit(main())
