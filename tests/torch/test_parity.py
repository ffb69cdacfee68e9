# SPDX-License-Identifier: Apache-2.0
"""Two ranks, 50 steps: whatever a trainer can see is the same as with PyTorch's DDP, bit by bit."""
import re

import pytest

from launch import HERE, ROOT, Group

GROUPS = [
    Group("mlp small_buckets without_zeroing transformer mixed_types complex_numbers", twice=True),
    Group("cnn cnn_without_buffers cnn_channels_last uneven_inputs uneven_by_live", twice=True),
    Group("unused_by_some unused_by_all unused_keeps_zeros unused_all_used unused_output", twice=True),
    Group("accumulation accumulation_of_averages accumulation_with_unused two_forwards two_backwards "
          "grad_replaced", twice=True),
    Group("checkpoints checkpoints_reentrant static_graph clipping scaler gan hooks_of_the_user "
          "hooks_of_modules hook_of_the_wrapper optimiser_in_backward", twice=True),
    Group("different_beginnings ignored ignored_replaced shared frozen optimiser_in_backward_later "
          "list_of_caps odd_shapes saved_and_loaded wrapped_again evaluation_on_one ignored_outputs "
          "nested_outputs outputs_without_graph kinds_of_inputs"),
    Group("uneven_thrown uneven_from_nothing join_disabled join_that_raises unused_not_cleared unused_shared "
          "undefined_gradients buffers_replaced buffers_at_first_only static_two_forwards "
          "static_unused_by_some static_checkpoints checkpoints_in_turn checkpoint_around graph_of_gradients "
          "functional_call"),
    Group("raises_nothing_to_do raises_device_ids raises_hook raises_static_late "
          "raises_unused raises_twice raises_static_used raises_static_unused compiled compiled_static"),
    Group("mlp.copied transformer.copied accumulation.copied accumulation_of_averages.copied "
          "two_forwards.copied two_backwards.copied checkpoints.copied static_graph.copied clipping.copied "
          "gan.copied optimiser_in_backward.copied graph_of_gradients.copied"),
    Group("mlp.streams transformer.streams cnn.streams mixed_types.streams complex_numbers.streams "
          "odd_shapes.streams unused_by_some.streams unused_by_all.streams accumulation.streams "
          "static_graph.streams gan.streams wrapped_again.streams saved_and_loaded.streams "
          "optimiser_in_backward.streams uneven_inputs.streams"),
]


# Those of a group run in one process of pytest.
CASES = [pytest.param(group, case, id=case, marks=pytest.mark.xdist_group(group.names[0]))
         for group in GROUPS for case in group.names]


@pytest.mark.parametrize("group, case", CASES)
def test_as_ddp(group, case):
    group.check(case)


def test_table():
    """docs/DDP_TESTS.md names tests that there are, and says truly which of them run in double precision."""
    rows = [line.split(" | ")[-1] for line in (ROOT / "docs/DDP_TESTS.md").read_text().splitlines()
            if line.startswith("| ")]
    names = {case for group in GROUPS for case in group.names}
    seen, wrong = 0, []
    for row in rows:
        file = None
        for text, twice in re.findall(r"`([^`]+)`(†?)", row):
            if re.fullmatch(r"[\w/.]+", text) and "/" in text:
                found = (ROOT / text).exists()
            elif text in ("bounds", "compressed", "recovery"):
                found = (HERE / f"test_{text}.py").exists()
            elif "::" in text or file is not None:
                file, name = text.split("::") if "::" in text else (file, text)
                found = {name, f"{name}.f64"} & names == {name, *([f"{name}.f64"] if twice else [])} \
                    if file == "parity" else f"def test_{name}(" in (HERE / f"test_{file}.py").read_text()
            else:
                continue
            seen += 1
            wrong += [] if found else [text]
    assert wrong == []
    assert seen > 90
