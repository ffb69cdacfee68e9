# SPDX-License-Identifier: Apache-2.0
"""Each state of the daemon's objects has one writer."""
import pytest

import writers
from tree import TREE, write

HEADER = """
enum plan_state { PLAN_IDLE, PLAN_OPEN };
struct part { enum part_state state; int n; };
struct row { char *state; };
struct plan { struct list list; enum plan_state state; struct part part[4], *first; struct row row; };
struct node { enum phase phase; };
"""


def read(tmp_path, *bodies, header=HEADER):
    """The check's answer about functions that are `void NAME(struct plan *plan)`, given as name and body."""
    text = "".join(f"static void {name}(struct plan *plan) {{\n{body}\n}}\n" for name, body in bodies)
    return writers.read(write(tmp_path, {"daemon/job/plan.h": header, "daemon/job/plan.c": text}))


def test_states_have_one_writer():
    elsewhere, functions, found = writers.read(TREE)
    assert len(found) >= 8
    assert {state: each for state, each in functions.items() if len(each) > 1} == {}
    assert elsewhere == {}


def test_states_are_found(tmp_path):
    assert read(tmp_path)[2] == {("plan", "state"), ("part", "state"), *writers.OTHERS}


@pytest.mark.parametrize("body", [
    "plan->state = PLAN_OPEN;",
    "plan->part[at(1)].state = 1;",
    "plan->first->state = 1;",
    "struct part *const part = &plan->part[0];\npart->state = 1;",
    "if (x)\nplan->state |= 2;",
    "plan->state++;",
    "unknown(plan)->state = 1;",
    "(*plan).state = 1;",
])
def test_an_assignment_elsewhere_is_found(tmp_path, body):
    elsewhere = read(tmp_path, ("plan_begin", body))[0]
    assert elsewhere == {"daemon/job/plan.c": [(1 + body.count("\n") + 1, "plan_begin", "state")]}


@pytest.mark.parametrize("body", [
    "if (plan->state == PLAN_OPEN || plan->state != 1 || plan->state <= 2)\nreturn;",
    "struct row row = { .list = 1, .state = text };\nrow.state = text;",
    "plan->row.state = text;",
    "struct plan fresh = { .state = PLAN_OPEN, };",
    "/* plan->state = 1; */",
    "enum plan_state state = plan->state;\nstate = 1;",
])
def test_what_is_none(tmp_path, body):
    assert read(tmp_path, ("plan_begin", body))[0] == {}


def test_the_writer_may(tmp_path):
    elsewhere, functions, _ = read(tmp_path, ("plan_set_state", "plan->state = state;"),
                                 ("part_set_state", "plan->first->state = state;"))
    assert elsewhere == {}
    assert functions == {("plan", "state"): {"daemon/job/plan.c:plan_set_state"},
                       ("part", "state"): {"daemon/job/plan.c:part_set_state"}}


def test_two_writers_are_found(tmp_path):
    functions = read(tmp_path, ("plan_set_state", "plan->state = state;"),
                   ("other_set_state", "plan->state = state;"))[1]
    assert len(functions["plan", "state"]) == 2


def test_states_of_other_names(tmp_path):
    elsewhere, functions, _ = read(tmp_path, ("node_set_phase", "struct node *node;\nnode->phase = 1;"),
                                 ("node_begin", "struct node *node;\nnode->phase = 1;"))
    assert elsewhere == {"daemon/job/plan.c": [(7, "node_begin", "phase")]}
    assert functions == {("node", "phase"): {"daemon/job/plan.c:node_set_phase"}}
