# SPDX-License-Identifier: Apache-2.0
"""Lost members and their successors: the news to the others, the ranks, and that no wrong value is averaged.
Members are real trainers on the public API, driven line by line."""
import os

import pytest

from harness import wait_until
from teams import GRACE, SHORT, other_plan, takes_state, void_behind
from trainers import OK, ask, connected, ended, fields, join, opened, say, script, together


def pair(member, served, options=""):
    """Two members of a job, without a plan."""
    members = opened(member, served, 2)
    join(members, "pair", options=options)
    return members


def test_killed_in_a_step_and_replaced(trio):
    assert trio.step() == [1, 1, 1]
    assert trio.step() == [2, 2, 2]
    before = [fields(ask(each, "place")) for each in trio.members]
    address = ask(trio.members[0], "address 0")
    victim, stay = trio.lose(1)
    wait_until(lambda: trio.status()["state"] == "replacing", "the loss")
    waits, = trio.status()["waiting_for"]
    assert waits["rank"] == 1
    new = trio.replace(1)
    void_behind(stay, 1, victim.pid)
    for rest in [ask(each, "place") for each in trio.members]:
        now = fields(rest)
        was = before[int(now["rank"])]
        assert now["generation"] == "2" and now["world"] == "3" and now["member"] == was["member"], (now, was)
    assert ask(trio.members[0], "address 0") == address
    takes_state(new, stay, 2)
    assert trio.step() == [3, 3, 3]
    job = trio.status()
    assert (job["state"], job["step"], job["generation"], job["void_steps"]) == ("running", 3, 2, 1)


@pytest.mark.parametrize("finished", [False, True], ids=["by-nobody", "by-one"])
def test_synchronised_before_a_committed_step_is_finished(trio, finished):
    """All have marked all, so the step is committed. A member that has not taken it by finish() when the
    state is synchronised must not apply it to that state any more: the newcomer's is without it, or the state
    that came has it already."""
    trio.step()
    trio.bring()
    wait_until(lambda: trio.status()["step"] == 2, "the commit")
    value = 1
    if finished:
        assert fields(ask(trio.members[0], "finish"))["step"] == "2"
        ask(trio.members[0], f"state {trio.state} {(value := 7)}")
    trio.kill(2)
    trio.replace(2)
    for each in trio.members[:2]:
        rest = ask(each, "barrier", "VOID_BEHIND")
        assert "sync_state" in rest, rest
    trio.members[0].say(f"sync {1 + finished}")
    trio.members[1].say("sync 1")
    trio.members[2].say("sync 0")
    for each in trio.members:
        assert each.line() == f"OK step={1 + finished} value={value} strange=0"
    for each in trio.members[finished:2]:
        rest = ask(each, "finish", "VOID_RETRY")
        assert "synchronised" in rest, rest
    assert trio.step() == [3, 3, 3]


def test_marked_after_the_change_and_finished_after_the_synchronisation(trio):
    """Marks of a step that is void already are dropped in silence. finish() tells of that, whenever the state
    was synchronised, as it tells a member that had marked before the change: a trainer does not know when its
    library has heard."""
    trio.step()
    stay = trio.members[:2]
    script(stay[0], "fill 1", "ready")
    trio.kill(2)
    trio.replace(2)
    together(stay, "barrier", code="VOID_BEHIND")
    ask(stay[1], "ready")
    assert together(trio.members, "sync 1") == ["step=1 value=1 strange=0"] * 3
    for each in stay:
        name, _, rest = each.ask("finish").partition(" ")
        assert name == "VOID_RETRY", (name, rest)
    assert trio.step() == [2, 2, 2], "and the newcomer, which has marked nothing, is told nothing"


def test_lost_while_the_others_synchronise(trio):
    """A synchronisation that cannot end starts again with the next member that comes."""
    trio.step()
    trio.kill(1)
    trio.replace(1)
    say((trio.members[0], trio.members[2]), "sync 1")
    trio.kill(1)
    new = trio.replace(1)
    assert ask(new, "sync 0") == "step=1 value=1 strange=0"
    for each in (trio.members[0], trio.members[2]):
        assert each.line() == "OK step=1 value=1 strange=0"
    assert trio.step() == [2, 2, 2]


def test_no_state_is_left(team):
    """The last member that had the state dies before it could hand it on: no member may begin anew under the
    same job."""
    it = team(world=2)
    it.step()
    it.kill(1)
    it.replace(1)
    it.members[1].say("sync 0")
    it.kill(0)
    new = it.fresh()
    new.say(it.join_line(0))
    for rest in ended((new, it.members[1]), "MEMBER_LOST"):
        assert "no up-to-date rank is left: restart from a checkpoint" in rest, rest


def test_an_eviction_that_changes_nothing_is_logged(trio):
    """Its job waits for another member's successor already, so it has no line about a loss."""
    trio.step()
    trio.kill(1)
    wait_until(lambda: trio.status()["waiting_for"], "the loss")
    victim = trio.members[2]
    assert trio.served.ctl("evict", "team", "2") == "evicted\n"
    trio.served.wait_log(rf"notice: job 'team': rank 2 \(pid {victim.pid}\) was evicted by uid "
                       rf"{os.getuid()} \[")
    trio.kill(0)
    wait_until(lambda: trio.served.status()["jobs"] == [], "the end of the job")
    assert trio.served.log.count("was evicted") == 1, trio.served.log


def test_who_has_heard_of_a_change_is_not_told_again(team):
    """By a collective: of two members one had marked something of the step by then, and hears by finish()
    that it is void. Both begin it again after that; otherwise one of them would call again what belongs to
    the step, and the other one not."""
    it = team(settings=SHORT, least=2, ranks=False)
    it.step()
    it.kill(2)
    it.members.pop()
    script(it.members[0], "fill 1", "ready")
    together(it.members, "barrier", code="VOID_RETRY")
    ask(it.members[0], "finish", "VOID_RETRY")
    together(it.members, "barrier")
    assert it.step() == [2, 2]


def test_one_leaves_and_the_others_go_on(team):
    it = team(ranks=False, least=2)
    it.step()
    ask(it.members[2], "leave")
    it.members = it.members[:2]
    it.bring()
    together(it.members, "finish", code="VOID_RETRY")
    assert it.step() == [2, 2]
    ask(it.members[1], "leave")
    assert it.members[0].ask("ready").startswith(("MEMBER_LOST ", "OK "))
    assert it.members[0].ask("finish").startswith(("MEMBER_LOST ", "VOID_RETRY "))


def test_the_job_grows_between_steps(team):
    """A member that comes later waits for the end of the open step; nothing is void to the daemon, and the
    others hear of it."""
    it = team(ranks=False, least=2, world=3, come=2)
    assert it.step() == [1, 1]
    it.bring([it.members[0]])                           # a step is open now
    late = it.fresh()
    late.say(it.join_line(2))
    wait_until(lambda: len(it.status()["members"]) == 3, "the third")
    assert it.status()["generation"] == 1
    it.bring([it.members[1]])
    together(it.members, "finish")
    assert "rank=2 " in late.line()
    it.register(late)
    script(late, "plan", f"state {it.state} 77")
    it.bring()
    for each in it.members:
        rest = ask(each, "finish", "VOID_BEHIND")
        assert "has grown from 2 to 3" in rest, rest
    it.members.append(late)
    assert set(together(it.members, "sync 2")) == {"step=2 value=1 strange=0"}
    assert it.step() == [3, 3, 3]
    job = it.status()
    assert (job["world_size"], job["generation"], job["void_steps"]) == (3, 2, 0)


def test_collectives_end_with_their_generation(trio):
    trio.step()
    trio.members[0].say("barrier")
    trio.members[2].say("barrier")
    wait_until(lambda: trio.status()["waiting_for"], "the barrier")
    trio.kill(1)
    trio.replace(1)
    for rest in ended((trio.members[0], trio.members[2]), "VOID_BEHIND"):
        assert "sync_state" in rest, rest
    together(trio.members, "sync 1", "barrier")
    assert set(together(trio.members, "allgather 1000")) == {"right"}
    assert trio.step() == [2, 2, 2]


def test_a_plan_in_the_making_waits(member, daemon):
    """A member dies before it has brought its plan: the others' call goes on with its successor."""
    served = daemon(settings=GRACE)
    members = pair(member, served)
    ask(members[0], "param a f32 10")
    members[0].say("plan")
    members[1].kill()
    members[1] = connected(member(served), "name=pair world=2 rank=1")
    script(members[1], "param a f32 10", "plan")
    assert members[0].line().startswith("OK ")
    together(members, "state 10 4", "sync 0", "fill 3", "ready", "finish")
    assert set(together(members, "check 3")) == {"right"}


def test_whoever_was_idle_hears_of_it_from_a_collective(trio):
    """No member was in a call when the generation changed: the first collective after it tells, and moves
    nothing."""
    trio.step()
    trio.kill(1)
    trio.replace(1)
    ask(trio.members[0], "dispatch")                      # one has read of the new generation, one has not
    for each in (trio.members[0], trio.members[2]):
        name, _, rest = each.ask("broadcast 1000 0").partition(" ")
        assert name == "VOID_BEHIND" and "generation 2" in rest, (name, rest)
    together(trio.members, "sync 1")
    assert set(together(trio.members, "broadcast 1000 0")) == {"right"}
    assert trio.step() == [2, 2, 2]


def replaced_without_blocking(it):
    """After a step: rank 1 is another one now, on a handle that does not block."""
    it.step()
    it.kill(1)
    made = connected(it.start(it.served), options="nonblocking=1")
    ask(made, f"poll {it.join_line(1)}")
    it.register(made)
    script(made, "poll plan", f"state {it.state} 9")
    it.members[1] = made
    stay = [it.members[0], it.members[2]]
    say(stay, "sync 1")
    assert ask(made, "poll sync 0").startswith("step=1 value=1 strange=0")
    for each in stay:
        each.line()
    return made


def test_a_collective_that_was_done_before_the_loss(trio):
    """A caller with a loop of its own may read of the end of its collective and of a new generation at once: the collective has
    happened, as for the others."""
    made = replaced_without_blocking(trio)
    assert made.ask("allgather 64").startswith("AGAIN ")
    assert together([trio.members[0], trio.members[2]], "allgather 64") == ["right"] * 2
    trio.kill(2)
    trio.replace(2)
    ask(made, "dispatch")
    assert fields(ask(made, "place"))["generation"] == "3"
    assert made.ask("allgather 64") == "OK right"
    for each, how in ((trio.members[0], ""), (made, "poll ")):
        assert each.ask(how + "barrier").startswith("VOID_BEHIND ")
    for each, how in zip(trio.members, ("", "poll ", "")):
        each.say(how + "sync 1")
    for each in trio.members:
        assert each.line().startswith("OK step=1 value=1 strange=0")
    for each, how in zip(trio.members, ("", "poll ", "")):
        each.say(how + "allgather 100")
    for each in trio.members:
        assert each.line().startswith("OK right")


def test_state_is_that_of_who_is_furthest(member, served):
    """From a checkpoint: all say the same step, and nothing is sent; else rank 0 decides."""
    members = pair(member, served)
    for rank, each in enumerate(members):
        ask(each, f"state 1000 {rank + 5}")
    assert together(members, "sync 40") == ["step=40 value=5 strange=0", "step=40 value=6 strange=0"]


@pytest.mark.parametrize("further", [0, 1])
def test_who_counts_further_at_the_same_commit_has_the_state(member, served, further):
    """One of them has read a checkpoint since: the others must not take its count of steps without what it counts."""
    members = pair(member, served)
    together(members, "state 1000 5", "sync 0")
    ask(members[further], "state 1000 9")
    members[further].say("sync 7")
    assert ask(members[1 - further], "sync 0") == "step=7 value=9 strange=0"
    assert members[further].line() == "OK step=7 value=9 strange=0"


def test_states_that_differ_in_size(member, served):
    members = pair(member, served)
    for rank, each in enumerate(members):
        ask(each, f"state {1000 + rank} 5")
    for rest in together(members, "sync 0", code="OPERATION_MISMATCH"):
        assert "the state of rank 1 has 1009 bytes, that of rank 0 has 1008" in rest, rest
    together(members, "state 1000 5", "sync 0")


@pytest.mark.parametrize("setting, wish, kept", [("60s", "-1", False), ("0", "60000", True)],
                         ids=["not kept", "kept"])
def test_whether_a_place_is_kept(member, daemon, setting, wish, kept):
    """The job's first member says for how long, whatever the daemon's setting."""
    served = daemon(settings={"rejoin_grace": setting})
    members = pair(member, served, f"grace={wish}")
    members[0].say("barrier")
    members[1].kill()
    if kept:
        wait_until(lambda: served.job("pair")["state"] == "replacing", "the loss")
        successor = connected(member(served), "name=pair world=2 rank=1")
    assert members[0].line().startswith("VOID_BEHIND " if kept else "MEMBER_LOST ")


def test_a_broadcast_from_a_rank_that_is_no_more(team):
    """A member that does not know yet that the world is smaller hears of that, not of a rank that does not
    exist."""
    it = team(SHORT, ranks=False, least=2)
    it.kill(0)
    stay = it.members[1:]
    wait_until(lambda: all(ask(each, "dispatch") == "" and " world=2 " in ask(each, "place") for each in stay), "the smaller world")
    for each in stay:
        assert "is void" in ask(each, "broadcast 100 2", "VOID_RETRY")
    for each in stay:
        assert "rank 2 of 2" in ask(each, "broadcast 100 2", "INVALID")
    assert all("right" in rest for rest in together(stay, "broadcast 100 1"))


def test_the_state_is_synchronised_by_one_thread(member, daemon):
    """A second thread is told so, and the first goes on. It cannot be back before, because the other member has not begun."""
    first, second = pair(member, daemon())
    assert ask(first, "sync_twice") == "STATE"
    script(second, "state 0 7", "sync 0")
    assert ask(first, "sync_other") == "OK"


def torn(member, served, options, history=False):
    """Three members, by rank; rank 0 is lost when the others have a part of its state, which is their first
    one, or, with a history, that of a checkpoint which rank 0 alone has read."""
    members = opened(member, served, 3, options="nonblocking=1")
    for rank, each in enumerate(members):
        each.say("poll join name=torn last_call=1 " + options.format(rank=rank))
    ended(members, OK)
    members.sort(key=lambda each: int(fields(ask(each, "place"))["rank"]))
    for rank, each in enumerate(members):
        ask(each, f"state 1000000 {rank + 1}")
    if history:
        together(members, "poll sync 0")
        ask(members[0], "state 1000000 9")
    before = served.job("torn")["operations"]
    for each, step in zip(members[:2], (7 if history else 0, 0)):
        each.say(f"poll sync {step}")
    while served.job("torn")["operations"] < before + 4:
        with served.at_once():          # in each call rank 2 goes on by one operation, and so no rank goes further
            ask(members[2], "sync 0", "AGAIN")
    members[0].kill()
    members[2].say("poll sync 0")
    return members


@pytest.mark.parametrize("history", [False, True], ids=["the first one", "a later one"])
def test_half_a_state_is_no_state(member, daemon, history):
    """A member that has begun to receive has no state to give, whatever it had before, and rank 0 or not."""
    served = daemon(settings={**SHORT, "staging_bytes": "64KiB"})
    members = torn(member, served, "min=2 max=3", history)
    for each in members[1:]:
        line = each.line()
        assert line.startswith("MEMBER_LOST ") and "no up-to-date rank is left: restart from a checkpoint" in line, line


def test_a_first_state_of_the_one_who_has_all_of_his(member, daemon):
    served = daemon(settings={**GRACE, "staging_bytes": "64KiB"})
    members = torn(member, served, "world=3 rank={rank}")
    new = connected(member(served), "name=torn world=3 rank=0")
    ask(new, "state 1000000 77")
    assert ask(new, "sync 0") == "step=0 value=77 strange=0"
    for each in members[1:]:
        assert each.line().startswith("OK step=0 value=77 strange=0"), "what the one has who has lost nothing"


def test_states_with_as_many_steps_of_other_plans(trio):
    """Two have finished one committed step each, but not the same: only one of their states can go on."""
    other_plan(trio.members, 1, "other")
    for slot in (0, 1):
        together(trio.members, f"slot {slot}")
        trio.bring()
    stay = [trio.members[0], trio.members[2]]
    for slot, each in enumerate(stay):
        script(each, f"slot {slot}", "finish", f"state 100000 {slot + 10}")
    trio.kill(1)
    new = trio.replace(1)
    other_plan([new], 1, "other")
    together(stay, "barrier", code="VOID_BEHIND")
    assert set(together(trio.members, "sync 0")) == {"step=0 value=10 strange=0"}
