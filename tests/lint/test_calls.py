# SPDX-License-Identifier: Apache-2.0
"""Calls between files have few and short cycles, and a static function's name leads to its file."""
import re

import pytest

import calls
import csource
from tree import TREE, write

# The highest figures that this tree may have; a change may only lower them. Rule: no cycle between folders,
# no cycle of more than 3 files, and at most 5 names of static functions in more than one file.
LONGEST_CYCLE = {
    "daemon": 2,
    "client/lib": 2,
    "client/cli": 1,
    "client": 2,
    "proto": 3,
}
FOLDERS_IN_CYCLES = 0
NAMESAKES = 0
# Pointers that a layer hands down, to be called back; five of them are events of engines.
UPWARD = 29


def tree_of(tmp_path, files):
    return calls.read(write(tmp_path, files))


def edges(found):
    return {(user, other) for user, used in found.edges.items() for other in used}


@pytest.fixture(name="tree", scope="module")
def the_tree():
    return calls.read(TREE)


def test_there_is_something_to_check(tree):
    assert len(tree.files) > 100 and len(edges(tree)) > 300


@pytest.mark.parametrize("part", calls.TREES)
def test_cycles_of_files_are_short(tree, part):
    long = [cycle for cycle in tree.cycles(part) if len(cycle) > LONGEST_CYCLE[part]]
    assert not long, "\n".join(" ".join(cycle) for cycle in long)


def test_folders_have_no_cycles(tree):
    cycles = tree.folder_cycles()
    assert sum(map(len, cycles)) <= FOLDERS_IN_CYCLES, cycles


STRUCT = re.compile(r"^(?:static )?(?:const )?struct (\w+) \{", re.M)


def structs(tree, program):
    """{tag: {files}} of the structs of a program, with those that it shares with others."""
    found = {}
    for top in (program, "proto"):
        for path in sorted((tree / top).rglob("*.[ch]")):
            for tag in STRUCT.findall(path.read_text()):
                found.setdefault(tag, set()).add(str(path.relative_to(tree)))
    return found


def test_a_tag_twice_is_found(tmp_path):
    tree_of(tmp_path, {"daemon/job/a.c": "struct slot {\n};\n",
                       "daemon/b.h": "struct slot {\n};\nstruct line {\n};\n"})
    assert structs(tmp_path, "daemon") == {"slot": {"daemon/job/a.c", "daemon/b.h"}, "line": {"daemon/b.h"}}


@pytest.mark.parametrize("program", ["daemon", "client/lib", "client/cli"])
def test_a_struct_has_its_name_alone(program):
    """Within a program a struct's tag has one meaning."""
    found = structs(TREE, program)
    assert len(found) > 20
    assert not {tag: files for tag, files in found.items() if len(files) > 1}


def test_few_calls_go_up(tree):
    assert len(tree.upward) <= UPWARD, sorted(tree.upward)


def test_names_of_statics_stand_in_one_file(tree):
    assert len(tree.namesakes) <= NAMESAKES, "\n".join(f"{name}: {' '.join(paths)}"
                                                       for name, paths in tree.namesakes.items())


# ---- the tool, on trees made for it ----

def test_a_call_is_an_edge(tmp_path):
    found = tree_of(tmp_path, {"daemon/a.c": "int a(void) {\n        return b();\n}\n",
                               "daemon/b.h": "int b(void);\n",
                               "daemon/b.c": '#include "b.h"\nint b(void) {\n        return 1;\n}\n'})
    assert edges(found) == {("daemon/a", "daemon/b")}
    assert found.edges["daemon/a"]["daemon/b"] == {"b"}
    assert found.cycles("daemon") == []


@pytest.mark.parametrize("text", [
    "static const struct ops ops = { .run = b };",
    "void (*const table[])(void) = { b };",
    "void a(void) {\n        call(b, NULL);\n}",
    "void a(void) {\n        x->next = &b;\n}",
    "#define B() b()\nvoid a(void) {\n        B();\n}",
    "#define B() C()\n#define C() \\\n        b()\nvoid a(void) {\n        B();\n}",
    "#if X\nvoid a(void) {\n#else\nvoid a(int x) {\n#endif\n        b();\n}",
    "#if X\nint x;\n#else\nvoid a(void) {\n        b();\n}\n#endif",
    "__attribute__((format(printf, 1, 2))) void a(const char *text, ...) {\n        b();\n}",
    "static INLINE struct row *a(struct x *(*f)(int)) __attribute__((unused)) {\n        b();\n}",
    'extern "C" {\nvoid a(void) {\n        b();\n}\n}',
    "struct x { int y; } a(void) {\n        b();\n}",
    "void a(void) {\n        char x = '\"';\n        b();\n        char y = '\"';\n}",
    'void a(void) {\n        log("//", b());\n}',
])
def test_what_is_a_call(tmp_path, text):
    found = tree_of(tmp_path, {"daemon/a.c": text + "\n", "daemon/b.c": "void b(void) {\n}\n"})
    assert edges(found) == {("daemon/a", "daemon/b")}


@pytest.mark.parametrize("text", [
    "/* b() */",
    "// b() \\\n   b()",
    '#include "b.h"',
    "void b(void);",
    "extern void b(void), c(struct b *b);",
    "typedef void b(void);",
    "struct x { void (*b)(void); int c[sizeof(b)]; };",
    "enum x { b, c };",
    "#define B() b()",
    "#undef b\n#if defined(b)\n#endif",
    'void a(void) {\n        log("b()");\n}',
    "void a(void) {\n        x->b();\n        y.b = 1;\n}",
    "struct x x = { .b = 1 };",
    "void a(int b) {\n        c(b);\n}",
    "void a(void) {\n        uint64_t b = 1;\n        c(b);\n}",
    "void a(void) {\n        struct x *b;\n        c(b);\n}",
    "void a(void) {\n        goto b;\nb:\n        return;\n}",
    "void a(struct b *x) {\n        c(sizeof(struct b));\n}",
    "static void b(void) {\n}\nvoid a(void) {\n        b();\n}",
])
def test_what_is_none(tmp_path, text):
    found = tree_of(tmp_path, {"daemon/a.c": text + "\n", "daemon/b.c": "void b(void) {\n}\n"})
    assert edges(found) == set()


def test_statics_are_not_seen_from_outside(tmp_path):
    found = tree_of(tmp_path, {"daemon/a.c": "void a(void) {\n        b();\n}\n",
                               "daemon/b.c": "static void b(void) {\n}\n"})
    assert edges(found) == set()


def test_inline_functions_belong_to_their_header(tmp_path):
    """A header's functions are called, and call, as the .c beside it."""
    found = tree_of(tmp_path, {"daemon/a.c": "void a(void) {\n        look();\n}\n",
                               "daemon/b.h": "static inline int look(void) {\n        return c();\n}\n",
                               "daemon/b.c": "void b(void) {\n        look();\n}\n",
                               "daemon/c.c": "int c(void) {\n        b();\n        return 1;\n}\n"})
    assert edges(found) == {("daemon/a", "daemon/b"), ("daemon/b", "daemon/c"), ("daemon/c", "daemon/b")}
    assert found.cycles("daemon") == [["daemon/b", "daemon/c"]]


def test_programs_do_not_call_each_other(tmp_path):
    """If two programs have a function of one name, each calls its own; proto/ belongs to all programs."""
    end = "void end(void) {\n}\n"
    found = tree_of(tmp_path, {"daemon/core/a.c": "void a(void) {\n        end();\n        pack();\n}\n",
                               "daemon/base/b.c": end, "client/cli/c.c": end,
                               "proto/pack.c": "void pack(void) {\n}\n"})
    assert edges(found) == {("daemon/core/a", "daemon/base/b"), ("daemon/core/a", "proto/pack")}


def ring(names, folder="daemon"):
    """Files that call one another in a circle."""
    return {f"{folder}/{name}.c": f"void {name}(void) {{\n        {after}();\n}}\n"
            for name, after in zip(names, names[1:] + names[:1])}


ASSIGNED = [
    "void a(struct jobs *jobs) {\n        jobs->act = a_act;\n}\n",
    "void a(struct jobs *jobs) {\n        jobs->act = &a_act;\n}\n",
    "void a(struct jobs *jobs) {\n        *jobs = (struct jobs){ .act = a_act, .n = 1 };\n}\n",
    "static const struct ops ops = {\n        .n = 1,\n        .act = a_act\n};\n",
]


def pointers(assigned, more=""):
    """a.c assigns its function to a member, and calls b.c, which calls that member."""
    return {"daemon/job/a.c": "void a_act(void) {\n        b();\n}\n" + assigned + more,
            "daemon/job/b.c": "void b(struct jobs *jobs) {\n        jobs->act(jobs);\n}\n"}


@pytest.mark.parametrize("assigned", ASSIGNED)
def test_a_cycle_through_a_pointer_is_found(tmp_path, assigned):
    found = tree_of(tmp_path, pointers(assigned))
    assert found.cycles("daemon") == [["daemon/job/a", "daemon/job/b"]]
    assert found.edges["daemon/job/b"] == {"daemon/job/a": {"->act"}}
    assert found.upward == {}


@pytest.mark.parametrize("more", [
    "static void other(void) {\n}\nvoid use_other(struct jobs *jobs) {\n        jobs->act = other;\n}\n",
    "static const struct ops other = { .act = another };\nvoid another(void) {\n}\n"])
def test_a_pointer_with_two_targets_is_no_edge(tmp_path, more):
    found = tree_of(tmp_path, pointers(ASSIGNED[0], more))
    assert found.cycles("daemon") == [] and found.upward == {}


def test_another_program_assigns_other_pointers(tmp_path):
    files = pointers(ASSIGNED[0])
    files["client/lib/c.c"] = "void c(void) {\n}\nvoid use(struct own *own) {\n        own->act = c;\n}\n"
    assert tree_of(tmp_path, files).cycles("daemon") == [["daemon/job/a", "daemon/job/b"]]


@pytest.mark.parametrize("above, below, up", [
    ("daemon/session/a", "daemon/job/b", True), ("daemon/session/a", "daemon/report/b", True),
    ("daemon/report/a", "daemon/session/b", False), ("daemon/core/a", "daemon/link/b", True),
    ("daemon/job/a", "daemon/job/machine/b", False), ("daemon/job/machine/a", "daemon/job/b", False),
    ("daemon/job/a", "daemon/session/b", False), ("daemon/a", "daemon/job/b", False),
    ("client/lib/core/a", "client/lib/wire/b", True), ("client/lib/wire/a", "client/lib/core/b", False),
    ("client/cli/a", "client/cli/ask/b", True), ("client/cli/view/a", "client/cli/ask/b", True),
    ("client/cli/ask/a", "client/cli/view/b", False)])
def test_a_layer_may_be_called_back(tmp_path, above, below, up):
    found = tree_of(tmp_path, {f"{above}.c": "void act(struct jobs *jobs) {\n        jobs->act = act;\n}\n",
                               f"{below}.c": "void b(struct jobs *jobs) {\n        jobs->act(jobs);\n}\n"})
    assert found.upward == ({"act": {below: above}} if up else {})
    assert edges(found) == (set() if up else {(below, above)})


def test_cycles_are_found_whole_and_by_tree(tmp_path):
    files = {**ring(["a", "b", "c", "d"]), **ring(["x", "y"]), **ring(["l", "m", "n"], "client/lib")}
    files["daemon/e.c"] = "void e(void) {\n        a();\n        x();\n}\n"
    found = tree_of(tmp_path, files)
    assert found.cycles("daemon") == [[f"daemon/{name}" for name in "abcd"], ["daemon/x", "daemon/y"]]
    assert found.cycles("client/lib") == [[f"client/lib/{name}" for name in "lmn"]]
    assert found.cycles("client/cli") == [] and found.folder_cycles() == []


def test_two_rings_that_touch_are_one_cycle(tmp_path):
    files = {**ring(["a", "b", "c"]), **ring(["x", "y"])}
    files["daemon/c.c"] = "void c(void) {\n        a();\n        x();\n}\n"
    files["daemon/y.c"] = "void y(void) {\n        x();\n        b();\n}\n"
    assert tree_of(tmp_path, files).cycles("daemon") == [[f"daemon/{name}" for name in "abcxy"]]


def test_folders_that_call_each_other_are_found(tmp_path):
    """No cycle of files is needed for one of folders; a folder and the one that it lies in are two."""
    found = tree_of(tmp_path, {"daemon/job/job.c": "void job(void) {\n        plan();\n}\n"
                                                   "void job_settle(void) {\n        one();\n}\n",
                               "daemon/job/more.c": "void more(void) {\n}\n",
                               "daemon/job/plan/plan.c": "void plan(void) {\n        more();\n}\n",
                               "daemon/base/one.c": "void one(void) {\n}\n"})
    assert found.cycles("daemon") == []
    assert found.folder_cycles() == [["daemon/job", "daemon/job/plan"]]


def test_namesakes_of_statics(tmp_path):
    found = tree_of(tmp_path, {
        "daemon/a.c": "static void tell(void) {\n}\nstatic void only(void) {\n}\nvoid out(void) {\n}\n",
        "daemon/b.c": "static void tell(void) {\n}\nstatic int find(void) {\n}\nvoid same(void) {\n}\n",
        "client/cli/c.h": "static inline int find(void) {\n}\nstatic int declared(void);\n",
        "client/lib/d.c": "static int hidden(void) {\n}\n/* static void only(void) { } */\n"
                          "void same(void) {\n}\n",
        "proto/e.c": "void hidden(void) {\n}\nint declared(void) {\n}\nstatic int only_a_variable = 1;\n"})
    assert found.namesakes == {"tell": ["daemon/a.c", "daemon/b.c"], "find": ["client/cli/c.h", "daemon/b.c"],
                               "hidden": ["client/lib/d.c", "proto/e.c"]}


def test_the_report_names_everything(tmp_path, capsys):
    calls.report(tree_of(tmp_path, {**ring(["a", "b"]), **ring(["c", "d"], "proto"),
                                    "daemon/x/x.c": "static void a(void) {\n}\n"
                                                    "void x(void) {\n        b();\n}\n",
                                    "daemon/y.c": "void y(void) {\n        x();\n}\n"}))
    said = capsys.readouterr().out
    assert "daemon: 1 cycles, the longest of 2 files" in said
    assert "    daemon/a -> daemon/b: b\n" in said
    assert "proto: 1 cycles" in said and "client/lib: 0 cycles" in said
    assert "folders: 1 cycles, 2 folders in them" in said and "daemon/y -> daemon/x/x" in said
    assert "upward: 0 pointers" in said
    assert "namesakes: 1 " in said and "  a: daemon/a.c, daemon/x/x.c\n" in said


def test_tokens_keep_their_lines():
    tokens, macros = csource.tokens_of('a /* x\n */ "b\\"c" // d \\\n e\n'
                                       '#define f(x) \\\n  x + \\\n 1.5e-3f\ng->h')
    assert [(token.text, token.line) for token in tokens] == [("a", 1), ('"b\\"c"', 2), ("g", 7), ("->", 7),
                                                              ("h", 7)]
    assert [(name, [token.text for token in rest]) for name, rest in macros] == [("f", ["x", "+", "1.5e-3f"])]
