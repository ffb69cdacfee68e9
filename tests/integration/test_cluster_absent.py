# SPDX-License-Identifier: Apache-2.0
"""Parameters without a gradient in a job over several daemons: it is as on one."""
import pytest

from clusters import begin, ended, members_of, team_on
from harness import wait_until
from teams import SHORT, takes_state
from trainers import ask, crew, fields, together

pytestmark = pytest.mark.host

SIZES = (5, 7, 40, 1, 3, 300, 2, 60, 9, 11)         # of parameters: in more buckets than go out at once
BUCKETS = "first=8 bucket=16"
EACH = range(len(SIZES))


def everywhere(rank, param, world):
    return param in (1, 2, 9)


def on_one_node(rank, param, world):
    return rank == 0 and param in (0, 5)


def on_all_but_one(rank, param, world):
    return rank != world - 1 and param % 2 == 0


def different(rank, param, world):
    return param % world == rank or param == 7


def never(rank, param, world):
    return False


def always(rank, param, world):
    return True


def mark(each, rank, world, absent):
    ask(each, f"fill {rank + 1}")
    gone = [str(param) for param in EACH if absent(rank, param, world)]
    here = [str(param) for param in EACH if not absent(rank, param, world)]
    for word, params in (("absent", gone), ("ready", here)):
        if params:
            ask(each, f"{word} {' '.join(params)}")


def check(members, absent, divisor):
    """All hear the same, and it is right: element j of parameter p is rank + 1 + j % 4, where p is used."""
    world = len(members)
    ends = [fields(rest) for rest in together(members, "finish")]
    assert len({(end["step"], end["norm"], end["bytes"]) for end in ends}) == 1, ends
    for each in members:
        assert ask(each, "unused") == "".join(str(int(all(absent(rank, param, world)
                                                          for rank in range(world))))
                                              for param in EACH)
        for param, size in enumerate(SIZES):
            for j in {0, size // 2, size - 1}:
                whole = sum(rank + 1 + j % 4 for rank in range(world) if not absent(rank, param, world))
                assert float(ask(each, f"get {param} {j}")) == whole / divisor, (param, j)
    return ends[0]


def step_with(members, absent, divisor=None):
    for rank, each in enumerate(members):
        mark(each, rank, len(members), absent)
    return check(members, absent, divisor or len(members))


@pytest.mark.parametrize("nodes, world, dtype, reduce", [
    (2, 2, "f32", "avg"), (2, 4, "bf16", "avg"), (3, 4, "f64", "avg"), (3, 4, "u8", "sum"),
    (2, 2, "i32", "sum"), (3, 4, "i64", "sum"), (3, 8, "f32", "sum")])
def test_what_nobody_used_is_known_to_all(cluster, member, nodes, world, dtype, reduce):
    params = [f"p{number} {dtype} {size}" for number, size in enumerate(SIZES)]
    members = crew(members_of(cluster(nodes), member), None, world, params,
                   options=f"reduce={reduce} {BUCKETS}")
    assert len({ask(members[0], f"bucket_of {param}") for param in EACH}) > 4
    divisor = world if reduce == "avg" else 1
    for absent in (never, on_one_node, everywhere, never, on_all_but_one, different, always, different,
                   never):
        end = step_with(members, absent, divisor)
        assert (end["bytes"] == "0") == (absent is always)
    assert {int(ask(each, "unused")) for each in members} == {0}


def test_it_is_as_on_one_daemon(cluster, member):
    """Bit by bit: with two members there is one order of additions."""
    params = [f"p{number} f32 {size}" for number, size in enumerate(SIZES)]
    it = cluster()
    told = []
    for places in ([0, 0], [0, 1]):
        members = crew(members_of(it, member, places), None, 2, params, options=BUCKETS)
        for rank, each in enumerate(members):
            ask(each, "divisor 3")
            mark(each, rank, 2, different)
        ends = [fields(rest) for rest in together(members, "finish")]
        told.append([[ask(each, "unused"), end["norm"], end["bytes"]] +
                     [ask(each, f"get {param} {j}") for param in EACH for j in range(SIZES[param])]
                     for each, end in zip(members, ends)])
        for each in members:
            each.destroy()
        wait_until(lambda: not any(node.status()["jobs"] for node in it.nodes), "the end of the job")
    assert told[0] == told[1] and told[0][0] == told[0][1]


def test_a_void_step_leaves_nothing(cluster, member):
    """What was absent in it is forgotten, on the node of the lost member and on the other one."""
    it = cluster(settings={"rejoin_grace": "60s"})
    team = team_on(it, member, world=3)
    for rank in (0, 2):                 # both of the first daemon; rank 1 is on the second one
        ask(team.members[rank], f"fill {rank + 1}")
        ask(team.members[rank], "absent 0 1")
        team.members[rank].say("finish")
    victim = team.kill(1)
    new = team.replace(1)
    stay = [team.members[0], team.members[2]]
    for rest in ended(stay, "VOID_RETRY", "VOID_BEHIND"):
        assert fields(rest)["lost_pid"] == str(victim.pid), rest
    takes_state(new, stay, 1)
    for gone in ("0", "1", None):
        for rank, each in enumerate(team.members):
            ask(each, "fill 3")
            ask(each, "ready 1" if gone == "0" else "ready 0" if gone == "1" or rank == 1 else "ready 0 1")
            if gone is not None:
                ask(each, f"absent {gone}")
            elif rank == 1:
                ask(each, "absent 1")
        together(team.members, "finish")
        for each in team.members:
            assert ask(each, "unused") == {"0": "10", "1": "01", None: "00"}[gone]
            assert float(ask(each, "get 1 0")) == {"0": 3, "1": 0, None: 2}[gone]
    assert team.step() == [5, 5, 5]


def test_a_node_without_members(cluster, member):
    """Its only member is lost: the node uses nothing, as long as it takes part."""
    it = cluster(3, settings=SHORT)
    team = team_on(it, member, [0, 1, 2], least=2, ranks=False)
    victim = team.kill(1)
    stay = [team.members[0], team.members[2]]
    begin(team, stay)
    for rest in ended(stay, "VOID_RETRY", "VOID_BEHIND"):
        assert fields(rest)["lost_pid"] == str(victim.pid), rest
    together(stay, "sync 1")
    done = 1
    while done < 12:
        for rank, each in enumerate(stay):
            ask(each, "fill 4")
            ask(each, "ready 0" if rank == done % 2 else "absent 0")
            ask(each, "absent 1")
        for each in stay:
            each.say("finish")
        lines = [each.line() for each in stay]
        if lines[0].startswith("VOID_RETRY"):           # when the node is left out at last
            assert all(line.startswith("VOID_RETRY") for line in lines), lines
            continue
        done += 1
        rests = [fields(line) for line in lines if line.startswith("OK ")]
        assert [rest["step"] for rest in rests] == [str(done)] * 2
        assert len({rest["norm"] for rest in rests}) == 1
        for each in stay:
            assert ask(each, "unused") == "01" and float(ask(each, "get 0 0")) == 2
