"""Find where the fields of a protobuf text file begin and end.

Covers: the text dialect that protobuf reads (`#` comments, both quotes, `m {`, `m: {`, `m <`, lists, `,` and `;`).
Whether the text is right is for protobuf's parser; a wrong text is scanned as far as possible, so that errors in it can
name their layer.
See also: parser.py, which pairs these lines with the messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# The only group is the end of a line with the comment before it; white space matches nothing.
_TOKEN = re.compile(
    r"""
    ( \n | \#[^\n]*\n? )
  | "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'? | [{}<>\[\]:;,] | [^\s{}<>\[\]:;,"'\#]+
    """,
    re.VERBOSE,
)
_OPEN, _CLOSE = frozenset("{<"), frozenset("}>")
_PUNCTUATION = frozenset("{}<>[]:;,")
_SEPARATORS = frozenset(";,")


class Token(NamedTuple):
    """Hold one word, string or sign and where it begins; lines and columns count from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold one value of a field. body: tokens between the braces of a message. value: tokens of a scalar.

    begin, end: (line, column). closed: the closing brace is there.
    """

    name: str
    begin: tuple[int, int]
    end: tuple[int, int]
    body: Sequence[Token] = ()
    value: Sequence[Token] = ()
    closed: bool = True

    @property
    def line(self) -> int:
        return self.begin[0]

    def text(self) -> str:
        """Return a scalar as written, strings without their quotes."""
        return "".join(t.text.strip(t.text[0]) if t.text[0] in "\"'" else t.text for t in self.value)


@dataclass(frozen=True, slots=True)
class Field:
    """Hold a field as it is written. tokens: all of it, the name first. values: one, or the elements of a list."""

    name: str
    tokens: Sequence[Token]
    values: tuple[Entry, ...]


def tokenize(text: str) -> list[Token]:
    """Return all tokens of `text`, without white space and comments."""
    tokens, line, line_start = [], 1, 0
    for match in _TOKEN.finditer(text):
        if match.lastindex:
            line, line_start = line + 1, match.end()
        else:
            tokens.append(Token(match.group(), line, match.start() - line_start + 1))
    return tokens


def scan(tokens: Sequence[Token]) -> Iterator[Entry]:
    """Yield the values of the fields at the outermost level, in order; a list gives one entry per element."""
    for field in fields(tokens):
        yield from field.values


def fields(tokens: Sequence[Token]) -> Iterator[Field]:
    """Yield the fields at the outermost level, in order; a list is one field."""
    at = 0
    while at < len(tokens):
        head, first = tokens[at], at
        at += 1
        if head.text in _PUNCTUATION:
            continue
        if _text(tokens, at) == ":":
            at += 1
        if _text(tokens, at) == "[":
            values, at = _list(tokens, at + 1, head)
        else:
            entry, at = _value(tokens, at, head.text, (head.line, head.column))
            values = (entry,)
        if _text(tokens, at) in _SEPARATORS:
            at += 1
        yield Field(head.text, tokens[first:at], values)


def unclosed(tokens: Sequence[Token]) -> Token | None:
    """Return the innermost brace that is still open at the end of the text, or None."""
    stack: list[Token] = []
    for token in tokens:
        if token.text in _OPEN:
            stack.append(token)
        elif token.text in _CLOSE and stack:
            stack.pop()
    return stack[-1] if stack else None


def _list(tokens: Sequence[Token], at: int, head: Token) -> tuple[tuple[Entry, ...], int]:
    """Return the elements of the list that begins at `at`, and the index after its bracket."""
    entries: list[Entry] = []
    while at < len(tokens) and tokens[at].text != "]" and tokens[at].text not in _CLOSE:
        if tokens[at].text == ",":
            at += 1
            continue
        entry, after = _value(tokens, at, head.text, tokens[at][1:] if entries else (head.line, head.column))
        if after == at:
            break
        entries.append(entry)
        at = after
    return tuple(entries), at + (_text(tokens, at) == "]")


def _text(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) else ""


def _value(tokens: Sequence[Token], at: int, name: str, begin: tuple[int, int]) -> tuple[Entry, int]:
    """Return the message or scalar that begins at `at`, and the index after it."""
    first = at
    if _text(tokens, at) in _OPEN:
        depth = 0
        while at < len(tokens):
            text = tokens[at].text
            depth += (text in _OPEN) - (text in _CLOSE)
            at += 1
            if depth == 0:
                break
        closed = depth == 0
        body = tokens[first + 1 : at - 1 if closed else at]
        return Entry(name, begin, tokens[at - 1][1:], body=body, closed=closed), at
    if _text(tokens, at) == "-":
        at += 1
    if at < len(tokens) and tokens[at].text not in _PUNCTUATION:
        at += 1
        while _text(tokens, at - 1)[0] in "\"'" and _text(tokens, at)[:1] in ("'", '"'):
            at += 1
    end = tokens[at - 1][1:] if at > first else begin
    return Entry(name, begin, end, value=tokens[first:at]), at
