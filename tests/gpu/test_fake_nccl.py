# SPDX-License-Identifier: Apache-2.0
"""The fake NCCL is as strict as the real one, and a program that breaks a rule is noticed. The tests of
the product, which run on it, show how it serves programs that break none."""
import subprocess

import pytest

from test_fake import DEADLINE, Machine, run, wait_until


class Node(Machine):
    """A machine whose processes use NCCL. Each rank is on a host of its own, as NCCL sees it."""

    def __init__(self, build, folder):
        super().__init__(build, folder)
        self.library = self.fakes / "nccl/libnccl.so.2"

    def command(self, *names):
        return [self.fakes / "nccl/rules-nccl", "--driver", self.driver, "--nccl", self.library, *names]

    def check(self):
        return run([self.fakes / "gpu/fake-gpu-context", "check"], self.environment())


@pytest.fixture
def node(build, tmp_path):
    yield Node(build, tmp_path)
    (tmp_path / "nccl-hold").unlink(missing_ok=True)


FACTS = ["a_collective_without_its_peer_is_aborted", "every_rank_must_abort",
         "the_death_of_a_peer_goes_unnoticed", "streams_of_one_queue_wait_for_each_other",
         "kernels_that_do_not_fit_wait", "a_communicator_is_final_when_all_ranks_say_so",
         "ranks_of_one_host_are_destroyed_together", "a_wrong_call_spoils_a_communicator",
         "a_revoked_communicator_reduces_nothing", "versions_must_not_differ",
         "two_ranks_on_one_gpu_are_refused", "wrong_beginnings_are_refused",
         "only_the_call_fails_that_a_test_asks_for", "a_window_is_of_memory_that_is_mapped",
         "the_input_may_be_read_and_not_the_output", "a_communicator_dies_with_its_processes",
         "a_collective_dies_with_its_process"]


@pytest.mark.parametrize("mode", [{}, {"FAKE_GPU_MPS": "1"}, {"FAKE_GPU_DELAY": "2000"}],
                         ids=["turns", "mps", "slow"])
def test_the_fake_nccl_is_strict(mode, node):
    done = run(node.command(*FACTS), node.environment(**mode))
    assert done.returncode == 0 and "FAILS" not in done.stdout, done.stdout + done.stderr
    node.wait_until_quiet()
    assert node.log() == ""


GONE = "of a communicator that is gone"
# Rule -> what is in the log, and in how many lines (1).
BROKEN = {
    "counts_differ": "rank 1 differs from rank 0 in collective 1: count 999, not 1000; type 2, not 2",
    "types_differ": "rank 1 differs from rank 0 in collective 1: count 1000, not 1000; type 7, not 2",
    "operations_differ": "type 1, not 1; operation 3, not 2",
    "sizes_differ": " ranks, others ",
    "windows_differ": ("ranks register windows that differ", 2),
    "use_another_place_of_a_window": "place in windows 10000fa010000fa0, not 1000000010000000",
    "shrinks_differ": ("ranks shrink a communicator differently", 3),
    "use_what_is_in_progress": "ncclAllReduce before the previous operation returned ncclSuccess",
    "use_what_was_destroyed": f"ncclAllReduce {GONE}",
    "destroy_what_was_aborted": f"ncclCommDestroy {GONE}",
    "use_what_was_finalized": "ncclAllReduce of a communicator that was finalized",
    "finalize_what_was_revoked": "ncclCommFinalize of a communicator that was revoked",
    "destroy_with_work_under_way": "a communicator is destroyed while its collectives are under way",
    "be_one_rank_twice": "rank 0 of 1 ranks has already checked in",
    "leave_a_configuration_uninitialised": "ncclConfig_t argument not initialized",
    "let_calls_block": "a communicator whose calls block",
    "make_a_group": "a group is begun",
    "overlap_in_part": "a collective on ranges that overlap in part",
    "write_the_input": "a fill writes bytes 999 to 1000 of memory",
    "write_the_output": "a fill writes bytes 999 to 1000 of memory",
    "read_the_output_too_early": "a copy reads bytes 0 to 1000 of memory",
    "go_beyond_what_is_mapped": "a collective uses memory that is not mapped",
    "register_what_is_no_memory": "what is registered is no device memory",
    "deregister_twice": "what is deregistered was not registered",
    "unmap_what_is_registered": "is unmapped or freed while it is registered",
    "have_no_context": "a collective in a thread without the communicator's GPU",
}


@pytest.mark.parametrize("rule", BROKEN)
def test_who_breaks_a_rule_is_noticed(rule, node):
    text, lines = BROKEN[rule] if isinstance(BROKEN[rule], tuple) else (BROKEN[rule], 1)
    program = subprocess.Popen(node.command(f"rule_{rule}"), env=node.environment(), text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: text in node.log(), f"'{text}' in {node.folder}/log")
    finally:
        (node.folder / "nccl-hold").unlink(missing_ok=True)
        said = program.communicate(timeout=DEADLINE)[1]
    assert program.returncode == 0, said
    node.wait_until_quiet()
    assert [text in line for line in node.log().splitlines()] == [True] * lines, node.log()


def test_a_communicator_that_is_left_is_found(node):
    done = run(node.command("left_a_communicator"), node.environment(), timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: "0 contexts, 0 memories" in node.check().stdout, "the GPU to be empty")
    assert node.check().returncode == 1 and " is left over" in node.check().stdout
