#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The calls among the files of the product, and the static functions that share a name.

A .c and its .h are one file. A file calls another one if it mentions an external function of that one, or a
static inline function of its header, anywhere except in a comment, a string or a declaration: a function that
is handed over counts as called, and a macro calls where it is used. A function that is assigned to a member
of a structure counts as called by each file that calls this member, if the program assigns no other function
to a member of that name. One exception: a layer hands such pointers to a layer below it, to be called back
(layers.py says which is below). These are listed, and counted by themselves.

A cycle is a strongly connected component of more than one file; cycles of folders likewise, where a folder
and the folder that it lies in are two.

    python3 tests/lint/calls.py [TREE]
"""
import collections
import pathlib
import sys
from typing import NamedTuple

import csource
import layers

TOP = ("daemon", "client", "proto")
# Cycles of files are counted in each of these by itself; any other file belongs to its top folder.
TREES = ("daemon", "client/lib", "client/cli", "client", "proto")


class Calls(NamedTuple):
    files: set          # all of them, without suffix
    edges: dict         # file -> {other file: {functions of it that it mentions}}
    namesakes: dict     # name of a static function that stands in several files -> [files, with suffix]
    upward: dict        # member -> {file that calls it: file of a layer above, which has assigned it}

    def cycles(self, tree):
        """The cycles of files of one of TREES, the longest first."""
        return [cycle for cycle in components(self.edges) if len(cycle) > 1 and tree_of(cycle[0]) == tree]

    def folder_edges(self):
        """{folder: {other folder: {(file, other file)}}}"""
        edges = collections.defaultdict(lambda: collections.defaultdict(set))
        for user, used in self.edges.items():
            for other in used:
                if folder(user) != folder(other):
                    edges[folder(user)][folder(other)].add((user, other))
        return edges

    def folder_cycles(self):
        return [cycle for cycle in components(self.folder_edges()) if len(cycle) > 1]


def tree_of(file):
    return next(tree for tree in TREES if file.startswith(tree + "/"))


def folder(file):
    return str(pathlib.PurePosixPath(file).parent)


def components(edges):
    """Strongly connected components of {node: nodes}, each sorted, the largest first: Tarjan's, without
    recursion."""
    number, low, stack, found = {}, {}, [], []

    def enter(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        return node, iter(sorted(edges.get(node, ())))

    for root in sorted(edges):
        work = [] if root in number else [enter(root)]
        while work:
            node, rest = work[-1]
            other = next(rest, None)
            if other is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    at = stack.index(node)
                    found.append(sorted(stack[at:]))
                    del stack[at:]
            elif other not in number:
                work.append(enter(other))
            elif other in stack:
                low[node] = min(low[node], number[other])
    return sorted(found, key=lambda each: (-len(each), each))


def sources(tree):
    """{path in the tree: csource.Source} of all C files of the product."""
    return {path.relative_to(tree).as_posix(): csource.read(path.read_text())
            for top in TOP for path in sorted((tree / top).rglob("*"))
            if path.suffix in (".c", ".h") and path.is_file()}


def stem(path):
    return path.rsplit(".", 1)[0]


def used_names(source, macros):
    """Names that a file uses and does not define as functions, through macros too."""
    own = {item.name for item in source.items if item.function}
    names, used = set(), []
    for item in source.items:
        hidden = csource.locals_of(item) if item.function else set()
        names.update(token.text for token in csource.mentions(item.body) if token.text not in hidden)
    waiting = names - own
    while waiting:
        name = waiting.pop()
        used.append(name)
        names.add(name)
        for tokens in macros.get(name, ()):
            waiting.update({token.text for token in csource.mentions(tokens)} - names - own)
    return used


def nearest(user, definers):
    """Chooses among files with an external function of one name: those in the folder of the user, or else in
    its program, or else all."""
    for near in (folder, tree_of):
        found = {file for file in definers if near(file) == near(user)}
        if found:
            return found
    return definers


def assigned_members(source, functions):
    """(member, function) for each `.member = function` and `->member = function`."""
    for item in source.items:
        body = item.body
        for at in range(len(body) - 3):
            if body[at].text not in (".", "->") or body[at + 1].kind != "name" or body[at + 2].text != "=":
                continue
            value = at + 3 + (body[at + 3].text == "&")
            after = body[value + 1].text if value + 1 < len(body) else ""
            if body[value].text in functions and after in (",", ";", "}", ")"):
                yield body[at + 1].text, body[value].text


def called_members(source):
    for item in source.items:
        for before, member, after in zip(item.body, item.body[1:], item.body[2:]):
            if before.text in (".", "->") and member.kind == "name" and after.text == "(":
                yield member.text


def read_pointers(found, everywhere):
    """(file that calls, file that is called, member) for members with one target in their program."""
    targets, callers = (collections.defaultdict(set) for _ in range(2))
    for path, source in found.items():
        tree = tree_of(path)
        for member, function in assigned_members(source, everywhere):
            home = {path} & everywhere[function] or nearest(stem(path), everywhere[function])
            targets[tree, member].update((function, stem(definer)) for definer in home)
        for member in called_members(source):
            callers[tree, member].add(stem(path))
    for (tree, member), functions in sorted(targets.items()):
        if len(functions) == 1:
            (_, target), = functions
            yield from ((user, target, member) for user in sorted(callers[tree, member]) if user != target)


def read(tree):
    found = sources(pathlib.Path(tree))
    external, everywhere, statics = (collections.defaultdict(set) for _ in range(3))
    macros = collections.defaultdict(list)
    for path, source in found.items():
        for item in source.items:
            if item.function:
                everywhere[item.name].add(path)
                if item.static:
                    statics[item.name].add(path)
                if not item.static or path.endswith(".h"):
                    external[item.name].add(stem(path))
        for name, tokens in source.macros:
            macros[name].append(tokens)
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    for path, source in found.items():
        user = stem(path)
        for name in used_names(source, macros):
            definers = external.get(name, set())
            if user not in definers:
                for other in nearest(user, definers):
                    edges[user][other].add(name)
    upward = collections.defaultdict(dict)
    for user, target, member in read_pointers(found, everywhere):
        if layers.is_above(target, user):
            upward[member][user] = target
        else:
            edges[user][target].add(f"->{member}")
    return Calls({stem(path) for path in found}, {user: dict(used) for user, used in edges.items()},
                 {name: sorted(everywhere[name]) for name in sorted(statics) if len(everywhere[name]) > 1},
                 dict(upward))


def inner_edges(edges, cycle):
    """The lines of a cycle: (file, other file, functions of it that the file calls)."""
    for user in cycle:
        for other in sorted(set(edges.get(user, ())) & set(cycle)):
            yield user, other, edges[user][other]


def report(calls):
    for tree in TREES:
        cycles = calls.cycles(tree)
        longest = max(map(len, cycles), default=0)
        print(f"{tree}: {len(cycles)} cycles, the longest of {longest} files")
        for cycle in cycles:
            print(f"  {len(cycle)} files:")
            for user, other, names in inner_edges(calls.edges, cycle):
                print(f"    {user} -> {other}: {', '.join(sorted(names))}")
    folders = calls.folder_cycles()
    print(f"folders: {len(folders)} cycles, {sum(map(len, folders))} folders in them")
    for cycle in folders:
        print(f"  {len(cycle)} folders:")
        for user, other, files in inner_edges(calls.folder_edges(), cycle):
            print(f"    {user} -> {other}: {', '.join(f'{a} -> {b}' for a, b in sorted(files))}")
    print(f"upward: {len(calls.upward)} pointers to functions of a layer above")
    for member, used in sorted(calls.upward.items()):
        for user, target in used.items():
            print(f"  {user} -> {target}: {member}")
    print(f"namesakes: {len(calls.namesakes)} static functions share their name")
    for name, paths in calls.namesakes.items():
        print(f"  {name}: {', '.join(paths)}")


if __name__ == "__main__":
    report(read(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]))
