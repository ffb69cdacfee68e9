# SPDX-License-Identifier: Apache-2.0
"""Sentences that a reader has to translate: in comments, in docstrings, and in pages of text.

A sentence is meant to have a noun of the vocabulary as its subject, then a verb. The kinds below are the
habits that hide the subject. They are counted by folder; test_prose.py lets the numbers only fall.
"""
import ast
import io
import re
import tokenize

# The name of an option, such as --allow-nobody, is no subject.
KINDS = {
    "what": re.compile(r"(?:^|(?<=[.;:?!] ))(?:What|Whatever|Who|Whose|Whom)\b(?![^.;:!]*\?)"),
    "of": re.compile(r"(?:^|(?<=[.;:?!] ))Of\b"),
    "somebody": re.compile(r"(?<![\w-])(?:[Nn]obody|[Ss]omebody|[Ww]hoever|[Ww]homever)\b"),
    "bridge": re.compile(r"^…|(?<!\w)…$"),
}
COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')


def c_texts(text):
    """(line, text) of each comment. Comments within strings are none."""
    blank = STRING.sub(lambda match: " " * len(match.group()), text)
    for match in COMMENT.finditer(blank):
        said = text[match.start():match.end()]
        said = re.sub(r"^/\*+|\*+/$|^//", "", said)
        said = re.sub(r"\n\s*\*\s?", "\n", said)
        yield text.count("\n", 0, match.start()) + 1, said


def python_texts(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            said = ast.get_docstring(node)
            if said:
                yield node.body[0].lineno, said


def page_texts(text):
    """The lines of a page, without its examples and tables of bytes."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line.strip("|#*- \t>")


TEXTS = {".c": c_texts, ".h": c_texts, ".cc": c_texts, ".cu": c_texts, ".proto": c_texts, ".py": python_texts,
         ".md": page_texts, ".scd": page_texts}


def sentences(said):
    """Paragraphs, each on one line."""
    for part in re.split(r"\n\s*\n", said):
        yield " ".join(part.split())


def find(path):
    """(line, kind, text) of each sentence of a file that has such a habit."""
    texts = TEXTS.get(path.suffix)
    for line, said in texts(path.read_text()) if texts else ():
        for sentence in sentences(said):
            for kind, pattern in KINDS.items():
                for _ in pattern.finditer(sentence):
                    yield line, kind, sentence
