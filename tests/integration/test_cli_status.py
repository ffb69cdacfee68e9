# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl status and list: what people and scripts see of daemons and jobs."""
import json
import os
import re
import socket
import subprocess

import pytest

import harness
import wire
from fake import FakeDaemon
from peer import Crew, Peer, Plan, small_plan

ALICE, BOB = 61001, 61002

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


# -- text

def test_one_screen(served, peers, ctl):
    crew = peers(Crew(served.socket, "digits", 2, lambda ordinal: small_plan(3, ordinal=ordinal)))
    crew.go(4)
    out = ctl(socket=served.socket).out
    lines = out.splitlines()
    assert re.fullmatch(rf"gradsyncd \S+ on cpu, up \d+\.\d s, pid {served.pid}: 2 clients, 1 job", lines[0]), out
    assert lines[1].startswith(f"{served.socket}, ") and "worker" in lines[1] and "in 2 arenas" in lines[1], out
    assert re.match(r"digits  running, step 4\b.*, gradient norm \d", lines[3]), out
    assert re.match(r"  world size 2, generation \d+, uid \d+( \(\S+\))?, 3 buckets, 3\.0 KiB a step, 12\.0 KiB reduced$", lines[4]), out
    assert lines[5].split() == ["RANK", "PID", "USER", "STATE", "STEP", "EXPOSED", "PROGRAM"], out
    for rank in (0, 1):
        cells = lines[6 + rank].split()
        assert cells[:2] == [str(rank), str(os.getpid())] and cells[4] == "4" and cells[-1] == "digits", out
    assert len(lines) == 8, out
    assert not re.search(r"\x1b", out)


def test_status_is_the_bare_command(fake, ctl):
    served = fake()
    bare = ctl(socket=served.path).out
    assert bare and bare == ctl("status", socket=served.path).out
    assert json.loads(ctl("--json", socket=served.path).out) == json.loads(ctl("status", "--json", socket=served.path).out)
    assert bare == ctl("--socket", served.path).out == ctl("status", f"--socket={served.path}").out == ctl("-s", served.path, "status").out


def test_a_forming_job_says_who_is_missing(served, peers, ctl):
    first = peers(Peer(served.socket))
    first.join_send("forming", 3, 1)
    first.silent()
    job, = served.status()["jobs"]
    assert (job["state"], job["world_size"], job["step"], len(job["members"])) == ("forming", 3, 0, 1)
    assert job["members"][0]["rank"] is None and job["members"][0]["state"] == "joining"
    assert sorted((wait["rank"], wait["what"], wait["bucket"], wait["plan"]) for wait in job["waiting_for"]) == \
        [(rank, "join", None, None) for rank in (0, 2)]
    out = ctl(socket=served.socket).out
    assert re.search(r"^forming  forming, step 0$", out, re.MULTILINE), out
    assert re.search(r"^  waiting for 2 more members to join$", out, re.MULTILINE), out
    for rank in (0, 2):
        assert re.search(rf"^  waiting \d+\.\d s for rank {rank} to join$", out, re.MULTILINE), out


def test_foreign_names_cannot_drive_the_terminal(fake, ctl):
    evil, shown = "x\x1b]0;owned\x07\u202ey\x9bz", r"x\x1b]0;owned\x07\xe2\x80\xaey\xc2\x9bz"
    served = fake(answer=[("STATUS_CLIENT", wire.pb.StatusClient(pid=5, uid=1, program=evil, library=evil)),
                          ("STATUS_JOB", wire.pb.StatusJob(
                              job=1, name=evil, state=evil, world=1, text=evil, nonfinite_step=3, nonfinite_rank=1,
                              nonfinite_pid=7, nonfinite_values=1, nonfinite_bucket=2, nonfinite_parameter=evil)),
                          ("STATUS_MEMBER", wire.pb.StatusMember(job=1, rank=0, pid=5, state=evil, program=evil)),
                          ("STATUS_WAIT", wire.pb.StatusWait(job=1, rank=0, pid=5, process_state=evil, parameter=evil, what=evil))],
                  device=evil, version=evil)
    for arguments in ([], ["list", "jobs"], ["list", "clients"], ["doctor"]):
        made = ctl(*arguments, socket=served.path)
        assert shown in made.out, made.out
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\x9b\u202e]", made.out + made.err)
    told = f'step 3: rank 1 (pid 7) brought 1 non-finite value: bucket 2, parameter "{shown}"'
    assert told in ctl(socket=served.path).out
    made = ctl("--json", socket=served.path)
    job = json.loads(made.out)["jobs"][0]
    assert made.out.isascii() and job["name"] == job["nonfinite_first"]["parameter"] == evil


def test_colours_are_for_terminals(fake, build):
    served = fake(answer=[("STATUS_JOB", wire.pb.StatusJob(job=1, name="j", state="running", world=1)),
                          ("STATUS_MEMBER", wire.pb.StatusMember(job=1, rank=0, pid=5, state="stopped"))])
    env = {"GRADSYNC_SOCKET": served.path}
    coloured = harness.on_terminal([build / harness.CTL], env)
    assert "\x1b[32mrunning\x1b[0m" in coloured and "\x1b[31m" in coloured, coloured
    assert "\x1b" not in harness.on_terminal([build / harness.CTL], {**env, "NO_COLOR": "1"})
    assert "\x1b" not in harness.on_terminal([build / harness.CTL], {**env, "TERM": "dumb"})


# -- JSON

def uneven_plan(ordinal=0):
    """No two of its numbers are the same: 5 parameters in 2 buckets, with 1,008 bytes of payload."""
    return Plan([("a", [100], 0), ("b", [50], 0), ("c", [30], 1), ("d", [48], 1), ("e", [24], 1)], ordinal)


def test_the_document_of_a_daemon(served, peers, ctl):
    """Its jobs make steps, or wait, have had non-finite values, or have lost a member."""
    stepping = peers(Crew(served.socket, "stepping", 3, uneven_plan))
    stepping.plan(lambda ordinal: small_plan(4, 64, ordinal))
    stepping.go(7)
    stepping.go(2, 1)
    waiting = peers(Crew(served.socket, "waiting", 2, uneven_plan))
    waiting.go(3)
    for bucket in (0, 1):
        waiting.peers[0].ready(waiting.plans[0][0], bucket)
    waiting.peers[0].silent()
    broken = peers(Crew(served.socket, "broken", 2, uneven_plan))
    members = list(zip(broken.peers, broken.plans[0]))
    for peer, plan in members:
        peer.write(plan, 4, [float("nan")] * 6 * peer.rank + [1.0] * (24 - 6 * peer.rank))
        for bucket in (0, 1):
            peer.ready(plan, bucket)
    assert [peer.outcome(plan)[0] for peer, plan in members] == ["COMMITTED"] * 2
    broken.open()
    broken.peers[1].close()
    assert broken.peers[0].outcome(broken.plans[0][0])[0] == "VOID"

    document = served.status()
    shown, pid = document["daemon"], os.getpid()
    assert (shown["clients"], shown["jobs"], shown["arenas"]) == (6, 3, 9)
    assert shown["uid"] == os.geteuid() and shown["draining"] is False
    clients = {(client["jobs"], client["pid"], client["gid"]) for client in document["clients"]}
    assert clients == {(1, pid, os.getegid())}
    jobs = {job["name"]: job for job in document["jobs"]}

    job = jobs["stepping"]
    first, second = stepping.plans[0][0], stepping.plans[1][0]
    assert job["plans"] == [
        {"plan": 0, "step": 7, "parameters": 5, "buckets": 2, "bytes": 1008, "arena_bytes": first.bytes,
         "reduce": "avg", "open": False, "placed_members": 0},
        {"plan": 1, "step": 2, "parameters": 4, "buckets": 4, "bytes": 1024, "arena_bytes": second.bytes,
         "reduce": "avg", "open": False, "placed_members": 0}]
    assert [job[key] for key in ("step", "buckets", "bytes", "bytes_reduced")] == [7, 6, 2032, 9104]
    assert job["nonfinite_first"] is None and job["last_loss"] is None
    assert job["waiting_for"] == [] and job["recoveries"] == 0
    assert [(member["rank"], member["local_rank"], member["program"]) for member in job["members"]] == \
        [(rank, rank, "stepping") for rank in range(3)]

    job = jobs["waiting"]
    assert job["plans"][0]["open"] is True and job["plans"][0]["step"] == job["step"] == 3
    wait, = job["waiting_for"]
    assert [wait[key] for key in ("rank", "pid", "what", "plan", "bucket")] == [1, pid, "step", 0, 0]
    assert wait["step"] == 4
    assert wait["parameter"] in ("a", "b") and isinstance(wait["since_ms"], int)

    job = jobs["broken"]
    assert job["nonfinite_first"] == {"step": 1, "rank": 1, "pid": pid, "plan": 0, "bucket": 1,
                                      "parameter": "e", "values": 6}
    assert (job["nonfinite_steps"], job["void_steps"]) == (1, 1)
    loss = job["last_loss"]
    assert [loss[key] for key in ("rank", "pid", "cause", "step", "void_steps")] == [1, pid, "closed", 1, 1]
    assert loss["generation"] == broken.peers[0].generation
    assert loss["committed_ms"] is None and loss["successor_pid"] is None

    listed = json.loads(ctl("list", "jobs", "--json", socket=served.socket).out)
    assert list(listed) == ["schema_version", "jobs"]
    listed = json.loads(ctl("list", "clients", "--json", socket=served.socket).out)
    assert list(listed) == ["schema_version", "clients"]


class Outspoken(FakeDaemon):
    """Says everything that a daemon can say of itself."""

    said = wire.pb.StatusDaemon(
        device="cpu:x", version="9.8.7", pid=1001, uid=1002, uptime_ms=1003, socket="/elsewhere",
        clients=1004, jobs=1005, workers=1006, simd="avx9", arenas=1007, arena_bytes=1008, own_bytes=1018,
        loop_cpu_us=1009, worker_cpu_us=1010, complete=True, draining=False, node="ab12", starts=1011,
        no_identity="because",
        gpu=wire.pb.StatusGpu(uuid="GPU-1", name="card", driver=1012, bytes=1013, free_bytes=1014,
                              arena_bytes=1015, mode="mps"),
        engine=wire.pb.StatusEngine(name="nccl", version="2.28.9", library="/lib/n", abilities="no grow",
                                    missing="nothing"))

    def _send(self, client, head, kind, message):
        super()._send(client, head, kind, self.said if kind == "STATUS_DAEMON" else message)


# No two values of an object are the same, so that none can stand in the place of another.
SENT = [
    ("STATUS_CLIENT", wire.pb.StatusClient(id=9, pid=2001, uid=2002, gid=2003, program="p", library="l",
                                           connected_ms=2004, jobs=2005)),
    ("STATUS_LINK", wire.pb.StatusLink(role="node", state="connecting", node="cd34", host="there",
                                       address="1.2.3.4:5", key="main", text="refused", since_ms=2101,
                                       heard_ms=2102, round_trip_us=2103, clock_us=-2104,
                                       wall_us=-2105, sent=2106, received=2107)),
    ("STATUS_JOB", wire.pb.StatusJob(
        job=1, name="j", uid=3001, state="running", generation=3002, world=3003, step=3004, buckets=3005,
        bytes=3006, bytes_reduced=3007, step_rate=3008.5, exposed=0.25, norm=3009.5, nonfinite=3010,
        void_steps=3011, incarnation=3012, operations=3013, communicators=3015, text="why",
        communicator_us=3016, peers=[wire.pb.StatusPeer(node=3017, transport="NET/Socket", same_host=True),
                                     wire.pb.StatusPeer(node=3018)],
        nonfinite_steps=3014,
        nonfinite_step=3101, nonfinite_plan=3102, nonfinite_bucket=3103, nonfinite_rank=3104,
        nonfinite_pid=3105, nonfinite_values=3106, nonfinite_parameter="w", lost_rank=3201, lost_pid=3202,
        lost_cause=wire.pb.EVICTED, lost_step=3203, lost_generation=3204, lost_us=3205, lost_ago_ms=3206,
        lost_void_us=3207, lost_filling_us=3212, lost_newgen_us=3208, lost_commit_us=3209,
        lost_void_steps=3210, lost_successor=3211, recovery_us=1, recovery_class=[3, 4])),
    ("STATUS_MEMBER", wire.pb.StatusMember(job=1, rank=4001, local_rank=4002, pid=4003, uid=4004,
                                           state="late", step=4005, process_state="sleeping", program="m",
                                           exposed=0.5, host="here")),
    ("STATUS_MEMBER", wire.pb.StatusMember(job=1, rank=4001, local_rank=4002, pid=4003, unranked=True)),
    ("STATUS_PLAN", wire.pb.StatusPlan(job=1, plan=5001, step=5002, params=5003, buckets=5004, bytes=5005,
                                       arena_bytes=5006, reduce="sum", open=True, placed=5007)),
    ("STATUS_WAIT", wire.pb.StatusWait(job=1, rank=6001, pid=6002, process_state="stopped", plan=6003,
                                       bucket=6004, parameter="v", since_ms=6005, what="step", step=6006,
                                       host="there")),
    *[("STATUS_WAIT", wire.pb.StatusWait(job=1, rank=6001, plan=6003, bucket=6004, since_ms=6005, step=6006,
                                         what=what)) for what in ("plan", "join")],
    ("STATUS_WAIT", wire.pb.StatusWait(job=1, since_ms=6005, what="nodes", text="the vote of nodes 1, 2")),
]
NO_STEP = {"rank": 6001, "host": None, "pid": None, "process_state": None, "plan": None, "bucket": None,
           "parameter": None, "step": None, "since_ms": 6005, "text": None}
SHOWN = {
    "daemon": {"device": "cpu:x", "version": "9.8.7", "pid": 1001, "uid": 1002, "uptime_ms": 1003,
               "clients": 1004, "jobs": 1005, "workers": 1006, "simd": "avx9", "arenas": 1007,
               "arena_bytes": 1008, "own_bytes": 1018, "loop_cpu_us": 1009, "worker_cpu_us": 1010,
               "complete": True,
               "draining": False, "node": "ab12", "starts": 1011, "no_identity": "because",
               "gpu": {"uuid": "GPU-1", "name": "card", "driver": 1012, "bytes": 1013, "free_bytes": 1014,
                       "arena_bytes": 1015, "mode": "mps"},
               "engine": {"name": "nccl", "version": "2.28.9", "library": "/lib/n", "abilities": "no grow",
                          "missing": "nothing"}},
    "clients": [{"pid": 2001, "uid": 2002, "gid": 2003, "device": "cpu:x", "program": "p", "library": "l",
                 "connected_ms": 2004, "jobs": 2005}],
    "links": [{"device": "cpu:x", "role": "node", "state": "connecting", "text": "refused", "node": "cd34",
               "host": "there", "address": "1.2.3.4:5", "key": "main", "since_ms": 2101, "heard_ms": 2102,
               "round_trip_us": 2103, "clock_us": -2104, "wall_us": -2105, "sent": 2106, "received": 2107}],
    "jobs": [{
        "name": "j", "uid": 3001, "device": "cpu:x", "state": "running", "text": "why", "generation": 3002,
        "incarnation": 3012, "world_size": 3003, "step": 3004, "buckets": 3005, "bytes": 3006,
        "bytes_reduced": 3007, "step_rate": 3008.5, "exposed": 0.25, "norm": 3009.5, "nonfinite": 3010,
        "nonfinite_steps": 3014, "void_steps": 3011, "recoveries": 7, "operations": 3013,
        "communicators": 3015, "communicator_us": 3016,
        "peers": [{"node": 3017, "transport": "NET/Socket", "same_host": True},
                  {"node": 3018, "transport": None, "same_host": False}],
        "nonfinite_first": {"step": 3101, "rank": 3104, "pid": 3105, "plan": 3102, "bucket": 3103,
                            "parameter": "w", "values": 3106},
        "last_loss": {"rank": 3201, "pid": 3202, "cause": "evicted", "step": 3203, "generation": 3204,
                      "noticed_us": 3205, "ago_ms": 3206, "void_steps": 3210, "void_ms": 3.207,
                      "filling_ms": 3.212,
                      "new_generation_ms": 3.208, "committed_ms": 3.209, "successor_pid": 3211},
        "members": [{"rank": 4001, "local_rank": 4002, "host": "here", "pid": 4003, "uid": 4004,
                     "state": "late", "step": 4005, "process_state": "sleeping", "program": "m",
                     "exposed": 0.5},
                    {"rank": None, "local_rank": None, "host": None, "pid": 4003, "uid": None,
                     "state": None, "step": 0, "process_state": None, "program": None, "exposed": None}],
        "plans": [{"plan": 5001, "step": 5002, "parameters": 5003, "buckets": 5004, "bytes": 5005,
                   "arena_bytes": 5006, "reduce": "sum", "open": True, "placed_members": 5007}],
        "waiting_for": [{"rank": 6001, "host": "there", "pid": 6002, "process_state": "stopped",
                         "what": "step", "plan": 6003, "bucket": 6004, "parameter": "v", "step": 6006,
                         "since_ms": 6005, "text": None},
                        {**NO_STEP, "what": "plan", "plan": 6003}, {**NO_STEP, "what": "join"},
                        {**NO_STEP, "what": "nodes", "rank": None, "text": "the vote of nodes 1, 2"}],
    }],
}


def test_each_field_has_the_value_that_the_daemon_sent(fake, ctl):
    served = fake(kind=Outspoken, answer=SENT)
    shown = {**SHOWN, "daemon": {**SHOWN["daemon"], "socket": served.path}}
    document = json.loads(ctl("status", "--json", socket=served.path).out)
    assert document == {"schema_version": 1, **shown, "daemons": [shown]}
    for what in ("jobs", "clients", "links"):
        listed = json.loads(ctl("list", what, "--json", socket=served.path).out)
        assert listed == {"schema_version": 1, what: shown[what]}
    text = ctl("status", socket=served.path).out
    assert "no connection to the node at 1.2.3.4:5 for 2.1 s: refused" in text
    assert ", told after 3.21 ms (3.21 ms for collectives under way), back after 3.21 ms" in text
    assert ("connected in 3.02 ms: node 3017 NET/Socket, though it is in the same host, node 3018 in a "
            "way that is not known\n") in text
    assert "jobs stay on this daemon: nothing" in text


# -- which job

def test_one_job_by_name(served, peers, ctl):
    peers(Crew(served.socket, "one", 1))
    peers(Crew(served.socket, "other", 1))
    document = json.loads(ctl("status", "--json", "one", socket=served.socket).out)
    assert [job["name"] for job in document["jobs"]] == ["one"]
    document = json.loads(ctl("status", "--json", f"{os.geteuid()}/other", socket=served.socket).out)
    assert [job["name"] for job in document["jobs"]] == ["other"]
    for missing in ("none", "12345/one", "one/one", "1/2/3", "x" * 300):
        made = ctl("status", missing, socket=served.socket, code=4)
        assert made.out == "" and "there is no job" in made.err and missing in made.err


def test_everybody_who_is_late_is_told(served, peers, ctl):
    """However many they are: also in the sum that the text ends with."""
    crew = peers(Crew(served.socket, "many", 80, plan=None))
    crew.peers[0].operation("BARRIER")
    crew.peers[0].status()
    job = served.job("many")
    assert [wait["rank"] for wait in job["waiting_for"]] == list(range(1, 80))
    assert {wait["process_state"] for wait in job["waiting_for"]} <= {"running", "sleeping"}
    assert [member["state"] for member in job["members"]] == ["waiting"] + 79 * ["late"]
    out = ctl(socket=served.socket).out
    named = re.findall(r"waiting .* for rank \d+ ", out)
    assert named and f"and for {79 - len(named)} more" in out, out


@needs_root
def test_users_see_their_own_jobs(daemon, peers, ctl):
    served = daemon(settings={"socket_mode": "0666"})
    peers(Crew(served.socket, "same", 1, uid=ALICE))
    peers(Crew(served.socket, "same", 1, uid=BOB))
    everything = served.status()
    assert sorted(job["uid"] for job in everything["jobs"]) == [ALICE, BOB]
    mine = served.status(uid=ALICE)
    assert [job["uid"] for job in mine["jobs"]] == [ALICE] and mine["daemon"]["complete"] is False
    assert {client["uid"] for client in mine["clients"]} == {ALICE}
    assert "only your own jobs are shown" in ctl(socket=served.socket, uid=ALICE).out
    bobs = json.loads(ctl("status", "--json", f"{BOB}/same", socket=served.socket).out)
    assert [job["uid"] for job in bobs["jobs"]] == [BOB]
    ctl("status", f"{BOB}/same", socket=served.socket, uid=ALICE, code=4)


# -- which daemon

def test_no_daemon(ctl, scratch):
    made = ctl(socket=scratch / "nowhere", code=3)
    assert made.out == "" and str(scratch / "nowhere") in made.err and "gradsyncd --device cpu --socket" in made.err
    made = ctl("--json", env={"XDG_RUNTIME_DIR": scratch, "GRADSYNC_DEVICE": "cpu:absent"}, code=3)
    assert made.out == ""
    for tried in (f"{scratch}/gradsync/cpu:absent/socket", "/run/gradsync/cpu:absent/socket"):
        assert tried in made.err
    assert "gradsyncctl run" in made.err
    ctl("list", "jobs", socket=scratch / "nowhere", code=3)


def test_a_socket_without_a_listener(ctl, scratch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(scratch / "socket"))
    assert "nobody listens" in ctl(socket=scratch / "socket", code=3).err


def test_something_else_behind_the_socket(ctl, scratch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(scratch / "socket"))
        other.listen()
        assert "not a gradsync daemon" in ctl(socket=scratch / "socket", code=1).err


class Ending(FakeDaemon):
    """Hangs up on a client as soon as it has said something."""

    def _talk(self, client):
        client.recv(wire.FRAME_MAX)


def test_a_daemon_that_ends_meanwhile(fake, ctl):
    """It is as if the daemon had ended before: a watch ends in the same way, whenever it looks."""
    stopping = fake(refuse=("DAEMON_LOST", "gradsyncd is ending"))
    for served, why in ((stopping, "gradsyncd is ending"), (fake("ending", Ending), "the daemon has hung up")):
        made = ctl(socket=served.path, code=3)
        assert made.out == "" and "no daemon is running" in made.err, made.err
        assert f"{served.path}: {why}" in made.err, made.err
        for words in (("evict", "job", "0"), ("pause", "job"), ("resume",), ("drain",)):
            made = ctl(*words, socket=served.path, code=3)
            assert made.out == "" and "no daemon is running" in made.err, made.err
            assert f"tried {served.path}" in made.err, made.err


def test_other_versions(fake, ctl):
    assert "version 2 of the protocol" in ctl(socket=fake("a", major=2).path, code=1).err
    refused = fake("b", refuse=("VERSION", "this daemon speaks 9.0 only"))
    assert "this daemon speaks 9.0 only" in ctl(socket=refused.path, code=1).err


def test_every_daemon_of_the_user_is_found(fake, ctl, scratch):
    """Default places of all devices, and private daemons; a named one is asked alone."""
    for name in ("run/gradsync/cpu", "run/gradsync/cpu:b", f"gradsync-{os.geteuid()}.abcdef", "gradsync-99.abcdef",
                 "gradsync-0.plante"):
        (scratch / name).mkdir(parents=True)
    fake("run/gradsync/cpu/socket", device="cpu", answer=[("STATUS_JOB", wire.pb.StatusJob(job=1, name="first"))])
    fake("run/gradsync/cpu:b/socket", device="cpu:b", answer=[("STATUS_JOB", wire.pb.StatusJob(job=1, name="second"))])
    fake(f"gradsync-{os.geteuid()}.abcdef/socket", device="cpu:private")
    fake("gradsync-99.abcdef/socket", device="cpu:foreign")
    if os.geteuid() == 0:               # else it cannot be given to another user
        fake("gradsync-0.plante/socket", device="cpu:planted")
        os.chown(scratch / "gradsync-0.plante", 65534, 65534)
    env = {"XDG_RUNTIME_DIR": scratch / "run", "TMPDIR": scratch}
    document = json.loads(ctl("--json", env=env).out)
    devices = [each["daemon"]["device"] for each in document["daemons"]]
    assert devices[:2] == ["cpu", "cpu:b"] and devices[-1] == "cpu:private" and not {"cpu:foreign", "cpu:planted"} & set(devices)
    assert document["daemon"]["device"] == "cpu"
    assert [(job["name"], job["device"]) for job in document["jobs"]][:2] == [("first", "cpu"), ("second", "cpu:b")]
    assert [job["name"] for job in document["daemons"][1]["jobs"]] == ["second"]
    text = ctl(env=env).out
    assert all(f" on {device}, " in text for device in ("cpu", "cpu:b", "cpu:private"))
    for arguments, extra in ((["--device", "cpu:b"], {}), ([], {"GRADSYNC_DEVICE": "cpu:b"}), (["--device=cpu:b"], {"GRADSYNC_SOCKET": "/x"})):
        named = json.loads(ctl(*arguments, "status", "--json", env={**env, **extra}).out)
        assert [each["daemon"]["device"] for each in named["daemons"]] == ["cpu:b"]


def test_a_silent_daemon_hides_no_other(fake, program, scratch):
    """Those that answer are shown, the silent one is named, and the exit status says that one is missing."""
    runtime = scratch / "run"
    for name in ("cpu", "cpu:b", "cpu:c"):
        (runtime / "gradsync" / name).mkdir(parents=True)
    (scratch / "tmp").mkdir()
    env = {"XDG_RUNTIME_DIR": runtime, "TMPDIR": scratch / "tmp"}
    answering = [fake(f"run/gradsync/{device}/socket", device=device,
                      answer=[("STATUS_JOB", wire.pb.StatusJob(job=1, name=name))])
                 for device, name in (("cpu", "first"), ("cpu:c", "last"))]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(runtime / "gradsync/cpu:b/socket"))
        silent.listen()
        text, document, last = [program(harness.CTL, "status", *words, env=env, stdin=subprocess.DEVNULL)
                                for words in ([], ["--json"], ["last"])]
        for each in (text, document, last):
            assert each.wait() == 1, each.told()
        assert " on cpu, " in text.out and " on cpu:c, " in text.out and "cpu:b" not in text.out
        complaint, = [line for line in text.err.splitlines() if str(runtime) in line]
        named = f"gradsyncctl: {silent.getsockname()}: the daemon (pid {os.getpid()}) has not answered"
        assert complaint.startswith(named), text.err
        document = json.loads(document.out)
        sockets = [each["daemon"]["socket"] for each in document["daemons"]]
        assert [path for path in sockets if str(runtime) in path] == [each.path for each in answering]
        assert {"first", "last"} <= {job["name"] for job in document["jobs"]}
        assert "\nlast  " in last.out


def test_a_silent_daemon_may_have_the_job(daemon, program, scratch):
    """An order that no other daemon knows the job of has failed."""
    for name in ("cpu", "cpu:b"):
        (scratch / "gradsync" / name).mkdir(parents=True)
    (scratch / "gradsync/cpu:b/socket").symlink_to(daemon().socket)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(scratch / "gradsync/cpu/socket"))
        silent.listen()
        made = program(harness.CTL, "pause", "job", env={"XDG_RUNTIME_DIR": scratch, "TMPDIR": scratch})
        assert made.wait() == 1
    assert "has not answered" in made.err and "there is no job" not in made.err, made.err


# -- usage


def test_options_in_front_of_the_command(fake, ctl, scratch):
    """Options mean the same before and after the command: no word that follows them is taken for a job."""
    served = fake(answer=[("STATUS_JOB", wire.pb.StatusJob(job=1, name="status", state="running", world=1))])
    for front, words, behind in ((["--json"], ["status"], ["--json"]), (["-j"], ["list", "jobs"], ["--json"]),
                                 (["--json"], ["list", "clients"], ["-j"]), (["--json", "-s", served.path], ["status", "status"], ["--json"]),
                                 (["--js"], ["status"], ["-j"])):
        told = json.loads(ctl(*front, *words, socket=served.path).out)
        assert told == json.loads(ctl(*words, *behind, socket=served.path).out)
        assert told["schema_version"] == 1
    for front in (["-js", served.path], ["-j", f"-s{served.path}"], ["--json", f"--socket={served.path}"], ["-j", "--sock", served.path]):
        assert json.loads(ctl(*front, "list", "jobs").out)["jobs"][0]["name"] == "status"
    assert ctl("-s", scratch / "nowhere", "help").out == ctl("help").out
    assert ctl("--help", "list").out == ctl("-s", "/x", "list", "--help").out == ctl("help", "list").out
    assert ctl("-s", "/x", "--help").out == ctl("--help").out and ctl("-j", "-V").out == ctl("--version").out


@pytest.mark.parametrize("arguments", ["status", "status --json", "list jobs", "list clients --json", "metrics", "doctor", "help", "--version"])
def test_a_full_disk_is_an_error(fake, build, arguments):
    served = fake(answer=[("STATUS_JOB", wire.pb.StatusJob(job=1, name="j", state="running", world=1))])
    with open("/dev/full", "wb") as full:
        made = subprocess.run([build / harness.CTL, *arguments.split()], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False,
                              env=harness.environment({"GRADSYNC_SOCKET": served.path}))
    assert made.returncode == 1 and b"No space left" in made.stderr
