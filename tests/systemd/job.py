# SPDX-License-Identifier: Apache-2.0
"""Trainers of a machine that work together: member.c of the integration tests, driven line by line."""


def ask(member, command):
    """What the member answers after the result, which must be OK."""
    line = member.ask(command)
    assert line is not None, f"{command}: the member has ended: {member.err}"
    name, _, rest = line.partition(" ")
    assert name == "OK", f"{command}: {line}"
    return rest


def together(members, command):
    """The command on all members at once; `{rank}` in it is each one's own."""
    for rank, each in enumerate(members):
        each.say(command.format(rank=rank))
    lines = [each.line() for each in members]
    assert all(line is not None and line.startswith("OK") for line in lines), f"{command}: {lines}"


def form(members, name, elements=4096):
    """A job with a plan of two parameters."""
    together(members, "open")
    together(members, f"join name={name} world={len(members)} rank={{rank}}")
    for parameter in ("embed.weight", "body.weight"):
        together(members, f"param {parameter} f32 {elements}")
    together(members, "plan first=4096 bucket=4096")
    return members


def step(members):
    """One step: rank r brings r+1 everywhere, and each gets the same average."""
    for rank, each in enumerate(members):
        ask(each, f"fill {rank + 1}")
    together(members, "ready")
    together(members, "finish")
    for each in members:
        assert ask(each, f"check {(len(members) + 1) / 2}") == "right"


def leave(members):
    together(members, "leave")
    together(members, "close")
