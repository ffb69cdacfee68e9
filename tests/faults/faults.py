# SPDX-License-Identifier: Apache-2.0
"""
Faults against a training job, in an order that a seed decides, and a checker that trusts nobody's word.

The trainers (trainer.c) train two plans, know each sum beforehand and log what they commit. This driver starts them again when
they die, makes the faults, and in the end compares: every plan's step that anybody committed was right, and every member's state
is, for each plan, what applying each step number exactly once gives. A step is committed when both plans' are, and void when
one of them was, or the collective in it. A hang is a time of more than 2 s (--hang) without a committed step in which nobody was stopped by us.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HOSTILE = pathlib.Path(__file__).resolve().parents[1] / "integration/hostile.py"
MOST = 10 ** 9
PLANS = 2                           # of trainer.c
MANY = 200                          # faults: fewer say little about shares
GIVE_UP = 3                         # hangs without a step in between
NO_DAEMON = 3                       # exit status of trainer.c that began while there was none
FLOODER, HOG = 65533, 65532         # uids of the hostile clients: not the trainers', whose quota they would use up


class Fault(Exception):
    """Something that must not happen has happened."""


def now():
    return time.monotonic()


def chained(chain, step):
    """What trainer.c does with its state."""
    mask = (1 << 64) - 1
    chain ^= (step + 0x9e3779b97f4a7c15 + (chain << 6 & mask) + (chain >> 2)) & mask
    chain = chain * 0xbf58476d1ce4e5b9 & mask
    return chain ^ chain >> 31


def parsed(line):
    """(seconds, word, arguments, line); None for a line that its writer did not live to end."""
    words = line.split(" ")
    if len(words) < 3 or not words[0].isdigit() or (words[1] in ("commit", "state") and len(words[-1]) != 16):
        return None
    return int(words[0]) / 1e9, words[1], words[2:], line


def open_files(pid):
    """What kinds of files a process has open, and how many arenas it maps."""
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0])
        except OSError:
            continue
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    return {"fds": sorted(names), "arenas": maps.count("gradsync-arena")}


class Made:
    """A fault that was made, until the job has recovered: until whoever it hit has committed a step again, the dead in their
    next life, or, if it hit no member, until anybody has."""

    def __init__(self, kind, victims):
        self.kind, self.when, self.met, self.alone = kind, now(), False, True
        self.without = {trainer: trainer.lives + trainer.doomed for trainer in victims}

    def commit(self, trainer, stamp):
        """Whether that was it."""
        if stamp > self.when:
            self.met = True
            if trainer.lives >= self.without.get(trainer, MOST):
                del self.without[trainer]
        return self.met and not self.without


class Training:
    """A job, and how far it has come."""

    def __init__(self, job, log=None):
        self.job, self.log = job, log or job
        self.commits, self.newest = 0, 0.0      # the newest step, and when it was
        self.former, self.begun = 0, 0.0        # steps of its former lives, and when this one began
        self.may_end = False                    # and begin anew: what was done to it is a reason
        self.last = now()                       # since when nothing was committed, as far as that is somebody's fault
        self.stuck = 0                          # hangs since the newest step


class Trainer:
    """One rank of a job, through all of its incarnations."""

    def __init__(self, rig, training, rank):
        self.rig, self.training, self.rank = rig, training, rank
        self.log = rig.directory / f"{training.log}{rank}.log"
        self.at = 0                     # how much of the log has been read
        self.rest = ""
        self.steps = [0] * PLANS        # that its state has, by plan
        self.open, self.whole = set(), False
        self.result = None
        self.lives = 0
        self.committed = 0.0            # when it last was
        self.start()

    def start(self):
        env = {**os.environ, "GRADSYNC_SOCKET": self.rig.socket_of(self.rank), "GRADSYNC_JOB": self.training.job,
               "GRADSYNC_RANK": str(self.rank), "GRADSYNC_WORLD_SIZE": str(self.rig.world), **self.rig.extras(self)}
        self.process = subprocess.Popen([self.rig.build / "tests/faults/fault_trainer", str(self.rig.target), self.log],
                                        env=env, stdin=subprocess.DEVNULL)
        self.whole = self.doomed = self.expelled = False
        self.back = MOST                # if it is expelled: when it could come back without ending
        self.open = set()               # plans of which something is marked
        self.lives += 1

    def __str__(self):
        return f"job {self.training.job}, rank {self.rank}"

    def read(self):
        """Takes what the log has to say since the last time."""
        if not self.log.exists():
            return
        with open(self.log, encoding="utf-8") as f:
            f.seek(self.at)
            text = f.read()
            self.at = f.tell()
        lines = (self.rest + text).split("\n")
        self.rest = lines.pop()
        for stamp, word, arguments, line in filter(None, map(parsed, lines)):
            self.take(stamp, word, arguments, line)

    def take(self, stamp, word, arguments, line):
        if word in ("commit", "state"):
            before, step, plan = min(self.steps), int(arguments[0]), int(arguments[1])
            self.steps[plan] = step
            if word == "commit":
                self.whole = True
                self.committed = stamp
                self.expelled &= stamp <= self.back
                self.open.discard(plan)
                if min(self.steps) > before:
                    self.rig.committed(self, min(self.steps), stamp)
        elif word == "open":
            self.open.add(int(arguments[1]))
        elif word == "void":
            self.open.clear()
        elif word == "wrong":
            self.rig.wrong.append(f"{self}: {line}")
        elif word == "end":
            self.result = arguments[0]
        elif word == "failed" and not self.rig.may_fail(self, line):
            raise Fault(f"{self}: {line}")


class Rig:
    """The daemon, the trainers, and what has been seen of them."""

    jobs = ["faults"]
    glance = 0.001                      # seconds between two looks at the trainers

    def __init__(self, options, directory):
        self.options, self.directory = options, pathlib.Path(directory)
        self.build, self.world = pathlib.Path(options.build).resolve(), options.members
        self.random = random.Random(options.seed)
        self.target = MOST
        self.socket = str(self.directory / "socket")
        self.trainings = list(map(Training, self.jobs))
        self.waiting = []                       # faults not recovered from
        self.recovery = {}                      # by kind: (ms, whether no other fault came in between)
        self.begun = []                         # (when, kind) of each fault
        self.due = []                           # kinds that --each asks for
        self.wrong, self.hangs, self.in_open, self.done = [], 0, 0, 0
        self.anew = 0                           # how often a job has begun anew
        self.floods, self.hogs = [], []
        self.refused = 0
        self.daemon = self.start_daemon()

    def start_daemon(self):
        self.directory.chmod(0o755)
        log = open(self.directory / "daemon.log", "ab")
        made = subprocess.Popen([self.build / "daemon/core/gradsyncd", "--config", "/dev/null", "--socket", self.socket,
                                 "--socket-mode", "0666", "--rejoin-grace", "30s"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = now() + 10
        while not self.listens():
            if made.poll() is not None or now() > end:
                raise Fault("gradsyncd did not start: " + (self.directory / "daemon.log").read_text())
            time.sleep(0.01)
        return made

    def socket_of(self, rank):
        return self.socket

    def extras(self, trainer):
        """More for its environment."""
        return {}

    @property
    def commits(self):
        """The newest step, of the job that has come least far."""
        return min(training.commits for training in self.trainings)

    def may_fail(self, trainer, line):
        """Whether that trainer may give up, to be started again: nothing that is done to one host is a reason."""
        return False

    def listens(self, path=None):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(path or self.socket)
            except OSError:
                return False
            return True

    def holdings(self):
        """fds and memory files of the daemon."""
        return open_files(self.daemon.pid)

    def status(self):
        made = subprocess.run([self.build / "client/cli/gradsyncctl", "status", "--json", "--socket", self.socket], check=True,
                              capture_output=True, timeout=30)
        return json.loads(made.stdout)

    def refusals(self):
        """How often this daemon has refused somebody more than its quota."""
        made = subprocess.run([self.build / "client/cli/gradsyncctl", "metrics", "--socket", self.socket], check=True,
                              capture_output=True, text=True, timeout=30)
        return sum(int(line.split()[1]) for line in made.stdout.splitlines() if line.startswith("gradsync_quota_rejections_total{"))

    def committed(self, trainer, step, stamp):
        it = trainer.training
        if stamp < it.begun:
            return
        if step + it.former < it.commits - 1 and stamp > it.newest:
            if not it.may_end:
                raise Fault(f"step {step} was committed after step {it.commits - it.former}: job {it.job} "
                            "has begun anew")
            it.former, it.begun = it.commits, stamp
            self.anew += 1
        step += it.former
        waiting = self.waiting if it in self.trainings else []
        for fault in [fault for fault in waiting if fault.commit(trainer, stamp)]:
            self.recovery.setdefault(fault.kind, []).append(((stamp - fault.when) * 1000, fault.alone))
            self.waiting.remove(fault)
        if step > it.commits:
            it.commits, it.newest, it.last = step, stamp, max(it.last, stamp)
            it.stuck = 0

    def look(self):
        """Reads the logs, starts the dead again, notices hangs."""
        for trainer in self.trainers:
            trainer.read()
        for trainer in self.trainers:
            if trainer.process.poll() is None or trainer.result is not None:
                continue
            trainer.read()
            if trainer.process.returncode > 0 and trainer.process.returncode != NO_DAEMON and not trainer.expelled:
                raise Fault(f"{trainer} ended with {trainer.process.returncode}")
            if trainer.process.returncode != 0:
                trainer.start()
        self.check_daemons()
        for training in self.trainings:
            if now() - training.last > self.options.hang and not self.finished():
                self.hangs += 1
                training.stuck += 1
                self.tell_hang(training)
                training.last = now()
                if training.stuck == GIVE_UP:
                    raise Fault(f"given up: job {training.job} does not go on after step {training.commits}")

    def check_daemons(self):
        if self.daemon.poll() is not None:
            raise Fault("gradsyncd has ended: " + (self.directory / "daemon.log").read_text()[-2000:])

    def job_of(self, training):
        """What the daemon says of it."""
        return next((job for job in self.status()["jobs"] if job["name"] == training.job), {})

    def tell_hang(self, training):
        job = self.job_of(training)
        print(f"no step of {training.job} for {self.options.hang:g} s after step {training.commits}: "
              f"{job.get('state')}, waiting for {job.get('waiting_for')}", file=sys.stderr)
        print(f"  since {training.last:.3f}, after {self.latest()}", file=sys.stderr)
        for trainer in self.members(training):
            lines = trainer.log.read_text(encoding="utf-8").splitlines()
            print(f"  {trainer}, pid {trainer.process.pid}: {lines[-8:]}", file=sys.stderr)

    def members(self, training):
        return [trainer for trainer in self.trainers if trainer.training is training]

    def finished(self):
        return all(trainer.result is not None for trainer in self.trainers)

    def pause(self, seconds):
        end = now() + seconds
        while now() < end:
            self.look()
            time.sleep(self.glance)

    def pass_steps(self, steps):
        until = self.commits + steps
        while self.commits < until:
            self.pause(0.001)

    # --- faults

    def excuse(self):
        """The time until now was nobody's fault but ours."""
        for training in self.trainings:
            training.last = max(training.last, now() - self.options.hang / 2)

    def whole(self, training):
        """Those whose state is whole, and who live on."""
        return [t for t in self.members(training)
                if t.whole and not (t.doomed or t.expelled) and t.process.poll() is None]

    def victims(self, most):
        """Of one job, and not the last of those whose state is whole: with it the job would end, and rightly
        so."""
        training = self.random.choice(self.trainings) if len(self.trainings) > 1 else self.trainings[0]
        whole = self.whole(training)
        keeper = self.random.choice(whole) if whole else None
        able = [t for t in self.members(training) if t is not keeper and t.process.poll() is None]
        self.random.shuffle(able)
        return able[:most] if keeper else []

    def kill(self, most=1):
        chosen = self.victims(most)
        for trainer in chosen:
            trainer.doomed = True       # it may live on for a moment
            trainer.process.kill()
        return chosen

    def kill_several(self):
        return self.kill(self.world - 1)

    def fork_and_die(self):
        chosen = self.victims(1)
        for trainer in chosen:
            trainer.doomed = True
            trainer.process.send_signal(signal.SIGUSR1)
        return chosen

    def stop(self):
        """Stopped and continued; the time in between is not the daemon's."""
        trainer = self.random.choice(self.trainers)
        length = self.random.choice([0.01, 0.05, 0.3])
        if trainer.process.poll() is not None:
            return []
        trainer.process.send_signal(signal.SIGSTOP)
        self.pause(length)
        trainer.process.send_signal(signal.SIGCONT)
        self.excuse()
        return [trainer]

    def hostile(self, uid, *attacks):
        """A stranger without manners. What it holds open it holds until it is killed."""
        return subprocess.Popen([sys.executable, "-B", HOSTILE, "--uid", str(uid), self.socket, *attacks], stdin=subprocess.PIPE,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def flood(self):
        """Connections with garbage, half frames, lying sizes and fds that nobody asked for."""
        self.floods = [other for other in self.floods if other.poll() is None]
        attack = self.random.choice(["garbage=300", "halves=100", "lies=100", "fds=100", "churn=100"])
        self.floods.append(self.hostile(FLOODER, attack))
        return []

    def exhaust(self):
        """Takes all that a uid may have of connections, jobs and arenas, and is killed with it at the next time."""
        self.end_hogs()
        self.hogs.append(self.hostile(HOG, *self.random.choice([("hog=400",), ("idle=1100",)])))
        return []

    def restart(self, end):
        """Another daemon follows this one, whose members are all hit."""
        self.refused += self.refusals()
        end()
        status = self.daemon.wait(30)
        if status not in (0, -signal.SIGKILL):
            raise Fault(f"gradsyncd ended with {status}")
        self.daemon = self.start_daemon()
        return [trainer for trainer in self.trainers if trainer.process.poll() is None]

    def kill_daemon(self):
        return self.restart(self.daemon.kill)

    def restart_daemon(self):
        return self.restart(self.daemon.terminate)

    def end_hogs(self):
        for hog in self.hogs:
            hog.kill()
            hog.wait()
        self.hogs = []

    def kinds(self):
        """(those that hit members, the others); None, or of the former nobody: nothing could be done."""
        members = [self.kill] * 5 + [self.kill_several] * 2 + [self.fork_and_die] * 2 + [self.stop] * 2
        members += [self.kill_daemon, self.restart_daemon]
        return members, [self.flood, self.exhaust] if os.geteuid() == 0 else []

    def chosen(self, able):
        """One of these kinds, each as often as it is there; those that are due come in time."""
        if self.random.random() * (self.options.faults - self.done) >= len(self.due):
            return self.random.choice(able)
        name = self.random.choice(self.due)
        return next(kind for kind in able if kind.__name__ == name)

    def one(self):
        members, others = self.kinds()
        kind = self.chosen(members + others)
        self.look()
        if self.random.random() < 0.9:  # most are to meet an open step
            while not any(trainer.open for trainer in self.trainers):
                self.pause(0.001)
        in_open = any(trainer.open for trainer in self.trainers)
        begin, disturbed = now(), list(self.waiting)
        hit = kind()
        if hit is None or (kind in members and not hit):
            return
        if kind.__name__ in self.due:
            self.due.remove(kind.__name__)
        for fault in disturbed:
            fault.alone = False
        self.begun.append((begin, kind.__name__))
        self.waiting.append(Made(kind.__name__, hit))
        self.in_open += in_open
        self.done += 1

    # --- the whole

    def run(self):
        before = self.at_rest()
        self.trainers = [Trainer(self, training, rank)
                         for training in self.trainings for rank in range(self.world)]
        while self.commits < 5:
            self.pause(0.01)
        names = {kind.__name__ for kinds in self.kinds() for kind in kinds}
        self.due = sorted(names) * self.options.each
        if len(self.due) > self.options.faults:
            raise Fault(f"{len(names)} kinds of faults, each {self.options.each} times, are more than "
                        f"{self.options.faults}")
        while self.done < self.options.faults:
            self.one()
            self.pass_steps(self.random.choice([0, 0, 1, 5, 20, 80]))
            if not self.options.json and sys.stderr.isatty():
                print(f"\r{self.done}/{self.options.faults} faults, step {self.commits}", end="", file=sys.stderr)
        while self.waiting:
            self.pause(0.02)
        generations = sum(self.job_of(training)["generation"] for training in self.trainings)
        self.refused += self.refusals()
        for trainer in self.trainers:
            trainer.process.kill()
            trainer.process.wait()
            trainer.read()
        self.end_hogs()
        for flood in self.floods:
            flood.stdin.close()
            flood.wait()
        return generations, self.settled(before)

    def at_rest(self):
        """What the daemon holds before anybody has come."""
        # It listens before it has begun; what it opens on its way is none of its holdings.
        self.status()
        while (before := self.holdings())["fds"].count("socket") > 1 or before != self.holdings():
            time.sleep(0.01)            # it has not noticed yet that whoever tried it is gone, or did while it was looked at
        return before

    def settled(self, before):
        """Whether the daemon comes to hold what it held at first."""
        end = now() + 20
        while self.holdings() != before:
            if now() > end:
                return [f"{before} before, {self.holdings()} after"]
            time.sleep(0.05)
        return []

    def left_over(self):
        """What there is still when all processes have ended, and ought not to be."""
        return []

    def figures(self):
        """More that was measured."""
        return {}

    def stop_daemon(self):
        self.daemon.terminate()
        return self.daemon.wait(30)

    def kill_all(self):
        """Whatever is left of it."""
        for trainer in getattr(self, "trainers", []):
            trainer.process.kill()
        self.daemon.kill()

    def latest(self):
        """The faults."""
        return [f"{when:.3f} {kind}" for when, kind in self.begun[-6:]]

    def last_steps(self):
        """What each trainer has logged last, and the latest faults."""
        return [f"{trainer}: {trainer.log.read_text(encoding='utf-8').splitlines()[-8:]}"
                for trainer in self.trainers] + self.latest()

    def last_words(self):
        return (self.directory / "daemon.log").read_text().splitlines()[-30:]


def replay(rig):
    """Members that lost nobody else's state have applied each step once: their chains are the replay's, for each plan."""
    problems = []
    for trainer in rig.trainers:
        at = [None] * PLANS             # the steps that its state is of
        for _, word, arguments, _ in filter(None, map(parsed, trainer.log.read_text(encoding="utf-8").splitlines())):
            if word == "begin":
                at = [None] * PLANS
            elif word in ("commit", "state"):
                step, plan = int(arguments[0]), int(arguments[1])
                if word == "commit" and at[plan] is not None and step != at[plan] + 1:
                    problems.append(f"{trainer} committed step {step} of plan {plan} after {at[plan]}")
                if int(arguments[2], 16) != rig.chain(step):
                    problems.append(f"{trainer}: the state of plan {plan} after step {step} is not that of {step} steps "
                                    "applied once")
                at[plan] = step
    return problems


def stamps(trainer, word):
    """(when, first argument) of each such line that it has logged."""
    lines = trainer.log.read_text(encoding="utf-8").splitlines()
    return [(stamp, arguments[0]) for stamp, each, arguments, _ in filter(None, map(parsed, lines)) if each == word]


def void_steps(rig):
    """When they were void, by what those who lived to hear of it have logged: a step as often as any of
    them says."""
    most = {}
    for trainer in rig.trainers:
        heard = {}
        for stamp, step in stamps(trainer, "void"):
            heard.setdefault((trainer.training.job, step), []).append(stamp)
        for step, times in heard.items():
            known = most.setdefault(step, [])
            known[:] = map(min, known, times) if len(known) == len(times) else max(known, times, key=len)
    return sorted(stamp for times in most.values() for stamp in times)


def by_kind(rig, void):
    """What is known of each kind. A void step is put down to the fault that was made last before. A time from
    a fault to the step after it holds further faults, too; `alone` are those without."""
    rows = {}
    for kind in sorted({kind for _, kind in rig.begun}):
        times = rig.recovery.get(kind, [])
        alone = [ms for ms, single in times if single]
        rows[kind] = {"count": sum(each == kind for _, each in rig.begun), "void_steps": 0,
                      "median_ms": round(statistics.median(ms for ms, _ in times), 1) if times else None,
                      "worst_ms": round(max(ms for ms, _ in times), 1) if times else None,
                      "worst_alone_ms": round(max(alone), 1) if alone else None}
    for stamp in void:
        kinds = [kind for when, kind in rig.begun if when <= stamp]
        if kinds:
            rows[kinds[-1]]["void_steps"] += 1
    return rows


def parser_of(name, text, hang):
    parser = argparse.ArgumentParser(prog=name, description=text)
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("GRADSYNC_TEST_SEED", "1")),
                        help="(%(default)s; GRADSYNC_TEST_SEED)")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--each", type=int, default=0, metavar="N", help="each kind of fault at least N times")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--hang", type=float, default=hang, metavar="SECS",
                        help=f"a longer time without a step is a hang ({hang:g})")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return parser


def main(options, make_rig=Rig):
    with tempfile.TemporaryDirectory(prefix="gradsync-faults.") as directory:
        rig = make_rig(options, directory)
        try:
            generations, leaks = rig.run()
            chains = [0]
            for step in range(1, max(it.commits for it in rig.trainings) + options.members + 2):
                chains.append(chained(chains[-1], step))
            rig.chain = chains.__getitem__
            wrong = rig.wrong + replay(rig)
            steps = sum(training.commits for training in rig.trainings)
            when_void = void_steps(rig)
            void, figures = len(when_void), rig.figures()
            status = rig.stop_daemon()
            leaks += rig.left_over()
        except Fault as fault:
            sys.stderr.writelines(line + "\n" for line in rig.last_words() + rig.last_steps())
            print(f"seed {options.seed}: {fault}", file=sys.stderr)
            return 1
        finally:
            rig.kill_all()
    row = {"seed": options.seed, "faults": rig.done, "in_open_steps": rig.in_open, "steps_checked": steps,
           "void_steps": void, "committed_share": round(steps / (steps + void), 4),
           "void_per_fault": round(void / max(rig.done, 1), 2), "wrong_sums": len(wrong), "hangs": rig.hangs, "leaks": len(leaks) + (status != 0),
           "quota_refusals": rig.refused, "generations": generations,
           "kinds": by_kind(rig, when_void), **figures}
    bad = wrong + leaks + ([f"gradsyncd ended with {status}"] if status else [])
    bad += [f"{rig.hangs} hangs"] if rig.hangs else []
    if rig.done >= MANY:
        bad += ["more than 2 void steps per fault"] if void > 2 * rig.done else []
        bad += ["fewer than 95 % of the steps were committed"] if 19 * void > steps else []
        bad += ["fewer than half of the faults met an open step"] if 2 * rig.in_open < rig.done else []
        bad += ["no quota was exhausted"] if "exhaust" in rig.recovery and not rig.refused else []
    if options.json:
        print(json.dumps(row))
    else:
        for key, value in row.items():
            print(f"{key:14} {value}")
    for line in bad[:20]:
        print(f"seed {options.seed}: {line}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(parser_of("run.sh", __doc__.strip().splitlines()[0], 2.0).parse_args()))
