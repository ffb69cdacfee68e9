# SPDX-License-Identifier: Apache-2.0
"""Daemons of a cluster that are stopped and started again, or killed: members stay, and so do ranks."""
import os
import pathlib
import signal

import pytest

import harness
import wire
from clusters import PATIENT, STAY, SWIFT, Cluster, begin, helpers, members_of, reconnecting, restart, team_on
from harness import wait_until
from peer import form
from returning import Returning, back
from teams import Team, Training, takes_state
from trainers import OK, ask, bring, crew, ended, fields, say, together

pytestmark = pytest.mark.host


@pytest.fixture
def cluster(daemon, build, scratch):
    """As in conftest.py, with time to come back."""
    return lambda nodes=2, **options: Cluster(daemon, build, f"unix:{scratch}/link", nodes,
                                              **{"settings": STAY, **options})


def places(members):
    said = [fields(ask(each, "place")) for each in members]
    return [(each["rank"], each["member"]) for each in said]


@pytest.mark.parametrize("spread", [[0, 1], [0, 1, 1, 1], [0, 0, 1, 2]])
def test_a_daemon_is_killed_between_two_steps(cluster, member, spread):
    """Nothing is void. Ranks and member ids are kept."""
    it = cluster(max(spread) + 1)
    team = Team(members_of(it, member, spread), None, world=len(spread))
    before = places(team.members)
    for number in range(1, 4):
        assert team.step() == [number] * len(spread)
        restart(it.nodes[1], orderly=False)
    assert team.step() == [4] * len(spread)
    assert places(team.members) == before
    assert [node.job("team")["void_steps"] for node in it.nodes] == [0] * len(it.nodes)


def test_a_coordinator_that_has_lost_its_list_is_told_of_addresses(cluster):
    """Each daemon claims that of before."""
    it = cluster(3)
    for made in (*it.nodes, it.coordinator):
        made.finish()
        made.program.destroy()
    pathlib.Path(it.coordinator.socket + ".identity.nodes").unlink()
    it.coordinator.start()
    for number in (3, 1, 2):                                # the coordinator is node 0
        made = it.nodes[number - 1].start()
        known = f"the coordinator knows this gradsyncd as node {number}"
        wait_until(lambda made=made, known=known: made.log.count(known) > 1, f"{known}, again")


@pytest.mark.parametrize("first", [
    pytest.param([0, 1, 2], id="its members had not given all"),
    pytest.param([0], id="its members had given nothing"),
    pytest.param([1, 2, 3], id="its members had given all"),
])
def test_a_step_that_is_open_when_a_daemon_is_killed(cluster, member, first):
    """Nothing is void where no gradient was touched."""
    it = cluster()
    team = team_on(it, member, [0, 1, 1, 1])
    together(team.members, "barrier")
    begin(team, [team.members[rank] for rank in first])
    wait_until(lambda: it.nodes[first[-1] > 0].job("team")["waiting_for"], "the step waits for others")
    restart(it.nodes[1], orderly=False)
    begin(team, [each for rank, each in enumerate(team.members) if rank not in first])
    ended(team.members, OK)
    assert set(together(team.members, "check 2.5")) == {"right"}
    together(team.members, "barrier")
    assert team.step() == [3] * 4


def test_a_daemon_without_a_journal_is_killed(cluster, member):
    """The next one does not know its members, and says so."""
    it = cluster()
    team = team_on(it, member, [0, 1, 1, 1])
    together(team.members, "barrier")
    begin(team, team.members[1:])
    wait_until(lambda: it.nodes[1].job("team")["waiting_for"], "the step waits for others")
    harness.kill(it.nodes[1])
    os.unlink(it.nodes[1].socket + ".journal")
    it.nodes[1].start()
    for text in ended(team.members[1:], "VOID_RETRY"):
        assert "the journal of this one does not have it" in text and text.endswith("the job is over"), text


@pytest.mark.heavy
@pytest.mark.parametrize("spread", [[0, 1], [0, 0, 1, 1]])
@pytest.mark.parametrize("pause", [True, False], ids=["each when steps go on", "one right after the other"])
def test_a_rolling_restart_under_load(cluster, member, scratch, spread, pause):
    """Every daemon, the coordinator too, in good order: no trainer notices anything. Bugs planted: a daemon
    that goes while it enters a generation, or while the coordinator may have told it of one."""
    it = cluster()
    team = Team(members_of(it, member, spread), None, world=len(spread))
    training = Training(it, team.members, scratch / "stop", collect=True)
    for order in ([1, None, 0], [None, 0, 1], [1, 0, None]):
        training.go_on()
        for number in order:
            if pause:
                training.go_on()
            restart(it.coordinator if number is None else it.nodes[number], orderly=True)
    training.go_on()
    assert [each["void"] for each in training.end()] == [0] * len(spread)


def test_a_stop_that_reaches_all_processes_of_a_daemon(cluster, member, scratch):
    """A terminal tells them all to end, and some service managers do. Those of the exchange go on, as steps
    do."""
    it = cluster()
    team = Team(members_of(it, member, [0, 1]), None, world=2)
    training = Training(it, team.members, scratch / "stop", collect=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        training.go_on()
        helper, = helpers(1, it.nodes[1])
        os.kill(helper, number)
        restart(it.nodes[1], orderly=True)
    training.go_on()
    assert [each["void"] for each in training.end()] == [0, 0]


@pytest.mark.heavy
@pytest.mark.parametrize("collect", [False, True])
def test_daemons_are_killed_under_load(cluster, member, scratch, collect):
    """Each costs the step that is open, and no more; with the calls that are in it."""
    it = cluster()
    team = Team(members_of(it, member, [0, 0, 1, 1]), None, world=4)
    training = Training(it, team.members, scratch / "stop", collect)
    for served in (it.nodes[1], it.nodes[0], it.nodes[1]):
        training.go_on(it.nodes[0])
        restart(served, orderly=False)
    training.go_on(it.nodes[1])
    assert all(each["void"] <= 6 for each in training.end())


def state_of(made):
    """The files that a daemon keeps from one run to the next."""
    return {path: path.read_bytes() for path in pathlib.Path(made.socket).parent.glob("*.identity*")}


def put_back(made, state):
    for path in pathlib.Path(made.socket).parent.glob("*.identity*"):
        path.unlink()
    for path, content in state.items():
        path.write_bytes(content)
        path.chmod(0o600)


@pytest.mark.heavy
@pytest.mark.parametrize("orderly", [True, False])
def test_a_coordinator_loses_its_state_and_gets_it_back(cluster, member, orderly):
    """First it is a coordinator that never had a job, whose terms begin anew. Then it has an older copy,
    whose terms have been used by others and by itself. The job goes on as after any restart."""
    it = cluster()
    it.coordinator.finish()
    it.coordinator.program.destroy()
    it.coordinator.start()
    old = state_of(it.coordinator)
    team = Team(members_of(it, member, [0, 1]), None, world=2)
    before = places(team.members)
    assert team.step() == [1, 1]
    for number, state in enumerate(({}, old, old, {})):
        (harness.stop if orderly else harness.kill)(it.coordinator)
        put_back(it.coordinator, state)
        with reconnecting(*it.nodes):
            it.coordinator.start()
        assert team.step() == [2 * number + 2] * 2
        restart(it.nodes[1], orderly=orderly)       # the coordinator has to know the job for that
        assert team.step() == [2 * number + 3] * 2
    assert places(team.members) == before

@pytest.mark.heavy
def test_a_node_loses_its_state_and_gets_it_back(cluster, member):
    """It is another node then: the job ends by name when the former one has not come back, and the next one
    begins. With its older state it is the former node again."""
    it = cluster(times=SWIFT, settings={"rejoin_grace": "1s", "drain_timeout": "60s"})
    old = state_of(it.nodes[1])
    for state in ({}, old):
        team = Team(members_of(it, member, [0, 1]), None, world=2)
        assert team.step() == [1, 1]
        harness.kill(it.nodes[1])
        put_back(it.nodes[1], state)
        it.nodes[1].start()
        ended(begin(team), "VOID_RETRY")
        say(team.members, "ready")
        ended(team.members, "MEMBER_LOST")
        for each in team.members:
            each.kill()
    harness.kill(it.nodes[1])
    put_back(it.nodes[1], old)                      # it has started with this once already
    it.nodes[1].start()
    it.nodes[1].wait_log("it refuses this daemon: a later start of it was here")
    assert "a later start of it was here" in it.nodes[1].ctl("status")


@pytest.mark.parametrize("orderly", [True, False])
def test_all_daemons_at_once(cluster, member, orderly):
    """The coordinator too: no process is left that knows the job, except its members."""
    it = cluster()
    team = Team(members_of(it, member, [0, 1, 1, 1]), None, world=4)
    before = places(team.members)
    assert team.step() == [1] * 4
    everybody = [it.coordinator, *it.nodes]
    for served in everybody:
        if orderly:
            harness.stop(served)
        else:
            harness.kill(served)
    for served in everybody:
        served.start()
    assert team.step() == [2] * 4
    assert places(team.members) == before


def test_a_coordinator_that_trains_is_restarted(cluster, daemon, scratch, member):
    """It is one of the nodes, and the only one that knows the job."""
    it = cluster(0)
    own = daemon(config=it.config(listen=f"unix:{scratch}/own", coordinator="self", **PATIENT), settings=STAY)
    other = daemon(config=it.config(coordinator=f"unix:{scratch}/own"), settings=STAY)
    other.wait_log("knows this gradsyncd as node")
    it.nodes = [own, other]
    team = Team(members_of(it, member, [0, 1]), None, world=2)
    for number in range(1, 4):
        assert team.step() == [number] * 2
        restart(own, orderly=number == 2)
    assert team.step() == [4, 4]


def test_a_daemon_is_killed_with_one_of_its_members(cluster, member):
    """The others wait for a successor, which takes the rank and the state."""
    it = cluster()
    team = team_on(it, member, [0, 1, 1, 1])
    harness.kill(it.nodes[1])
    team.kill(3)
    it.nodes[1].start()
    begin(team, team.members[:3])
    team.start = members_of(it, member, [1])
    new = team.replace(3)
    ended(team.members[:3], "VOID_RETRY", "VOID_BEHIND")
    takes_state(new, team.members[:3], 1)
    assert team.step() == [2] * 4
    restart(it.nodes[1], orderly=False)
    assert team.step() == [3] * 4, "the new process lacks no state any more"


def test_a_member_of_another_daemon_is_lost_meanwhile(cluster, member):
    """While one daemon waits for its members, which come back to a generation that has lost a member."""
    it = cluster()
    team = team_on(it, member, [0, 0, 1, 1])
    restart(it.nodes[1], orderly=False)
    team.kill(1)
    wait_until(lambda: 1 in {each.get("rank") for each in it.nodes[0].job("team")["waiting_for"]}, "the loss")
    survivors = team.survivors()
    begin(team, survivors)
    team.start = members_of(it, member, [0])
    new = team.replace(1)
    ended(survivors, "VOID_BEHIND")
    takes_state(new, survivors, 1)
    assert team.step() == [2] * 4


@pytest.mark.parametrize("orderly", [True, False])
def test_a_call_that_waits_goes_on(cluster, member, orderly):
    """A barrier for which some have come, on the daemon that goes and on the other one."""
    it = cluster()
    team = team_on(it, member, [0, 1, 1, 1])
    say(team.members[:3], "barrier")
    wait_until(lambda: it.nodes[1].job("team")["waiting_for"], "the barrier waits for rank 3")
    restart(it.nodes[1], orderly)
    assert ask(team.members[3], "barrier") == ""
    ended(team.members[:3], OK)
    assert team.step() == [2] * 4


def test_several_plans_and_freed_ones(cluster, member):
    """Tracks and step numbers of all plans are those of the other node."""
    it = cluster()
    members = crew(members_of(it, member, [0, 1, 1, 1]), None, 4)
    for slot in (1, 2, 3):
        together(members, f"slot {slot}", f"param p{slot} f32 {10 * slot}", "plan")
    counts = {}

    def steps(slot, n=1):
        together(members, f"slot {slot}")
        for _ in range(n):
            bring(members)
            rests = [fields(rest) for rest in together(members, "finish")]
            counts[slot] = counts.get(slot, 0) + 1
            assert {int(rest["step"]) for rest in rests} == {counts[slot]}, rests
            assert set(together(members, "check 2.5")) == {"right"}

    steps(0, 3)
    steps(1, 2)
    steps(3, 1)
    together(members, "slot 1", "plan_free")
    wait_until(lambda: len(it.nodes[1].job("job")["plans"]) == 3, "the end of a plan")
    for orderly in (False, True):
        restart(it.nodes[1], orderly)
        steps(3, 2)
        steps(0, 1)
        steps(2, 1)
        assert set(together(members, "allreduce 7001 f32 sum")) == {"right"}


def test_a_daemon_that_comes_back_too_late(cluster, member):
    """The others have given it up, but its places are free. Its members get these back, and all go on
    from the same state: they may have been at different places of their program."""
    it = cluster(times=SWIFT)
    team = team_on(it, member, [0, 1, 1, 1])
    before = places(team.members)
    begin(team, team.members[:1])
    harness.kill(it.nodes[1])
    wait_until(lambda: {each.get("rank") for each in it.nodes[0].job("team")["waiting_for"]} == {1, 2, 3},
               "the node is lost")
    it.nodes[1].start()
    begin(team, team.members[1:])
    ended(team.members, "VOID_BEHIND")
    together(team.members, "sync 1")
    assert team.step() == [2] * 4
    assert places(team.members) == before


def test_the_others_have_gone_on(cluster, member):
    """In a smaller world. The members of the daemon that comes back are taken in, with the others'
    state."""
    it = cluster(times=SWIFT, settings={**STAY, "rejoin_grace": "50ms"})
    team = team_on(it, member, [0, 0, 1, 1], least=2, ranks=False)
    stay, away = team.members[:2], team.members[2:]
    team.members = stay
    harness.kill(it.nodes[1])
    begin(team)
    ended(stay, "VOID_RETRY")
    assert team.step() == [2] * 2
    assert team.step() == [3] * 2
    it.nodes[1].start()
    say(away, "barrier")
    ended(away, "VOID_RETRY", "VOID_BEHIND")
    say(stay, "sync 3")
    say(away, "sync 1")
    for each in stay + away:
        assert each.line().startswith("OK step=3 value=1")
    team.members = stay + away
    assert team.step() == [4] * 4


@pytest.mark.parametrize("orderly", [True, False])
def test_a_job_that_was_started_again_beside_a_process_that_hangs(cluster, member, orderly):
    """Its daemon has the ended job, which that process is in, and the new one of the same name. The next
    coordinator hears of the new one only."""
    it = cluster(settings={**STAY, "rejoin_grace": "50ms"})
    old = team_on(it, member, [0, 1])
    old.members[1].stop()
    old.members[0].kill()
    it.nodes[1].wait_log("job 'team' has ended after the loss of rank 0")
    new = team_on(it, member, [0, 1])
    for number in range(2, 4):
        with reconnecting(*it.nodes):
            restart(it.coordinator, orderly)
        assert new.step() == [number] * 2
    old.members[1].resume()


def peers_on(it, peers):
    """A job of two members made of single frames, each on its node."""
    return form([peers(Returning(node.socket)) for node in it.nodes], "pair", rejoin_grace_ms=0,
                scope=wire.pb.SCOPE_CLUSTER)


def test_an_operation_whose_end_has_not_been_heard(cluster, peers):
    """It has ended for the other node's member, so the one that comes back has its result, and does not call
    again."""
    it = cluster()
    pair = peers_on(it, peers)
    for _ in range(2):
        for each, call in [(each, each.operation("BARRIER")) for each in pair]:
            each.expect("OPERATION_DONE", call)
    restart(it.nodes[1], orderly=False)
    for each in (back(peers, it.nodes[1], pair[1]), pair[0]):
        assert each.expect("RESUMED").operations == 2


def elastic(it, peers, spread):
    """A job of members made of single frames, of which some may go."""
    made = [peers(Returning(it.nodes[number].socket)) for number in spread]
    requests = [each.join_send("crew", len(spread), min_world=1, last_call_ms=3_600_000,
                               scope=wire.pb.SCOPE_CLUSTER) for each in made]
    for each, request in zip(made, requests):
        each.joined(request)
    return made


def test_a_member_that_left_is_not_awaited_by_the_next_daemon(cluster, peers):
    """The coordinator has not heard of it when the daemon is killed: the next daemon tells it."""
    it = cluster(settings={**STAY, "rejoin_grace": "1h"})
    made = elastic(it, peers, [0, 1, 1])
    with it.coordinator.at_once():
        made[1].leave()
        restart(it.nodes[1], orderly=False)
        stay = [back(peers, it.nodes[1], made[2]), made[0]]
    assert [each.expect("NEWGEN").world for each in stay] == [2, 2]


@pytest.mark.parametrize("early", [False, True], ids=["a newcomer comes later", "meanwhile"])
def test_a_place_that_was_left_is_not_kept_when_all_nodes_are_heard_again(cluster, peers, early):
    """The daemon of the member that has left has no other member. Its next run says nothing of this job.
    With the newcomer only that place is vacant, and the next generation waits for the daemon that is away."""
    it = cluster(3, settings={**STAY, "rejoin_grace": "1h"}, times=SWIFT)
    made = elastic(it, peers, [0, 0, 1, 2])
    lost = next(each for each in made[:2] if each.rank > 0)
    stay = next(each for each in made[:2] if each is not lost)
    new = peers(Returning(it.nodes[0].socket))
    lost.close()
    wait_until(lambda: it.nodes[2].job("crew")["state"] == "replacing", "the news of the loss")
    made[3].leave()
    restart(it.nodes[2], orderly=True)
    if early:
        harness.stop(it.nodes[1])
        request = new.join_send("crew", 4, min_world=1, scope=wire.pb.SCOPE_CLUSTER)
        new.status()
        it.nodes[1].start()
    else:
        restart(it.nodes[1], orderly=False)
    again = back(peers, it.nodes[1], made[2])
    if not early:
        again.silent()
        request = new.join_send("crew", 4, min_world=1, scope=wire.pb.SCOPE_CLUSTER)
    assert new.joined(request).world == 3
    assert [each.expect("NEWGEN").world for each in (stay, again)] == [3, 3]


def test_a_process_that_comes_and_goes_before_the_former_members(cluster, peers):
    """It joins a job of that name, which does not form. The former members find their job in the journal."""
    it = cluster()
    pair = peers_on(it, peers)
    restart(it.nodes[1], orderly=False)
    early = peers(Returning(it.nodes[1].socket))
    early.join_send("pair", 2, 1, scope=wire.pb.SCOPE_CLUSTER)
    wait_until(lambda: it.nodes[1].job("pair"), "the early process")
    early.close()
    wait_until(lambda: it.nodes[1].job("pair") is None, "its end")
    again = back(peers, it.nodes[1], pair[1])
    for each in (pair[0], again):
        each.expect("RESUMED")
