#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The layer check: which folder may include which.

A folder of daemon/ is a layer, and calls go down socket -> session -> report -> job -> backend and engine.
Prints each include that breaks a rule and ends with 1 if there is one.

    python3 tests/lint/layers.py [TREE]
"""
import pathlib
import re
import sys

# Layer of daemon/ -> the layers whose headers it may include besides its own.
MAY_INCLUDE = {
    "base": set(),
    "kernel": set(),
    "backend": {"base", "kernel"},
    "engine": {"base", "kernel"},
    "rendezvous": {"base"},
    "link": {"base"},
    "job": {"backend", "engine", "rendezvous", "base"},
    "report": {"job", "base"},
    "session": {"report", "job", "base"},
    "socket": {"session", "base"},
    "core": {"base", "backend", "engine", "rendezvous", "job", "report", "session", "socket", "link"},
}
# Folder of daemon/job/ -> the others there whose headers it may include, and whose functions it may call. All
# share the structs of JOB_DATA. None calls daemon/job/ itself, which may call all of them.
JOB_MAY_USE = {
    "event": set(),
    "keep": set(),
    "machine": set(),
    "plan": {"event", "keep", "machine"},
    "op": {"event", "keep", "plan", "machine"},
    "restart": {"event", "op", "plan", "keep", "machine"},
    "watch": {"event", "restart", "op", "plan", "machine"},
}
JOB_DATA = "daemon/job/data.h"
# Room of daemon/rendezvous/ -> likewise. Every room except the machine may use the door of the layer,
# RENDEZVOUS_DOOR.
RENDEZVOUS_MAY_USE = {
    "machine": set(),
    "wire": {"machine"},
    "service": {"wire", "machine"},
}
RENDEZVOUS_DOOR = "daemon/rendezvous/hub.h"
# Layer of client/cli/ -> the layers whose headers it may include besides its own. Files in client/cli/ itself
# may include all of them.
CLI_MAY_INCLUDE = {
    "base": set(),
    "ask": {"base"},
    "view": {"ask", "base"},
    "run": {"ask", "base"},
    "doctor": {"ask", "base"},
    "cmd": {"doctor", "run", "view", "ask", "base"},
}
# Folder of client/lib/ -> likewise: each may use those named before it.
LIBRARY = ["base", "device", "wire", "job", "memory", "plan", "collective", "member", "core"]
# Folder -> the top folders whose headers it may include besides its own.
TOP = {
    "daemon": {"proto", "include"},
    "client": {"proto", "include"},
    "proto": set(),
    "include": set(),
}
# Headers for one place only: pattern of the header, pattern of the files that may include it, the reason.
RESERVED = [
    (re.compile(r"^(event2/|event\.h$|ev.*\.h$)"), re.compile(r"^daemon/base/loop\.c$"),
     "libevent is used by daemon/base/loop.c alone"),
    (re.compile(r"^pthread\.h$"),
     re.compile(r"^(daemon/backend/(host|cuda)/|daemon/base/(closer\.c|thread\.[ch])$|"
                r"daemon/core/saver\.c$|daemon/link/(door|resolver)\.c$|daemon/engine/nccl/|client/)"),
     "the daemon's only threads are those of its backends, of the engine for GPUs, of daemon/base/closer.c, "
     "of daemon/core/saver.c, and two of daemon/link"),
    (re.compile(r"^openssl/(crypto|hmac)\.h$"), re.compile(r"^daemon/base/sha256\.c$"),
     "digests are those of daemon/base/sha256.c"),
    (re.compile(r"^openssl/(?!(crypto|hmac)\.h$)"), re.compile(r"^daemon/link/tls\.c$"),
     "TLS is spoken by daemon/link/tls.c alone"),
    (re.compile(r"^gloo/"), re.compile(r"^(daemon/engine/gloo/helper\.cc|tests/)"),
     "Gloo stays in its helper"),
    (re.compile(r"^rendezvous/(machine|service)/coordinator"), re.compile(r"^daemon/(rendezvous|core)/"),
     "jobs meet their coordinators through rendezvous/hub.h alone"),
    (re.compile(r"^threads\.h$"), re.compile(r"^$"), "threads are POSIX threads"),
]
# Names for some layers only: pattern in the text, pattern of the files that may not have it, the reason.
NAMES = [
    (re.compile(r"\bWire__\w+"), re.compile(r"^daemon/(base|backend|engine|rendezvous|job)/"),
     "messages of the protocol end in daemon/session and daemon/report; below them only numbers of its enums "
     "are known"),
]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.M)


def sources(tree):
    """All C and C++ files below the folders that have rules."""
    for top in TOP:
        for path in sorted((tree / top).rglob("*")):
            if path.suffix in (".c", ".h", ".cc", ".hh", ".cpp") and path.is_file():
                yield path


def resolve(tree, path, name):
    """The file of this tree that `name` means in a quoted include, relative to the tree; None if it is none
    of ours."""
    generated = re.sub(r"\.pb-c\.h$", ".proto", name)
    for base in (path.parent, tree, tree / "daemon", tree / "include", tree / "proto",
                 tree / "client" / "lib"):
        for candidate in (name, generated):
            found = (base / candidate).resolve()
            if found.is_file() and tree.resolve() in found.parents:
                return found.relative_to(tree.resolve())
    return None


def judge(user, used):
    """Why file `user` must not include file `used` (both relative to the tree), or None."""
    user_top, used_top = user.parts[0], used.parts[0]
    if used_top not in TOP:
        return f"{used_top}/ is nothing to build on"
    if user_top != used_top:
        return None if used_top in TOP[user_top] else f"{user_top}/ must not use {used_top}/"
    if user_top == "daemon":
        layer, below = user.parts[1], used.parts[1]
        if layer not in MAY_INCLUDE:
            return f"daemon/{layer} is not a layer that this check knows"
        if below != layer and below not in MAY_INCLUDE[layer]:
            return f"daemon/{layer} must not use daemon/{below}"
    if user.parts[:2] == used.parts[:2] == ("daemon", "job") and len(user.parts) > 3:
        return judge_job(user.parts[2], used)
    if user.parts[:2] == used.parts[:2] == ("daemon", "rendezvous") and len(user.parts) > 3:
        return judge_rendezvous(user.parts[2], used)
    if user.parts[:2] == used.parts[:2] == ("client", "cli") and len(user.parts) > 3:
        layer, below = user.parts[2], used.parts[2]
        if layer not in CLI_MAY_INCLUDE:
            return f"client/cli/{layer} is not a layer that this check knows"
        if below != layer and below not in CLI_MAY_INCLUDE[layer]:
            return f"client/cli/{layer} must not use client/cli/{below}"
    if user.parts[:2] == ("client", "lib") and used.parts[:2] != ("client", "lib"):
        return "the client library must not use the programs beside it"
    if user.parts[:2] == ("client", "lib") and len(user.parts) == 4 and len(used.parts) == 4:
        if LIBRARY.index(used.parts[2]) > LIBRARY.index(user.parts[2]):
            return f"client/lib/{user.parts[2]} must not use client/lib/{used.parts[2]}"
    return None


def judge_job(folder, used):
    """The same for a folder of daemon/job and a header of that layer."""
    below = used.parts[2] if len(used.parts) > 3 else str(used)
    if folder not in JOB_MAY_USE:
        return f"daemon/job/{folder} is not a folder that this check knows"
    if below not in JOB_MAY_USE[folder] | {folder, JOB_DATA}:
        return f"daemon/job/{folder} must not use {used}"
    return None


def judge_rendezvous(room, used):
    """The same for a room of daemon/rendezvous and a header of that layer."""
    below = used.parts[2] if len(used.parts) > 3 else str(used)
    if room not in RENDEZVOUS_MAY_USE:
        return f"daemon/rendezvous/{room} is not a room that this check knows"
    if below == RENDEZVOUS_DOOR and room != "machine":
        return None
    if below not in RENDEZVOUS_MAY_USE[room] | {room}:
        return f"daemon/rendezvous/{room} must not use {used}"
    return None


def is_above(file, other):
    """Whether a file is in a layer that may use the other file's layer, which is not its own. Both are
    relative to the tree."""
    layer, below = pathlib.PurePosixPath(file).parts, pathlib.PurePosixPath(other).parts
    if layer[:2] == below[:2] == ("client", "lib") and len(layer) == len(below) == 4:
        return LIBRARY.index(layer[2]) > LIBRARY.index(below[2])
    if layer[:2] == below[:2] == ("client", "cli") and len(below) == 4:
        return len(layer) == 3 or below[2] in CLI_MAY_INCLUDE.get(layer[2], ())
    return layer[0] == below[0] == "daemon" and below[1] in MAY_INCLUDE.get(layer[1], ())


def job_calls(edges):
    """[(file, other file)] of calls that folders of daemon/job must not make; `edges` are of calls.py."""
    return [(user, other) for user, used in edges.items() for other in used
            if user.startswith("daemon/job/") and user.count("/") > 2 and other.startswith("daemon/job/")
            and judge_job(user.split("/")[2], pathlib.PurePosixPath(other + ".h"))]


def violations(tree):
    """[(file, line, include or name, reason)] of a tree, and the number of includes looked at."""
    found, seen = [], 0
    tree = pathlib.Path(tree)
    for path in sources(tree):
        text = path.read_text()
        user = path.relative_to(tree)
        for match in INCLUDE.finditer(text):
            seen += 1
            line = text.count("\n", 0, match.start()) + 1
            quoted, name = match.group(1) == '"', match.group(2)
            for pattern, users, why in RESERVED:
                if pattern.search(name) and not users.search(str(user)):
                    found.append((user, line, name, why))
            used = resolve(tree, path, name)
            if used is not None:
                why = judge(user, used)
                if why:
                    found.append((user, line, name, why))
            elif quoted:
                found.append((user, line, name, "no such file in the tree; system headers go in <>"))
        for pattern, files, why in NAMES:
            if files.search(str(user)):
                found.extend((user, text.count("\n", 0, match.start()) + 1, match.group(), why)
                             for match in pattern.finditer(text))
    return found, seen


def main(tree):
    found, seen = violations(tree)
    for user, line, name, why in found:
        print(f"{user}:{line}: {name}: {why}")
    print(f"{seen} includes, {len(found)} against the layers")
    return 1 if found or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]))
