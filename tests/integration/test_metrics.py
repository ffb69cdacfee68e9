# SPDX-License-Identifier: Apache-2.0
"""Metrics: the text that `gradsyncctl metrics` and the metrics socket give out, taken apart."""
import contextlib
import os
import pathlib
import re
import resource
import select
import socket
import stat
import time

import pytest

import harness
from exposition import parse, series
from peer import Crew, Peer, small_plan

ALICE, BOB = 61001, 61002
STATES = ("forming", "running", "stalled", "paused", "replacing", "lost", "ended")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


def fetch(path, request=None):
    """The answer to a caller that says `request` and reads to the end; None: it shuts its side down without a
    word."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(harness.DEADLINE)
        caller.connect(str(path))
        if request is None:
            caller.shutdown(socket.SHUT_WR)
        else:
            caller.sendall(request)
        out = b""
        while part := caller.recv(65536):
            out += part
        return out.decode()


@pytest.fixture
def served(daemon, scratch):
    made = daemon(settings={"metrics_socket": scratch / "metrics"})
    made.metrics = scratch / "metrics"
    return made


def test_a_job_in_numbers(served, peers):
    crew = peers(Crew(served.socket, "digits", 2, lambda ordinal: small_plan(3, ordinal=ordinal)))
    crew.go(4)
    found = parse(served.ctl("metrics"))
    mine = {"job_name": "digits", "uid": str(os.geteuid())}
    (build,) = found["gradsync_build_info"]
    assert dict(build)["device"] == "cpu" and dict(build)["version"]
    assert found["gradsync_clients"] == {(): 2} and found["gradsync_jobs"] == {(): 1} and found["gradsync_arenas"] == {(): 2}
    assert found["gradsync_jobs_in_state"] == {series(state=state): float(state == "running") for state in STATES}
    assert found["gradsync_job_state"] == {series(gradsync_job_state=state, **mine): float(state == "running")
                                           for state in STATES}
    assert found["gradsync_world_size"] == found["gradsync_members"] == {series(**mine): 2}
    assert found["gradsync_generation"] == {series(**mine): crew.peers[0].generation}
    assert found["gradsync_steps_total"] == {series(outcome="committed", **mine): 4, series(outcome="void", **mine): 0}
    assert found["gradsync_step_duration_seconds_count"] == {series(**mine): 4}
    assert found["gradsync_collective_duration_seconds_count"] == {series(**mine): 12}
    assert 0 < found["gradsync_collective_duration_seconds_sum"][series(**mine)] \
        <= found["gradsync_step_duration_seconds_sum"][series(**mine)]
    assert found["gradsync_bytes_reduced_total"] == {series(**mine): 4 * 3 * 1024}
    bandwidth = found["gradsync_bus_bandwidth_bytes_per_second"][series(**mine)]
    assert bandwidth == pytest.approx(4 * 3 * 1024 / found["gradsync_collective_duration_seconds_sum"][series(**mine)])
    assert found["gradsync_gradient_norm"] == {series(**mine): pytest.approx((3 * 256 * 1.5 ** 2) ** 0.5)}
    assert found["gradsync_nonfinite_steps_total"] == {series(**mine): 0}
    assert set(found["gradsync_rank_lateness_seconds_total"]) == {series(rank=str(rank), **mine) for rank in range(2)}


def test_a_bucket_that_nobody_uses_is_not_reduced(served, peers):
    """Nothing is read or written there: the members' own zeros, for which other values stand here, stay."""
    crew = peers(Crew(served.socket, "dropped", 2, lambda ordinal: small_plan(3, ordinal=ordinal)))
    mine = series(job_name="dropped", uid=str(os.geteuid()))
    for step, absent in enumerate([[{1}, {1}], [{1}, {0, 1}], [set(), {2}], [{0, 1, 2}] * 2]):
        for rank, (peer, plan) in enumerate(zip(crew.peers, crew.plans[0])):
            for bucket in range(3):
                peer.write(plan, bucket, [1.0 + rank] * 256)
                peer.ready(plan, bucket, **({"absent": b"\x01"} if bucket in absent[rank] else {}))
        dropped = absent[0] & absent[1]
        for rank, (peer, plan) in enumerate(zip(crew.peers, crew.plans[0])):
            outcome, _, results = peer.outcome(plan)
            assert outcome == "COMMITTED"
            for bucket in range(3):
                expected = 1.0 + rank if bucket in dropped else 1.5
                assert peer.read(plan, bucket)[0] == expected, (step, bucket)
                assert (results[bucket].unused == b"\x01") == (bucket in dropped)
                assert (results[bucket].sum_squares == 0) == (bucket in dropped)
    reduced = parse(served.ctl("metrics"))["gradsync_bytes_reduced_total"][mine]
    assert reduced == (2 + 2 + 3 + 0) * 1024
    crew.go(1)


def test_lateness_is_the_late_ranks(served, peers):
    crew = peers(Crew(served.socket, "late", 2))
    mine = {"job_name": "late", "uid": str(os.geteuid())}
    crew.open(rank=1)
    crew.peers[0].ready(crew.plans[0][0], 0)
    assert crew.peers[0].outcome(crew.plans[0][0])[0] == "COMMITTED"
    found = parse(served.ctl("metrics"))
    late = found["gradsync_rank_lateness_seconds_total"]
    assert late[series(rank="1", **mine)] == 0 < late[series(rank="0", **mine)]
    assert found["gradsync_wait_seconds_total"][series(**mine)] == late[series(rank="0", **mine)]


def test_void_steps_and_refusals(daemon, peers):
    served = daemon(settings={"jobs_per_uid": 1})
    crew = peers(Crew(served.socket, "broken", 2))
    crew.open()
    crew.peers[1].close()
    assert crew.peers[0].outcome(crew.plans[0][0])[0] == "VOID"
    other = peers(Peer(served.socket))
    for _ in range(3):
        assert other.refusal(other.join_send("more", 1)).code == "QUOTA"
    found = parse(served.ctl("metrics"))
    mine = {"job_name": "broken", "uid": str(os.geteuid())}
    assert found["gradsync_steps_total"][series(outcome="void", **mine)] == 1
    assert found["gradsync_job_state"][series(gradsync_job_state="lost", **mine)] == 1
    if os.geteuid() == 0:
        assert found["gradsync_quota_rejections_total"] == {series(resource=what): 3.0 * (what == "jobs")
                                                            for what in ("clients", "connects", "uids", "jobs",
                                                                         "arenas", "fds", "bytes",
                                                                         "plan_bytes", "daemon_bytes")}


@needs_root
def test_refusals_are_told_to_operators_only(daemon, peers):
    """Refusals for descriptors, haste or a token are counted for operators. Other users get no number instead
    of a wrong one."""
    served = daemon(settings={"socket_mode": "0666"})
    peers(Crew(served.socket, "private", 1, uid=ALICE, plan=None, token="hers"))
    stranger = peers(Peer(served.socket, ALICE))
    assert stranger.refusal(stranger.join_send("private", 1, token="other")).code == "DENIED"
    served.change(fds_per_uid=2, connects_per_uid=5, socket_mode="0666")
    seen = []                           # both clients have sockets: the next ones are too much, then too fast
    while not any("connects_per_uid" in text for text in seen):
        with served.at_once():          # one by one they might be too slow for that
            crowd = [peers(Peer(served.socket, ALICE, hello=False)) for _ in range(8)]
        seen += [each.refusal().text for each in crowd]
    fast = [text for text in seen if "connects_per_uid" in text]
    assert "fds_per_uid" in seen[0] and all("fds_per_uid" in text for text in seen if text not in fast), seen
    told = parse(served.ctl("metrics"))
    quotas = told["gradsync_quota_rejections_total"]
    assert (quotas[series(resource="fds")], quotas[series(resource="connects")]) == (len(seen) - len(fast), len(fast))
    assert told["gradsync_auth_failures_total"] == {(): 1}
    told = parse(served.ctl("metrics", uid=BOB))
    assert "gradsync_quota_rejections_total" not in told and "gradsync_auth_failures_total" not in told
    assert told["gradsync_clients"] == {(): 0}
    assert told["gradsync_arenas"] == told["gradsync_arena_bytes"] == {(): 0}


@needs_root
def test_what_others_have_is_not_told(daemon, peers):
    served = daemon(settings={"socket_mode": "0666"})
    for uid, world in ((ALICE, 1), (BOB, 2)):
        peers(Crew(served.socket, "same", world, uid=uid))
    told = {uid: parse(served.ctl("metrics", uid=uid)) for uid in (None, ALICE, BOB)}
    for what in ("gradsync_arenas", "gradsync_arena_bytes"):
        alice, bob, all_of_them = (told[uid][what][()] for uid in (ALICE, BOB, None))
        assert 0 < alice < bob and alice + bob == all_of_them
    for uid, seen in ((None, {ALICE, BOB}), (ALICE, {ALICE})):
        assert {int(dict(labels)["uid"]) for labels in told[uid]["gradsync_members"]} == seen


def test_nonfinite_values_have_words(served, peers):
    crew = peers(Crew(served.socket, "nans", 1))
    crew.peers[0].write(crew.plans[0][0], 0, [float("inf")] + [0.0] * 255)
    crew.peers[0].ready(crew.plans[0][0], 0)
    assert crew.peers[0].outcome(crew.plans[0][0])[0] == "COMMITTED"
    text = served.ctl("metrics")
    assert re.search(r"^gradsync_gradient_norm\{.*\} \+Inf$", text, re.M)
    assert list(parse(text)["gradsync_nonfinite_steps_total"].values()) == [1]


def test_names_do_not_deceive_a_reader(served, peers):
    quoted = 'a "quoted" \\ name'
    for name in ("a\u202eb\u2028c é", quoted):
        peers(Crew(served.socket, name, 1))
    text = served.ctl("metrics")
    named = {dict(labels)["job_name"] for labels in parse(text)["gradsync_members"]}
    assert named == {r"a\xe2\x80\xaeb\xe2\x80\xa8c é", quoted}


def test_no_series_twice(served, peers):
    """A job that is lost and the new one of its name are one series."""
    old = peers(Crew(served.socket, "twice", 2))
    old.go(5)
    old.peers[1].close()
    old.peers[0].expect("LOST")
    new = peers(Crew(served.socket, "twice", 1))
    new.go(2)
    found = parse(served.ctl("metrics"))
    mine = {"job_name": "twice", "uid": str(os.geteuid())}
    assert found["gradsync_steps_total"][series(outcome="committed", **mine)] == 2


def test_a_forming_job(served, peers):
    first = peers(Peer(served.socket))
    first.join_send("young", 3, 1)
    first.silent()
    found = parse(served.ctl("metrics"))
    assert list(found["gradsync_world_size"].values()) == [3] and list(found["gradsync_members"].values()) == [1]
    assert "gradsync_gradient_norm" not in found and "gradsync_rank_lateness_seconds_total" not in found


def test_the_socket_says_the_same(served, peers):
    crew = peers(Crew(served.socket, "digits", 2))
    crew.go(3)
    first, second = parse(fetch(served.metrics)), parse(served.ctl("metrics"))
    assert set(first) == set(second)
    for name in first:
        moving = any(word in name for word in ("cpu", "uptime", "own_bytes"))          # who asks costs some
        if not moving and not name.startswith("gradsync_process_"):
            assert first[name] == second[name], name


def test_the_process(served):
    """Collectors know the meanings of these metrics. The names are the daemon's own: a collector of files has
    the others."""
    found = parse(served.ctl("metrics"))
    words = pathlib.Path(f"/proc/{served.pid}/stat").read_text().rpartition(")")[2].split()
    boot = int(re.search(r"^btime (\d+)$", pathlib.Path("/proc/stat").read_text(), re.M)[1])
    begin = boot + int(words[19]) / os.sysconf("SC_CLK_TCK")
    assert begin - 2 <= found["gradsync_process_start_time_seconds"][()] <= time.time()
    resident, virtual = (found[f"gradsync_process_{what}_memory_bytes"][()] for what in ("resident", "virtual"))
    assert 0 < resident < virtual
    assert found["gradsync_process_max_fds"][()] == resource.prlimit(served.pid, resource.RLIMIT_NOFILE)[0]
    if os.stat("/proc/self/fd").st_size:
        # the connection that asked is gone now
        assert abs(found["gradsync_process_open_fds"][()] - len(served.fds())) <= 2
    before = found["gradsync_process_cpu_seconds_total"][()]
    threads = sum(found["gradsync_cpu_seconds_total"].values())
    after = parse(served.ctl("metrics"))["gradsync_process_cpu_seconds_total"][()]
    assert 0 < threads <= after and before > 0


def test_a_silent_caller_gets_the_text(served):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(harness.DEADLINE)
        caller.connect(str(served.metrics))
        assert caller.recv(65536).startswith(b"# TYPE gradsync_build_info gauge\n")


def test_callers_that_hold_on_cost_nothing_else(served, peers):
    """More callers than are served at a time, none of which ends: jobs go on, and who comes next is answered all the
    same; the first ones of those that hold on have to go."""
    crew = peers(Crew(served.socket, "busy", 2))
    served.wait_notice(lambda text: "2 clients" in text)        # a datagram to the manager takes a socket for a moment
    crew.peers[0].status()
    before = served.fds()
    held = []
    for _ in range(30):
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        caller.connect(str(served.metrics))
        caller.sendall(b"GET /metrics")
        held.append(caller)
    crew.go(5)
    assert parse(fetch(served.metrics))["gradsync_steps_total"]
    ended = select.select(held, [], [], 0)[0]           # at once, long before their time is over
    assert len(ended) >= len(held) - 8, len(ended)
    harness.wait_until(lambda: len(served.fds()) <= len(before) + 8, "the end of the others")
    with contextlib.suppress(ConnectionResetError):
        assert held[0].recv(1) == b""
    held[-1].sendall(b" HTTP/1.1\r\n\r\n")
    assert held[-1].recv(15) == b"HTTP/1.1 200 OK"
    for caller in held:
        caller.close()
    harness.wait_until(lambda: served.fds() == before, "the callers' descriptors closed")


def test_a_request_that_does_not_end_has_its_time(served):
    """Byte by byte, each well within the time that a request may take: it is not heard for ever."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.connect(str(served.metrics))
        caller.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        caller.settimeout(0.5)
        for _ in range(100):
            try:
                caller.sendall(b"y")
                assert caller.recv(1) == b""
                break
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
        else:
            pytest.fail("it is still heard")


def test_access(served, daemon, scratch, program):
    assert stat.S_IMODE(served.metrics.stat().st_mode) == 0o600
    other = daemon(settings={"metrics_socket": scratch / "open", "metrics_mode": "0666"})
    assert stat.S_IMODE((scratch / "open").stat().st_mode) == 0o666
    other.finish()
    other.expect_clean = False
    assert not (scratch / "open").exists()
    clash = program(harness.DAEMON, "--socket", scratch / "s", "--metrics-socket", served.metrics, "--config", served.config)
    assert clash.wait() == 1 and "another gradsyncd listens on" in clash.err
    assert parse(fetch(served.metrics))
    clash = program(harness.DAEMON, "--socket", scratch / "s", "--metrics-socket", scratch / "s", "--config", served.config)
    assert clash.wait() == 1 and str(scratch / "s") in clash.err and not (scratch / "s").exists()


def test_there_is_none_by_default(daemon):
    served = daemon()
    assert sorted(path.name for path in served.directory.iterdir() if path.is_socket()) == ["notify", "socket"]


@needs_root
def test_metrics_are_made_as_they_are_read(daemon, peers, scratch):
    """A caller that reads later gets what is there later: the daemon keeps a piece of the text for it. Jobs
    that end meanwhile are not in the families that follow, and the text stays valid."""
    served = daemon(settings={"socket_mode": "0666", "metrics_socket": scratch / "metrics"})
    jobs = 64

    def party(uid, jobs, name):
        """One client that is alone in so many jobs, which end with it."""
        made = peers(Peer(served.socket, uid))
        for number in range(jobs):
            made.ask("JOIN", "JOINED", job=f"{name}{number}", min_world=1, max_world=1)
        return made

    goes, _, _ = (party(uid, jobs, "m" * 200) for uid in (ALICE, BOB, 0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(harness.DEADLINE)
        caller.connect(str(scratch / "metrics"))
        caller.shutdown(socket.SHUT_WR)
        out = b""
        while not re.search(rb'^gradsync_job_state{.*uid="%d"' % ALICE, out, re.M):     # sums come first
            out += caller.recv(1024)
        goes.close()
        operator = peers(Peer(served.socket))
        harness.wait_until(lambda: operator.status()["STATUS_DAEMON"][0].jobs == 2 * jobs, "one user's end")
        party(ALICE, 1, "late")
        while part := caller.recv(65536):
            out += part
    found = parse(out.decode())
    users = [{int(dict(labels)["uid"]) for labels in found[name]}
             for name in ("gradsync_job_state", "gradsync_nonfinite_steps_total")]
    assert users == [{ALICE, BOB, 0}, {BOB, 0}]
    assert len(found["gradsync_nonfinite_steps_total"]) == 2 * jobs


def test_metrics_of_many_ranks(served, peers):
    """More than are written at a time: each comes once."""
    crew = peers(Crew(served.socket, "many", 70))
    crew.go(1)
    for text in (served.ctl("metrics"), fetch(served.metrics)):
        ranks = [int(dict(labels)["rank"]) for labels in parse(text)["gradsync_rank_lateness_seconds_total"]]
        assert sorted(ranks) == list(range(70))
