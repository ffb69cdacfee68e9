# SPDX-License-Identifier: Apache-2.0
"""Memory that members bring, as trainers see it: the calls of the library."""
import os
import resource

import pytest

import harness
from harness import wait_until
from peer import align
from trainers import ask, bring, connected, fields, fill, join, opened, say, script, together


TYPES = ("f32", "f64", "bf16", "f32", "f32")
ELEMENTS = (300, 5, 1000, 64, 7)
BYTES = {"f32": 4, "f64": 8, "bf16": 2}


def layout():
    """The places of parameters one after the other by type, as a framework's flat buffer of each type has
    them."""
    at, places = 0, [0] * len(TYPES)
    for dtype in ("f32", "f64", "bf16"):
        for number, (mine, elements) in enumerate(zip(TYPES, ELEMENTS)):
            if mine == dtype:
                at = align(at)
                places[number] = at
                at += elements * BYTES[dtype]
    return places, at


def params(each, own, shift=0):
    places, _ = layout()
    for number, (dtype, elements) in enumerate(zip(TYPES, ELEMENTS)):
        at = f"param_at 0 {places[number] + shift}" if own else "param"
        ask(each, f"{at} p{number} {dtype} {elements}")


def pair(member, served, world=2, options=""):
    members = opened(member, served, world, options=options)
    join(members, "pair")
    return members


@pytest.mark.parametrize("options", ["", "first=64 bucket=2048"], ids=["large", "small"])
@pytest.mark.parametrize("mapped", [0, 1], ids=["library", "trainer"])
def test_members_with_and_without(served, member, mapped, options):
    members = pair(member, served, 4)
    for each in members[:2]:
        assert ask(each, f"register 0 65536 map={mapped}") == ("own" if mapped else "mapped")
    for rank, each in enumerate(members):
        params(each, rank < 2, 640 * rank)
    assert len(set(together(members, f"plan {options}"))) == 1
    for number in range(3):
        fill(members)
        if number == 2:
            together(members, "absent 1", "ready 0 2 3 4")
        else:
            together(members, "ready")
        together(members, "finish")
        for each in members:
            for param in range(5):
                if (number, param) == (2, 1):
                    assert ask(each, "get 1 3") == "0"
                else:
                    assert ask(each, f"check 2.5 {param}") == "right"
    assert set(together(members, "unused")) == {"01000"}
    ask(members[0], "unregister 0", "STATE")
    together(members, "plan_free")
    ask(members[0], "unregister 0")
    wait_until(lambda: served.maps().count("memfd:own") == 1, "one mapping of a member's memory")
    together(members, "leave", "close")


def test_gaps_and_neighbours_differ_by_name(daemon, member):
    members = pair(member, daemon())
    ask(members[0], "register 0 65536")
    for number, at in enumerate((0, 1280, 4096)):       # a gap before the last
        ask(members[0], f"param_at 0 {at} p{number} f32 320")
        ask(members[1], f"param p{number} f32 320")
    for rest in together(members, "plan", code="PLAN_MISMATCH"):
        assert "a gap in registered memory ends a bucket" in rest


def test_parameters_in_several_memories_and_in_the_arena(daemon, member):
    """All are in one plan. The buckets of a memory end with it."""
    members = pair(member, daemon())
    together(members, "register 0 4096", "register 1 8192 offset=4096 size=12288 fill=12288 map=1",
             "param_at 0 0 a f32 16", "param_at 1 8128 b f32 16", "param c f32 16",
             "param_at 0 64 d f32 1008")
    assert {fields(rest)["buckets"] for rest in together(members, "plan")} == {"4"}
    for number in range(2):
        bring(members)
        together(members, "finish")
        assert set(together(members, "check 1.5")) == {"right"}


WRONG_CALLS = {
    "register 0 4096 seals=0": "lacks the seals F_SEAL_SHRINK F_SEAL_GROW",
    "register 0 8192 size=4096": "do not lie in a memory of 4096",
    "register 0 4096 size=8192": "only 4096 of them were touched",
    "register 0 4096 kind=file": "is a file, directory or device",
    "register 0 4096 map=2": "are not those from offset 0 of this file",
    "register 0 4096 map=3": "are not those from offset 0 of this file",
}


@pytest.mark.parametrize("alone", [False, True], ids=["daemon", "alone"])
def test_wrong_calls(daemon, build, program, scratch, alone):
    """Known before the daemon is asked, and the same without one."""
    env = {"XDG_RUNTIME_DIR": scratch, "GRADSYNC_DEVICE": "cpu:nowhere"} if alone else {"GRADSYNC_SOCKET": daemon().socket}
    each = connected(program(harness.MEMBER, env=env))
    ask(each, "join name=wrong world=1" if not alone else "join")
    for command, why in WRONG_CALLS.items():
        answer = each.ask(command)
        assert answer.startswith("INVALID ") and why in answer, (command, answer)
    assert ask(each, "register 0 16384") == "mapped"
    for command, why in {"param_at 0 32 p f32 4": "not a multiple of 64", "param_at 0 16384 p f32 1": "do not lie in",
                         "param_at 0 0 p f32 5000": "do not lie in", "param_at 3 0 p f32 1": "the memory is NULL"}.items():
        assert why in ask(each, command, "INVALID")
    ask(each, "param_at 0 0 a f32 32")
    assert "parameters of the next plan were placed" in ask(each, "unregister 0", "STATE")
    script(each, "plan", "slot 1", "register 1 16384 file=0", "param_at 1 64 b f32 32")
    refused = ask(each, "plan", "STATE")
    assert 'parameters "a" and "b" of another plan overlap at byte 64' in refused or \
        'parameters "b" and "a" of another plan overlap' in refused
    ask(each, "unregister 1")                       # the plan that could not be has no parameter in it any more
    ask(each, "leave")
    ask(each, "join name=again world=1" if not alone else "join")
    script(each, "register 2 16384", "param_at 2 0 a f32 32", "param_at 2 64 b f32 32")
    assert 'parameters "a" and "b" overlap at byte 64' in ask(each, "plan", "INVALID")
    ask(each, "param_at 2 0 a f32 16")              # nor are their names taken
    ask(each, "param_at 2 64 b i32 32")
    assert 'the avg of i32' in ask(each, "plan", "INVALID")
    script(each, "unregister 2", "param a f32 16")
    assert fields(ask(each, "plan"))["params"] == "1"


def test_alone(program, scratch):
    """A world of one needs no daemon."""
    one = program(harness.MEMBER, env={"XDG_RUNTIME_DIR": scratch, "GRADSYNC_DEVICE": "cpu:nowhere"})
    script(one, "open", "join", "register 0 65536 map=1")
    params(one, True)
    script(one, "plan", "fill 4", "ready 0 2 3 4", "absent 1", "finish")
    for param in (0, 2, 3, 4):
        assert ask(one, f"check 4 {param}") == "right"
    assert ask(one, "get 1 3") == "0"
    script(one, "divisor 2", "fill 4", "ready", "finish")
    assert float(ask(one, "get 3 1")) == 2.5
    ask(one, "unregister 0", "STATE")
    script(one, "plan_free", "unregister 0", "leave", "close")


def test_no_descriptor_to_keep(daemon, member):
    """Known at once, and not when there is another daemon."""
    each = connected(member(daemon()), "name=job world=1")
    used = {int(name) for name in os.listdir(f"/proc/{each.pid}/fd")}
    resource.prlimit(each.pid, resource.RLIMIT_NOFILE, (min(set(range(len(used) + 1)) - used) + 1,) * 2)
    assert "ulimit -n" in ask(each, "register 0 65536", "SYSTEM")


def test_a_trainer_that_punches_is_told(served, member):
    members = pair(member, served)
    together(members, "register 0 4194304", "param_at 0 0 a f32 1048576", "plan")
    ask(members[0], "punch 0 0 4096")
    together(members, "ready")
    say(members, "finish")
    lost, other = (each.line() for each in members)
    assert lost.startswith("INVALID ") and "holes were punched" in lost, lost
    assert other.startswith("VOID_RETRY ") and "evicted" in other, other
