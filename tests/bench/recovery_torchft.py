# SPDX-License-Identifier: Apache-2.0
"""One rank of recovery_bench.py's contender torchft: a replica group of one process, over torchft's Gloo. A
new process fetches the state from the other one.

    recovery_torchft.py WIDTH SOCKET RANK LEAST HEARTBEAT_MS

LEAST: how many replica groups a step needs (min_replica_size). TORCHFT_LIGHTHOUSE names the lighthouse.
"""
import datetime
import sys

import torch
import torch.distributed as dist
import torchft
from recovery_member import Driver, loss_of, model_of, optimiser_of, samples_of

HOST = "127.0.0.1"


class Manager(torchft.Manager):
    """Says when it hears that another replica is gone, and knows whether the last step was committed."""

    def __init__(self, driver, replica, **options):
        self.driver, self.replica, self.commits = driver, replica, False
        super().__init__(**options)

    def report_error(self, error):
        self.driver.say("noticed", self.replica, self.current_step() + 1)
        super().report_error(error)

    def should_commit(self, timeout=None):
        self.commits = super().should_commit(timeout)
        return self.commits


class DistributedDataParallel(torchft.DistributedDataParallel):
    """Where an allreduce fails since a replica is gone, that of 0.2.0 ends the other one, too, by an
    AssertionError. This one lets the step fail: the manager knows, and does not commit it.
    """

    @staticmethod
    def _comm_hook(state, bucket):
        state.allreduce(bucket.buffer()).wait()
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done


def main(width, path, rank, least, heartbeat_ms):
    driver, width, rank = Driver(path), int(width), int(rank)
    module = model_of(width)
    opt = optimiser_of(module)

    def state():
        return {"model": module.state_dict(), "opt": opt.state_dict()}

    def take(state):
        module.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])

    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    manager = Manager(driver, rank, pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=60)),
                      load_state_dict=take, state_dict=state, min_replica_size=int(least), init_sync=False,
                      replica_id=f"rank{rank}", hostname=HOST, store_addr=HOST, store_port=store.port, rank=0,
                      world_size=1, heartbeat_interval=datetime.timedelta(milliseconds=int(heartbeat_ms)))
    model = DistributedDataParallel(manager, module, gradient_as_bucket_view=True)
    wrapped = torchft.Optimizer(manager, opt)
    driver.watch(module, rank, lambda: manager.current_step() + 1)
    while driver.allows(manager.current_step() + 1):
        wrapped.zero_grad()
        x = samples_of(width, rank, manager.current_step() + 1)
        loss_of(model(x), x).backward()
        wrapped.step()
        if manager.commits:
            driver.say("committed", rank, manager.current_step(), manager.num_participants())
    driver.end(rank, manager.current_step(), module)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
