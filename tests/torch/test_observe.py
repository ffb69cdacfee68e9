# SPDX-License-Identifier: Apache-2.0
"""What people see of a job of PyTorch: parameters have the names that they have in the model."""
import json
import os
import re
import signal

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


def wait_for_stopped(served):
    job = served.job("seen")
    return [each for each in (job["waiting_for"] if job else []) if each["process_state"] == "stopped"]


def test_names(daemon, script):
    served = daemon(settings={"stall_notice": "1s"})
    ranks = [script(TRAIN, socket=served.socket, env={"GRADSYNC_JOB": "seen", "GRADSYNC_WORLD_SIZE": "2",
                                                      "GRADSYNC_RANK": str(rank)}) for rank in (0, 1)]
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
