# SPDX-License-Identifier: Apache-2.0
"""Trainers on the public API (member.c), driven line by line: one by one, or as the members of a job."""
import re

from harness import SANITIZER

OK = "OK"


def ending_well(start_member):
    """A fixture's body: start_member(), and at the end each of its members that lives must end well when its
    input does, whatever it went through."""
    started = []

    def start(*arguments, **options):
        started.append(start_member(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.stdin.close()
            status = each.wait()
            assert status == 0, f"{status}: {each.err}"
        assert not SANITIZER.search(each.err), each.err


def ask(member, command, code=OK):
    """Rest of the member's answer, which must have this code."""
    line = member.ask(command)
    assert line is not None, f"{command}: the member has ended: {member.err}"
    name, _, rest = line.partition(" ")
    assert name == code, f"{command}: {line}"
    return rest


def script(member, *commands):
    """The member does these, one after the other, and each ends well."""
    for command in commands:
        ask(member, command)


def restart(served, end_daemon):
    """The daemon ends in this way, and another one takes its place."""
    end_daemon(served)
    served.start()


def fields(text):
    return dict(re.findall(r"(\w+)=(\S*)", text))


def join(members, name="job", world=None, options=""):
    world = world or len(members)
    for rank, each in enumerate(members):
        each.say(f"join name={name} world={world} rank={rank} {options}")
    for rank, each in enumerate(members):
        line = each.line()
        assert line.startswith("OK ") and f"rank={rank} " in line, line


def say(members, command):
    """Leaves them all in that call."""
    for each in members:
        each.say(command)


def ended(members, *codes):
    """The call that each member is in ends with one of these codes. Returns the texts that came with them."""
    said = []
    for each in members:
        code, _, rest = each.line().partition(" ")
        assert code in codes, (code, rest)
        said.append(rest)
    return said


def together(members, *commands, code=OK):
    """Each command on all members at once. Returns the rests of their answers to the last one, which must
    have this code."""
    for command in commands[:-1]:
        together(members, command)
    say(members, commands[-1])
    return ended(members, code)


def connected(made, join=None, options=""):
    """A trainer with a connection and, if `join` says which one, a job."""
    ask(made, f"open {options}")
    if join is not None:
        ask(made, f"join {join}")
    return made


def opened(member, served, count=2, options="", **more):
    """Trainers with a connection, and no job."""
    members = [member(served, **more) for _ in range(count)]
    together(members, f"open {options}")
    return members


def joined(member, served, world=2, name="job"):
    """The members of a job without a plan."""
    members = opened(member, served, world)
    join(members, name)
    return members


def crew(member, served, world, params=("a f32 5", "b f32 3 2", "c f32"), options="", open_options=""):
    """Members 0..world-1 of one job with one plan."""
    members = opened(member, served, world, open_options)
    join(members)
    together(members, *(f"param {param}" for param in params), f"plan {options}")
    return members


# -- steps of a job whose members each have a plan: rank r brings r + 1 everywhere


def fill(members):
    for rank, each in enumerate(members):
        ask(each, f"fill {rank + 1}")


def bring(members):
    fill(members)
    together(members, "ready")


def end(members):
    """All finish, with OK, the right averages, and the same number."""
    rests = [fields(rest) for rest in together(members, "finish")]
    assert set(together(members, f"check {(len(members) + 1) / 2}")) == {"right"}
    number, = {rest["step"] for rest in rests}
    assert len({rest["norm"] for rest in rests}) == 1
    return int(number)


def step(members):
    bring(members)
    return end(members)
