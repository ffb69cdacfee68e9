# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on the backend "gradsync"."""
import json
import signal
import subprocess
import sys

import harness
from conftest import ENVIRONMENT, PACKAGE
from launch import Group, cases

NAMES = ("reductions layouts sparse copies scattered_sums all_to_all objects later callbacks "
         "several_threads groups wrapped sharded wrong")


@cases(Group(NAMES, script="group.py", heavy=False), Group(NAMES, 3, script="group.py"))
def test_group(group, case):
    group.check(case)


RANK = """
    import json
    import sys
    import torch
    import torch.distributed as dist
    import gradsync.torch
    store, rank = f"file://{sys.argv[1]}", int(sys.argv[2])
    dist.init_process_group("gradsync", init_method=store, rank=rank, world_size=2)
    dist.barrier()
    print("ready", flush=True)
    if rank == 1:
        sys.stdin.readline()
    works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2)]
    errors = []
    for call in (works[0].wait, works[1].wait, lambda: dist.broadcast(torch.ones(3), 0)):
        try:
            call()
        except gradsync.GradsyncError as error:
            errors.append((error.rank, error.pid, str(error)))
    print(json.dumps(errors), flush=True)
    dist.destroy_process_group()
    print("left", flush=True)
"""


def test_a_lost_rank(daemon, script, tmp_path):
    """Operations that are under way, and later ones, name the rank and its process."""
    served = daemon()
    first, second = [script(RANK, tmp_path / "store", rank, socket=served.socket) for rank in ("0", "1")]
    assert first.line() == second.line() == "ready"
    assert second.kill() == -signal.SIGKILL
    errors = json.loads(first.line())
    assert [(rank, pid) for rank, pid, _ in errors] == [(1, second.pid)] * 3
    assert all(str(second.pid) in text for _, _, text in errors)
    assert first.line() == "left"
    assert first.wait() == 0


def test_a_rank_is_lost_in_a_backward_pass(daemon, script, tmp_path):
    """The error reaches torch's C++ code, and from there the script."""
    text = RANK[:RANK.index("    works")] + """
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    print("wrapped", flush=True)
    if rank == 1:
        sys.stdin.readline()
    try:
        model(torch.ones(2, 4)).sum().backward()
    except RuntimeError as error:
        print(str(error).splitlines()[0], flush=True)
"""
    text = text.replace("    if rank == 1:\n        sys.stdin.readline()\n", "", 1)
    served = daemon()
    first, second = [script(text, tmp_path / "store", rank, socket=served.socket) for rank in ("0", "1")]
    assert [each.line() for each in (first, second, first, second)] == ["ready"] * 2 + ["wrapped"] * 2
    second.kill()
    assert "MemberLostError: job 'group-" in (line := first.line()) and f"rank 1 (pid {second.pid})" in line
    assert first.wait() == 0


def test_more_groups_than_a_connection_has_jobs(daemon, script, tmp_path):
    served = daemon(settings={"jobs_per_uid": 80})
    made = script("""
        import sys
        import torch
        import torch.distributed as dist
        import gradsync.torch
        dist.init_process_group("gradsync", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
        for group in [dist.new_group([0]) for _ in range(65)]:
            dist.barrier(group)
            dist.destroy_process_group(group)
        dist.barrier()
        print("done", flush=True)
    """, tmp_path / "store", socket=served.socket)
    assert made.line() == "done"
    assert made.wait() == 0


def test_a_process_that_ends_in_an_operation_is_lost(daemon, script, tmp_path):
    served = daemon()
    text = RANK[:RANK.index("    works")] + """
    work = dist.all_reduce(torch.ones(3), async_op=True)
    sys.exit(3)
"""
    first, second = [script(text, tmp_path / "store", rank, socket=served.socket) for rank in ("0", "1")]
    assert first.line() == second.line() == "ready"
    assert first.wait() == 3
    served.wait_log(" lost rank 0 ")
    second.say("")
    assert second.wait() == 3


def test_ctrl_c_in_an_operation(daemon, script, tmp_path):
    """Other ranks may have the result, so the group ends with it. Its memory is kept as long as needed."""
    served = daemon()
    text = RANK[:RANK.index("    works")] + """
    try:
        print("waits", flush=True)
        dist.all_reduce(torch.ones(3))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    try:
        dist.all_reduce(torch.ones(3))
    except gradsync.StateError as error:
        print(error, flush=True)
    dist.destroy_process_group()
"""
    first, second = [script(text, tmp_path / "store", rank, socket=served.socket) for rank in ("0", "1")]
    assert [each.line() for each in (first, second, first)] == ["ready", "ready", "waits"]
    harness.wait_until(lambda: any(job["waiting_for"] for job in served.status()["jobs"]), "the operation")
    first.signal(signal.SIGINT)
    assert first.line() == "interrupted"
    assert "all_reduce (sum) was interrupted" in first.line()
    assert first.wait() == 0


def test_groups_that_were_not_destroyed_are_left(daemon, script, tmp_path):
    """The process ends in good order, and so do its groups: that is no loss."""
    served = daemon()
    text = RANK[:RANK.index("    works")]
    both = [script(text, tmp_path / "store", rank, socket=served.socket) for rank in ("0", "1")]
    assert [each.line() for each in both] == ["ready"] * 2
    both[1].say("")
    assert [each.wait() for each in both] == [0, 0]
    assert " lost rank " not in served.log


def test_callbacks_in_a_child(script):
    """The threads of the parent, which wait for more, are not there."""
    made = script("""
        import os
        import threading
        from gradsync.torch.group.work import _callbacks
        ran = threading.Event()
        _callbacks.run(ran.set)
        ran.wait()
        while _callbacks._idle == 0:
            pass
        if os.fork() == 0:
            ran = threading.Event()
            _callbacks.run(ran.set)
            os._exit(0 if ran.wait(60) else 1)
        print(os.wait()[1], flush=True)
    """)
    assert made.line() == "0"
    assert made.wait() == 0


def test_torch_finds_the_backend_by_itself(tmp_path):
    """As the wheel's entry point says, without an import of gradsync, and without its library."""
    info = tmp_path / "gradsync-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gradsync\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ngradsync = gradsync._backend:register\n")
    found = subprocess.run(
        [sys.executable, "-c", "import sys, torch.distributed as dist\n"
         "print(dist.is_backend_available('gradsync'), 'gradsync.torch' in sys.modules)"],
        env={**ENVIRONMENT, "PYTHONPATH": f"{PACKAGE}:{tmp_path}", "GRADSYNC_LIBRARY": "/none"},
        capture_output=True, text=True, check=False)
    assert found.stdout == "True False\n", found.stderr
