# SPDX-License-Identifier: Apache-2.0
"""Status of a job over several daemons: each daemon shows all of it, and which members are waited for
where."""
import json
import os
import re
import signal

import pytest

from clusters import SWIFT, Cluster, Gate, helpers, members_of, opened, write_key
from harness import free_port, wait_until
from peer import Peer
from trainers import OK, ask, crew, ended, fields, script, step, together

pytestmark = pytest.mark.host

ALICE = 61001
QUICK = {"stall_notice": "1s"}
PARAMS = ("body.weight f32 5", "body.bias f32 3 2")


@pytest.fixture
def hosts(cluster):
    """hosts(*names, **options) -> a Cluster with a daemon on each of these hosts."""
    return lambda *names, **options: cluster(names, **{"settings": QUICK, **options})


def formed(it, member, world=2):
    members = crew(members_of(it, member), None, world, params=PARAMS)
    assert step(members) == 1
    return members


def shown(served, name="job"):
    return served.job(name) or {"members": [], "waiting_for": []}


def places(job):
    return [(each["rank"], each["host"], each["pid"]) for each in job["members"]]


def test_every_daemon_shows_the_whole_job(hosts, member, peers):
    it = hosts("alpha", "beta")
    members = formed(it, member, 3)
    expected = [(rank, ("alpha", "beta")[rank % 2], each.pid) for rank, each in enumerate(members)]
    for served in (*it.nodes, it.coordinator):
        wait_until(lambda served=served: [each["step"] for each in shown(served)["members"]] == [1, 1, 1],
                   "what every node has shown since the step")
        job = shown(served)
        assert places(job) == expected, job
        assert (job["step"], job["world_size"], job["waiting_for"]) == (1, 3, [])
        assert [plan["step"] for plan in job["plans"]] == [1]
        text = served.ctl("status")
        assert "HOST" in text and "alpha" in text and "beta" in text, text
    rows = peers(Peer(it.nodes[0].socket)).status()["STATUS_MEMBER"]
    assert {row.rank: row.HasField("client") for row in rows} == {0: True, 1: False, 2: True}, \
        "another daemon's numbers of clients say nothing here"


def bring(members, *ranks):
    """These bring their part of a step, and wait for its end."""
    for rank in ranks:
        script(members[rank], f"fill {rank + 1}", "ready")
        members[rank].say("finish")


def bring_all_but(members, late):
    bring(members, *(rank for rank in range(len(members)) if rank != late))


def finish_all_but(members, late):
    bring(members, late)
    ended(members, OK)


def change(node, before, after):
    """This line of its configuration, while it runs."""
    node.reload(node.config.read_text().replace(before, after))


def is_named(served, **wanted):
    """The wait for that member, as this daemon shows it."""
    for wait in shown(served)["waiting_for"]:
        if all(wait[key] == value for key, value in wanted.items()):
            return wait
    return None


@pytest.mark.parametrize("world", [2, 4])
def test_a_stopped_trainer_on_another_host_is_named(hosts, member, world):
    """Alone on its node it has begun nothing there; beside others it keeps them waiting, too."""
    it = hosts("alpha", "beta")
    members = formed(it, member, world)
    victim = members[1]
    victim.stop()
    bring_all_but(members, 1)
    wanted = {"rank": 1, "host": "beta", "pid": victim.pid, "process_state": "stopped", "what": "step",
              "bucket": 0, "parameter": "body.weight", "step": 2}
    for served in (it.nodes[0], it.nodes[1], it.coordinator):
        wait_until(lambda served=served: is_named(served, **wanted), "the name")
    text = (rf"job 'job', step 2: waiting [\d.]+ s for rank 1 on host beta \(pid {victim.pid}, stopped\): "
            rf'bucket 0, parameter "body.weight"')
    it.nodes[0].wait_log(text)
    for served in (*it.nodes, it.coordinator):
        assert "rank 1 on host beta" in served.ctl("status")
        assert shown(served)["state"] == "stalled"
    victim.resume()
    finish_all_but(members, 1)
    said = ask(members[0], "stall")
    assert fields(said)["host"] == "beta" and fields(said)["state"] == "stopped", said
    assert (fields(said)["rank"], fields(said)["pid"]) == ("1", str(victim.pid))
    assert re.search(text, said), said
    for node in it.nodes:
        node.wait_log(rf"job 'job', step 2: goes on after waiting [\d.]+ s for rank 1"
                      rf"( on host beta)? \(pid {victim.pid}\)")
    assert step(members) == 3
    for served in (*it.nodes, it.coordinator):
        wait_until(lambda served=served: not shown(served)["waiting_for"], "the end of the wait")


def test_a_stopped_daemon_is_named(hosts, member):
    it = hosts("alpha", "beta")
    members = formed(it, member)
    it.nodes[1].program.stop()
    bring_all_but(members, 1)
    said = r"the node on host beta: no report for [\d.]+ s"
    for served in (it.nodes[0], it.coordinator):
        wait = wait_until(lambda served=served: is_named(served, what="node", host="beta"), "the name")
        assert re.fullmatch(said, wait["text"]) and wait["since_ms"] >= 1000, wait
        assert (wait["rank"], wait["pid"]) == (None, None)
        assert re.search(said, served.ctl("status"))
    it.nodes[0].wait_log(r"job 'job', step 2: waiting [\d.]+ s for " + said)
    it.nodes[1].program.resume()
    finish_all_but(members, 1)
    said = fields(ask(members[0], "stall"))
    assert said["host"] == "beta" and said["rank"] == str(2 ** 32 - 1), said


def test_a_stopped_helper_is_named(hosts, member):
    """Its connections look alive to the other host."""
    it = hosts("alpha", "beta", settings={**QUICK, "rejoin_grace": "60s"})
    members = formed(it, member)
    stopped, = helpers(1, it.nodes[1])
    os.kill(stopped, signal.SIGSTOP)
    bring(members, 0, 1)
    said = rf"the helper process {stopped} on host beta \(stopped\), which does not answer its daemon"
    here = said.replace(" on host beta", "")
    for served in (*it.nodes, it.coordinator):
        wait = wait_until(lambda served=served: is_named(served, what="helper", host="beta"), "the name")
        assert re.fullmatch(said, wait["text"]), wait
        assert (wait["rank"], wait["pid"], wait["process_state"]) == (None, None, "stopped")
        assert [each["what"] for each in shown(served)["waiting_for"]] == ["helper"]
        assert re.search(r"waiting [\d.]+ s for " + said, served.ctl("status"))
    for node, text in zip(it.nodes, (said, here)):
        node.wait_log(r"job 'job', step 2: waiting [\d.]+ s for " + text)
    os.kill(stopped, signal.SIGCONT)
    ended(members, OK)
    it.nodes[1].wait_log(rf"the helper process {stopped} of Gloo answers again")
    for each, host, text in zip(members, ("beta", ""), (said, here)):
        last = ask(each, "stall")
        assert (fields(last)["host"], fields(last)["state"]) == (host, "stopped"), last
        assert re.search(text, last), last
    for served in (*it.nodes, it.coordinator):
        wait_until(lambda served=served: not shown(served)["waiting_for"], "the end of the wait")
    assert step(members) == 3
    assert helpers(1, it.nodes[1]) == [stopped]


def test_a_stopped_coordinator_is_named_by_those_who_wait(hosts, member):
    it = hosts("alpha", "beta")
    members = formed(it, member)
    it.coordinator.program.stop()
    assert step(members) == 2
    assert places(shown(it.nodes[0])) == [(0, "alpha", members[0].pid)]
    assert shown(it.nodes[0])["waiting_for"] == []
    bring_all_but(members, 1)
    wait = wait_until(lambda: is_named(it.nodes[0], what="node"), "the name")
    assert "the coordinator at unix:" in wait["text"] and "no report for" in wait["text"], wait
    it.coordinator.program.resume()
    finish_all_but(members, 1)


def test_collectives_and_plans_name_those_on_other_hosts(hosts, member):
    it = hosts("alpha", "beta", settings={"stall_notice": "100ms"})
    members = formed(it, member)
    members[0].say("barrier")
    wait_until(lambda: is_named(it.nodes[0], rank=1, host="beta", what="operation"), "the name")
    it.nodes[0].wait_log(r"operation 0, barrier: waiting [\d.]+ s for rank 1 on host beta")
    assert ask(members[1], "barrier") is not None
    assert members[0].line().startswith("OK")
    assert fields(ask(members[0], "stall"))["host"] == "beta"
    together(members, "slot 1", "param more f32 9")
    members[0].say("plan")
    wait_until(lambda: is_named(it.nodes[0], rank=1, host="beta", what="plan"), "the name")
    it.nodes[0].wait_log(r"agreement on plan 1: waiting [\d.]+ s for rank 1 on host beta")
    assert ask(members[1], "plan") is not None
    assert members[0].line().startswith("OK")


def test_a_member_that_only_others_wait_for_is_evicted_after_the_deadline(hosts, member):
    it = hosts("alpha", "beta", settings={"stall_notice": "100ms", "step_deadline": "1h"})
    members = formed(it, member)
    bring_all_but(members, 1)
    for node in it.nodes:
        change(node, "step_deadline = 1h", "step_deadline = 2s")
    line = members[0].line()
    assert not line.startswith("OK"), line
    it.nodes[0].wait_log(r"lost rank 1 \(pid \d+\) on host beta after step 1: it was evicted, and the log of "
                         "its daemon says why")
    it.nodes[1].wait_log(r"lost rank 1 \(pid \d+\) after step 1: it was evicted: the step deadline of 2\.0 s "
                         "has passed")
    assert "the step deadline of 2.0 s has passed" in members[1].ask("barrier")


def test_a_host_that_is_not_reached_is_named(hosts, member):
    """Its trainer lives, as far as others know: nothing is said of an end of its process."""
    it = hosts("alpha", "beta", settings={"stall_notice": "100ms"}, times=SWIFT)
    members = formed(it, member)
    bring_all_but(members, 1)
    it.nodes[0].wait_log(r"step 2: waiting [\d.]+ s for rank 1")
    it.nodes[1].program.stop()
    said = f"job 'job' lost rank 1 (pid {members[1].pid}) with beta after step 1: its daemon is not reached"
    line = members[0].line()
    assert line.endswith(f"step 2 is void on all members: {said}; the job is over"), line
    it.nodes[0].wait_log(re.escape(said))
    assert "its daemon is not reached" in it.nodes[0].ctl("status")
    it.nodes[1].program.resume()
    assert ask(members[1], "barrier", code="MEMBER_LOST")


def test_a_host_that_is_lost_while_its_job_forms(hosts, member, build, scratch):
    """The daemons connect: the job has all of its members, and has not begun."""
    gate = Gate(build, scratch)
    it = hosts("alpha", settings={"stall_notice": "100ms"}, times=SWIFT)
    it.nodes.append(it.add(host_id="beta", gloo_helper=gate.program))
    members = opened(it, member, 0, 1)
    gate.close()
    for rank, each in enumerate(members):
        each.say(f"join name=job world=2 rank={rank}")
    wait_until(lambda: len(shown(it.coordinator)["members"]) == 2, "both members")
    it.nodes[1].program.stop()
    assert members[0].line() == (
        f"MEMBER_LOST job 'job' lost rank 1 (pid {members[1].pid}) with beta before it began: its daemon is "
        "not reached; too few members are left, and the job had made no step: start it again")
    it.nodes[1].program.resume()
    members[1].destroy()                        # it would wait for rank 0 to be started again


@pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of several users")
def test_other_users_do_not_see_it(hosts, member):
    it = hosts("alpha", "beta", settings={**QUICK, "socket_mode": "0666"})
    formed(it, member)
    for served in (*it.nodes, it.coordinator):
        assert served.job("job") is not None
        theirs = served.status(uid=ALICE)
        assert theirs["jobs"] == [] and theirs["daemon"]["node"] is None
        for which, status in ((True, theirs), (False, served.status())):
            assert {link["node"] is None for link in status["links"]} == {which}
        served.ctl("status", "0/job", uid=ALICE, code=4)


# -- jobs that wait for members


def test_a_forming_job_says_which_hosts_have_no_member(hosts, member):
    it = hosts("alpha", "beta", "gamma", settings={"stall_notice": "1h"})
    members = opened(it, member, 0, 1, 0)
    for rank, each in enumerate(members):
        each.say(f"join name=job world=4 rank={rank}")
    said = "3 of 4 members; host gamma has none"
    for served in (*it.nodes[:2], it.coordinator):
        wait_until(lambda served=served: shown(served).get("text") == said, "the text")
        wait_until(lambda served=served: [(each["what"], each["rank"])
                                          for each in shown(served)["waiting_for"]] == [("join", 3)],
                   "the rank, which nodes hear with the next heartbeat")
        job = shown(served)
        assert sorted(each["host"] for each in job["members"]) == ["alpha", "alpha", "beta"], job
        text = served.ctl("status")
        assert said in text and "waiting for 1 more member to join" in text, text
    for node in it.nodes[:2]:           # it is told once, so not before all three are there
        change(node, "stall_notice = 1h", "stall_notice = 100ms")
        node.wait_log(rf"waiting [\d.]+ s for rank 3 to join: {said}")
    members += opened(it, member, 2)
    members[3].say("join name=job world=4 rank=3")
    ended(members, OK)
    for served in (*it.nodes, it.coordinator):
        wait_until(lambda served=served: shown(served).get("text") in (None, "") and
                   len(shown(served)["members"]) == 4, "the whole job")


def test_a_join_that_times_out_says_where_members_are_missing(hosts, member):
    it = hosts("alpha", "beta", "gamma")
    first, second = opened(it, member, 0, 1)
    first.say("join name=job world=3 rank=0")
    wait_until(lambda: shown(it.coordinator)["members"], "the first member")
    line = ask(second, "join name=job world=3 rank=1 timeout=1000", "TIMEOUT")
    assert "host gamma has none" in line and re.search(r"\b[12] of 3 members;", line), line


# -- connections between daemons


def links(served):
    return json.loads(served.ctl("list", "links", "--json"))["links"]


def by_host(served):
    return {link["host"]: link for link in links(served)}


def connected(served, *hosts):
    """The links to these hosts, once each link has been measured."""
    def look():
        found = by_host(served)
        return sorted(found) == sorted(hosts) and \
            all(link["round_trip_us"] is not None for link in found.values()) and found
    return wait_until(look, f"links to {hosts}")


def test_links_between_daemons_are_listed(daemon, build, scratch):
    key, address = write_key(scratch / "key", "blue"), f"127.0.0.1:{free_port()}"
    it = Cluster(daemon, build, address, ("alpha", "beta"), common={"key_file": key})
    found = connected(it.coordinator, "alpha", "beta")
    for node, link in zip(it.nodes, (found["alpha"], found["beta"])):
        assert (link["role"], link["state"], link["key"], link["text"]) == ("node", "connected", "blue", None)
        assert link["node"] == node.status()["daemon"]["node"] and link["address"].startswith("127.0.0.1:")
        assert link["sent"] > 0 and link["received"] > 0 and link["heard_ms"] <= link["since_ms"]
        # One machine: its clocks are the same, and the error is at most half of the way.
        assert 2 * abs(link["clock_us"]) <= link["round_trip_us"] + 2 and link["device"] == "none"
        back, = links(node)
        assert (back["role"], back["state"], back["key"]) == ("coordinator", "connected", "blue")
        assert back["node"] == it.coordinator.status()["daemon"]["node"]
        assert back["address"] == address and back["host"]
        document = node.status()
        assert document["links"] == document["daemons"][0]["links"] and len(document["links"]) == 1
    lines = it.coordinator.ctl("list", "links").splitlines()
    assert lines[0].split()[:4] == ["DEVICE", "TO", "HOST", "ADDRESS"] and len(lines) == 3, lines
    it.coordinator.program.kill()
    said = rf"no connection to the coordinator at {address} for .*refused"
    for node in it.nodes:
        wait_until(lambda node=node: links(node)[0]["state"] == "connecting", "the end of the link")
        wait_until(lambda node=node: "Connection refused" in links(node)[0]["text"], "the reason")
        wait_until(lambda node=node: re.search(said, node.ctl("status")), "the line")
    it.coordinator.start()
    connected(it.coordinator, "alpha", "beta")


def test_a_daemon_alone_has_no_links(served):
    assert links(served) == [] and served.status()["links"] == []
