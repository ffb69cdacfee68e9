# SPDX-License-Identifier: Apache-2.0
"""Collectives whose data lies on a GPU, which is a fake one: alone, with others, and when copies fail."""
import pytest

import harness
from test_cuda import FLOATS
from trainers import ask, crew, end, join, script, together

KINDS = ("allgather", "reduce_scatter", "broadcast", "allreduce")
PLACES = ("0 same", "0 0", "0 host", "host 0", "host host", "1 1", "1 host", "host 1")


def suits(kind, places, world=1):
    """Whether the collective has one memory or two there, as it wants."""
    if kind in ("broadcast", "allreduce"):
        return places.endswith("same")
    return world == 1 or not places.endswith("same")


@pytest.fixture
def alone(machine, program, scratch, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    one = program(harness.MEMBER, env={"MEMBER_CUDA": "1", "XDG_RUNTIME_DIR": scratch,
                                       "GRADSYNC_DEVICE": "cpu:nowhere"})
    ask(one, "open")
    join([one])
    return one


@pytest.mark.fake
@pytest.mark.parametrize("kind", KINDS)
def test_alone_data_may_lie_on_any_gpu(kind, alone):
    for size in (1, 4097, 2_500_001):
        for places in PLACES:
            if suits(kind, places):
                assert ask(alone, f"collective {kind} {size} {places}") == "right", places


@pytest.mark.fake
def test_alone_data_of_two_gpus_is_refused(alone):
    assert "is another GPU's" in ask(alone, "collective allgather 100 0 1", "INVALID")
    assert ask(alone, "collective allgather 100 1 1") == "right"


@pytest.mark.fake
def test_alone_a_copy_that_fails_is_an_error(alone):
    ask(alone, "env FAKE_GPU_FAIL=cuMemcpyDtoDAsync:1:719")
    assert "a copy failed: CUDA_ERROR_LAUNCH_FAILED" in ask(alone, "collective allgather 100 0 0", "SYSTEM")


@pytest.mark.fake
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.usefixtures("nothing_left")
def test_with_a_daemon_data_may_lie_on_its_gpu(world, gpu, member):
    served = gpu(settings={"staging_bytes": "1MiB"})
    members = [member(served) for _ in range(world)]
    together(members, "open")
    join(members)
    for kind in KINDS:
        for places in PLACES:
            if "1" not in places and suits(kind, places, world):
                said = together(members, f"collective {kind} 700001 {places}")
                assert set(said) == {"right"}, (kind, places)


@pytest.fixture
def pair(gpu, member, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    served = gpu(settings={"staging_bytes": "1MiB"})

    def start(fail=None):
        members = [member(served, env={"FAKE_GPU_FAIL": fail} if fail else {}), member(served)]
        together(members, "open")
        join(members)
        return members
    return start


@pytest.mark.fake
@pytest.mark.parametrize("places", ["1 0", "0 1", "1 host"])
def test_memory_of_another_gpu_is_refused_before_anything_is_sent(places, pair):
    """So the same member can call again, and the other one has waited for the right call."""
    first, second = pair()
    together([first, second], "collective allgather 10 host host")     # from here on the GPU is known
    second.say("collective allgather 2500001 0 0")
    assert "is another GPU's" in ask(first, f"collective allgather 2500001 {places}", "INVALID")
    assert ask(first, "collective allgather 2500001 0 0") == "right"
    assert second.line() == "OK right"


@pytest.mark.fake
@pytest.mark.parametrize("call, floats", [
    ("cuMemcpyDtoHAsync:3:719", 1000), ("cuMemcpyDtoHAsync:3:719", 700_000),
    ("cuMemcpyDtoHAsync:5:719", 700_000), ("cuMemcpyHtoDAsync:3:719", 700_000),
], ids=["only_piece", "first_piece", "last_piece", "output"])
def test_a_copy_that_fails_on_one_member_is_an_error_on_all(call, floats, pair):
    """The text of the others names the member, and no member takes bytes that were not copied for data. The
    member's own copies to and from its memory are counted, too."""
    first, second = pair(call)
    second.say(f"allreduce_on_gpu {floats} 2")
    assert "a copy failed: CUDA_ERROR_LAUNCH_FAILED" in ask(first, f"allreduce_on_gpu {floats} 1", "SYSTEM")
    code, _, text = second.line().partition(" ")
    assert code == "MEMBER_LOST" and f"rank 0 (pid {first.pid})" in text, text
    assert "a copy failed" in ask(first, "barrier", "SYSTEM")


@pytest.mark.fake
@pytest.mark.parametrize("mark", ["ready", "absent"])
def test_a_stream_of_another_gpu_is_refused(mark, gpu, member, monkeypatch):
    """The parameter is not marked, so it can be marked in a stream of the right one."""
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    members = crew(member, gpu(), 2, params=FLOATS)
    for rank, each in enumerate(members):
        ask(each, f"fill {rank + 1}")
        said = ask(each, f"mark_on {mark} 1 0", "INVALID")
        assert "cuda:0: the stream is none of this GPU's primary context" in said
        script(each, f"fill {rank + 1} 0", "mark_on ready 0 0", "ready 1 2")
    assert end(members) == 1
