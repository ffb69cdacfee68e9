# SPDX-License-Identifier: Apache-2.0
"""Members of a job with a token come back after a restart of the daemon, and another process of their uid,
which has not the token, is faster: they show that they were in the job, and it cannot."""
import pytest

from harness import restart
from peer import Refused
from returning import Returning, back, enter, go

TOKEN = "a secret of two"


def comes_back(thief, old):
    """It knows all but the token, and what the daemon told nobody but the member."""
    thief.rejoin(old, token=None, proof=None)


def claims_a_proof(thief, old):
    thief.rejoin(old, token=None, proof=bytes(32))


def joins(thief, old):
    """Before anybody has come back."""
    thief.waiting = thief.join_send(old.name, 2)


def is_alone(thief, old):
    """In a whole job of that name."""
    thief.joined(thief.join_send(old.name, 1))


def robbed(daemon, pair, peers, way):
    """(daemon, members from before, thief): it was restarted, and one without the token came first."""
    served = daemon()
    old = pair(served, token=TOKEN)
    restart(served)
    thief = peers(Returning(served.socket))
    way(thief, old[0])
    return served, old, thief


@pytest.mark.parametrize("way", [comes_back, claims_a_proof, joins, is_alone], ids=lambda way: way.__name__)
def test_who_was_in_the_job_has_it(daemon, pair, peers, way):
    served, old, _ = robbed(daemon, pair, peers, way)
    new = [back(peers, served, each, 0, 0) for each in old]
    enter(new)
    go(new, 1)
    with pytest.raises(Refused) as told:
        late = peers(Returning(served.socket))
        late.joined(late.join_send(old[0].name, 2))
    assert told.value.code == "DENIED" and "token" in told.value.text


@pytest.mark.parametrize("way", [joins, is_alone], ids=lambda way: way.__name__)
def test_the_other_one_hears_why(daemon, pair, peers, way):
    served, old, thief = robbed(daemon, pair, peers, way)
    back(peers, served, old[0], 0, 0)
    told = thief.expect("LOST") if way is is_alone else thief.refusal(thief.waiting)
    assert "have come back after a restart" in told.text


def test_who_comes_first_and_was_in_it_stays(daemon, pair, peers):
    served = daemon()
    old = pair(served, token=TOKEN)
    restart(served)
    first = back(peers, served, old[0], 0, 0)
    thief = peers(Returning(served.socket))
    told = thief.refusal(thief.rejoin_send(old[1], token=None, proof=None))
    assert told.code == "DENIED" and "token" in told.text
    new = [first, back(peers, served, old[1], 0, 0)]
    enter(new)
    go(new, 1)


@pytest.mark.parametrize("whose", ["of none", "another member's", "another job's", "cut off"])
def test_what_proves_nothing(daemon, pair, peers, whose):
    """As of a library that knows no proofs: it counts who comes first."""
    served = daemon()
    old, other = pair(served, token=TOKEN), pair(served, "other", token=TOKEN)
    shown = {"of none": None, "another member's": old[1].proof, "another job's": other[0].proof,
             "cut off": old[0].proof[:31]}
    assert old[0].proof != other[0].proof and len(old[0].proof) == 32
    restart(served)
    thief = peers(Returning(served.socket))
    comes_back(thief, old[0])
    late = peers(Returning(served.socket))
    told = late.refusal(late.rejoin_send(old[0], proof=shown[whose]))
    assert told.code == "DENIED" and "token" in told.text


def test_a_new_job_of_the_same_tenant_is_not_ended(daemon, pair, peers):
    """Its launcher has started it again: the members of the former one come too late, whatever they prove."""
    served = daemon()
    old = pair(served, token=TOKEN)
    restart(served)
    fresh = pair(served, token=TOKEN)
    late = peers(Returning(served.socket))
    told = late.refusal(late.rejoin_send(old[0]))
    assert told.code == "STALE" and "anew" in told.text
    go(fresh, 1)


def test_without_a_token_all_of_a_uid_are_one(daemon, pair, peers):
    """As ever: who comes first has the place."""
    served = daemon()
    old = pair(served)
    restart(served)
    first = peers(Returning(served.socket))
    comes_back(first, old[0])
    late = peers(Returning(served.socket))
    assert late.refusal(late.rejoin_send(old[0])).code == "RANK_TAKEN"
