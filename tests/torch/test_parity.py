# SPDX-License-Identifier: Apache-2.0
"""Two ranks, 50 steps: whatever a trainer can see is the same as with PyTorch's DDP, bit by bit."""
import re

from launch import HERE, ROOT, Group, cases

#: One configuration of each feature, in the form that shows most; the other groups are heavy.
QUICK = Group("small_buckets cnn transformer.copied mixed_types unused_by_some unused_output accumulation "
              "two_forwards two_backwards uneven_inputs even_inputs checkpoints static_graph scaler gan "
              "hooks_of_the_user ignored_replaced odd_shapes different_beginnings saved_and_loaded "
              "wrapped_again nested_outputs kinds_of_inputs outputs_without_graph checkpoints_in_turn "
              "undefined_gradients buffers_replaced join_that_raises raises_unused raises_twice "
              "raises_static_used raises_hook mlp.streams optimiser_in_backward",
              heavy=False)
GROUPS = [
    QUICK,
    Group("mlp small_buckets.f64 mlp.f64 without_zeroing without_zeroing.f64 transformer transformer.f64 "
          "mixed_types.f64 complex_numbers complex_numbers.f64 cnn.f64 cnn_without_buffers "
          "cnn_without_buffers.f64 cnn_channels_last cnn_channels_last.f64 uneven_inputs.f64 "
          "uneven_by_live uneven_by_live.f64 unused_by_some.f64 unused_by_all unused_by_all.f64 "
          "unused_keeps_zeros unused_keeps_zeros.f64 unused_all_used unused_all_used.f64 unused_output.f64"),
    Group("accumulation.f64 accumulation_of_averages accumulation_of_averages.f64 accumulation_with_unused "
          "accumulation_with_unused.f64 two_forwards.f64 two_backwards.f64 grad_replaced grad_replaced.f64 "
          "checkpoints.f64 checkpoints_reentrant checkpoints_reentrant.f64 static_graph.f64 clipping "
          "clipping.f64 scaler.f64 gan.f64 hooks_of_the_user.f64 hooks_of_modules hooks_of_modules.f64 "
          "hook_of_the_wrapper hook_of_the_wrapper.f64 optimiser_in_backward.f64"),
    Group("ignored shared frozen optimiser_in_backward_later list_of_caps evaluation_on_one "
          "ignored_outputs uneven_thrown uneven_from_nothing join_disabled unused_not_cleared "
          "unused_shared buffers_at_first_only static_two_forwards static_unused_by_some "
          "static_checkpoints checkpoint_around graph_of_gradients functional_call raises_nothing_to_do "
          "raises_device_ids raises_static_late raises_static_unused compiled compiled_static"),
    Group("mlp.copied accumulation.copied accumulation_of_averages.copied two_forwards.copied "
          "two_backwards.copied checkpoints.copied static_graph.copied clipping.copied gan.copied "
          "optimiser_in_backward.copied graph_of_gradients.copied transformer.streams cnn.streams "
          "mixed_types.streams complex_numbers.streams odd_shapes.streams unused_by_some.streams "
          "unused_by_all.streams accumulation.streams static_graph.streams gan.streams "
          "wrapped_again.streams saved_and_loaded.streams optimiser_in_backward.streams "
          "uneven_inputs.streams"),
]


@cases(*GROUPS)
def test_as_ddp(group, case):
    group.check(case)


def text_of(file):
    """The text of a file of tests, then that of the script with their cases."""
    return "".join((HERE / name).read_text() for name in (f"test_{file}.py", f"{file}.py"))


def test_table():
    """docs/DDP_TESTS.md names existing tests, and marks rightly which of them run in double precision."""
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
                    if file == "parity" else re.search(rf"def (test_)?{name}\(", text_of(file))
            else:
                continue
            seen += 1
            wrong += [] if found else [text]
    assert wrong == []
    assert seen > 90
