# SPDX-License-Identifier: Apache-2.0
"""The installed header stands alone in C and C++, and the library exports exactly what it declares."""
import re
import subprocess

import pytest

from tree import BUILD, HEADER, TREE, code_of_header

FLAGS = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-Wundef", "-I", str(TREE / "include")]
C = ["-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wc++-compat", "-x", "c"]
CXX = ["-x", "c++"]
COMPILERS = [
    ("gcc", ["-std=c99", *C]), ("gcc", ["-std=c11", *C]), ("gcc", ["-std=gnu17", *C]),
    ("clang", ["-std=c99", *C]), ("clang", ["-std=c11", *C]),
    ("g++", ["-std=c++11", *CXX]), ("g++", ["-std=c++20", *CXX]),
    ("clang++", ["-std=c++11", *CXX]), ("clang++", ["-std=c++17", *CXX]),
]


def label(value):
    return value if isinstance(value, str) else value[0]


INITIALISERS = re.findall(r"^#define (GRADSYNC_(\w+)_INIT)\b", HEADER.read_text(), re.M)


def compile_text(compiler, flags, text, output="/dev/null", extra=()):
    command = [compiler, *FLAGS, *flags, "-", "-x", "none", *(extra or ["-fsyntax-only"]), "-o", output]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    return done.returncode, done.stderr


def of_initialisers():
    """Each options structure is initialised by its macro."""
    lines = ["#include <gradsync/gradsync.h>", "int use(void);", "int use(void)", "{", "size_t size = 0;"]
    for number, (macro, name) in enumerate(INITIALISERS):
        lines.append(f"struct gradsync_{name.lower()} v{number} = {macro}; size += v{number}.size;")
    return "\n".join([*lines, "return size != 0;", "}", ""])


def test_there_are_initialisers():
    assert len(INITIALISERS) >= 3


@pytest.mark.parametrize("text", [
    pytest.param('#include "gradsync/gradsync.h"\n#include <gradsync/gradsync.h>\n', id="header"),
    pytest.param("#include <gradsync/types.h>\n#include <gradsync/gradsync.h>\n", id="types"),
    pytest.param(of_initialisers(), id="initialisers")])
@pytest.mark.parametrize("compiler, flags", COMPILERS, ids=label)
def test_no_compiler_complains(compiler, flags, text):
    status, errors = compile_text(compiler, flags, text)
    assert status == 0, errors


def declared():
    """Functions that the header declares."""
    text = re.sub(r"\btypedef\b[^;]*;", "", code_of_header())
    return set(re.findall(r"\b(gradsync_\w+)\s*\(", text))


def exported():
    done = subprocess.run(["nm", "-D", "--defined-only", str(BUILD / "client/lib/libgradsync.so")],
                          capture_output=True, text=True, check=True)
    names = [line.split() for line in done.stdout.splitlines()]
    return {fields[2].split("@")[0]: fields[2] for fields in names if fields[1] != "A"}


def test_exported_symbols_are_the_headers():
    found = exported()
    assert len(declared()) > 30
    assert set(found) == declared()


def test_every_symbol_has_a_version():
    assert {name: full for name, full in exported().items() if "@@" not in full} == {}


@pytest.mark.parametrize("compiler, flags", [("gcc", ["-std=c11", *C]), ("g++", ["-std=c++11", *CXX])],
                         ids=["c", "c++"])
def test_a_program_links_and_runs(tmp_path, compiler, flags):
    """Every declared function can be linked from this language; a failing open says why."""
    text = ["#include <gradsync/gradsync.h>", "#include <stdio.h>", "typedef void (*any_function)(void);",
            "int main(void)", "{", "any_function all[] = {"]
    text += [f"(any_function)&{name}," for name in sorted(declared())]
    text += ["};", "struct gradsync *gs = NULL;", "struct gradsync_options options = GRADSYNC_OPTIONS_INIT;",
             "size_t i;",
             'options.socket = "/nonexistent/socket";',
             "for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) if (!all[i]) return 1;",
             "if (gradsync_open(&gs, &options) != GRADSYNC_NO_DAEMON) return 2;",
             'printf("%s", gradsync_error());', "return 0;", "}", ""]
    program = str(tmp_path / "program")
    lib = str(BUILD / "client/lib")
    status, errors = compile_text(compiler, [*flags, "-Wno-cast-function-type"], "\n".join(text), program,
                                  ["-L" + lib, "-lgradsync", "-Wl,-rpath," + lib])
    assert status == 0, errors
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert "/nonexistent/socket" in done.stdout
