# SPDX-License-Identifier: Apache-2.0
"""metrics_listen: metrics over TCP for collectors, without names unless they are wanted."""
import contextlib
import os
import re
import socket
import time

import pytest

import harness
from clusters import listeners_of, restart
from exposition import http, parse, series
from peer import Crew, Peer, small_plan
from scraping import PROMETHEUS, ask, call, get, own_address, rest_of

ALICE, BOB = 61001, 61002
PLAIN = "text/plain; version=0.0.4; charset=utf-8"

PATIENCE = 5            # seconds: what the daemon has for a caller that says nothing

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")


@pytest.fixture
def served(daemon):
    address = own_address()
    made = daemon(settings={"metrics_listen": address, "socket_mode": "0666"})
    made.metrics = address
    return made


def scrape(served):
    status, headers, body = http(get(served.metrics))
    assert status == "HTTP/1.1 200 OK" and headers["content-type"] == PLAIN
    return parse(body)


@needs_root
def test_totals_name_nobody(served, peers):
    """Two users' jobs, and one that has ended, whose steps stay in the totals: they never fall."""
    crews = [peers(Crew(served.socket, name, world, lambda ordinal: small_plan(2, ordinal=ordinal), uid=uid))
             for name, uid, world in (("secret", ALICE, 2), ("hidden", BOB, 3), ("short", BOB, 1))]
    for crew, steps in zip(crews, (1, 2, 4)):
        crew.go(steps)
    before = scrape(served)
    text = get(served.metrics)
    assert not re.search(r"secret|hidden|short|61001|61002|\b(job|job_name|uid|pid|rank)=", text)
    assert before["gradsync_steps_total"] == {series(outcome="committed"): 7, series(outcome="void"): 0}
    assert before["gradsync_bytes_reduced_total"] == {(): 7 * 2 * 1024}
    assert before["gradsync_step_duration_seconds_count"] == {(): 7}
    assert before["gradsync_collective_duration_seconds_count"] == {(): 14}
    assert before["gradsync_jobs_in_state"][series(state="running")] == before["gradsync_jobs"][()] == 3
    assert before["gradsync_members"] == before["gradsync_world_size"] == {(): 6}
    crews[2].close()
    operator = peers(Peer(served.socket))
    harness.wait_until(lambda: operator.status()["STATUS_DAEMON"][0].jobs == 2, "the end of a job")
    after = scrape(served)
    for name, samples in after.items():
        if name.endswith(("_total", "_count", "_sum", "_bucket")):
            assert all(samples[key] >= value for key, value in before[name].items()), name
    assert after["gradsync_steps_total"] == before["gradsync_steps_total"]
    assert after["gradsync_jobs_in_state"][series(state="running")] == 2
    assert after["gradsync_members"] == {(): 5}


def test_losses_stay_in_the_totals(served, peers):
    crew = peers(Crew(served.socket, "broken", 2))
    crew.open()
    crew.peers[1].close()
    assert crew.peers[0].outcome(crew.plans[0][0])[0] == "VOID"
    assert scrape(served)["gradsync_jobs_in_state"][series(state="lost")] == 1
    crew.close()
    harness.wait_until(lambda: scrape(served)["gradsync_jobs"] == {(): 0}, "the end of the job")
    found = scrape(served)
    assert found["gradsync_steps_total"][series(outcome="void")] == 1
    assert set(found["gradsync_jobs_in_state"].values()) == {0}


def test_jobs_are_named_if_they_are_wanted(daemon, peers):
    address = own_address()
    served = daemon(settings={"metrics_listen": address, "metrics_listen_jobs": "yes"})
    served.metrics = address
    peers(Crew(served.socket, "named", 2)).go(3)
    found, told = scrape(served), parse(served.ctl("metrics"))
    mine = {"job_name": "named", "uid": str(os.geteuid())}
    assert found["gradsync_steps_total"][series(outcome="committed", **mine)] == 3
    assert set(found) == set(told) and set(found["gradsync_rank_lateness_seconds_total"]) == \
        {series(rank=str(rank), **mine) for rank in range(2)}


def test_a_collector_gets_the_text_whatever_it_accepts(served, peers):
    peers(Crew(served.socket, "job", 1)).go(2)
    for accept in (None, PROMETHEUS, "application/openmetrics-text; version=1.0.0", "text/html"):
        status, headers, body = http(get(served.metrics, accept))
        assert status == "HTTP/1.1 200 OK" and headers["content-type"] == PLAIN
        assert headers["connection"] == "close"
        assert parse(body)["gradsync_steps_total"][series(outcome="committed")] == 2


def test_requests(served):
    status, headers, body = http(get(served.metrics, version="1.0"))
    assert status.endswith("200 OK") and "transfer-encoding" not in headers and parse(body)
    status, _, body = http(get(served.metrics, method="HEAD"))
    assert status.endswith("200 OK") and body == ""
    assert http(get(served.metrics, path="/metrics?x=y"))[0].endswith("200 OK")
    assert http(get(served.metrics, path="/secret"))[0].endswith("404 Not Found")
    assert http(get(served.metrics, method="POST"))[0].endswith("405 Method Not Allowed")
    for host, status in (("evil.example", "421 Misdirected Request"), (socket.gethostname(), "200 OK")):
        request = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"
        assert http(ask(served.metrics, request.encode()))[0].endswith(status)
    long = b"GET /metrics?" + b"a" * 5000 + b" HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert http(ask(served.metrics, long))[0].endswith("431 Request Header Fields Too Large")
    for wrong in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"HELO example.org\r\n", b"y" * 5000):
        status, headers, body = http(ask(served.metrics, wrong))
        assert status.endswith("400 Bad Request") and headers["content-length"] == "0" and body == ""


def test_whoever_says_nothing_gets_nothing(served):
    for said in (b"", b"GET /metrics HTTP/1.1\r\n"):
        with call(served.metrics) as caller:
            caller.sendall(said)
            caller.shutdown(socket.SHUT_WR)
            assert rest_of(caller) == ""


def test_a_request_in_pieces(served):
    with call(served.metrics) as caller:
        for piece in (b"G", b"ET /met", b"rics HTTP/1.0\r\nAcc", b"ept: text/plain\r\n", b"\r\n"):
            caller.sendall(piece)
        assert parse(http(rest_of(caller))[2])


def keeps_its_place(address):
    """Whether a caller is answered after 30 others have come from another address, none of which ends; None:
    the daemon may have given it up for its own slowness."""
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        patient = held.enter_context(call(address))
        crowd = [held.enter_context(call(address, origin="127.0.0.9")) for _ in range(30)]
        for caller in crowd:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                caller.sendall(b"GET /metrics")
        with contextlib.suppress(ConnectionResetError):
            assert crowd[0].recv(1) == b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            patient.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            if text := rest_of(patient):
                return parse(http(text)[2])
    return None if time.monotonic() - began >= PATIENCE else False


def test_callers_that_hold_on_cost_others_nothing(served):
    """More callers from one address than are served at a time: one from another address keeps its place."""
    answers = []
    harness.wait_until(lambda: answers.append(keeps_its_place(served.metrics)) or answers[-1] is not None,
                       "an answer before the daemon's patience has ended")
    assert answers[-1]


@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "killed"])
def test_the_next_daemon_gets_the_port(served, orderly):
    """Though connections of the one before linger: it has closed them first."""
    with call(served.metrics) as held:
        for _ in range(3):
            assert scrape(served)
        restart(served, orderly)
        assert scrape(served)
        with contextlib.suppress(ConnectionResetError):
            assert held.recv(1) == b""


def test_a_port_that_is_taken_does_not_stop_the_start(served, daemon):
    """Otherwise a process that takes the port while a daemon is restarted would keep the jobs from coming
    back."""
    other = daemon(settings={"metrics_listen": served.metrics})
    other.wait_log(f"warning: metrics_listen: another process listens on {served.metrics}; where several .*"
                   "each a port of its own .*; it is tried again every second")
    foreign = daemon(settings={"metrics_listen": "192.0.2.1:9464"})
    foreign.wait_log("warning: metrics_listen: this host does not have the address of 192.0.2.1:9464; it is")
    assert scrape(served)
    harness.wait_until(lambda: other.status()["daemon"]["uptime_ms"] > 2500, "more than one attempt")
    assert f"http://{served.metrics}/metrics" not in other.log
    served.expect_clean = False
    harness.stop(served)
    other.wait_log(f"http://{served.metrics}/metrics gives totals to whoever reaches that address")
    other.metrics = served.metrics
    assert scrape(other)


def test_the_log_says_who_can_read_what(served, daemon):
    assert f"http://{served.metrics}/metrics gives totals to whoever reaches that address" in served.log
    named = daemon(settings={"metrics_listen": own_address(), "metrics_listen_jobs": "yes"})
    assert "/metrics gives names and figures of all jobs to whoever" in named.log


def test_no_port_by_default(daemon, served):
    assert listeners_of(daemon().pid) == [] and len(listeners_of(served.pid)) == 1
