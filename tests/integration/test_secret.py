# SPDX-License-Identifier: Apache-2.0
"""Members come back after a restart of the daemon by the secrets that it had told them. No other process of
their uid has these, whether the job has a token or not."""
import os

import pytest

from harness import restart
from peer import Peer, Refused, agree, form, small_plan
from returning import Returning, back, enter, give, go

TOKEN = "a secret of two"


def joins(thief):
    """Before any member has come back."""
    thief.waiting = thief.join_send("pair", 2)


def joins_with_another_token(thief):
    thief.waiting = thief.join_send("pair", 2, token="another")


def is_alone(thief):
    """In a whole job of that name, with such a plan."""
    thief.joined(thief.join_send("pair", 1))
    agree([thief], [small_plan(2)])
    give([thief])


WAYS = pytest.mark.parametrize("way", [joins, joins_with_another_token, is_alone],
                               ids=lambda way: way.__name__)


def robbed(daemon, pair, peers, way):
    """(daemon, members from before, thief): it was restarted, and one without the token came first."""
    served = daemon()
    old = pair(served, token=TOKEN)
    go(old, 1)
    restart(served)
    thief = peers(Returning(served.socket))
    way(thief)
    return served, old, thief


def refused(peers, served, old, code="MEMBER_LOST", **changes):
    """The text by which one that comes back for the place of `old` is refused."""
    late = peers(Returning(served.socket))
    told = late.refusal(late.rejoin_send(old, **changes))
    assert told.code == code, told
    return told.text


@WAYS
def test_who_was_in_the_job_has_it(daemon, pair, peers, way):
    served, old, _ = robbed(daemon, pair, peers, way)
    new = [back(peers, served, each, 1) for each in old]
    enter(new)
    go(new, 2)
    with pytest.raises(Refused) as told:
        late = peers(Returning(served.socket))
        late.joined(late.join_send("pair", 2))
    assert told.value.code == "DENIED" and "token" in told.value.text


@WAYS
def test_the_other_one_hears_why(daemon, pair, peers, way):
    served, old, thief = robbed(daemon, pair, peers, way)
    back(peers, served, old[0], 1)
    told = thief.expect("LOST") if way is is_alone else thief.refusal(thief.waiting)
    assert "have come back after a restart" in told.text


@pytest.mark.parametrize("token", [None, TOKEN], ids=["without a token", "with a token"])
@pytest.mark.parametrize("first", [False, True], ids=["before the others", "after one"])
def test_what_is_no_secret_of_the_job(served, pair, peers, token, first):
    """It is refused by name, and the job goes on with those that have theirs."""
    old, other = pair(served, token=token), pair(served, "other", token=token)
    secrets = [each.secret for each in old + other]
    assert len(set(secrets)) == 4 and {len(each) for each in secrets} == {32}
    restart(served)
    new = [back(peers, served, old[0])] if first else []
    for wrong in (None, b"", bytes(32), os.urandom(32), other[1].secret, old[1].secret[:31],
                  old[1].secret + b"\0", bytes(reversed(old[1].secret))):
        assert "the journal of this one does not have it" in refused(peers, served, old[1], secret=wrong)
    new += [back(peers, served, each) for each in old[len(new):]]
    enter(new)
    go(new, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="speaks with the voice of another user")
def test_another_user_has_not_the_job(daemon, pair, peers):
    """Not even with the secret of a member."""
    served = daemon(settings={"socket_mode": "0666"})
    old = pair(served)
    restart(served)
    late = peers(Returning(served.socket, uid=61001))
    assert late.refusal(late.rejoin_send(old[0])).code == "MEMBER_LOST"
    enter([back(peers, served, each) for each in old])


def test_only_the_member_is_told(served, pair, peers):
    """No other answer has a secret, nor has the log; no other user can read the journal."""
    old = pair(served)
    watcher = peers(Peer(served.socket))
    told = b"".join(message.SerializeToString() for kind in watcher.status().values() for message in kind)
    for each in old:
        assert each.secret not in told and each.secret.hex() not in served.log
    assert os.stat(served.socket + ".journal").st_mode & 0o077 == 0


def test_a_successor_has_a_secret_of_its_own(served, peers):
    """With its place went that of the process before it."""
    old = form([peers(Returning(served.socket)) for _ in range(2)], "pair", rejoin_grace_ms=3600000)
    old[1].close()
    new = peers(Returning(served.socket))
    new.joined(new.join_send("pair", 2, 1, rejoin_grace_ms=3600000))
    enter(old[:1], "NEWGEN")
    assert new.secret not in (old[0].secret, old[1].secret)
    restart(served)
    assert "does not have it" in refused(peers, served, old[1], generation=1)
    enter([back(peers, served, each) for each in (old[0], new)])


def test_a_new_job_of_the_same_tenant_is_not_ended(served, pair, peers):
    """Its launcher has started it again: the members of the former one come too late."""
    old = pair(served, token=TOKEN)
    restart(served)
    fresh = pair(served, token=TOKEN)
    assert "join it again" in refused(peers, served, old[0])
    go(fresh, 1)
