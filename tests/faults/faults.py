# SPDX-License-Identifier: Apache-2.0
"""
Faults against a training job, in an order that a seed decides, and a checker that trusts no process.

The trainers (trainer.c) train two plans, know each sum beforehand and log what they commit. This driver
starts them again when they die, makes the faults, and checks in the end: each step of a plan that any
trainer committed was right, and the state of each member is, for each plan, the result of applying each step
number exactly once. A step is committed when both plans' are, and void when one of them was, or the
collective in it. A hang is a time of more than 2 s (--hang) without a committed step while this driver
stopped no process.
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
    """Something has happened that must not happen."""


def now():
    return time.monotonic()


def chained(chain, step):
    """The next state, as trainer.c computes it."""
    mask = (1 << 64) - 1
    chain ^= (step + 0x9e3779b97f4a7c15 + (chain << 6 & mask) + (chain >> 2)) & mask
    chain = chain * 0xbf58476d1ce4e5b9 & mask
    return chain ^ chain >> 31


def parsed(line):
    """(seconds, word, arguments, line); None for a line whose writer died before its end."""
    words = line.split(" ")
    if len(words) < 3 or not words[0].isdigit() or (words[1] in ("commit", "state") and len(words[-1]) != 16):
        return None
    return int(words[0]) / 1e9, words[1], words[2:], line


def open_files(pid):
    """The kinds of files that a process has open, and how many arenas it maps."""
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0])
        except OSError:
            continue
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    return {"fds": sorted(names), "arenas": maps.count("gradsync-arena")}


class Made:
    """A fault that was made, until the job has recovered: until each member that it hit has committed a step
    again (a dead one in its next life), or, if it hit no member, until any member has."""

    def __init__(self, kind, victims):
        self.kind, self.when, self.met, self.alone = kind, now(), False, True
        self.without = {trainer: trainer.lives + trainer.doomed for trainer in victims}

    def commit(self, trainer, stamp):
        """Takes a commit. Returns whether the job has recovered with it."""
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
        self.may_end = False                    # and begin anew: a fault is a reason for it
        self.last = now()                       # the last commit, or the last delay of our own
        self.stuck = 0                          # hangs since the newest step


class Trainer:
    """One rank of a job, through all of its incarnations."""

    def __init__(self, rig, training, rank):
        self.rig, self.training, self.rank = rig, training, rank
        self.log = rig.directory / f"{training.log}{rank}.log"
        self.at = 0                     # how much of the log has been read
        self.rest = ""
        self.steps = [0] * PLANS        # in its state, by plan
        self.open, self.whole = set(), False
        self.result = None
        self.lives = 0
        self.committed = 0.0            # when it last committed
        self.start()

    def start(self):
        env = {**os.environ, "GRADSYNC_SOCKET": self.rig.socket_of(self.rank), "GRADSYNC_JOB": self.training.job,
               "GRADSYNC_RANK": str(self.rank), "GRADSYNC_WORLD_SIZE": str(self.rig.world), **self.rig.extras(self)}
        self.process = subprocess.Popen([self.rig.build / "tests/faults/fault_trainer", str(self.rig.target), self.log],
                                        env=env, stdin=subprocess.DEVNULL)
        self.whole = self.doomed = self.expelled = False
        self.back = MOST                # if it is expelled: when it could come back without ending
        self.open = set()               # plans with a marked gradient
        self.lives += 1

    def __str__(self):
        return f"job {self.training.job}, rank {self.rank}"

    def read(self):
        """Takes the new lines of the log."""
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
    """The daemon and the trainers, and all observations of them."""

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
        """More variables for its environment."""
        return {}

    @property
    def commits(self):
        """The newest step of the job that has come least far."""
        return min(training.commits for training in self.trainings)

    def may_fail(self, trainer, line):
        """Whether the trainer may give up, to be started again: no fault on a single host is a reason."""
        return False

    def listens(self, path=None):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(path or self.socket)
            except OSError:
                return False
            return True

    def holdings(self):
        """The fds and memory files of the daemon."""
        return open_files(self.daemon.pid)

    def status(self):
        made = subprocess.run([self.build / "client/cli/gradsyncctl", "status", "--json", "--socket", self.socket], check=True,
                              capture_output=True, timeout=30)
        return json.loads(made.stdout)

    def refusals(self):
        """How often this daemon has refused requests beyond a quota."""
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
        """Reads the logs, starts dead trainers again, notices hangs."""
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
        """The job in the status of the daemon."""
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
        """Excuses the time until now: this driver has caused it, so it is no hang."""
        for training in self.trainings:
            training.last = max(training.last, now() - self.options.hang / 2)

    def whole(self, training):
        """The members whose state is whole, and which live on."""
        return [t for t in self.members(training)
                if t.whole and not (t.doomed or t.expelled) and t.process.poll() is None]

    def victims(self, most):
        """Chooses members of one job, but never the last one whose state is whole: without it the job would
        rightly end."""
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
        """Stops a trainer, and continues it; the time in between does not count as a hang."""
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
        """Starts a hostile client. It holds its connections and files open until it is killed."""
        return subprocess.Popen([sys.executable, "-B", HOSTILE, "--uid", str(uid), self.socket, *attacks], stdin=subprocess.PIPE,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def flood(self):
        """Connections with garbage, half frames, lying sizes and unwanted fds."""
        self.floods = [other for other in self.floods if other.poll() is None]
        attack = self.random.choice(["garbage=300", "halves=100", "lies=100", "fds=100", "churn=100"])
        self.floods.append(self.hostile(FLOODER, attack))
        return []

    def exhaust(self):
        """Starts a process that takes all connections, jobs and arenas of a uid; the next call kills it."""
        self.end_hogs()
        self.hogs.append(self.hostile(HOG, *self.random.choice([("hog=400",), ("idle=1100",)])))
        return []

    def restart(self, end):
        """Ends the daemon, and starts another one. All members are hit."""
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
        """(faults that hit members, the others). One that could not be made returns None, or no member if it
        hits members."""
        members = [self.kill] * 5 + [self.kill_several] * 2 + [self.fork_and_die] * 2 + [self.stop] * 2
        members += [self.kill_daemon, self.restart_daemon]
        return members, [self.flood, self.exhaust] if os.geteuid() == 0 else []

    def chosen(self, able):
        """One of these kinds at random; kinds that are due come in time."""
        if self.random.random() * (self.options.faults - self.done) >= len(self.due):
            return self.random.choice(able)
        name = self.random.choice(self.due)
        return next(kind for kind in able if kind.__name__ == name)

    def one(self):
        members, others = self.kinds()
        kind = self.chosen(members + others)
        self.look()
        if self.random.random() < 0.9:  # most faults should meet an open step
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
        """The holdings of the daemon before any client."""
        # It listens before it has begun; files that it opens meanwhile do not count.
        self.status()
        while (before := self.holdings())["fds"].count("socket") > 1 or before != self.holdings():
            time.sleep(0.01)            # it has just noticed the end of a client, or has not yet
        return before

    def settled(self, before):
        """Waits until the daemon holds the same as before. Returns [problem]; []: it does."""
        end = now() + 20
        while self.holdings() != before:
            if now() > end:
                return [f"{before} before, {self.holdings()} after"]
            time.sleep(0.05)
        return []

    def left_over(self):
        """Problems with resources that are left when all processes have ended."""
        return []

    def figures(self):
        """More measurements."""
        return {}

    def stop_daemon(self):
        self.daemon.terminate()
        return self.daemon.wait(30)

    def kill_all(self):
        """Kills all processes that are left."""
        for trainer in getattr(self, "trainers", []):
            trainer.process.kill()
        self.daemon.kill()

    def latest(self):
        """The latest faults."""
        return [f"{when:.3f} {kind}" for when, kind in self.begun[-6:]]

    def last_steps(self):
        """The last lines of each trainer's log, and the latest faults."""
        return [f"{trainer}: {trainer.log.read_text(encoding='utf-8').splitlines()[-8:]}"
                for trainer in self.trainers] + self.latest()

    def last_words(self):
        return (self.directory / "daemon.log").read_text().splitlines()[-30:]


def replay(rig):
    """Whether each member has applied each step once: its chain equals the replay's, for each plan. [problem]"""
    problems = []
    for trainer in rig.trainers:
        at = [None] * PLANS             # the latest step in its state
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
    """(time, first argument) of each line with this word in its log."""
    lines = trainer.log.read_text(encoding="utf-8").splitlines()
    return [(stamp, arguments[0]) for stamp, each, arguments, _ in filter(None, map(parsed, lines)) if each == word]


def void_steps(rig):
    """The times of void steps, from the logs of all trainers that noticed: a step counts as often as in the log
    that has it most often."""
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
    """A row for each kind of fault. A void step is put down to the last fault before it. The time from a fault
    to the step after it may contain further faults; `alone` are times without any."""
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
