# SPDX-License-Identifier: Apache-2.0
"""Daemons of one cluster on this machine: a coordinator, and daemons that serve a CPU each."""
import contextlib
import os
import pathlib
import secrets

import harness
from harness import restart, wait_until  # noqa: F401
from teams import Team
from trainers import connected, say, together

HELPER = "daemon/engine/gloo/gradsync-gloo"
# A machine that is busy with other tests must not pass for a dead one.
PATIENT = {"heartbeat": "100ms", "patience": "10s", "death": "20s", "abandon": "60s"}
# For tests in which daemons are restarted: members have the time to come back, and steps to end.
STAY = {"rejoin_grace": "60s", "drain_timeout": "60s"}
# For tests in which a member or a node dies.
SWIFT = {"heartbeat": "100ms", "patience": "2s", "death": "8s", "abandon": "20s"}


def cluster_text(**settings):
    """The section of a configuration file."""
    return "[cluster]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())


def write_key(path, name="main", digits=64, rest="", mode=0o600):
    path = pathlib.Path(path)
    path.write_text(f"{name} {secrets.token_hex(digits // 2)} {rest}\n")
    path.chmod(mode)
    return path


class Cluster:
    """`address` is where the coordinator listens; `nodes` is the number of the other daemons, or the names of
    their hosts; `settings` are those of all."""

    def __init__(self, daemon, build, address, nodes=2, common=None, settings=None, times=PATIENT):
        self.daemon, self.build, self.address = daemon, build, address
        self.common = {"gloo_helper": build / HELPER, **(common or {})}
        self.settings = settings or {}
        self.times = times
        self.coordinator = daemon(device="none", config=self.config(listen=address, **times),
                                  settings={key: self.settings[key] for key in ("socket_mode",)
                                            if key in self.settings})
        hosts = [{}] * nodes if isinstance(nodes, int) else [{"host_id": name} for name in nodes]
        self.nodes = [self.add(**host) for host in hosts]

    def config(self, **more):
        return cluster_text(**{**self.common, **more})

    def add(self, device="cpu", prefix=(), env=None, **more):
        """One more daemon, which has found the coordinator."""
        made = self.daemon(config=self.config(coordinator=self.address, **more), settings=self.settings,
                           device=device, prefix=prefix, env=env)
        made.wait_log("knows this gradsyncd as node")
        return made


def helpers(count, *nodes):
    """The processes of Gloo of these daemons, once there are so many."""
    def found():
        children = [child for node in nodes for child in harness.children_of(node.pid)]
        named = [child for child in children if harness.process_name(child) == os.path.basename(HELPER)]
        return len(named) == count and named

    return wait_until(found, f"{count} processes of Gloo")


@contextlib.contextmanager
def reconnecting(*nodes):
    """At the end, waits until each of them has connected to the coordinator anew."""
    before = {node: node.log.count("connected to the coordinator") for node in nodes}
    yield
    for node, count in before.items():
        wait_until(lambda node=node, count=count: node.log.count("connected to the coordinator") > count,
                   "a new connection")


def members_of(cluster, member, places=None):
    """member(…) for Team and crew: the next one is on the next daemon, or where `places` says, and uses the
    GPU of that number where it uses one."""
    count = 0
    places = places or range(len(cluster.nodes))

    def start(*_arguments, **options):
        nonlocal count
        place = places[count % len(places)]
        env = {"MEMBER_GPU": str(place), **options.pop("env", {})}
        made = member(cluster.nodes[place], env=env, **options)
        made.build_ctl = pathlib.Path(os.environ["GRADSYNC_BUILD"]).resolve() / harness.CTL
        count += 1
        return made

    return start


def opened(it, member, *places):
    """Members on these daemons, connected."""
    return [connected(members_of(it, member, [place])()) for place in places]


def team_on(it, member, places=None, world=None, **options):
    """A Team that has made a step, with its members on these daemons, or on each in turn."""
    team = Team(members_of(it, member, places), None, world=world or len(places), **options)
    assert team.step() == [1] * team.world
    return team


def planned(members, *params):
    """They agree on a plan."""
    together(members, *(f"param {param}" for param in params or ("a f32 5",)), "plan")
    return members


def begin(team, members=None):
    """These members, or all, bring what is theirs of a step, and wait for its end."""
    members = team.members if members is None else members
    team.bring(members)
    say(members, "finish")
    return members


class Gate:
    """Instead of the helper of a daemon: lets it begin only while the gate is open."""

    def __init__(self, build, scratch):
        self.shut, self.fifo, self.program = scratch / "shut", scratch / "fifo", scratch / "gate"
        os.mkfifo(self.fifo)
        self.program.write_text(f'#!/bin/sh\nif [ -e {self.shut} ]; then read -r _ <{self.fifo}; fi\n'
                                f'exec {build / HELPER} "$@"\n')
        self.program.chmod(0o755)

    def close(self):
        self.shut.touch()

    def open(self):
        """Lets in the connections that have come, at least one, and all that come later."""
        self.shut.unlink()
        self.fifo.write_text("\n")


def listeners_of(pid):
    """(address, port) of its TCP sockets that listen, the address as in /proc."""
    sockets, found = set(), []
    with contextlib.suppress(OSError):          # it has ended
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(fd))
        for name in ("tcp", "tcp6"):
            rows = pathlib.Path(f"/proc/{pid}/net/{name}").read_text("ascii").splitlines()[1:]
            for _, local, _, state, *rest in map(str.split, rows):
                if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                    address, port = local.split(":")
                    found.append((address, int(port, 16)))
    return found
