# SPDX-License-Identifier: Apache-2.0
"""The figures that DDP reports, under the same names, and times of each bucket."""
from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from .. import library_version

if TYPE_CHECKING:
    from .distributed import DistributedDataParallel
    from .reducer import Reducer, Spans

EACH_OF_FIRST = 10
EVERY = 100
_TIMES = ("forward_compute_time", "backward_compute_time", "backward_comm_time",
          "backward_compute_comm_overlap_time")


class Log:
    """Times of a model. They are taken in each of the first steps, and then once in `every` steps."""

    def __init__(self) -> None:
        self.every = EVERY
        self.times: dict[str, int] = {}
        self.buckets: list[dict[str, int]] = []
        self._sums = dict.fromkeys(_TIMES, 0)
        self._samples = 0
        self._forward = self._forward_end = 0

    def begin(self, reducer: Reducer) -> None:
        """A forward pass of a step begins."""
        taken = reducer.steps < EACH_OF_FIRST or reducer.steps % self.every == 0
        reducer.on_finish = self._backward_ended if taken else None
        reducer.flags.times = {} if taken else None
        self._forward = time.perf_counter_ns()

    def forward_ended(self) -> None:
        """The forward pass has ended."""
        self._forward_end = time.perf_counter_ns()

    def _backward_ended(self, reducer: Reducer, computed: int, finished: int, buckets: Spans) -> None:
        """The gradients of this member were complete at `computed`, and the averages were there at
        `finished`. `buckets` has, for each bucket, when it was ready and when its average was there."""
        first = min((ready for ready, _ in buckets), default=computed)
        now = {
            "forward_compute_time_start": self._forward, "backward_compute_time_start": self._forward_end,
            "backward_comm_time_start": first, "backward_compute_time_end": computed,
            "backward_comm_time_end": finished,
            "forward_compute_time": self._forward_end - self._forward,
            "backward_compute_time": computed - self._forward_end, "backward_comm_time": finished - first,
            "backward_compute_comm_overlap_time": max(0, computed - first),
        }
        self._samples += 1
        for name in _TIMES:
            self._sums[name] += now[name]
            now["avg_" + name] = self._sums[name] // self._samples
        self.times = now
        self.buckets = [{"ready_ns": ready - self._forward_end, "done_ns": done - self._forward_end}
                        for ready, done in buckets]


def data_of(model: DistributedDataParallel) -> dict[str, Any]:
    """All figures of a model."""
    reducer, job, log = model._reducer, model.job, model._log
    checks = model._observer.check_ns
    slots = reducer.slots
    sizes, indices = _buckets_of(reducer)
    order = reducer.layout.order if reducer.planned else ()
    rebuilt = model._observer.replanned > 0
    data: dict[str, Any] = {
        "module_name": type(model.module).__name__, "rank": job.rank, "world_size": job.world_size,
        "backend_name": "gradsync", "gradsync_version": library_version(),
        "device_ids": ",".join(map(str, model.device_ids or ())),
        "output_device": model.device_ids[0] if model.device_ids else -1,
        "is_multi_device_module": 0, "iteration": reducer.steps,
        "broadcast_buffers": int(model.forward_sync_buffers),
        "bucket_cap_bytes": reducer.options.bucket_bytes,
        "find_unused_parameters": int(model.find_unused_parameters), "gradient_as_bucket_view": 1,
        "static_graph": int(model.static_graph), "comm_hook": "" if model._comm_hook == "none"
        else model._comm_hook,
        "has_sync_bn": int(any("SyncBatchNorm" in type(each).__name__ for each in model.modules())),
        "join_uneven_inputs": int(model._joining is not None),
        "can_set_static_graph": int(reducer.same_use),
        "num_parameter_tensors": len(slots), "total_parameter_size_bytes": sum(slot.nbytes for slot in slots),
        "unused_parameter_size": reducer.unused_bytes,
        "dtypes": ", ".join(sorted({str(slot.param.dtype).removeprefix("torch.") for slot in slots})),
        "bucket_sizes": sizes, "has_rebuilt_buckets": int(rebuilt), "rebuilt_bucket_sizes": sizes if rebuilt
        else "",
        "initial_bucket_size_limits": f"{reducer.options.first_bucket_bytes}, {reducer.options.bucket_bytes}",
        "per_bucket_param_indices": indices,
        "rebuilt_per_bucket_param_indices": indices if rebuilt else "",
        "prev_iteration_grad_ready_order_indices": ", ".join(map(str, order)),
        "master_addr": os.environ.get("MASTER_ADDR", ""), "master_port": os.environ.get("MASTER_PORT", ""),
        "torch_distributed_debug": os.environ.get("TORCH_DISTRIBUTED_DEBUG", ""),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "gradient_norm": reducer.info.norm if reducer.info is not None else None,
        "parameter_checks": len(checks), "avg_parameter_check_time": sum(checks) // max(len(checks), 1),
        "per_bucket_times": log.buckets,
    }
    return data | log.times


def _buckets_of(reducer: Reducer) -> tuple[str, str]:
    """Bytes of each bucket, and the parameters in it, as DDP writes them."""
    if not reducer.planned:
        return "", ""
    plan, layout = reducer.layout.plan, reducer.layout
    members: list[list[int]] = [[] for _ in range(plan.buckets)]
    for i in layout.order:
        members[plan.bucket_of(layout.places[i])].append(i)
    return (", ".join(str(sum(reducer.slots[i].nbytes for i in each)) for each in members),
            " ".join(f"[{' '.join(map(str, each))}]" for each in members))
