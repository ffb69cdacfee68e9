# SPDX-License-Identifier: Apache-2.0
"""Every state that a client can be in, and every request that it can send there, for test_states.py and
test_walk.py.

A Scene is one client, the actor, brought into a state, with the others that it needs. requests() gives all
that the actor can say there, right or wrong.
"""
import itertools
import os

import wire
from harness import DEADLINE, wait_until
from peer import PAGE, Arena, Hangup, Own, Peer, agree, small_plan

MOST = (1 << 32) - 1
LONGEST = (1 << 64) - 1
NEXT_NAME = itertools.count()
NEXT_PROBE = itertools.count(1 << 30)
# The kind of answer to each request. A right request has none while a plan is described, or in a step.
ANSWERS = {
    "HELLO": "WELCOME", "JOIN": "JOINED", "LEAVE": "LEFT", "PLAN_BEGIN": None, "PLAN_PARAMS": None, "PLAN_BUCKETS": None,
    "PLAN_COMMIT": "PLAN_ARENA", "PLAN_MAPPED": "PLAN_AGREED", "PLAN_DROP": "PLAN_DROPPED", "READY": None,
    "STAGING": "STAGING_ARENA", "STAGING_MAPPED": "STAGING_READY", "OPERATION": "OPERATION_DONE", "STATUS": "STATUS_END",
    "TRACE": "TRACE_END", "CONTROL": "CONTROL_DONE", "REJOIN": "REJOINED", "REJOIN_PLAN": None, "REJOIN_STAGING": None,
    "REJOIN_END": None, "REGISTER": "REGISTERED", "UNREGISTER": "UNREGISTERED",
}
PLAN = "PLAN"                   # one request in several frames, of which the last has not been said yet
ANSWERS[PLAN] = "PLAN_ARENA"
WAITS = {"JOIN", "PLAN_MAPPED", "OPERATION"}            # answered when others have come so far
PARTS = {"STATUS_DAEMON", "STATUS_CLIENT", "STATUS_JOB", "STATUS_MEMBER", "STATUS_PLAN", "STATUS_WAIT", "STATUS_LINK",
         "TRACE_STEP"}


class Actor(Peer):
    """A client that keeps account of what it has asked, and of each answer."""

    def __init__(self, path, hello=True, returns=False):
        super().__init__(path, hello=False)
        self.asked, self.reason, self.gone = {}, None, False
        self.memory = None              # handle of what it has registered
        self.answers = []
        if hello:
            self.ask("HELLO", "WELCOME", minor=self.minor, program="actor", library="peer", returns=returns)

    def say(self, kind, /, request=None, fds=(), raw=b"", **fields):
        """Sends a request, with bytes after its payload where the schema has no word for it, and keeps
        account of it."""
        if request is None:
            request = next(self.requests)
        if request != 0:
            self.asked[request] = kind
        try:
            payload = wire.message(kind, **fields).SerializeToString() + raw
            self.send_raw(wire.frame(kind, payload, request, len(fds)), fds)
        except (BrokenPipeError, ConnectionResetError):
            self.listen()
        return request

    def note(self, frame):
        """Checks that each request has one answer, of the right kind, and that each answer has a request."""
        for fd in frame.fds:
            os.close(fd)
        if frame.request == 0:
            if frame.kind in ("REFUSED", "RESTARTING"):
                assert frame.message.text, frame
                self.reason = frame
            return
        if frame.kind in PARTS:
            return
        assert frame.request in self.asked, f"an answer to nothing, or a second one: {frame}"
        kind = self.asked.pop(frame.request)
        assert frame.kind in ("REFUSED", ANSWERS[kind]), f"{frame} answers {kind}"
        if frame.kind == "REFUSED":
            assert frame.message.text, frame
        self.answers.append(frame)

    def listen(self):
        """All that the daemon said before it closed."""
        try:
            while True:
                self.note(self._receive(DEADLINE))
        except Hangup:
            self.gone = True

    def sync(self):
        """Everything that was said is dealt with, and everything that was answered has come. Returns the answers."""
        self.answers = []
        if self.gone:
            return []
        for frame in self.early:
            if frame.request != 0 and frame.kind not in PARTS:
                self.note(frame)
        self.early = []
        probe = next(NEXT_PROBE)
        self.asked[probe] = "STATUS"
        try:
            self.send("STATUS", probe, job="nobody's")
            while probe in self.asked:
                self.note(self._receive(DEADLINE))
        except (BrokenPipeError, ConnectionResetError):
            self.listen()
        except Hangup:
            self.gone = True
        return [frame for frame in self.answers if frame.request != probe]

    def awaits(self, request, kind):
        """The daemon has read this request, and answers it when others have come so far."""
        self.asked[request] = kind
        self.status()
        return request

    def settle_asked(self, request):
        """Drops what is silent when it is right."""
        if request in self.asked and ANSWERS[self.asked[request]] is None:
            del self.asked[request]


class Scene:
    """The actor in one of its states."""

    def __init__(self, served):
        self.served = served
        self.name = f"cell{next(NEXT_NAME)}"
        self.peers, self.own, self.former = [], None, []
        self.request = None             # of the plan that the actor describes
        self.actor, self.job, self.generation, self.ordinal, self.step = None, MOST, 1, 0, 1

    def add(self, **options):
        made = Actor(self.served.path, **options)
        self.peers.append(made)
        return made

    def close(self):
        for peer in self.peers:
            peer.close()
        if self.own:
            self.own.close()
        self.own = None

    def memfd(self):
        if self.own is None:
            self.own = Own(2 * PAGE)
        return self.own.fd

    # -- how states are made

    def join(self, peer, world=2, **fields):
        return peer.send("JOIN", job=self.name, min_world=fields.pop("min_world", world), max_world=world, **fields)

    def pair(self, world=2, **fields):
        """Members of a formed job; the first one is the actor."""
        team = [self.add() for _ in range(world)]
        for peer, request in [(peer, self.join(peer, world, **fields)) for peer in team]:
            peer.joined(request)
        self.become(team[0])
        return team

    def become(self, actor, other=None):
        """Sets the client that acts. If it has no handle, it uses that of `other`."""
        self.actor = actor
        known = other or actor
        self.job, self.generation = known.job, known.generation
        for name in ("job", "generation", "rank"):
            setattr(actor, name, getattr(known, name))

    def agree(self, team, **options):
        return agree(team, [small_plan(2, **options) for _ in team])

    def team(self):
        """Such members, with a plan."""
        team = self.pair()
        self.agree(team)
        return team

    def control(self, verb, **fields):
        watcher = self.add()
        return watcher.ask("CONTROL", "CONTROL_DONE", verb=wire.pb.Verb.Value(verb), **fields)

    def bring(self, peers, bucket=0):
        for peer in peers:
            peer.ready(peer.plans[0], bucket)
            peer.status()

    def begin(self, peer):
        """Some of a plan's description."""
        plan = small_plan(2)
        request = next(peer.requests)
        peer.send("PLAN_BEGIN", request, job=peer.job, generation=peer.generation, plan=0, params=2, buckets=2,
                  arena_bytes=plan.bytes, control_bytes=plan.control, reduce=1)
        peer.send("PLAN_PARAMS", request, job=peer.job, plan=0, param=[
            wire.pb.Param(name=name, dtype=1, shape=shape, bucket=bucket) for name, shape, bucket in plan.params])
        peer.status()
        self.request = request

    def take_former(self):
        """The job is one of a former daemon, whose members have not come back."""
        self.former = self.served.former()
        self.name = self.former[0].name

    def secret(self, rank):
        """That of a member of the job; of no job, if there is none."""
        known = [each.secret for each in (*self.former, *self.peers) if each.rank == rank and each.secret]
        return known[0] if known else bytes([rank + 1] * 32)

    def rejoin(self, peer, rank):
        peer.job = peer.ask("REJOIN", "REJOINED", job=self.name, secret=self.secret(rank), generation=1, wait_ms=60000).job
        peer.generation, peer.rank = 1, rank
        return peer

    def tell_plan(self, peer):
        plan = small_plan(2)
        arena, control = Own(plan.bytes), Own(plan.control)
        request = peer.plan_send(plan, commit=False)
        peer.send("REJOIN_PLAN", request, fds=[arena.fd, control.fd], job=peer.job, plan=0, step=0)
        arena.close()
        control.close()
        peer.status()


def told_of_others(witness):
    """The status of clients, and of all jobs except the healthy one."""
    told = witness.status()
    healthy = {job.job for job in told["STATUS_JOB"] if job.name == "healthy"}
    kinds = ("STATUS_CLIENT", "STATUS_JOB", "STATUS_MEMBER", "STATUS_PLAN", "STATUS_WAIT")
    return "\n".join(f"{kind}: {' '.join(str(part).split())}" for kind in kinds for part in told.get(kind, [])
                     if kind == "STATUS_CLIENT" or part.job not in healthy)


def forget(served):
    """Gives up the empty jobs that wait for members after a restart, as an operator may, and lets go what is
    held back."""
    witness = served.healthy.peers[0]

    def order(**fields):
        request = witness.send("CONTROL", **fields)
        while witness.receive().request != request:
            pass

    def alone():
        order(verb=wire.pb.RESUME)
        jobs = [job for job in witness.status()["STATUS_JOB"] if job.name != "healthy"]
        for job in jobs:
            for rank in range(job.world):
                order(verb=wire.pb.EVICT, job=job.name, rank=rank)
        return not jobs

    try:
        wait_until(alone, "the end of all other jobs")
    except AssertionError as error:
        log = served.daemon.log[-4000:]
        raise AssertionError(f"{error}\n{told_of_others(witness)}\nlog:\n{log}") from None


# -- the states. Each leaves the actor in it, and returns what must go on to be possible as long as all was refused; None if
# there is nothing.

def before_hello(scene):
    scene.actor = scene.add(hello=False)


def of_no_job(scene):
    scene.actor = scene.add()


def forming(scene):
    scene.actor = scene.add()
    request = scene.join(scene.actor)
    scene.actor.asked[request] = "JOIN"

    def formed():
        other = scene.add()
        other.joined(scene.join(other))
    return formed


def waits(scene, **fields):
    team = [scene.add() for _ in range(2)]
    asked = [scene.join(peer, fields.get("world", 2), min_world=2) for peer in team]
    for peer, request in zip(team, asked):
        peer.joined(request)
    scene.agree(team)
    scene.bring(team[:1])
    actor = scene.add()
    request = scene.join(actor, min_world=2, **fields)
    actor.asked[request] = "JOIN"
    actor.status()
    scene.become(actor, team[0])
    return lambda: finish(scene, team[1:], team, [0])


def spare(scene):
    return waits(scene, spare=True)


def growth(scene):
    return waits(scene, world=3)


def finish(scene, bringing, team, buckets):
    """The step that is open, or the next one."""
    for bucket in buckets:
        scene.bring([peer for peer in bringing if peer in team], bucket)
    if 1 not in buckets:
        scene.bring(team, 1)
    for peer in team:
        assert peer.outcome(peer.plans[0])[0] == "COMMITTED"


def member(scene):
    team = scene.pair()
    return lambda: scene.agree(team)


def describing(scene):
    team = scene.pair()
    scene.begin(team[0])


def described(scene):
    team = scene.pair()
    plans = [small_plan(2) for _ in team]
    requests = [peer.plan_send(plan) for peer, plan in zip(team, plans)]
    frame = team[0].expect("PLAN_ARENA", requests[0])
    arena = Arena(team[0].fds[0], frame.bytes)
    for fd in team[0].fds:
        os.close(fd)

    def goes_on():
        mapped = [team[0].send("PLAN_MAPPED", job=scene.job, plan=0), team[1].plan_arena(plans[1], requests[1])]
        arena.close()
        for peer, request in zip(team, mapped):
            peer.expect("PLAN_AGREED", request)
    return goes_on


def mapped_alone(scene):
    team = scene.pair()
    plans = [small_plan(2) for _ in team]
    request = team[0].awaits(team[0].plan_arena(plans[0], team[0].plan_send(plans[0])), "PLAN_MAPPED")

    def goes_on():
        team[1].expect("PLAN_AGREED", team[1].plan_arena(plans[1], team[1].plan_send(plans[1])))
        team[0].sync()
        assert request not in team[0].asked
    return goes_on


def agreed(scene):
    team = scene.team()
    return lambda: finish(scene, team, team, [0])


def own_in(scene):
    team = scene.team()
    scene.bring(team[:1])
    return lambda: finish(scene, team[1:], team, [0])


def own_not_in(scene):
    team = scene.team()
    scene.bring(team[1:])
    return lambda: finish(scene, team[:1], team, [0])


def registered(scene):
    team = scene.pair()
    actor = team[0]
    actor.memory = actor.ask("REGISTER", "REGISTERED", fds=[scene.memfd()], job=actor.job, offset=0, bytes=2 * PAGE).memory
    plans = [small_plan(2) for _ in team]
    scene.own.handle = actor.memory
    scene.own.place(plans[0])
    agree(team, plans)
    return lambda: finish(scene, team, team, [0])


def in_operation(scene):
    team = scene.pair()
    team[0].staging().close()
    request = team[0].awaits(team[0].operation("BARRIER"), "OPERATION")

    def goes_on():
        team[1].expect("OPERATION_DONE", team[1].operation("BARRIER"))
        team[0].sync()
        assert request not in team[0].asked
    return goes_on


def replacing(scene, world=2):
    team = scene.pair(world, rejoin_grace_ms=60000)
    scene.agree(team)
    scene.bring(team[:1])
    for peer in team[1:]:
        peer.close()
    assert team[0].outcome(team[0].plans[0])[0] == "VOID"
    return team


def survivor(scene):
    replacing(scene)


def successor(scene):
    team = replacing(scene, 3)
    actor = scene.add()
    actor.awaits(scene.join(actor, 3), "JOIN")
    scene.become(actor, team[0])


def arrived(scene):
    """The successor has its place, and no plan yet."""
    team = replacing(scene)
    actor = scene.add()
    actor.joined(scene.join(actor))
    scene.become(actor)
    team[0].expect("NEWGEN")


def superseded(scene):
    team = [scene.add() for _ in range(2)]
    asked = [scene.join(peer, rank=rank, instance=1, rejoin_grace_ms=60000) for rank, peer in enumerate(team)]
    for peer, request in zip(team, asked):
        peer.joined(request)
    scene.become(team[0])
    scene.join(scene.add(), rank=0, instance=2)
    scene.peers[-1].status()


def evicted(scene):
    scene.pair()
    scene.control("EVICT", job=scene.name, rank=0)


def lost(scene):
    team = scene.team()
    scene.bring(team[:1])
    team[1].close()
    team[0].expect("LOST")


def left(scene):
    scene.pair()[0].leave()


def left_by_the_other(scene):
    team = scene.team()
    team[1].leave()
    team[0].expect("LOST")


def dropped_by_the_other(scene):
    team = scene.team()
    team[1].ask("PLAN_DROP", "PLAN_DROPPED", job=team[1].job, plan=0)


def paused(scene):
    team = scene.team()
    scene.control("PAUSE", job=scene.name)

    def goes_on():
        scene.control("RESUME", job=scene.name)
        finish(scene, team, team, [0])
    return goes_on


def paused_with_all(scene):
    team = scene.team()
    scene.control("PAUSE", job=scene.name)
    for bucket in range(2):
        scene.bring(team, bucket)

    def goes_on():
        scene.control("RESUME", job=scene.name)
        for peer in team:
            assert peer.outcome(peer.plans[0])[0] == "COMMITTED"
    return goes_on


def draining(scene):
    team = scene.team()
    scene.control("DRAIN")
    scene.bring(team[:1])

    def goes_on():
        scene.control("RESUME")
        finish(scene, team[1:], team, [0])
    return goes_on


def back_alone(scene):
    scene.take_former()
    scene.become(scene.rejoin(scene.add(), 0))


def back_describing(scene):
    scene.take_former()
    actor = scene.rejoin(scene.add(), 0)
    scene.become(actor)
    scene.begin(actor)


def back_with_plan(scene):
    scene.take_former()
    actor = scene.rejoin(scene.add(), 0)
    scene.become(actor)
    scene.tell_plan(actor)


def back_and_told(scene):
    back_with_plan(scene)
    scene.actor.send("REJOIN_END", job=scene.actor.job, next_plan=1)
    scene.actor.status()

    def goes_on():
        other = scene.rejoin(scene.add(), 1)
        scene.tell_plan(other)
        other.send("REJOIN_END", job=other.job, next_plan=1)
        for peer in (scene.actor, other):
            peer.expect("RESUMED")
    return goes_on


def new_in_the_old_job(scene):
    """It waits for a place of those who are not back yet."""
    scene.take_former()
    back = scene.rejoin(scene.add(), 0)
    actor = scene.add()
    actor.awaits(scene.join(actor), "JOIN")
    scene.become(actor, back)


def came_before_the_old_job(scene):
    scene.take_former()
    actor = scene.add()
    actor.awaits(scene.join(actor), "JOIN")
    scene.become(actor, scene.rejoin(scene.add(), 0))


STATES = {made.__name__: made for made in (
    before_hello, of_no_job, forming, spare, growth, member, describing, described, mapped_alone, agreed, own_in, own_not_in,
    registered, in_operation, survivor, successor, arrived, superseded, evicted, lost, left, left_by_the_other,
    dropped_by_the_other, paused, paused_with_all, draining, back_alone, back_describing, back_with_plan, back_and_told,
    new_in_the_old_job, came_before_the_old_job)}


# -- the requests

def handles(scene):
    return [scene.job, scene.served.healthy.peers[0].job, 0, MOST]


def of_plans(scene):
    """Requests that name a plan: (kind, fields)."""
    actor = scene.actor
    plan = small_plan(2)
    begin = {"job": scene.job, "generation": scene.generation, "plan": 0, "params": 2, "buckets": 2, "arena_bytes": plan.bytes,
             "control_bytes": plan.control, "reduce": 1}
    params = [wire.pb.Param(name=name, dtype=1, shape=shape, bucket=bucket) for name, shape, bucket in plan.params]
    buckets = [wire.pb.Bucket(dtype=1, offset=offset, bytes=size, payload=payload) for offset, size, payload in plan.buckets]
    for job in handles(scene):
        yield "PLAN_BEGIN", {**begin, "job": job}
    for change in ({"plan": 1}, {"plan": MOST}, {"generation": 0}, {"generation": min(scene.generation + 1, MOST)}, {"generation": MOST},
                   {"params": 0}, {"params": MOST}, {"buckets": 0}, {"buckets": MOST}, {"arena_bytes": 0},
                   {"arena_bytes": LONGEST}, {"arena_bytes": 1 << 46}, {"control_bytes": 0}, {"reduce": 0},
                   {"raw": b"\x40\x63"}):
        yield "PLAN_BEGIN", {**begin, **change}
    for number in (0, 1, MOST):
        address = {"job": scene.job, "plan": number}
        yield "PLAN_PARAMS", {**address, "param": params}
        yield "PLAN_PARAMS", address
        yield "PLAN_BUCKETS", {**address, "bucket": buckets}
        yield "PLAN_COMMIT", address
        yield "PLAN_MAPPED", address
        yield "PLAN_DROP", address
    for memory in (actor.memory or 1, MOST):
        yield "PLAN_BUCKETS", {"job": scene.job, "plan": 0, "bucket": [
            wire.pb.Bucket(dtype=1, offset=0, bytes=1024, payload=1024, memory=memory)]}
    for job in handles(scene)[1:]:
        for kind in ("PLAN_PARAMS", "PLAN_BUCKETS", "PLAN_COMMIT", "PLAN_MAPPED", "PLAN_DROP"):
            yield kind, {"job": job, "plan": 0}


def of_steps(scene):
    ready = {"job": scene.job, "generation": scene.generation, "plan": 0, "step": 1, "bucket": 0}
    for change in ({}, {"bucket": 1}, {"bucket": 2}, {"bucket": MOST}, {"plan": 1}, {"plan": MOST}, {"step": 0}, {"step": 2},
                   {"step": LONGEST}, {"generation": 0}, {"generation": min(scene.generation + 1, MOST)}, {"generation": MOST},
                   {"divisor": MOST}, {"absent": b"\x01"}, {"absent": b"\xff"}, {"absent": b""},
                   *({"job": job} for job in handles(scene)[1:])):
        yield "READY", {**ready, **change}


def of_operations(scene):
    call = {"job": scene.job, "generation": scene.generation, "sequence": 0, "kind": 1}
    data = {**call, "dtype": 1, "reduce": 1, "bytes": 64, "input": 0, "output": 0}
    for job in handles(scene):
        yield "STAGING", {"job": job}
        yield "STAGING_MAPPED", {"job": job}
        yield "OPERATION", {**call, "job": job}
    for change in ({"kind": 0}, {"raw": b"\x20\x63"}, {"sequence": 1}, {"sequence": LONGEST}, {"generation": 0}, {"generation": MOST}):
        yield "OPERATION", {**call, **change}
    for kind in range(2, 6):
        yield "OPERATION", {**data, "kind": kind}
    for change in ({"bytes": LONGEST}, {"input": LONGEST - 63}, {"output": 1 << 63}, {"root": MOST, "kind": 2}, {"raw": b"\x28\x63"}):
        yield "OPERATION", {**data, "kind": 5, **change}


def of_memory(scene):
    for job in handles(scene):
        yield "REGISTER", {"job": job, "offset": 0, "bytes": PAGE, "fd": True}
        yield "UNREGISTER", {"job": job, "memory": scene.actor.memory or 1}
    yield "REGISTER", {"job": scene.job, "offset": 0, "bytes": PAGE}
    yield "REGISTER", {"job": scene.job, "offset": LONGEST - PAGE + 1, "bytes": PAGE, "fd": True}
    yield "REGISTER", {"job": scene.job, "offset": 0, "bytes": LONGEST, "fd": True}
    yield "UNREGISTER", {"job": scene.job, "memory": 0}
    yield "UNREGISTER", {"job": scene.job, "memory": MOST}


def of_places(scene):
    join = {"job": scene.name, "min_world": 2, "max_world": 2}
    for change in ({}, {"rank": 0}, {"rank": 1}, {"rank": 1, "instance": 9}, {"rank": MOST}, {"slot": 1}, {"spare": True},
                   {"spare": True, "rank": 1}, {"min_world": 0}, {"max_world": MOST}, {"max_world": 3}, {"token": "another"},
                   {"instance": 1}, {"incarnation": 1}, {"job": f"{scene.name}-alone", "min_world": 1, "max_world": 1},
                   {"job": f"{scene.name}-waits"}, {"job": "healthy"}):
        yield "JOIN", {**join, **change}
    rejoin = {"job": scene.name, "secret": scene.secret(1), "generation": 1, "wait_ms": 60000}
    for change in ({}, {"secret": scene.secret(0)}, {"generation": 0}, {"generation": 2}, {"generation": MOST}, {"wait_ms": 0},
                   {"wait_ms": LONGEST}, {"secret": b""}, {"secret": bytes(32)}, {"secret": scene.secret(1)[:31]},
                   {"secret": scene.secret(1) + b"\0"}, {"secret": bytes([255] * 32)}, {"job": "healthy"},
                   {"job": "healthy", "secret": scene.served.healthy.peers[1].secret}, {"job": f"{scene.name}-old"}):
        yield "REJOIN", {**rejoin, **change}
    for job in handles(scene):
        yield "REJOIN_PLAN", {"job": job, "plan": 0, "step": 0, "fd": True}
        yield "REJOIN_STAGING", {"job": job, "bytes": PAGE, "fd": True}
        yield "REJOIN_END", {"job": job}
    for change in ({"plan": MOST}, {"step": 1}, {"step": LONGEST}):
        yield "REJOIN_PLAN", {"job": scene.job, "plan": 0, "step": 0, "fd": True, **change}
    yield "REJOIN_END", {"job": scene.job, "next_plan": MOST}
    yield "REJOIN_PLAN", {"job": scene.job, "plan": 0}
    yield "REJOIN_STAGING", {"job": scene.job, "bytes": PAGE}
    for job in handles(scene):
        yield "LEAVE", {"job": job}


def of_others(scene):
    yield "HELLO", {"minor": 0}
    yield "STATUS", {}
    yield "STATUS", {"job": scene.name}
    yield "TRACE", {"job": scene.name}
    yield "TRACE", {"job": scene.name, "record": MOST, "after": LONGEST, "until_us": 0}
    yield "TRACE", {"job": scene.name, "nodes": True}
    yield "TRACE", {"job": scene.name, "node": MOST}
    for verb in (0, 1, 3, 4):
        yield "CONTROL", {"verb": verb, "job": scene.name}
    yield "CONTROL", {"job": scene.name, "raw": b"\x08\x63"}
    for rank in (0, 1, MOST):
        yield "CONTROL", {"verb": 1, "job": scene.name, "rank": rank}
    yield "CONTROL", {"verb": 3, "job": "nobody's"}


def of_nothing(scene):
    """Requests without any field. They are well-formed, as no field is required, but never right."""
    return [(kind, {}) for kind in ANSWERS if kind not in (PLAN, "HELLO", "STATUS", "TRACE", "CONTROL")]


def requests(scene):
    """[(kind, fields)]: all that this client can ask, right and wrong."""
    groups = (of_plans, of_steps, of_operations, of_memory, of_places, of_others, of_nothing)
    return [each for group in groups for each in group(scene)]


# Requests that are wrong from a member that has just joined, as another one has to come first.
LATER = {"PLAN_PARAMS", "PLAN_BUCKETS", "PLAN_COMMIT", "PLAN_MAPPED", "PLAN_DROP", "STAGING_MAPPED", "READY",
         "UNREGISTER", "REJOIN_PLAN", "REJOIN_STAGING", "REJOIN_END"}


def must_be_refused(scene, state, kind, fields):
    """Whether the daemon must refuse the request."""
    if state == "before_hello" or kind == "HELLO":
        return state != "before_hello" or kind != "HELLO"
    if kind in ("STATUS", "TRACE", "CONTROL"):
        return False
    if kind in ("JOIN", "REJOIN"):
        return not fields
    if fields.get("job") != scene.job or scene.job == MOST:         # none, or one of which it is no member
        return True
    if state in ("spare", "growth"):        # it has no place yet, and nothing that it says counts for anybody
        return kind != "LEAVE"
    return state == "member" and kind in LATER and fields.get("generation") in (None, scene.generation)


def ask(scene, kind, fields):
    """The actor says it; returns the request's number."""
    fields = dict(fields)
    fds = [scene.memfd()] if fields.pop("fd", False) else []
    if kind == "READY":
        return scene.actor.say(kind, 0, **fields)
    number = scene.request if kind in ("PLAN_PARAMS", "PLAN_BUCKETS", "PLAN_COMMIT", "REJOIN_PLAN") else None
    return scene.actor.say(kind, number, fds=fds, **fields)
