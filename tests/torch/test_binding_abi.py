# SPDX-License-Identifier: Apache-2.0
"""The package and the header say the same: enumerations, structures, their initialisers, functions."""
import ctypes
import re
import subprocess

import pytest

import gradsync
from conftest import TREE
from gradsync import _native, errors

HEADER = TREE / "include/gradsync/gradsync.h"
#: The text of both headers without comments.
CODE = re.sub(r"/\*.*?\*/", " ", HEADER.with_name("types.h").read_text("utf-8") + HEADER.read_text("utf-8"),
              flags=re.S)
ENUMS = {name: dict(re.findall(r"(GRADSYNC_\w+)\s*=\s*(\d+)", body))
         for name, body in re.findall(r"enum gradsync_(\w+)\s*\{(.*?)\}", CODE, re.S)}
STRUCTS = {name: re.findall(r"(\w+)(?:\[\d+\])?\s*[,;]", body)
           for name, body in re.findall(r"struct (gradsync_\w+)\s*\{(.*?)\}", CODE, re.S)}
FUNCTIONS = {name: (result.strip(), [each.strip() for each in arguments.split(",")])
             for result, name, arguments in
             re.findall(r"^([\w ]+[ *])(gradsync_\w+)\(([^()]*)\);", CODE, re.M)}

OBJECTS = r"(const )?struct gradsync(_job|_plan|_memory)? ?\*"
# The ctypes type of each type of the header. The first pattern that matches the whole text counts.
TYPES = [
    (r"void", None), (r"int|enum gradsync_\w+", ctypes.c_int), (r"bool", ctypes.c_bool),
    (r"size_t", ctypes.c_size_t),
    (r"uint32_t", ctypes.c_uint32), (r"uint64_t", ctypes.c_uint64), (r"int64_t", ctypes.c_int64),
    (r"const char \*", ctypes.c_char_p), (r"(const )?void \*", ctypes.c_void_p), (OBJECTS, ctypes.c_void_p),
    (OBJECTS + r"\*", ctypes.POINTER(ctypes.c_void_p)),
    (r"(const )?uint64_t \*", ctypes.POINTER(ctypes.c_uint64)),
    (r"uint32_t \*", ctypes.POINTER(ctypes.c_uint32)),
]


def in_ctypes(text):
    """The type of "const uint64_t *shape", or of a result."""
    struct = re.fullmatch(r"(?:const )?struct (gradsync_\w+) \*\w*", text)
    if struct and struct[1] in _native.STRUCTURES:
        return ctypes.POINTER(_native.STRUCTURES[struct[1]])
    for pattern, found in TYPES:
        if re.fullmatch(rf"(?:{pattern})(?: ?\b\w+)?", text):
            return found
    raise AssertionError(f"a type that is not known here: {text}")


@pytest.fixture(scope="module")
def ask_compiler(tmp_path_factory):
    """ask_compiler(expressions) -> their values, as C has them."""
    folder = tmp_path_factory.mktemp("abi")

    def ask(expressions, before=""):
        lines = "\n".join(f'printf("%lld\\n", (long long)({each}));' for each in expressions)
        (folder / "ask.c").write_text("#include <stdio.h>\n#include <stddef.h>\n#include "
                  "<gradsync/gradsync.h>\n"
                                      f"int main(void) {{\n{before}\n{lines}\nreturn 0;\n}}\n")
        subprocess.run(["cc", "-I", TREE / "include", "-o", folder / "ask", folder / "ask.c"], check=True)
        told = subprocess.run([folder / "ask"], check=True, capture_output=True, text=True).stdout
        return [int(line) for line in told.split()]
    return ask


def test_the_header_is_understood():
    assert len(ENUMS) == 3 and len(STRUCTS) > 7 and len(FUNCTIONS) > 40
    assert ENUMS["dtype"]["GRADSYNC_F32"] == "1" and STRUCTS["gradsync_state"] == ["data", "bytes"]


@pytest.mark.parametrize("name, ours", [("result", gradsync.Result), ("dtype", gradsync.DType),
                                        ("reduce", gradsync.Reduce)])
def test_enumerations(name, ours):
    assert {f"GRADSYNC_{each.name}": str(each.value) for each in ours} == ENUMS[name]


@pytest.mark.parametrize("name", _native.STRUCTURES)
def test_structures(name, ask_compiler):
    fields = STRUCTS[name]
    ours = _native.STRUCTURES[name]
    assert [field for field, *_ in ours._fields_] == fields
    size, *told = ask_compiler([f"sizeof(struct {name})"] + [
        text for field in fields for text in (f"offsetof(struct {name}, {field})",
                                              f"sizeof(((struct {name} *)0)->{field})")])
    assert ctypes.sizeof(ours) == size
    assert [value for field in fields
            for value in (getattr(ours, field).offset, getattr(ours, field).size)] == told


def test_all_structures_are_there():
    assert set(_native.STRUCTURES) == set(STRUCTS)


def test_all_functions_are_there():
    assert set(_native.PROTOTYPES) == set(FUNCTIONS)
    assert _native.QUICK <= set(FUNCTIONS)


@pytest.mark.parametrize("name", _native.PROTOTYPES)
def test_functions(name):
    result, arguments = FUNCTIONS[name]
    given = [] if arguments == ["void"] else [in_ctypes(re.sub(r"\s+", " ", each)) for each in arguments]
    assert _native.PROTOTYPES[name] == (in_ctypes(result), given)


def test_the_library_is_bound_whole():
    lib = _native.library()
    for name in FUNCTIONS:
        assert getattr(lib, name.removeprefix("gradsync_")).argtypes == _native.PROTOTYPES[name][1]


def test_what_waits_gives_the_interpreter_away():
    """The calls that the header lists as waiting are not among those that keep the lock."""
    manual = re.sub(r"\n \*", " ", HEADER.read_text("utf-8"))
    text = re.search(r"Calls that may wait: (.*?)\.\s", manual, re.S)[1]
    named = {f"gradsync_{word}" for word in re.findall(r"\w+", text) if f"gradsync_{word}" in FUNCTIONS}
    assert len(named) >= 8
    assert not (named | {"gradsync_plan_with", "gradsync_barrier", "gradsync_dispatch"}) & _native.QUICK


def initialiser(structure, **given):
    made = _native.STRUCTURES[structure](ctypes.sizeof(_native.STRUCTURES[structure]))
    for name, value in given.items():
        setattr(made, name, value)
    return made


def test_the_defaults_of_join_are_those_of_the_header(ask_compiler, monkeypatch):
    """join() without options passes GRADSYNC_JOIN_OPTIONS_INIT to the library."""
    numbers = [field for field, kind in _native.JoinOptionsStruct._fields_ if kind is not ctypes.c_char_p]
    told = ask_compiler([f"o.{field}" for field in numbers],
                        "struct gradsync_join_options o = GRADSYNC_JOIN_OPTIONS_INIT;")
    seen = {}

    def join(_handle, options, _job):
        seen.update((field, getattr(options, field)) for field, _ in options._fields_)
        return int(gradsync.Result.INVALID)

    connection = gradsync.Connection.__new__(gradsync.Connection)
    connection._handle, connection._inside = 1, __import__("gradsync._call")._call.Inside("connection")
    monkeypatch.setattr(_native.library(), "join", join)
    with pytest.raises(gradsync.InvalidError):
        connection.join()
    connection._handle = None
    assert [seen[field] for field in numbers] == told
    assert seen["name"] is None and seen["token"] is None and seen["scope"] is None


def test_the_limits_of_buckets_are_those_of_the_header(ask_compiler):
    told = ask_compiler(["o.first_bucket_bytes", "o.bucket_bytes", "o.reduce"],
                        "struct gradsync_plan_options o = GRADSYNC_PLAN_OPTIONS_INIT;")
    defaults = gradsync.Job.plan.__kwdefaults__
    assert told == [defaults["first_bucket_bytes"], defaults["bucket_bytes"], defaults["reduce"]]


def test_one_class_for_each_result():
    for result in gradsync.Result:
        if result in (gradsync.Result.OK, gradsync.Result.INTERRUPTED):
            assert result not in errors.CLASSES
            continue
        assert errors.CLASSES[result].result is result
        assert issubclass(errors.CLASSES[result], gradsync.GradsyncError)
        assert getattr(gradsync, errors.CLASSES[result].__name__) is errors.CLASSES[result]
    assert len(set(errors.CLASSES.values())) == len(errors.CLASSES)


def test_element_sizes_are_those_of_the_library():
    with gradsync.Connection() as gs, gs.join("alone", world_size=1) as job:
        for dtype in gradsync.DType:
            reduce = gradsync.Reduce.SUM
            with job.plan([("x", dtype, (3,))], reduce=reduce) as plan:
                assert plan.nbytes == plan.params[0].nbytes == 3 * dtype.itemsize
                assert ctypes.sizeof(plan.gradient(0)) == plan.nbytes
