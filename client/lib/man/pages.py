# SPDX-License-Identifier: Apache-2.0
"""Makes man pages of the library's header, so that the header stays the only place where calls are explained.

  pages.py calls HEADER CALL…     the page of one of its groups of calls, which has exactly these; the
                                  first one names the page
  pages.py manual HEADER TYPES    the page of its chapters, and of the types

The header has a comment with the chapters, then groups that begin with "/* ---- Title ---- */". A comment
belongs to the declarations after it. Indented lines of a comment are a list, if each entry has a name, two
spaces and a text; else they are shown as they stand.
"""
import os
import re
import sys
import time

NAMES = {
    "gradsync_open": "connection to a gradsync daemon, and what went wrong in a call",
    "gradsync_join": "membership of a job whose members average gradients",
    "gradsync_plan": "parameters, the plan that is made of them, and where gradients lie",
    "gradsync_ready": "a step: gradients that are complete, and their average",
    "gradsync_barrier": "collectives of a job outside of steps, and the state of a new member",
}
TITLE = re.compile(r"^/\* -{4} (\S.*?) -+ \*/$", re.M)
FUNCTION = re.compile(r"\b(gradsync_\w+)\(")
ENTRY = re.compile(r"( {1,4})(\S.*?)(?: {2,}(?=\S)|(?<=\d\.) )(.*)")


class BadHeader(Exception):
    """The header has a form that this program does not know, or other calls than its arguments say."""


def plain(text):
    """Escapes a text, so that nothing in it is a request or an escape of roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", text)
    return "\\&" + text if text.startswith((".", "'")) else text


def prose(text):
    """The same, with calls and quoted words of code marked."""
    text = re.sub(r"\b(gradsync_\w+)\(\)", r"\\fB\1\\fR()", plain(text))
    return re.sub(r"`([^`]+)`", r"\\fI\1\\fR", text)


def as_it_stands(lines):
    return ["", ".RS 4", ".nf", *[plain(line) for line in lines], ".fi", ".RE"]


def listed(lines):
    """A list with a name for each entry; None if these lines are none."""
    entries = []
    for line in lines:
        match = ENTRY.fullmatch(line)
        indent = len(line) - len(line.lstrip())
        if match and (not entries or indent <= entries[0][0]):
            entries.append([indent, match[2], match[3]])
        elif entries and indent > entries[0][0] + 1:
            entries[-1][2] += " " + line.strip()
        else:
            return None
    if any("  " in text for _, _, text in entries):
        return None                     # a table of several columns
    return [part for _, name, text in entries for part in (".TP", f"\\fB{plain(name)}\\fR", prose(text))]


def comment_text(comment):
    """The lines of a comment without its delimiters and stars."""
    text = comment.removeprefix("/*").removesuffix("*/")
    return [re.sub(r"^ \* ?", "", line).rstrip() for line in text.split("\n")]


def indented_block(lines):
    shown = [line for line in lines if line]
    found = listed(shown)
    if found is not None:
        return found
    least = min(len(line) - len(line.lstrip()) for line in shown)
    while not lines[-1]:
        lines = lines[:-1]
    return as_it_stands([line[least:] for line in lines])


def describe(lines):
    """Turns a comment into paragraphs, lists, and lines that are shown as they stand."""
    out, text, block = [], [], []

    def end_text():
        if text:
            out.extend([".PP", prose(" ".join(text))])
            text.clear()

    def end_block():
        if block:
            out.extend(indented_block(block))
            block.clear()

    for line in [line.rstrip() for line in lines]:
        if line.startswith(" ") and line.strip():
            # The text of a comment of one line keeps the space after its star.
            if len(line) - len(line.lstrip()) == 1:
                text.append(line.strip())
                continue
            end_text()
            block.append(line)
        elif line:
            end_block()
            text.append(line)
        else:
            end_text()
            if block:
                block.append("")
    end_text()
    end_block()
    return out


def entries_of(group):
    """(comment, declarations) of each comment in a part of the header; a comment may stand alone."""
    parts = re.split(r"^(/\*.*?\*/)$", group, flags=re.M | re.S)
    entries = [("", parts[0])] if parts[0].strip() else []
    entries += list(zip(parts[1::2], parts[2::2]))
    for comment, declarations in entries:
        yield comment, re.sub(r"^(#(?:if|else|endif|pragma|ifdef).*|\}|extern \"C\".*)$", "", declarations,
                              flags=re.M).strip("\n")


def prototypes(declarations):
    """Declarations of functions: each begins in the first column and ends with a semicolon."""
    code = re.sub(r"/\*.*?\*/", "", declarations, flags=re.S)
    return re.findall(r"^(?!typedef|#|\s)[^;{}#]*?\bgradsync_\w+\([^;{}]*\);", code, re.M)


def functions_in(declarations):
    return [FUNCTION.search(prototype)[1] for prototype in prototypes(declarations)]


def types_in(declarations):
    for prototype in prototypes(declarations):
        declarations = declarations.replace(prototype, "")
    return [line for line in declarations.split("\n") if line.strip()]


def narrow(line):
    """Less indentation, and a backslash close to what it continues, are enough on a terminal."""
    return re.sub(r"\s+\\$", r" \\", line.removeprefix("    "))


def described(comment, functions, types):
    """One part of a description: what a comment says of calls, or of types, which are shown."""
    out = []
    if functions:
        out.append(".SS " + ", ".join(f"{name}()" for name in functions))
        out += describe(comment_text(comment))
    if types:
        named = re.search(r"\b(struct gradsync_\w+)|\b(gradsync_\w+_fn)\)|\b(GRADSYNC_\w+)", "\n".join(types))
        out.append(f".SS {next(name for name in named.groups() if name)}")
    if not functions:
        out += describe(comment_text(comment))
    return out + (as_it_stands([narrow(line) for line in types]) if types else [])


def header_of(page, section):
    made = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    return [f'.TH "{page}" "{section}" "{time.strftime("%Y-%m-%d", made)}"', ".nh", ".ad l"]


def first_comment(text):
    return re.search(r"^/\*\n \*.*?\*/$", text, re.M | re.S)


def group_with(text, call):
    parts = TITLE.split(text)
    for group in parts[2::2]:
        if call in functions_in(group):
            return group
    raise BadHeader(f"no group of the header declares {call}()")


def call_page(text, calls):
    entries = [(comment, declarations, functions_in(declarations))
               for comment, declarations in entries_of(group_with(text, calls[0]))]
    found = [name for _, _, functions in entries for name in functions]
    if sorted(found) != sorted(calls):
        raise BadHeader(f"the group of {calls[0]}() has these calls: {' '.join(found)}; "
                        "client/lib/man/meson.build names others")
    if calls[0] not in NAMES:
        raise BadHeader(f"there is no line in NAMES for the page {calls[0]}")
    out = [*header_of(calls[0], 3), ".SH NAME", f"{', '.join(calls)} \\- {NAMES[calls[0]]}", ".SH SYNOPSIS",
           ".nf", "\\fB#include <gradsync/gradsync.h>\\fR"]
    for _, declarations, _ in entries:
        for prototype in prototypes(declarations):
            out += ["", *[FUNCTION.sub(r"\\fB\1\\fR(", plain(line)) for line in prototype.split("\n")]]
    out += [".fi", ".SH DESCRIPTION"]
    for comment, declarations, functions in entries:
        out += described(comment, functions, types_in(declarations))
    return out + call_page_end(calls[0])


def call_page_end(page):
    return [".SH RETURN VALUE", ".PP",
            prose("A function that returns an int returns 0 (GRADSYNC_OK), or an enum gradsync_result, "
                  "which is named here without GRADSYNC_. gradsync_error() then has one or two sentences on "
                  "what happened. What any call may return is in the chapter ERRORS, AND WHAT TO REBUILD of "
                  "gradsync(7)."),
            ".SH SEE ALSO", ".PP",
            ",\n".join(f"\\fB{name}\\fR({section})" for name, section in
                       [("gradsync", 3), ("gradsync", 7), *[(other, 3) for other in NAMES if other != page]])]


def manual_page(text, types):
    lines = comment_text(first_comment(text)[0])
    out = [*header_of("gradsync", 7), ".SH NAME", "gradsync \\- manual of the client library",
           ".SH DESCRIPTION", ".PP", "This is what gradsync.h says before its first declaration."]
    start = 0
    for number, line in enumerate(lines):
        if re.fullmatch(r"[A-Z][A-Z0-9 ,'?]+", line):
            out += [*describe(lines[start:number]), f".SH \"{plain(line)}\""]
            start = number + 1
    out += [*describe(lines[start:]), ".SH \"RESULTS, TYPES AND REDUCTIONS\""]
    for comment, declarations in entries_of(types[types.index("#define GRADSYNC_TYPES_H"):]):
        code = [line for line in declarations.split("\n") if line.strip() and "GRADSYNC_TYPES_H" not in line]
        if comment:
            out += describe(comment_text(comment))
        if code:
            out += as_it_stands(close_up(code))
    return out + [".SH SEE ALSO", ".PP",
                  ",\n".join(["\\fBgradsync\\fR(3)", *[f"\\fB{name}\\fR(3)" for name in NAMES]])]


def close_up(code):
    """Indents an enumeration's lines by four columns; the formatter of the code indents them by more."""
    indents = [len(line) - len(line.lstrip()) for line in code if line.startswith(" ")]
    least = min(indents, default=0)
    return [line if not line.startswith(" ") else "    " + line[least:] for line in code]


def main(what, header, *rest):
    with open(header, encoding="utf-8") as file:
        text = file.read()
    try:
        if what == "manual":
            with open(rest[0], encoding="utf-8") as file:
                page = manual_page(text, file.read())
        else:
            page = call_page(text, rest)
    except BadHeader as why:
        sys.exit(f"{header}: {why}")
    sys.stdout.write("\n".join(page) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
