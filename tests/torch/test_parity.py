# SPDX-License-Identifier: Apache-2.0
"""Two ranks, 50 steps: whatever a trainer can see is the same as with PyTorch's DDP, bit by bit."""
import pytest

from launch import Group

GROUPS = [
    Group("mlp mlp_f64 different_beginnings without_zeroing transformer"),
    Group("cnn cnn_without_buffers cnn_channels_last mixed_types complex_numbers"),
    Group("unused_by_some unused_by_all unused_keeps_zeros unused_all_used unused_output"),
    Group("accumulation accumulation_of_averages accumulation_with_unused two_forwards two_backwards "
          "grad_replaced"),
    Group("uneven_inputs uneven_by_live uneven_thrown"),
    Group("checkpoints checkpoints_reentrant static_graph compiled"),
    Group("clipping scaler gan ignored shared frozen hooks_of_the_user optimiser_in_backward"),
    Group("raises_nothing_to_do raises_device_ids raises_unused"),
    Group("raises_twice"),
]


# Those of a group run in one process of pytest.
CASES = [pytest.param(group, case, id=case, marks=pytest.mark.xdist_group(group.names[0]))
         for group in GROUPS for case in group.names]


@pytest.mark.parametrize("group, case", CASES)
def test_as_ddp(group, case):
    group.check(case)
