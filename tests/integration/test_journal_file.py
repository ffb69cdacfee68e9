# SPDX-License-Identifier: Apache-2.0
"""A daemon's journal tells the next one of its jobs, and how far open steps were: a crash between the end of
a step and the news of it costs nothing. Members are made of single frames, and say what they would say after
a crash at that moment."""
import os
import signal

import pytest

import harness
import wire
from peer import small_plan
from returning import Returning, back, enter, give, go


@pytest.fixture
def kept(daemon):
    return daemon("--allow-nobody", "yes")


def journal(served):
    return served.socket + ".journal"


def settled(peer):
    """All that the daemon had to say to this peer has come."""
    peer.early += peer.silent()


def reduce_all(made):
    """A whole step whose news the test has heard; the members, as they say, have not."""
    give(made)
    return [each.outcome(each.plans[0]) for each in made]


@pytest.mark.parametrize("said", [(0, 0), (0, 1), (1, 0)])
def test_all_was_done(kept, pair, peers, said):
    """The step is committed, and members that have not heard of it get the same results."""
    old = pair(kept)
    told = reduce_all(old)[0][2]
    harness.restart(kept)
    new = [back(peers, kept, each, said[each.rank]) for each in old]
    for each in new:
        results = {}
        each.expect("RESUMED")
        if not said[each.rank]:
            each.plans[0].step, each.generation = 1, 1
            outcome, message, results = each.outcome(each.plans[0])
            assert (outcome, message.generation) == ("COMMITTED", 1)
            for bucket, result in results.items():
                assert result.sum_squares == told[bucket].sum_squares
                assert list(result.rank_sum_squares) == list(told[bucket].rank_sum_squares)
            assert set(results) == set(told)
        else:
            assert not [frame for frame in each.early if frame.kind == "STEP"]
        assert set(each.read(each.plans[0], 0)) == {1.5}
        each.generation = 2
    go(new, 2)
    assert kept.job("pair")["void_steps"] == 0


def test_some_was_done(kept, pair, peers):
    old = pair(kept)
    give(old, [0])
    give(old[:1], [1])
    for each in old:
        each.expect("STEP")
    harness.restart(kept)
    new = [back(peers, kept, each) for each in old]
    for each in new:
        assert each.expect("NEWGEN").cause == wire.pb.RESTARTED
        each.generation = 2
    go(new, 1)


def test_nothing_was_begun(kept, pair, peers):
    """An operator had paused the job: all was brought, and nothing of it reduced."""
    old = pair(kept)
    kept.ctl("pause", "pair")
    give(old, [0])
    for each in old:
        settled(each)
    harness.restart(kept)
    new = [back(peers, kept, each) for each in old]
    enter(new)
    go(new, 1)


def unlink(path):
    os.unlink(path)


def shorten(path):
    os.truncate(path, 10)


def overwrite(path):
    with open(path, "r+b") as file:
        file.write(b"something else")


def forbid(path):
    """Another user may write to it: it is not believed, and not used."""
    os.chmod(path, 0o660)


@pytest.mark.parametrize("damage, told, why", [
    (unlink, None, "the journal of this one does not have it"),
    (shorten, "is ignored", "the journal of this one does not have it"),
    (overwrite, "is ignored", "the journal of this one does not have it"),
    (forbid, "there is no journal, so the jobs of this gradsyncd will end with it",
     "this one has no journal")])
def test_a_journal_that_cannot_be_read(kept, pair, peers, damage, told, why):
    """The job has ended, and its members hear why. Its name is free for another one."""
    old = pair(kept)
    go(old, 1)
    harness.kill(kept)
    damage(journal(kept))
    kept.start()
    if told:
        kept.wait_log(told)
    for each in old:
        late = peers(Returning(kept.socket))
        refused = late.refusal(late.rejoin_send(each))
        assert refused.code == "MEMBER_LOST" and why in refused.text and "join it again" in refused.text
    go(pair(kept), 1)


def ends_with_its_daemon(kept, members):
    """In good order: its members hear so at once, and are not told to come back."""
    kept.signal(signal.SIGTERM)
    for each in members:
        assert each.expect("LOST").cause == wire.pb.SHUTDOWN
    assert kept.program.wait() == 0


def test_without_a_journal(kept, pair):
    """A job ends with its daemon, and its members have nothing to show to the next one."""
    harness.kill(kept)
    forbid(journal(kept))
    kept.start()
    made = pair(kept)
    assert [each.secret for each in made] == [None, None]
    go(made, 1)
    ends_with_its_daemon(kept, made)
    kept.start()


def test_a_journal_that_is_full(kept, pair, peers):
    """The job that finds no room is named, and ends with its daemon. The others are taken back."""
    old = pair(kept)
    peer = peers(Returning(kept.socket))
    peer.joined(peer.join_send("large", 256, min_world=1))
    plan = small_plan(16384, 1)
    peer.expect("PLAN_AGREED", peer.plan_arena(plan, peer.plan_send(plan)))
    kept.wait_log("job 'large': the journal has no more room for jobs of uid 0; a restart of this "
                  "gradsyncd would end the job")
    kept.signal(signal.SIGTERM)
    assert peer.expect("LOST").cause == wire.pb.SHUTDOWN
    assert kept.program.wait() == 0
    kept.start()
    late = peers(Returning(kept.socket))
    assert late.refusal(late.rejoin_send(peer)).code == "MEMBER_LOST"
    enter([back(peers, kept, each) for each in old])


def test_where_it_lies(kept, daemon, scratch):
    """Beside the socket, or in the directory that the service manager gives; no other user can read it."""
    assert os.stat(journal(kept)).st_mode & 0o777 == 0o600
    given = scratch / "given"
    given.mkdir()
    served = daemon(env={"RUNTIME_DIRECTORY": str(given)})
    assert os.stat(given / "journal").st_mode & 0o777 == 0o600
    assert not os.path.exists(journal(served))


def test_one_that_has_heard_less_than_it_can(kept, pair, peers):
    """Two steps were committed, and a member says that it has heard of neither: it takes the state.

    Planted: it is told the results of the second one (verdict.c).
    """
    old = pair(kept)
    go(old, 1)
    reduce_all(old)
    harness.restart(kept)
    new = [back(peers, kept, each, 1 - each.rank) for each in old]
    assert new[1].expect("PLAN_STEP").step == 2
    new[0].plans[0].step, new[0].generation = 2, 1
    assert new[0].outcome(new[0].plans[0])[0] == "COMMITTED"
    for each in new:
        newgen = each.expect("NEWGEN")
        assert (newgen.cause, newgen.behind) == (wire.pb.RESTARTED, True)
        each.generation = newgen.generation
    assert not [frame for frame in new[1].early if frame.kind == "STEP"]
    go(new, 3)
