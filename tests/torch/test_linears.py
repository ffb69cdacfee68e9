# SPDX-License-Identifier: Apache-2.0
"""Gradients of linear layers that are made in shared memory: whatever is done with the layers gives what
PyTorch's DDP gives, bit by bit, and where a case can have them made there, they are."""
from launch import Group, cases

GROUP = Group("usual without_bias changed_in_place used_twice shared_weight shapes sequences "
              "gradients_of_the_caller gradients_of_the_wrapper graph_kept hooks_of_tensors "
              "hooks_of_layers forward_of_the_user pruned frozen_weight autocast saved_elsewhere "
              "functions_of_functions compiled_within checkpoints_after_the_step doubled scripted "
              "failed_backward graph_of_graphs pass_of_a_thread pass_within_a_pass "
              "checkpoint_within_a_pass copies_wrapped wrong_width old_hooks forward_put_around "
              "compiled_later", script="linears.py")


@cases(GROUP)
def test_as_ddp(group, case):
    group.check(case)
