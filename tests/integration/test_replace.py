# SPDX-License-Identifier: Apache-2.0
"""Lost members and their successors: the news to the others, the ranks, and that no wrong value is averaged.
Members are real trainers on the public API, driven line by line."""
import os

import pytest

import harness
from harness import wait_until
from teams import GRACE, SHORT, leave_plans, other_plan, take_plans, takes_state, void_behind
from trainers import ask, fields, join, opened, together


def pair(member, served, options=""):
    """Two members of a job, without a plan."""
    members = opened(member, served, 2)
    join(members, "pair", options=options)
    return members


def test_killed_in_a_step_and_replaced(team):
    it = team()
    assert it.step() == [1, 1, 1]
    assert it.step() == [2, 2, 2]
    before = [fields(ask(each, "place")) for each in it.members]
    address = ask(it.members[0], "address 0")
    stay = [it.members[0], it.members[2]]
    it.bring(stay)
    for each in stay:
        each.say("finish")
    victim = it.kill(1)
    wait_until(lambda: it.status()["state"] == "replacing", "the loss")
    waits, = it.status()["waiting_for"]
    assert waits["rank"] == 1
    new = it.replace(1)
    void_behind(stay, 1, victim.pid)
    for rest in [ask(each, "place") for each in it.members]:
        now = fields(rest)
        was = before[int(now["rank"])]
        assert now["generation"] == "2" and now["world"] == "3" and now["member"] == was["member"], (now, was)
    assert ask(it.members[0], "address 0") == address
    takes_state(new, stay, 2)
    assert it.step() == [3, 3, 3]
    job = it.status()
    assert (job["state"], job["step"], job["generation"], job["void_steps"]) == ("running", 3, 2, 1)


def test_synchronised_before_the_next_step(team):
    """A member that calls sync_state() by itself is not told of a void step that it never began."""
    it = team()
    it.step()
    it.kill(2)
    it.replace(2)
    assert set(together(it.members, "sync 1")) == {"step=1 value=1 strange=0"}
    assert it.step() == [2, 2, 2]


@pytest.mark.parametrize("finished", [False, True], ids=["by-nobody", "by-one"])
def test_synchronised_before_a_committed_step_is_finished(team, finished):
    """All have marked all, so the step is committed. A member that has not taken it by finish() when the
    state is synchronised must not apply it to that state any more: the newcomer's is without it, or the state
    that came has it already."""
    it = team()
    it.step()
    it.bring()
    wait_until(lambda: it.status()["step"] == 2, "the commit")
    value = 1
    if finished:
        assert fields(ask(it.members[0], "finish"))["step"] == "2"
        ask(it.members[0], f"state {it.state} {(value := 7)}")
    it.kill(2)
    it.replace(2)
    for each in it.members[:2]:
        rest = ask(each, "barrier", "VOID_BEHIND")
        assert "sync_state" in rest, rest
    it.members[0].say(f"sync {1 + finished}")
    it.members[1].say("sync 1")
    it.members[2].say("sync 0")
    for each in it.members:
        assert each.line() == f"OK step={1 + finished} value={value} strange=0"
    for each in it.members[finished:2]:
        rest = ask(each, "finish", "VOID_RETRY")
        assert "synchronised" in rest, rest
    assert it.step() == [3, 3, 3]


def test_marked_after_the_change_and_finished_after_the_synchronisation(team):
    """Marks of a step that is void already are dropped in silence. finish() tells of that, whenever the state
    was synchronised, as it tells a member that had marked before the change: a trainer does not know when its
    library has heard."""
    it = team()
    it.step()
    stay = it.members[:2]
    ask(stay[0], "fill 1")
    ask(stay[0], "ready")
    it.kill(2)
    it.replace(2)
    together(stay, "barrier", "VOID_BEHIND")
    ask(stay[1], "ready")
    assert together(it.members, "sync 1") == ["step=1 value=1 strange=0"] * 3
    for each in stay:
        name, _, rest = each.ask("finish").partition(" ")
        assert name == "VOID_RETRY", (name, rest)
    assert it.step() == [2, 2, 2], "and the newcomer, which has marked nothing, is told nothing"


def test_lost_while_the_others_synchronise(team):
    """A synchronisation that cannot end starts again with the next member that comes."""
    it = team()
    it.step()
    it.kill(1)
    it.replace(1)
    for each in (it.members[0], it.members[2]):
        each.say("sync 1")
    it.kill(1)
    new = it.replace(1)
    assert ask(new, "sync 0") == "step=1 value=1 strange=0"
    for each in (it.members[0], it.members[2]):
        assert each.line() == "OK step=1 value=1 strange=0"
    assert it.step() == [2, 2, 2]


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
    for each in (new, it.members[1]):
        name, _, rest = each.line().partition(" ")
        assert name == "MEMBER_LOST" and "no up-to-date rank is left: restart from a checkpoint" in rest, (name, rest)


def test_an_eviction_that_changes_nothing_is_logged(team):
    """Its job waits for another member's successor already, so it has no line about a loss."""
    it = team()
    it.step()
    it.kill(1)
    wait_until(lambda: it.status()["waiting_for"], "the loss")
    victim = it.members[2]
    assert it.served.ctl("evict", "team", "2") == "evicted\n"
    it.served.wait_log(rf"notice: job 'team': rank 2 \(pid {victim.pid}\) was evicted by uid "
                       rf"{os.getuid()} \[")
    it.kill(0)
    wait_until(lambda: it.served.status()["jobs"] == [], "the end of the job")
    assert it.served.log.count("was evicted") == 1, it.served.log


def test_the_others_close_ranks(team):
    it = team(settings=SHORT, ranks=False, least=2)
    assert it.step() == [1, 1, 1]
    stay = it.members[1:]
    it.bring(stay)
    for each in stay:
        each.say("finish")
    victim = it.kill(0)
    for each in stay:
        name, _, rest = each.line().partition(" ")
        assert name == "VOID_RETRY" and fields(rest)["lost_pid"] == str(victim.pid), (name, rest)
    it.members = stay
    places = [fields(ask(each, "place")) for each in stay]
    assert [(p["rank"], p["world"], p["generation"]) for p in places] == [("0", "2", "2"), ("1", "2", "2")]
    together(stay, "barrier")           # they have been told of the generation
    assert it.step() == [2, 2]


def test_who_has_heard_of_a_change_is_not_told_again(team):
    """By a collective: of two members one had marked something of the step by then, and hears by finish()
    that it is void. Both begin it again after that; otherwise one of them would call again what belongs to
    the step, and the other one not."""
    it = team(settings=SHORT, least=2, ranks=False)
    it.step()
    it.kill(2)
    it.members.pop()
    ask(it.members[0], "fill 1")
    ask(it.members[0], "ready")
    for each in it.members:
        ask(each, "barrier", "VOID_RETRY")
    ask(it.members[0], "finish", "VOID_RETRY")
    together(it.members, "barrier")
    assert it.step() == [2, 2]


def test_one_leaves_and_the_others_go_on(team):
    it = team(ranks=False, least=2)
    it.step()
    ask(it.members[2], "leave")
    it.members = it.members[:2]
    it.bring()
    together(it.members, "finish", "VOID_RETRY")
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
    ask(late, "plan")
    ask(late, f"state {it.state} 77")
    it.bring()
    for each in it.members:
        rest = ask(each, "finish", "VOID_BEHIND")
        assert "has grown from 2 to 3" in rest, rest
    it.members.append(late)
    assert set(together(it.members, "sync 2")) == {"step=2 value=1 strange=0"}
    assert it.step() == [3, 3, 3]
    job = it.status()
    assert (job["world_size"], job["generation"], job["void_steps"]) == (3, 2, 0)


def test_collectives_end_with_their_generation(team):
    it = team()
    it.step()
    it.members[0].say("barrier")
    it.members[2].say("barrier")
    wait_until(lambda: it.status()["waiting_for"], "the barrier")
    it.kill(1)
    it.replace(1)
    for each in (it.members[0], it.members[2]):
        name, _, rest = each.line().partition(" ")
        assert name == "VOID_BEHIND" and "sync_state" in rest, (name, rest)
    together(it.members, "sync 1")
    together(it.members, "barrier")
    assert set(together(it.members, "allgather 1000")) == {"right"}
    assert it.step() == [2, 2, 2]


def test_a_plan_in_the_making_waits(member, daemon):
    """A member dies before it has brought its plan: the others' call goes on with its successor."""
    served = daemon(settings=GRACE)
    members = pair(member, served)
    ask(members[0], "param a f32 10")
    members[0].say("plan")
    members[1].kill()
    members[1] = member(served)
    ask(members[1], "open")
    ask(members[1], "join name=pair world=2 rank=1")
    ask(members[1], "param a f32 10")
    ask(members[1], "plan")
    assert members[0].line().startswith("OK ")
    for each in members:
        ask(each, "state 10 4")
    together(members, "sync 0")
    for each in members:
        ask(each, "fill 3")
        ask(each, "ready")
    together(members, "finish")
    for each in members:
        assert ask(each, "check 3") == "right"


def test_whoever_was_idle_hears_of_it_from_a_collective(team):
    """No member was in a call when the generation changed: the first collective after it tells, and moves
    nothing."""
    it = team()
    it.step()
    it.kill(1)
    it.replace(1)
    ask(it.members[0], "dispatch")                      # one has read of the new generation, one has not
    for each in (it.members[0], it.members[2]):
        name, _, rest = each.ask("broadcast 1000 0").partition(" ")
        assert name == "VOID_BEHIND" and "generation 2" in rest, (name, rest)
    together(it.members, "sync 1")
    assert set(together(it.members, "broadcast 1000 0")) == {"right"}
    assert it.step() == [2, 2, 2]


def test_a_plan_that_differs_ends_nobody_else(team):
    it = team()
    it.step()
    it.kill(1)
    wrong = it.fresh()
    ask(wrong, it.join_line(1))
    ask(wrong, "param weight f32 301")
    ask(wrong, "param bias f32 7")
    answer = wrong.ask("plan")
    assert answer.startswith("PLAN_MISMATCH ") and "weight" in answer, answer
    wrong.kill()
    it.members[1] = wrong
    it.replace(1)
    together(it.members, "sync 1")
    assert it.step() == [2, 2, 2]


def replaced_without_blocking(it):
    """After a step: rank 1 is another one now, on a handle that does not block."""
    it.step()
    it.kill(1)
    made = it.start(it.served)
    ask(made, "open nonblocking=1")
    ask(made, f"poll {it.join_line(1)}")
    it.register(made)
    ask(made, "poll plan")
    ask(made, f"state {it.state} 9")
    it.members[1] = made
    stay = [it.members[0], it.members[2]]
    for each in stay:
        each.say("sync 1")
    assert ask(made, "poll sync 0").startswith("step=1 value=1 strange=0")
    for each in stay:
        each.line()
    return made


def test_a_collective_that_was_done_before_the_loss(team):
    """A caller with a loop of its own may read of the end of its collective and of a new generation at once: the collective has
    happened, as for the others."""
    it = team()
    made = replaced_without_blocking(it)
    assert made.ask("allgather 64").startswith("AGAIN ")
    assert together([it.members[0], it.members[2]], "allgather 64") == ["right"] * 2
    it.kill(2)
    it.replace(2)
    ask(made, "dispatch")
    assert fields(ask(made, "place"))["generation"] == "3"
    assert made.ask("allgather 64") == "OK right"
    for each, how in ((it.members[0], ""), (made, "poll ")):
        assert each.ask(how + "barrier").startswith("VOID_BEHIND ")
    for each, how in zip(it.members, ("", "poll ", "")):
        each.say(how + "sync 1")
    for each in it.members:
        assert each.line().startswith("OK step=1 value=1 strange=0")
    for each, how in zip(it.members, ("", "poll ", "")):
        each.say(how + "allgather 100")
    for each in it.members:
        assert each.line().startswith("OK right")


def test_state_is_that_of_who_is_furthest(member, daemon):
    """From a checkpoint: all say the same step, and nothing is sent; else rank 0 decides."""
    served = daemon()
    members = pair(member, served)
    for rank, each in enumerate(members):
        ask(each, f"state 1000 {rank + 5}")
    assert together(members, "sync 40") == ["step=40 value=5 strange=0", "step=40 value=6 strange=0"]


@pytest.mark.parametrize("further", [0, 1])
def test_who_counts_further_at_the_same_commit_has_the_state(member, daemon, further):
    """One of them has read a checkpoint since: the others must not take its count of steps without what it counts."""
    served = daemon()
    members = pair(member, served)
    for each in members:
        ask(each, "state 1000 5")
    together(members, "sync 0")
    ask(members[further], "state 1000 9")
    members[further].say("sync 7")
    assert ask(members[1 - further], "sync 0") == "step=7 value=9 strange=0"
    assert members[further].line() == "OK step=7 value=9 strange=0"


def test_states_that_differ_in_size(member, daemon):
    served = daemon()
    members = pair(member, served)
    for rank, each in enumerate(members):
        ask(each, f"state {1000 + rank} 5")
    for rest in together(members, "sync 0", "OPERATION_MISMATCH"):
        assert "the state of rank 1 has 1009 bytes, that of rank 0 has 1008" in rest, rest
    for each in members:
        ask(each, "state 1000 5")
    together(members, "sync 0")


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
        successor = member(served)
        ask(successor, "open")
        ask(successor, "join name=pair world=2 rank=1")
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
    ask(second, "state 0 7")
    ask(second, "sync 0")
    assert ask(first, "sync_other") == "OK"


def test_a_successor_makes_the_plans_that_are_left(team):
    """The others have freed one between two, and the last one: a later member knows nothing of either."""
    it = team()
    leave_plans(it.members)
    stay = [it.members[0], it.members[2]]
    it.bring(stay)
    for each in stay:
        each.say("finish")
    victim = it.kill(1)
    new = it.replace(1)
    void_behind(stay, 1, victim.pid)
    together(it.members, "sync 0")
    for slot in take_plans(new, it.members):
        for each in it.members:
            ask(each, f"slot {slot}")
        it.step()


def torn(member, served, options, history=False):
    """Three members, by rank; rank 0 is lost when the others have a part of its state, which is their first
    one, or, with a history, that of a checkpoint which rank 0 alone has read."""
    members = opened(member, served, 3, options="nonblocking=1")
    for rank, each in enumerate(members):
        each.say("poll join name=torn last_call=1 " + options.format(rank=rank))
    for each in members:
        assert each.line().startswith("OK ")
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
    new = member(served)
    ask(new, "open")
    ask(new, "join name=torn world=3 rank=0")
    ask(new, "state 1000000 77")
    assert ask(new, "sync 0") == "step=0 value=77 strange=0"
    for each in members[1:]:
        assert each.line().startswith("OK step=0 value=77 strange=0"), "what the one has who has lost nothing"


def test_states_with_as_many_steps_of_other_plans(team):
    """Two have finished one committed step each, but not the same: only one of their states can go on."""
    it = team()
    other_plan(it.members, 1, "other")
    for slot in (0, 1):
        for each in it.members:
            ask(each, f"slot {slot}")
        it.bring()
    stay = [it.members[0], it.members[2]]
    for slot, each in enumerate(stay):
        ask(each, f"slot {slot}")
        ask(each, "finish")
        ask(each, f"state 100000 {slot + 10}")
    it.kill(1)
    new = it.replace(1)
    other_plan([new], 1, "other")
    together(stay, "barrier", "VOID_BEHIND")
    assert set(together(it.members, "sync 0")) == {"step=0 value=10 strange=0"}
