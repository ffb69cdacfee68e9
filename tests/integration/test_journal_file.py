# SPDX-License-Identifier: Apache-2.0
"""A daemon's journal tells the next one how far open steps were: a crash between the end of a step and the
news of it costs nothing. Members are made of single frames, and say what a crash at that moment would have
them say."""
import os

import pytest

import harness
import wire
from returning import back, enter, go


@pytest.fixture
def kept(daemon):
    return daemon("--allow-nobody", "yes")


def journal(served):
    return served.socket + ".journal"


def settled(peer):
    """All that the daemon had to say to this peer has come."""
    peer.early += peer.silent()


def reduce_all(served, made):
    """A whole step whose news the test has heard; the members, as they say, have not."""
    for each in made:
        plan = each.plans[0]
        for bucket in range(len(plan.buckets)):
            each.write(plan, bucket, [each.rank + 1.0] * 256)
            each.ready(plan, bucket)
    return [each.outcome(each.plans[0]) for each in made]


@pytest.mark.parametrize("said", [(0, 0), (0, 1), (1, 0)])
def test_all_was_done(kept, pair, peers, said):
    """The step is committed, whoever has heard of it, and those who have not get the same results."""
    old = pair(kept)
    told = reduce_all(kept, old)[0][2]
    harness.restart(kept)
    new = [back(peers, kept, each, said[each.rank], 0 if said[each.rank] else 2) for each in old]
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
    for each in old:
        each.ready(each.plans[0], 0)
    old[0].ready(old[0].plans[0], 1)
    for each in old:
        each.expect("STEP")
    harness.restart(kept)
    new = [back(peers, kept, each, 0, 2) for each in old]       # rank 1's second READY had not been read
    for each in new:
        assert each.expect("NEWGEN").cause == wire.pb.RESTARTED
        each.generation = 2
    go(new, 1)


def test_nothing_was_begun(kept, pair, peers):
    """An operator had paused the job: all was brought, and nothing of it reduced."""
    old = pair(kept)
    kept.ctl("pause", "pair")
    for each in old:
        each.ready(each.plans[0], 0)
        settled(each)
    harness.restart(kept)
    new = [back(peers, kept, each, 0, 1) for each in old]
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


@pytest.mark.parametrize("damage, told", [(unlink, None), (shorten, "is ignored"), (overwrite, "is ignored"),
                                          (forbid, "there is no journal")])
def test_a_journal_that_cannot_be_read(kept, pair, peers, damage, told):
    """The members' word is enough, then."""
    old = pair(kept)
    reduce_all(kept, old)
    harness.kill(kept)
    damage(journal(kept))
    kept.start()
    if told:
        kept.wait_log(told)
    new = [back(peers, kept, each, 1 - each.rank, 2 * each.rank) for each in old]
    assert new[1].expect("PLAN_STEP").step == 1
    for each in new:
        newgen = each.expect("NEWGEN")
        assert newgen.behind
        each.generation = newgen.generation
    go(new, 2)


def test_where_it_lies(kept, daemon, scratch):
    """Beside the socket, or in the directory that the service manager gives; no other user can read it."""
    assert os.stat(journal(kept)).st_mode & 0o777 == 0o600
    given = scratch / "given"
    given.mkdir()
    served = daemon(env={"RUNTIME_DIRECTORY": str(given)})
    assert os.stat(given / "journal").st_mode & 0o777 == 0o600
    assert not os.path.exists(journal(served))


def test_one_that_says_it_brought_less(kept, pair, peers):
    """All had brought all of a step that is committed: one that says otherwise is told no results, and takes
    the state.

    Planted: it is told them (verdict.c).
    """
    old = pair(kept)
    reduce_all(kept, old)
    harness.restart(kept)
    new = [back(peers, kept, each, 0, 2 - each.rank) for each in old]
    assert new[1].expect("PLAN_STEP").step == 1
    new[0].plans[0].step, new[0].generation = 1, 1
    assert new[0].outcome(new[0].plans[0])[0] == "COMMITTED"
    for each in new:
        newgen = each.expect("NEWGEN")
        assert (newgen.cause, newgen.behind) == (wire.pb.RESTARTED, True)
        each.generation = newgen.generation
    assert not [frame for frame in new[1].early if frame.kind == "STEP"]
    go(new, 2)
