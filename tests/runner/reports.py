# SPDX-License-Identifier: Apache-2.0
"""Reads the reports of the programs that run tests: the cases, and why a failed one has failed."""
import dataclasses
import itertools
import json
import os
import pathlib
import re
import xml.etree.ElementTree
from xml.etree.ElementTree import ParseError

SANITIZER = re.compile(r"==\d+==ERROR: |WARNING: ThreadSanitizer|runtime error: ")
AT_LINE = re.compile(r"([\w./+-]+\.(?:[ch]|cc|py)):(\d+): error: Failure!")
TELLING = re.compile(r"error:|FAILED|^E  |Traceback|[Aa]ssert|undefined reference|not found|No space left|"
                     r"WARNING: ThreadSanitizer")
AROUND, MOST = 6, 60


@dataclasses.dataclass
class Case:
    name: str
    outcome: str                        # "passed", "failed" or "skipped"
    why: str = ""                       # it failed: the assertion, and the lines around it
    alone: str | None = None            # its name for its runner: a node id of pytest, a test of meson


def shortened(lines):
    if len(lines) <= MOST:
        return lines
    return [*lines[:MOST // 2], f"[{len(lines) - MOST} lines are left out]", *lines[-MOST // 2:]]


def telling(text):
    """The lines that name an error, with those around them; without such a line, the end."""
    lines = text.splitlines()
    near = sorted({i for at, line in enumerate(lines) if TELLING.search(line)
                   for i in range(max(0, at - AROUND), min(len(lines), at + AROUND + 1))})
    if not near:
        return "\n".join(lines[-MOST // 2:])
    told = []
    for before, i in zip([None, *near], near):
        if before is not None and i > before + 1:
            told.append("[...]")
        told.append(lines[i])
    return "\n".join(shortened(told))


def of_log(path):
    try:
        return telling(path.read_text(errors="replace"))
    except OSError as problem:
        return str(problem)


def why_pytest(text):
    """From pytest's text about a failure: the statement that failed, the lines before it, and the values. If
    an exception was raised further down, the test's own line, too."""
    sections = re.split(r"\n(?:_ )+_?\n", text)
    told = []
    for section in sections if len(sections) < 3 else [sections[0], sections[-1]]:
        lines = section.splitlines()
        mark = next((i for i, line in enumerate(lines) if line.startswith((">", "E "))), 0)
        told += [*lines[max(0, mark - 2 * AROUND):], ""]
    return "\n".join(shortened(told))


def of_pytest(path, folder):
    """The cases of a JUnit file that pytest wrote in its xunit1 form; its paths are relative to `folder`."""
    cases = []
    for made in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        # Where tests of a group stay together, pytest-xdist writes "test[parameters]@group".
        own = re.sub(r"^(\w+(?:\[.*\])?)@.*$", r"\1", made.get("name"))
        name = f"{pathlib.Path(made.get('file') or '?').name}::{own}"
        alone = f"{folder}/{made.get('file')}::{own}" if made.get("file") else None
        bad = [child for child in made if child.tag in ("failure", "error")]
        if bad:
            text = "\n".join(child.text or child.get("message") or "" for child in bad)
            cases.append(Case(name, "failed", why_pytest(text), alone))
        else:
            cases.append(Case(name, "skipped" if made.find("skipped") is not None else "passed"))
    return cases


def why_cmocka(errors, at):
    """From the stderr of a unit test: a sanitizer's report, or each failed assertion and its source."""
    lines = errors.splitlines()
    for i, line in enumerate(lines):
        if SANITIZER.search(line):
            return "\n".join(lines[i:i + MOST])
    told = []
    for i, line in enumerate(lines):
        failed = AT_LINE.search(line)
        if not failed:
            continue
        told += lines[max(0, i - 2):i + 1]
        source, number = pathlib.Path(os.path.normpath(at / failed[1])), int(failed[2])
        if source.is_file():
            text = source.read_text(errors="replace").splitlines()
            told += [f"  {'>' if n == number else ' '} {n:5} {text[n - 1]}"
                     for n in range(max(1, number - AROUND), min(len(text), number + 2) + 1)]
    return "\n".join(shortened(told or lines[-MOST // 2:]))


SAYS = re.compile(r"^\[ *(OK|SKIPPED|FAILED) *\] (.+)$", re.MULTILINE)
NUMBERS = tuple("0123456789")


def of_meson(path, build):
    """The cases of meson's testlog.json: each one of a program that uses cmocka; any other program is one."""
    cases = []
    for made in map(json.loads, path.read_text(errors="replace").splitlines()):
        program = made["name"].rpartition(" / ")[2]
        out, errors = made.get("stdout", ""), made.get("stderr", "")
        # A case that was skipped or failed is listed again at the end, below its number.
        said = {word: [name for told, name in SAYS.findall(out + "\n" + errors) if told == word and
                       not name.startswith(NUMBERS)] for word in ("OK", "SKIPPED", "FAILED")}
        good = made["result"] == "OK"
        if good and not any(said.values()):
            cases.append(Case(program, "passed"))
            continue
        cases += [Case(f"{program}: {name}", "passed") for name in said["OK"]]
        cases += [Case(f"{program}: {name}", "skipped") for name in dict.fromkeys(said["SKIPPED"])]
        if good:
            continue
        names = list(dict.fromkeys(said["FAILED"]))
        why = why_cmocka(errors, build)
        if made["result"] == "TIMEOUT":
            why = f"did not end within {made['duration']:.0f} s; after:\n" + "\n".join(out.splitlines()[-3:])
        cases += [Case(f"{program}: {name}", "failed", text, program)
                  for name, text in itertools.zip_longest(names or [made["result"]], [why], fillvalue="")]
    return cases
