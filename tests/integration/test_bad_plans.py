# SPDX-License-Identifier: Apache-2.0
"""Plans that cannot be, plans that members disagree on, memory that was never touched, and READY at the wrong
moment."""
import copy
import ctypes
import fcntl
import itertools
import os

import pytest

import wire
from peer import PAGE, Arena, Plan, Refused, agree, small_plan

TOP = (1 << 64) - 1


def refused_plan(served, proposal, **changes):
    """A job of one makes a proposal; it must be refused, and the connection must go on."""
    crew = served.crew("odd", 1, plan=None)
    peer = crew.peers[0]
    try:
        answer = peer.refusal(peer.plan_send(proposal, **changes))
    except (BrokenPipeError, ConnectionResetError):     # the daemon hung up before it had all of the plan
        answer = peer.hangup()
    return peer, answer


def still_usable(served, peer):
    """The same connection can still agree on a proper plan, or was told that it is at an end."""
    served.go(1)
    assert peer.status()["STATUS_DAEMON"]


# -- one member

ODD_BEGIN = {
    "params-huge": {"params": 0xFFFFFFFF},
    "buckets-above-limit": {"buckets": 16385},
    "buckets-huge": {"buckets": 0xFFFFFFFF},
    "no-buckets": {"buckets": 0},
    "arena-huge": {"arena_bytes": TOP},
    "arena-above-limit": {"arena_bytes": (1 << 46) + PAGE},
    "arena-none": {"arena_bytes": 0},
    "arena-too-small": {"arena_bytes": PAGE},
    "diagnosis-odd": {"diagnosis_bytes": 5000},
    "diagnosis-huge": {"diagnosis_bytes": TOP - PAGE + 1},
    "diagnosis-all": {"diagnosis_bytes": 1 << 46},
    "reduce-none": {"reduce": 0},
    "ordinal-skipped": {"plan": 5},
    "ordinal-huge": {"plan": 0xFFFFFFFF},
    "generation-zero": {"generation": 0},
    "generation-ahead": {"generation": 2},
    "generation-far-ahead": {"generation": 99},
}


@pytest.mark.parametrize("what", sorted(ODD_BEGIN))
def test_odd_begin(serve, what):
    served = serve()
    peer, answer = refused_plan(served, small_plan(2), **ODD_BEGIN[what])
    assert answer.code in ("INVALID", "STATE", "STALE", "QUOTA", "UNSUPPORTED", "PROTOCOL"), answer
    assert answer.text
    if answer.code != "PROTOCOL":
        still_usable(served, peer)


def test_a_number_that_is_used_again(serve):
    """A plan that was refused takes nothing away from the next one, though its frames have the same request."""
    peer = serve().alone("odd")
    request = peer.plan_send(small_plan(2), arena_bytes=1)
    assert peer.refusal(request).code == "INVALID"
    peer.requests = itertools.chain([request], peer.requests)
    plan = small_plan(2, ordinal=1)
    assert peer.plan_send(plan) == request
    peer.expect("PLAN_AGREED", peer.plan_arena(plan, request))


def odd(change):
    plan = small_plan(3)
    change(plan)
    return plan


def set_bucket(index, part, value):
    def change(plan):
        plan.buckets[index][part] = value
    return change


ODD_BUCKETS = {
    "offset-unaligned": set_bucket(1, 0, 2 * PAGE + 64),
    "offset-beyond": set_bucket(2, 0, 1 << 40),
    "bytes-beyond": set_bucket(2, 1, 1 << 40),
    "bytes-wrap": set_bucket(2, 1, TOP),
    "bytes-too-few": set_bucket(1, 1, 512),
    "payload-more-than-bytes": set_bucket(1, 2, 2048),
    "payload-huge": set_bucket(1, 2, TOP),
    "overlap-same": set_bucket(2, 0, 2 * PAGE),
    "param-of-huge-bucket": lambda plan: plan.params.__setitem__(1, ("p1", [256], 0xFFFFFFFF)),
    "bucket-without-params": lambda plan: plan.params.__setitem__(1, ("p1", [256], 0)),
    "shape-wraps-in-bytes": lambda plan: plan.params.__setitem__(1, ("p1", [1 << 62], 1)),
    "shape-of-many-dimensions": lambda plan: plan.params.__setitem__(1, ("p1", [1] * 9, 1)),
    "shape-larger-than-bucket": lambda plan: plan.params.__setitem__(1, ("p1", [1 << 20], 1)),
    "name-long": lambda plan: plan.params.__setitem__(1, ("x" * 256, [256], 1)),
}


@pytest.mark.parametrize("what", sorted(ODD_BUCKETS))
def test_odd_layout(serve, what):
    served = serve()
    peer, answer = refused_plan(served, odd(ODD_BUCKETS[what]))
    assert answer.code in ("INVALID", "QUOTA", "PROTOCOL"), answer
    assert answer.text
    if answer.code != "PROTOCOL":
        still_usable(served, peer)


@pytest.mark.parametrize("dtype, reduce", [("I32", "AVG"), ("I64", "AVG"), ("U8", "AVG")])
def test_average_of_integers(serve, dtype, reduce):
    served = serve()
    element = {"I32": 4, "I64": 8, "U8": 1}[dtype]
    peer, answer = refused_plan(served, small_plan(1, dtype=dtype, reduce=reduce, element=element))
    assert answer.code in ("INVALID", "UNSUPPORTED"), answer
    still_usable(served, peer)


def test_partly_populated_arena(serve):
    """One page short is short."""
    peer = serve().alone("lazy")
    plan = small_plan(4, elements=PAGE)
    request = peer.plan_send(plan)
    peer.expect("PLAN_ARENA", request)
    plan.arena = Arena(peer.fds[0], plan.bytes, populate=False)
    os.close(peer.fds[0])
    peer.plans[0] = plan
    for page in range(0, plan.bytes, PAGE):
        if page != plan.bytes // PAGE // 2 * PAGE:
            plan.arena.populate(page, page + PAGE)
    answer = peer.refusal(peer.send("PLAN_MAPPED", job=peer.job, plan=0))
    assert answer.code in ("INVALID", "STATE"), answer


def test_arena_is_sealed(serve):
    """A member can neither shrink the arena under the daemon nor grow it."""
    peer = serve().alone("sealed")
    plan = small_plan(1)
    peer.expect("PLAN_ARENA", peer.plan_send(plan))
    fd = peer.fds[0]
    try:
        for size in (0, PAGE, plan.bytes + PAGE):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        seals = fcntl.fcntl(fd, 1034)   # F_GET_SEALS
        assert seals & 7 == 7           # SEAL, SHRINK, GROW
    finally:
        os.close(fd)


def test_holes_punched_into_an_arena_in_use(serve, build):
    """A member that gives pages back after the agreement hurts its own job at most; the daemon goes on."""
    crew = serve().crew("holes", 2, lambda ordinal: small_plan(2, elements=64 * 1024, ordinal=ordinal))
    peer, plan = crew.peers[0], crew.plans[0][0]
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(plan.arena.map))
    assert libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(plan.bytes), 9) == 0         # MADV_REMOVE
    for member, mine in zip(crew.peers, crew.plans[0]):
        for bucket in range(2):
            member.ready(mine, bucket)
    assert crew.peers[1].outcome(crew.plans[0][1])[0] == "VOID"
    reason = peer.hangup()
    assert reason.code == "INVALID" and "holes were punched" in reason.text, reason


# -- members that disagree

def changed(change):
    """The first plan, and a second one that differs by `change`."""
    first = Plan([("a.weight", [16, 16], 1), ("a.bias", [16], 1), ("b.weight", [64], 0), ("b.bias", [8], 0)])
    params = copy.deepcopy(first.params)
    return first, change(params)


def swap_order(params):
    params[0], params[1] = params[1], params[0]
    return Plan(params)


def rename(params):
    params[2] = ("b.weigth", [64], 0)
    return Plan(params)


def reshape(params):
    params[0] = ("a.weight", [8, 32], 1)
    return Plan(params)


def shorter(params):
    return Plan(params[:3])


def longer(params):
    return Plan([*params, ("c", [4], 0)])


def other_buckets(params):
    params[1] = ("a.bias", [16], 0)
    return Plan(params)


DIFFERENCES = {
    "order": (swap_order, '"a.bias"'), "name": (rename, '"b.weigth"'), "shape": (reshape, '"a.weight"'),
    "fewer": (shorter, '"b.bias"'), "more": (longer, '"c"'), "buckets": (other_buckets, '"a.bias"'),
    "dtype": (lambda params: Plan(params, dtype="F64", element=8), '"a.weight" is f64'),
    "reduction": (lambda params: Plan(params, reduce="SUM"), "wants the sum"),
}


@pytest.mark.parametrize("change, said", DIFFERENCES.values(), ids=DIFFERENCES)
def test_plans_that_differ(serve, change, said):
    """Everyone is told: which rank, which parameter."""
    first, second = changed(change)
    crew = serve().crew("different", 4, plan=None)
    for answer in disagree(crew, [*(copy.deepcopy(first) for _ in range(3)), second]):
        assert answer.code == "PLAN_MISMATCH" and answer.rank == 3, answer
        assert said in answer.text and "rank 3" in answer.text, answer


def disagree(crew, plans):
    """Every member proposes its plan, the last one when the others' arenas are there; returns the refusal
    that each gets."""
    answers, mapped = [], []
    for peer, plan in zip(crew.peers[:-1], plans):
        mapped.append(peer.plan_arena(plan, peer.plan_send(plan)))
    for peer in crew.peers[:-1]:
        peer.status()                   # answered: PLAN_MAPPED has been read
    mapped.append(crew.peers[-1].plan_send(plans[-1]))
    for peer, request in zip(crew.peers, mapped):
        answers.append(peer.refusal(request))
    return answers


def test_the_odd_one_comes_first(serve):
    """Then the others differ from it; whoever is named, both values are."""
    first, second = changed(rename)
    crew = serve().crew("different", 2, plan=None)
    for answer in disagree(crew, [second, first]):
        assert answer.code == "PLAN_MISMATCH" and "rank 0" in answer.text, answer
        assert "b.weigth" in answer.text and "b.weight" in answer.text


def test_all_at_once(serve):
    """Nobody waits for anybody: each is told once, before or after it got its arena."""
    first, second = changed(rename)
    crew = serve().crew("different", 4, plan=None)
    plans = [copy.deepcopy(first), copy.deepcopy(first), second, copy.deepcopy(first)]
    requests = [peer.plan_send(plan) for peer, plan in zip(crew.peers, plans)]
    for peer, plan, request in zip(crew.peers, plans, requests):
        try:
            request = peer.plan_arena(plan, request)
        except Refused as refused:
            assert refused.code == "PLAN_MISMATCH"
            continue
        assert peer.refusal(request).code == "PLAN_MISMATCH"


def shifted(plan):
    """The same parameters and buckets, at other places of a larger arena."""
    for bucket in plan.buckets:
        bucket[0] += PAGE
    plan.places = [(at + PAGE, size) for at, size in plan.places]
    plan.bytes += PAGE
    return plan


def shifted_within(plan):
    """The same, in an arena of the same size: the first plan has a page to spare."""
    shifted(plan)
    plan.bytes -= PAGE
    return plan


def exchanged(plan):
    """The same buckets, in each other's places."""
    (first, size, _), (second, other, _) = plan.buckets
    assert size <= PAGE and other <= PAGE
    plan.buckets[0][0], plan.buckets[1][0] = second, first
    return plan


def stretched(plan):
    """A bucket that is larger than its parameters need."""
    plan.buckets[0][1] += 64
    return plan


@pytest.mark.parametrize("change", [shifted, shifted_within, exchanged, stretched])
def test_layouts_that_differ(serve, change):
    """Members of different library versions could lay their arenas out differently: either it is refused, or
    the sums are right."""
    crew = serve().crew("different", 2, plan=None)
    plans = [small_plan(2), small_plan(2)]
    for plan in plans:
        plan.bytes += PAGE
    change(plans[1])
    first = crew.peers[0].plan_arena(plans[0], crew.peers[0].plan_send(plans[0]))
    try:
        second = crew.peers[1].plan_arena(plans[1], crew.peers[1].plan_send(plans[1]))
        for peer, request in zip(crew.peers, (first, second)):
            peer.expect("PLAN_AGREED", request)
    except Refused as refused:
        assert refused.code in ("PLAN_MISMATCH", "INVALID"), refused
    else:
        if change is exchanged:
            plans[1].places.reverse()
        crew.plans = [plans]
        crew.go(2)


def agree_on_the_next(crew):
    """A proper plan, after one that was not to be."""
    crew.plans = [None, agree(crew.peers, [small_plan(1, ordinal=1) for _ in crew.peers])]


def test_after_a_mismatch_the_members_can_agree(serve):
    """The ordinal is spent; the next plan may be a proper one."""
    crew = serve().crew("second-thoughts", 2, plan=None)
    first, second = changed(rename)
    disagree(crew, [first, second])
    agree_on_the_next(crew)
    crew.go(3, ordinal=1)


def test_plan_timeout_names_the_missing(serve):
    crew = serve().crew("waiting", 3, plan=None)
    plan = small_plan(1)
    peer = crew.peers[1]
    mapped = peer.plan_arena(plan, peer.plan_send(plan, timeout_ms=1000))
    answer = peer.refusal(mapped)
    assert answer.code == "TIMEOUT" and "0" in answer.text and "2" in answer.text, answer


def test_who_comes_too_late_for_a_plan_hears_it_and_makes_the_next_one(serve):
    """A member whose own call failed before the daemon heard of it asks with an ordinal that the others have used up: it is told
    so at once, not after another time-out, and from then on all count alike."""
    crew = serve().crew("late", 2, plan=None)
    early, late = crew.peers
    plan = small_plan(1)
    told = early.refusal(early.plan_arena(plan, early.plan_send(plan, timeout_ms=1000)))
    assert told.code == "TIMEOUT", told
    heard = late.refusal(late.plan_send(small_plan(1)))
    assert (heard.code, heard.text) == (told.code, told.text), heard
    agree_on_the_next(crew)
    crew.go(2, ordinal=1)


def test_plans_up_to_the_limit(serve):
    """A plan of 5,000 parameters and 1,000 buckets goes through its chunks."""
    big = [(f"layer{number}", [4], number % 1000) for number in range(5000)]
    crew = serve().crew("large", 2, lambda ordinal: Plan(big, ordinal))
    crew.go(2)


def test_too_many_plans(serve):
    peer = serve().alone("many")
    for ordinal in range(64):
        plan = small_plan(1, elements=4, ordinal=ordinal)
        peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
    answer = peer.refusal(peer.plan_send(small_plan(1, elements=4, ordinal=64)))
    assert answer.code in ("QUOTA", "INVALID"), answer
    peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=3)
    plan = small_plan(1, elements=4, ordinal=64)
    peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))


def test_a_plan_is_not_dropped_in_its_step(serve):
    crew = serve().crew("busy", 2)
    peer, plan = crew.peers[0], crew.plans[0][0]
    peer.ready(plan, 0)
    answer = peer.refusal(peer.send("PLAN_DROP", job=peer.job, plan=0))
    assert answer.code == "STATE" and "step" in answer.text, answer
    crew.peers[1].ready(crew.plans[0][1], 0)
    for peer, plan in zip(crew.peers, crew.plans[0]):
        assert peer.outcome(plan)[0] == "COMMITTED"
        peer.ask("PLAN_DROP", "PLAN_DROPPED", job=peer.job, plan=0)


def test_requests_need_a_number(serve):
    """0 answers nothing, so it cannot ask."""
    peer = serve().alone("numbered")
    for kind, fields in (("JOIN", {"min_world": 1, "max_world": 1}), ("PLAN_MAPPED", {"plan": 0}),
                         ("OPERATION", {"generation": peer.generation, "sequence": 0, "kind": 1})):
        fields = {"job": "nameless" if kind == "JOIN" else peer.job, **fields}
        peer.send(kind, 0, **fields)
        assert peer.refusal(0).code in ("INVALID", "PROTOCOL", "STATE"), kind


# -- READY

def evicted(served, change, *codes):
    """A member sends one wrong READY: it is told why and put out; the other one loses it."""
    crew = served.crew("wrong", 2, lambda ordinal: small_plan(2, ordinal=ordinal))
    crew.go(2)
    change(*crew.peers, *crew.plans[0])
    reason = crew.peers[0].hangup()
    assert reason is not None and reason.code in codes, reason
    lost = crew.peers[1].expect("LOST")
    assert lost.rank == 0 and lost.cause == wire.pb.EVICTED and lost.text
    served.go()
    return reason


def test_ready_twice(serve):
    served = serve()

    def twice(one, other, plan, same):
        one.ready(plan, 0)
        one.ready(plan, 0)

    assert "0" in evicted(served, twice, "STATE", "INVALID").text


@pytest.mark.parametrize("fields", [{"bucket": 2}, {"bucket": 0xFFFFFFFF}, {"step": 4}, {"step": 0},
                                    {"step": TOP}, {"plan": 1}, {"plan": 0xFFFFFFFF},
                                    {"generation": 99}, {"absent": b"\xff\xff"}, {"step": None}],
                         ids=lambda fields: "-".join(f"{key}={value}" for key, value in fields.items()))
def test_wrong_ready(serve, fields):
    served = serve()

    def wrong(one, other, plan, same):
        said = {"job": one.job, "generation": one.generation, "plan": 0, "step": plan.step, "bucket": 0}
        said.update(fields)
        one.send("READY", 0, **{key: value for key, value in said.items() if value is not None})

    evicted(served, wrong, "STATE", "INVALID", "STALE", "PROTOCOL")


def test_ready_of_the_next_step_before_the_end_of_this_one(serve):
    served = serve()

    def ahead(one, other, plan, same):
        one.ready(plan, 0)
        one.ready(plan, 1)
        one.ready(plan, 0, step=plan.step + 1)

    evicted(served, ahead, "STATE", "INVALID")


def test_ready_of_an_older_generation_is_absorbed(serve):
    """Law 3: it is answered by nothing, and nothing happens."""
    crew = serve().crew("late", 2)
    crew.peers[0].ready(crew.plans[0][0], 0, generation=0)
    crew.go(3)


def test_divisors_that_differ(serve):
    """Members that divide by different numbers would not get the average that either expects."""
    crew = serve().crew("divided", 2)
    crew.peers[0].ready(crew.plans[0][0], 0, divisor=2)
    crew.peers[0].status()
    crew.peers[1].ready(crew.plans[0][1], 0, divisor=3)
    reason = crew.peers[1].hangup()
    assert reason is not None and reason.code in ("INVALID", "OPERATION_MISMATCH", "STATE"), reason
    assert crew.peers[0].outcome(crew.plans[0][0])[0] == "VOID"


def test_absent_in_a_plan_that_has_no_neutral_element(serve):
    crew = serve().crew("lowest", 2, lambda ordinal: small_plan(1, ordinal=ordinal, reduce="MIN"))
    crew.peers[0].ready(crew.plans[0][0], 0, absent=b"\x01")
    reason = crew.peers[0].hangup()
    assert reason is not None and reason.code == "INVALID", reason


def test_plans_that_wait_for_one_member_are_agreed_when_it_goes(serve):
    """Several of them in the same moment."""
    served = serve()
    first, second, third = (served.peer(minor=1) for _ in range(3))
    requests = [peer.send("JOIN", job="eager", min_world=2, max_world=3, last_call_ms=60000)
                for peer in (first, second, third)]
    for peer, request in zip((first, second, third), requests):
        peer.joined(request)
    mapped = {peer: [] for peer in (first, second)}
    for peer, asked in mapped.items():
        for plan in (small_plan(ordinal=ordinal) for ordinal in range(5)):
            asked.append(peer.plan_arena(plan, peer.plan_send(plan)))
    third.leave()
    for peer, asked in mapped.items():
        assert peer.expect("NEWGEN").world == 2
        for request in asked:
            peer.expect("PLAN_AGREED", request)
