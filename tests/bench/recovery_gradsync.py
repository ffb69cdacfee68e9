# SPDX-License-Identifier: Apache-2.0
"""One rank of recovery_bench.py's contender gradsync: no file is read or written, and a process that comes in
the place of a lost one takes the state of the others. A spare is the same script.

    recovery_gradsync.py WIDTH SOCKET
"""
import sys

import gradsync
import gradsync.torch
from recovery_member import Driver, loss_of, model_of, optimiser_of, samples_of


def main(width, path):
    driver, width = Driver(path), int(width)
    module = model_of(width)
    opt = optimiser_of(module)
    model = gradsync.torch.DistributedDataParallel(module)
    state = gradsync.State(model=model, opt=opt)
    rank = model.job.rank
    driver.watch(module, rank, lambda: state.count + 1)
    while driver.allows(state.count + 1):
        for attempt in state.step():
            with attempt:
                x = samples_of(width, rank, state.count + 1)
                opt.zero_grad()
                loss_of(model(x), x).backward()
                opt.step()
        driver.say("committed", rank, state.count, model.job.world_size)
    driver.end(rank, state.count, module)


if __name__ == "__main__":
    main(*sys.argv[1:])
