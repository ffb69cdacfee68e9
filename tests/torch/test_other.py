# SPDX-License-Identifier: Apache-2.0
"""Cases that PyTorch's DDP cannot do here, or does not do, and the lives of wrappers, processes and
jobs."""
from launch import Group, cases

GROUPS = [
    Group("frozen_and_unfrozen frozen_in_turn all_frozen log plans_by_the_observed_order "
          "gradients_that_a_script_keeps checkpoint random_numbers void_step "
          "two_forwards_of_normalisation unused_beside_a_checkpoint no_sync_within_no_sync "
          "accumulated_over_plans daemon_moves_the_gradients layers_dropped dropped_layers_move_nothing "
          "wrapped_again many_wrappers child child_in_pass child_in_backward module_alone converted names "
          "length_of_sampler storage_of_gradients job_left",
          script="other.py", heavy=False),
    Group("normalised_over_all", 1, script="other.py"),
    Group("normalised_over_all", 3, script="other.py"),
]


@cases(*GROUPS)
def test_other(group, case):
    group.check(case)
