# SPDX-License-Identifier: Apache-2.0
"""Members that give pages of shared memory back to the kernel, where the kernel's count of pages does not
show it: the daemon allocates none in their place, and lives in a memory cgroup without room for them. And
what else a client can make it allocate."""
import os

import pytest

import wire
from harness import guarded, sanitized
from peer import PAGE, Arena, Own, Plan, Refused, agree, memfd, punch, small_plan

pytestmark = pytest.mark.skipif(not guarded(), reason="userfaultfd(2) is not allowed here")

MEMORIES = 30
MIB = 1 << 20


class Padded(Own):
    """Memory with pages after its end, which make up for as many that are missing before it: fewer than a
    huge page, in which the file could end."""

    def __init__(self):
        size = 2 * MIB + PAGE
        self.fd = memfd(size, hidden=4 * MIB - size, name="padded")
        self.handle = None
        Arena.__init__(self, self.fd, size)


@pytest.mark.cgroup
def test_holes_that_pages_after_the_end_make_up_for(group, serve):
    """In many memories, all used at the same time: more than the daemon's cgroup has left."""
    served = serve(cgroup=group.path)
    crew = served.crew("padded", 2, plan=None)
    memories = [crew.peers[0].register(Padded()) for _ in range(MEMORIES)]
    crew.plans = [[small_plan(1, elements=2 * MIB // 4, ordinal=ordinal) for _ in crew.peers]
                  for ordinal in range(MEMORIES)]
    for memory, plans in zip(memories, crew.plans):
        memory.place(plans[0])
        agree(crew.peers, plans)
    for plans in crew.plans:
        crew.peers[1].ready(plans[1], 0)
    for memory in memories:
        memory.punch(0, 2 * MIB - PAGE)
        assert memory.blocks() >= memory.size, "as far as the number of pages shows nothing is missing"
    before = [memory.blocks() for memory in memories]
    group.limit(MEMORIES * MIB)
    crew.peers[0].ready(crew.plans[0][0], 0)
    try:
        for plans in crew.plans[1:]:
            crew.peers[0].ready(plans[0], 0)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert "holes were punched" in crew.peers[0].hangup().text
    assert [memory.blocks() for memory in memories] == before, "the daemon has made no page"
    served.go()
    crew.close()
    for memory in memories:
        memory.close()


@pytest.mark.cgroup
def test_descriptions_of_plans(group, serve, build):
    """As many as a user likes to describe, in a cgroup that has room for what plan_bytes_per_uid allows."""
    crew = serve(cgroup=group.path, settings={"plan_bytes_per_uid": "8M"}).crew("wordy", 1, plan=None)
    if not sanitized(build):    # which keep books of memory beside it
        group.limit(24 * MIB)
    peer, agreed, refused = crew.peers[0], 0, 0
    for ordinal in range(16):           # more than 1 MiB each
        params = [(f"{ordinal:02}{number:05}" + "x" * 240, [1], 0) for number in range(4000)]
        plan = Plan(params, ordinal=ordinal)
        request = peer.plan_send(plan)
        try:
            peer.expect("PLAN_AGREED", peer.plan_arena(plan, request))
            agreed += 1
        except Refused as problem:
            assert problem.code == "QUOTA" and "plan_bytes_per_uid" in problem.text, problem
            refused += 1
    assert 0 < agreed < 8 < refused


def test_holes_in_what_an_operation_writes(watched):
    """So small that the pages have not been counted: the member is evicted, and no result is told."""
    crew = watched.crew("operation", 2, plan=None)
    mine, fd = crew.peers[0].staging_with_fd()
    other = crew.peers[1].staging()
    punch(fd, PAGE, PAGE)
    before = os.fstat(fd).st_blocks
    for peer in crew.peers:
        peer.operation("ALLREDUCE", dtype=wire.pb.F32, reduce=wire.pb.SUM, bytes=PAGE, input=0, output=PAGE)
    assert "holes were punched" in crew.peers[0].hangup().text
    refused = crew.peers[1].refusal()
    assert refused.code == "MEMBER_LOST" and refused.rank == 0
    assert os.fstat(fd).st_blocks == before
    other.close()
    mine.close()
    watched.go()
    crew.close()
    os.close(fd)
