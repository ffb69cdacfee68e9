#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The writers of the states of the daemon's objects.

A state is a member of a structure named `state` whose type is `enum …_state`, or one of OTHERS. It has one
writer, a function whose name ends in _set_state, which checks and records each change. A first value that
stands in an initialiser, or that calloc gives, is no change. Prints each assignment elsewhere, and the
writers of each state.

    python3 tests/lint/writers.py [TREE]
"""
import collections
import pathlib
import sys

import csource

# (structure, member) -> how the name of its writer ends.
OTHERS = {
    ("coordinator", "stage"): "_set_stage",
    ("node", "phase"): "_set_phase",
    ("server", "phase"): "_set_phase",
}
ASSIGNING = ("=", "+=", "-=", "|=", "&=", "^=", "++", "--")


def type_before(inside, place):
    """The words of the type of the member whose name stands at a place; none if it is a structure without a
    name."""
    start = next((back for back in range(place, 0, -1) if inside[back - 1].text in (";", "{", "}")), 0)
    first = next((at for at in range(start, place) if inside[at].text == ","), place + 1) - 1
    words = [token.text for token in inside[start:first] if token.kind == "name"]
    return [word for word in words if word not in ("const", "struct")]


def members(item):
    """(structure, words of its type, member) of the structures that a declaration defines."""
    head = item.head
    for at in range(len(head) - 2):
        if head[at].text in ("struct", "union") and head[at + 2].text == "{":
            inside = head[at + 3:csource.closing(head, at + 2)]
            for place in range(len(inside) - 1):
                word, after = inside[place], inside[place + 1]
                if word.kind == "name" and after.text in (";", "[", ","):
                    yield head[at + 1].text, type_before(inside, place), word.text


def declared_type(item, name):
    """The structure that a parameter or variable of a function is or points to, or None."""
    tokens = item.head + item.body
    for at in range(1, len(tokens) - 1):
        back = at - 1
        while back and tokens[back].text in ("*", "const"):
            back -= 1
        typed = tokens[back].kind == "name" and tokens[back].text not in csource.BEFORE_A_USE | {"const"}
        if tokens[at].text == name and typed and tokens[at + 1].text in ("=", ";", ",", ")", "["):
            return tokens[back].text
    return None


def opening(tokens, at):
    depth = 0
    for place in range(at, -1, -1):
        depth += (tokens[place].text in csource.CLOSING) - (tokens[place].text in csource.OPENING)
        if depth == 0:
            return place
    return 0


def holders(item, at, types):
    """The structures whose member stands at a place of a function's body; None if that is not visible."""
    place = at - 2
    while place >= 0 and item.body[place].text in ("]", ")"):
        place = opening(item.body, place) - 1
    name = item.body[place].text
    if item.body[place].kind != "name":
        return None
    if item.body[place - 1].text in (".", "->"):
        return types.get(name) or None
    found = declared_type(item, name)
    return {found} if found else None


def assignments(item):
    """(place, member) of each assignment to a member in a function; initialisers are none."""
    for at in range(2, len(item.body) - 1):
        dot, token, after = item.body[at - 1:at + 2]
        first = item.body[at - 2].text in ("{", ",") and dot.text == "."
        if dot.text in (".", "->") and token.kind == "name" and after.text in ASSIGNING and not first:
            yield at, token.text


def writer_of(structure, member):
    return OTHERS.get((structure, member), "_set_state")


def read(tree):
    """({file: [(line, function, member)]} of assignments outside of the writers, {(structure, member): its
    writers}, {(structure, member)} of all states)."""
    tree = pathlib.Path(tree)
    files = {path.relative_to(tree).as_posix(): csource.read(path.read_text())
             for path in sorted((tree / "daemon").rglob("*.[ch]"))}
    states, types = set(OTHERS), collections.defaultdict(set)
    for source in files.values():
        for item in source.items:
            for structure, words, member in members(item):
                types[member].update(words[-1:])
                if member == "state" and words[:1] == ["enum"] and words[-1].endswith("_state"):
                    states.add((structure, member))
    elsewhere, writers = collections.defaultdict(list), collections.defaultdict(set)
    for path, source in files.items():
        for item in source.items:
            for at, member in assignments(item) if item.function else ():
                held = holders(item, at, types)
                mine = {state for state in states
                        if state[1] == member and (held is None or state[0] in held)}
                if any(item.name.endswith(writer_of(*state)) for state in mine):
                    for state in mine:
                        writers[state].add(f"{path}:{item.name}")
                elif mine:
                    elsewhere[path].append((item.body[at].line, item.name, member))
    return dict(elsewhere), dict(writers), states


def main(tree):
    elsewhere, writers, states = read(tree)
    for path, found in elsewhere.items():
        for line, function, member in found:
            print(f"{path}:{line}: {function} sets {member}")
    for (structure, member), functions in sorted(writers.items()):
        print(f"{structure}.{member}: {', '.join(sorted(functions))}")
    print(f"{len(states)} states, {sum(map(len, elsewhere.values()))} assignments outside of their writers")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
