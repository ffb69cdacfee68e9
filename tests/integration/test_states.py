# SPDX-License-Identifier: Apache-2.0
"""Every request in every state: the client gets one answer, or goes with a reason, and no other client
notices."""
import pytest

from harness import wait_until
from states import ANSWERS, STATES, WAITS, Scene, ask, forget, must_be_refused, requests


class Stage:
    """One state, made again whenever a request has changed something."""

    def __init__(self, served, name):
        self.served, self.name = served, name
        self.scene = self.goes_on = None
        self.dropped = 0

    def make(self):
        if self.scene is None:
            self.scene = Scene(self.served)
            self.goes_on = STATES[self.name](self.scene)
            self.scene.actor.sync()

    def drop(self):
        scene, self.scene = self.scene, None
        scene.close()
        self.dropped += 1
        if self.name == "draining" or self.dropped % 16 == 0:
            forget(self.served)

    def finish(self):
        """All was refused, so all is as it was."""
        if self.scene is None:
            return
        if self.goes_on and not self.scene.actor.gone:
            self.goes_on()
        self.drop()

    def others_go(self, request, kind):
        """A request that waits for others is answered when they are gone."""
        scene = self.scene
        for peer in scene.peers:
            if peer is not scene.actor:
                peer.close()

        def told():
            scene.actor.sync()
            return scene.actor.gone or request not in scene.actor.asked
        wait_until(told, f"an answer to {kind}")


def judge(stage, kind, fields, request, answers):
    """Whether the request was refused, and nothing else happened."""
    actor = stage.scene.actor
    refused = [frame for frame in answers if frame.request == request and frame.kind == "REFUSED"]
    assert actor.gone or refused or not must_be_refused(stage.scene, stage.name, kind, fields), "it was taken"
    if actor.gone:
        assert actor.reason is not None, f"{stage.name}: {kind}: closed without a reason"
        return False
    mine = [frame for frame in answers if request and frame.request == request]
    if ANSWERS[kind] is not None and kind not in WAITS:
        assert len(mine) == 1, f"{stage.name}: {kind} has no answer"
    if kind in WAITS - {"JOIN"} and not mine:
        stage.others_go(request, kind)
    actor.settle_asked(request)
    if request == stage.scene.request:
        return False                    # what follows of a refused plan is ignored
    return len(mine) == 1 and mine[0].kind == "REFUSED"


@pytest.mark.parametrize("name", STATES)
def test_every_request(serve, name):
    served = serve(settings={"jobs_per_uid": 64})
    stage = Stage(served, name)
    stage.make()
    for number in range(len(requests(stage.scene))):
        stage.make()
        kind, fields = requests(stage.scene)[number]
        try:
            request = ask(stage.scene, kind, fields)
            refused = judge(stage, kind, fields, request, stage.scene.actor.sync())
        except AssertionError as problem:
            raise AssertionError(f"{name}: {kind} {fields}: {problem}") from problem
        if not refused:
            stage.drop()
    stage.finish()
    served.go(1)
    forget(served)


def test_a_loss_in_a_larger_world_before(watched):
    """The last rank of three was lost, and the others closed ranks; then one of them leaves, and a waiting
    client takes its place: it is not the successor of a rank that there is no more."""
    scene = watched.adopt(Scene(watched))
    watched.others.append(scene)
    team = [scene.add() for _ in range(3)]
    for peer, request in [(peer, scene.join(peer, 3, min_world=2, last_call_ms=60000, rejoin_grace_ms=0)) for peer in team]:
        peer.joined(request)
    team.sort(key=lambda peer: peer.rank)
    team.pop().close()
    for peer in team:
        peer.generation = peer.expect("NEWGEN").generation
    scene.agree(team)
    scene.bring(team[:1])
    waiting = scene.add()
    request = scene.join(waiting, 3, min_world=2)
    waiting.status()
    team[1].leave()
    assert team[0].outcome(team[0].plans[0])[0] == "VOID"
    place = waiting.joined(request)
    assert (place.rank, place.world) == (1, 2)
    told, = [job for job in waiting.status()["STATUS_JOB"] if job.name == scene.name]
    assert (told.lost_rank, told.HasField("lost_successor")) == (2, False)
