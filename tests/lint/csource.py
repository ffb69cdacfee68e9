# SPDX-License-Identifier: Apache-2.0
"""C source as the checks of this folder see it: tokens, and what stands in the outermost scope of a file.

It is no compiler: it expands no macro and knows no type. It tells comments, strings and directives from code,
and functions from declarations; where that leaves a doubt, the words below say which way it falls.
"""
import re
from typing import NamedTuple

TOKEN = re.compile(r"""
    (?P<space>   [ \t\r\f\v]+ | \\\n | /\*.*?\*/ | //(?:\\\n|[^\n])* )
  | (?P<line>    \n )
  | (?P<string>  (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | [uUL]?'(?:\\.|[^'\\\n])*' )
  | (?P<name>    [A-Za-z_]\w* )
  | (?P<number>  \.?[0-9](?:[eEpP][+-]|[\w.])* )
  | (?P<punct>   -> | \+\+ | -- | <<= | >>= | \.\.\. | \#\# | [-+*/%&|^<>=!]= | << | >> | && | \|\| | . )
""", re.X | re.S)
KEYWORDS = frozenset("""
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile
    while _Alignas _Alignof _Atomic _Bool _Generic _Noreturn _Static_assert _Thread_local __attribute__
    __extension__ __typeof__ typeof
""".split())
# Words with parentheses of their own that may stand before the name of a function.
WITH_PARENTHESES = frozenset(["__attribute__", "_Alignas", "typeof", "__typeof__", "_Static_assert"])
# Words after which a name is used, not declared.
BEFORE_A_USE = frozenset(["return", "case", "else", "do", "sizeof", "goto"])
# Words before names of members, labels and types.
NEVER_A_USE = frozenset([".", "->", "goto", "struct", "enum", "union"])
OPENING, CLOSING = ("(", "[", "{"), (")", "]", "}")


class Token(NamedTuple):
    kind: str           # name, number, string or punct
    text: str
    line: int


class Item(NamedTuple):
    """A function, or another declaration, of the outermost scope."""
    name: str           # of a function or of a function's declaration; else ""
    static: bool
    head: list          # up to the body of a function; all of a declaration up to its initialiser
    body: list          # of a function, with its braces; the initialiser of a declaration
    function: bool      # defined here


class Source(NamedTuple):
    items: list
    macros: list        # (name, tokens of what it stands for)


def lines_of(text):
    """The tokens of a file, and with each whether it is the first of its line."""
    line, first = 1, True
    for match in TOKEN.finditer(text):
        kind, piece = match.lastgroup, match.group()
        if kind == "line":
            first = True
        elif kind != "space":
            yield Token(kind, piece, line), first
            first = False
        line += piece.count("\n")
        if kind == "line":
            yield None, True


def macro(directive):
    """(name, what it stands for) of a #define's tokens."""
    name, rest = directive[0], directive[1:]
    if rest and rest[0].text == "(":
        closing = next((at for at, token in enumerate(rest) if token.text == ")"), len(rest))
        rest = rest[closing + 1:]
    return name.text, rest


class Conditions:
    """Which branches of #if are read: all, unless one leaves a brace or a parenthesis open. Then those after
    it are not, for a reader can follow only one of them."""

    def __init__(self):
        self.open = []

    def depth(self, tokens, since):
        return sum((token.text in OPENING) - (token.text in CLOSING) for token in tokens[since:]
                   if token.kind == "punct")

    def directive(self, word, tokens):
        if word in ("if", "ifdef", "ifndef"):
            self.open.append([len(tokens), False])
        elif word in ("else", "elif") and self.open:
            since, unbalanced = self.open[-1]
            self.open[-1][1] = unbalanced or self.depth(tokens, since) != 0
        elif word == "endif" and self.open:
            self.open.pop()

    def reading(self):
        return not any(unbalanced for _, unbalanced in self.open)


def tokens_of(text):
    """(tokens outside of directives, [(name, tokens)] of its macros)."""
    tokens, macros, directive, conditions = [], [], None, Conditions()
    for token, first in lines_of(text + "\n"):
        if token is None:
            if directive:
                word, rest = directive[0].text, directive[1:]
                if word == "define" and rest and conditions.reading():
                    macros.append(macro(rest))
                conditions.directive(word, tokens)
            directive = None
        elif directive is not None:
            directive.append(token)
        elif first and token.text == "#":
            directive = []
        elif conditions.reading():
            tokens.append(token)
    return tokens, macros


def closing(tokens, at):
    """The place of the token that closes what tokens[at] opens; the last place if there is none."""
    depth = 0
    for place in range(at, len(tokens)):
        if tokens[place].kind == "punct":
            depth += (tokens[place].text in OPENING) - (tokens[place].text in CLOSING)
            if depth == 0:
                return place
    return len(tokens) - 1


def declared_name(head):
    """The name before the first parameter list of a declaration, or ""."""
    at = 0
    while at < len(head):
        if head[at].text in WITH_PARENTHESES and at + 1 < len(head) and head[at + 1].text == "(":
            at = closing(head, at + 1)
        elif head[at].text in OPENING:
            named = at > 0 and head[at].text == "(" and head[at - 1].kind == "name"
            if named and head[at - 1].text not in KEYWORDS:
                return head[at - 1].text
            at = closing(head, at)
        at += 1
    return ""


def items_of(tokens):
    at = 0
    while at < len(tokens):
        start, equals = at, None
        while at < len(tokens) and tokens[at].text != ";":
            text = tokens[at].text
            if text == "{" and equals is None:
                head = tokens[start:at]
                if [token.text for token in head] == ["extern", '"C"']:
                    start = at + 1          # what is in it stands in the outermost scope as well
                elif declared_name(head) and "typedef" not in [token.text for token in head[:1]]:
                    end = closing(tokens, at)
                    yield Item(declared_name(head), "static" in [token.text for token in head], head,
                               tokens[at:end + 1], True)
                    at = end
                    break
                else:
                    at = closing(tokens, at)
            elif text == "}":               # of extern "C"
                start = at + 1
            elif text in OPENING:
                at = closing(tokens, at)
            elif text == "=" and equals is None:
                equals = at
            at += 1
        else:
            declaration = tokens[start:at]
            if declaration:
                cut = len(declaration) if equals is None else equals - start
                head = declaration[:cut]
                words = [token.text for token in head]
                yield Item("" if "typedef" in words[:1] or "{" in words else declared_name(head),
                           "static" in words, head, declaration[cut:], False)
        at += 1


def read(text):
    tokens, macros = tokens_of(text)
    return Source(list(items_of(tokens)), macros)


def locals_of(item):
    """Names that a function declares for itself: its parameters and variables. A declaration is a type, a
    name, and one of `= ; , ) [`; the second variable of a declaration is not seen."""
    found = set()
    tokens = item.head + item.body
    for before, token, after in zip(tokens, tokens[1:], tokens[2:]):
        typed = before.text == "*" or (before.kind == "name" and before.text not in BEFORE_A_USE)
        if token.kind == "name" and typed and after.text in ("=", ";", ",", ")", "["):
            found.add(token.text)
    return found


def mentions(tokens):
    """Names that are used: no members of structures, no labels, no keywords."""
    for at, token in enumerate(tokens):
        before = tokens[at - 1].text if at else ""
        after = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if token.kind != "name" or token.text in KEYWORDS or before in NEVER_A_USE:
            continue
        if after == ":" and before in (";", "{", "}", ":"):
            continue
        yield token
