# SPDX-License-Identifier: Apache-2.0
"""Status and errors of a PyTorch job name parameters as the model does."""
import json
import os
import re
import signal

import pytest

from harness import LONG, wait_until

TRAIN = """
    import collections, os, signal, torch, gradsync.torch
    torch.set_num_threads(1)
    layers = collections.OrderedDict(
        first=torch.nn.Linear(8, 8), second=torch.nn.Linear(8, 8), head=torch.nn.Linear(8, 2))
    model = gradsync.torch.DistributedDataParallel(torch.nn.Sequential(layers), bucket_cap_mb=1e-4)
    hook = None
    for step in range(1, 5):
        if model.job.rank == 1 and step == 3:   # the gradients of the last layer are there, and no others
            hook = layers["second"].register_full_backward_pre_hook(
                lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
        if model.job.rank == 1 and step == 4:
            hook.remove()
            layers["second"].weight.register_hook(lambda grad: grad / 0)
        model(torch.ones(4, 8)).sum().backward()
        model.zero_grad()
    print(model.info.nonfinite, model.info.nonfinite_rank, flush=True)
    model.job.barrier()
    input()
"""


def start(served, script, text):
    return [script(text, socket=served.socket, env={"GRADSYNC_JOB": "seen", "GRADSYNC_WORLD_SIZE": "2",
                                                    "GRADSYNC_RANK": str(rank)}) for rank in (0, 1)]


def wait_for_stopped(served):
    job = served.job("seen")
    return [each for each in (job["waiting_for"] if job else []) if each["process_state"] == "stopped"]


@pytest.mark.heavy
def test_names(daemon, script):
    served = daemon(settings={"stall_notice": "1s"})
    ranks = start(served, script, TRAIN)
    wait, = wait_until(lambda: wait_for_stopped(served), "rank 1 to stop", LONG)
    assert (wait["rank"], wait["pid"], wait["step"]) == (1, ranks[1].pid, 3)
    assert wait["parameter"] in ("second.weight", "second.bias")
    who = (rf'rank 1 \(pid {ranks[1].pid}, stopped\): bucket {wait["bucket"]}, '
           rf'parameter "{wait["parameter"]}"')
    assert re.search(who, served.ctl("status"))
    assert re.search(rf", bucket {wait['bucket']}, {wait['parameter']}$",
                     served.ctl("top", "--batch", "-n", "1"), re.M)
    served.wait_log(who)
    wait_until(lambda: re.search(f"^gradsync: .*{who}", ranks[0].err, re.M), "the terminal of rank 0")

    os.kill(ranks[1].pid, signal.SIGCONT)
    for each in ranks:
        assert each.line(LONG) == "64 1", each.told()
    began = served.job("seen")["nonfinite_first"]
    assert (began["step"], began["rank"], began["parameter"]) == (4, 1, "second.weight")
    named = rf'bucket {began["bucket"]}, parameter "second\.weight"'
    assert re.search(rf"rank 1 \(pid {ranks[1].pid}\) brought 64 .*{named}", served.ctl("status"))
    assert re.search(rf"rank 1 \(pid {ranks[1].pid}\) brought 64 .*{named}", served.log)
    trace = json.loads(served.ctl("trace", "seen", "-o", "-"))
    tracks = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"]
    named = re.compile(r"plan \d+: bucket \d+, (\w+)\.(weight|bias)( and \d more)?")
    assert {match[1] for match in map(named.fullmatch, tracks) if match} == {"first", "second"}, tracks
    for each in ranks:
        each.say("")
        assert each.wait(LONG) == 0, each.told()


CIRCLE = """
    import torch, gradsync.torch
    torch.set_num_threads(1)
    model = gradsync.torch.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 6):
        loss = model(torch.ones(4, 8) * step).square().mean()
        if model.job.rank == 1 and step == 3:
            continue                            # as after a loss that is no number
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
"""

ALONE = """
    import torch, gradsync.torch
    torch.set_num_threads(1)
    model = gradsync.torch.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
    for step in range(1, 4):
        model(torch.ones(4, 8)).square().mean().backward()
        model.zero_grad()
    if model.job.rank == 0:
        while True:                             # as if the others evaluated, too
            model(torch.ones(4, 8)).square().mean()
    input()
"""


@pytest.mark.heavy
def test_a_batch_that_one_rank_skips(daemon, script):
    """One rank is in a backward pass, the other one in the next forward pass, which broadcasts buffers."""
    served = daemon(settings={"stall_notice": "100ms", "deadlock_timeout": "500ms"})
    ranks = start(served, script, CIRCLE)
    for each in ranks:
        assert each.wait(LONG) == 1, each.told()
    pids = [each.pid for each in ranks]
    said = (rf"DeadlockError: job 'seen': its members wait for each other: rank 0 \(pid {pids[0]}\) is at "
            r'the end of step \d+, for which rank 1 has to give its gradients, "0\.weight" first; '
            rf"rank 1 \(pid {pids[1]}\) is in operation \d+, broadcast of \d+ bytes from rank 0, for which "
            r"rank 0 has to make the same call\. .*\n")
    for each, where in zip(ranks, ("the end of a backward pass, and has given its gradients",
                                   "the broadcast of rank 0's buffers, as before a forward pass")):
        assert re.search(said + f"This rank is at {where}. Each rank calls", each.err), each.err


def test_a_rank_that_goes_on_alone(daemon, script):
    """A rank needs one that has left. Its error says at once which one, and for what."""
    served = daemon()
    ranks = start(served, script, ALONE)
    ranks[1].say("")
    assert ranks[1].wait(LONG) == 0, ranks[1].told()
    assert ranks[0].wait(LONG) == 1, ranks[0].told()
    assert re.search(r"MemberLostError: gradsync_broadcast\(\) needs all ranks: job 'seen': rank 1 "
                     rf"\(pid {ranks[1].pid}\) left after step \d+, and takes part in nothing any more: all "
                     "ranks have to make the same calls", ranks[0].err), ranks[0].err
