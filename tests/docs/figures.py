"""The figures with a unit that pages state in sentences, and the tests and code that give them a second source.

A figure has a source if it stands in a part that a generator writes, in a sentence that a test quotes, or as a value in
code of the same page. All others are found by `without_source`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .pages import ROOT

FIGURE = re.compile(
    r"(?<![\w.\-])\d[\d,]*(?:\.\d+)?(?: ?%| ?[GMKT]i?B(?:/s)?\b| ?(?:ms|us|s)\b"
    r"| (?:seconds?|minutes?|hours?|images/s|tokens/s|TFLOP/s|Gbit/s|times|points|lines)\b)"
)
_GENERATED = re.compile(r"[Ww]ritten by `tools/gen_\w+\.py`[^;.]*; do not edit")
_HIDDEN = (
    r"<!-- [\w \-]+: generated -->.*?<!-- [\w \-]+: end -->",
    r"<!-- Written by .*?<!-- Until here\. -->",
    r"<!--.*?-->",
    r"^(?: *)```.*?^ *```$",
    r"^(?:\||    | +\|).*?$",
    r"`[^`]+`",
)
_CODE = re.compile(r"^ *```.*?^ *```$|^    .*?$|`[^`]+`", re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """A page in one line, with stars in place of generated parts, tables and code. Positions are those of `words`."""
    for hidden in _HIDDEN:
        text = re.sub(hidden, lambda m: re.sub(r"\S", "*", m.group()), text, flags=re.MULTILINE | re.DOTALL)
    return " ".join(text.split())


def words(text: str) -> str:
    """A page in one line."""
    return " ".join(text.split())


@cache
def quoted() -> list[re.Pattern[str]]:
    """The strings with two words or more in tests about pages, as patterns: texts, regular expressions, f-strings."""
    found = []
    for file in sorted(Path(ROOT, "tests").rglob("test_*.py")):
        text = file.read_text()
        if file.name == "test_every_figure.py" or ".md" not in text and "docs" not in text and "README" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.JoinedStr):
                parts = [re.escape(str(v.value)) if isinstance(v, ast.Constant) else r"\S+" for v in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return [compiled for one in found if (compiled := _compiled(one))]


def _compiled(text: str) -> re.Pattern[str] | None:
    if len(text) < 8 or "\n" in text or not re.search(r"[a-z]\W* \W*\w", text):
        return None
    try:
        return re.compile(text)
    except re.error:
        return None


def tables(text: str) -> Iterator[tuple[str, str]]:
    """Yield (section, table) for the tables of a page that no generator writes."""
    if _GENERATED.search(text):
        return
    for hidden in _HIDDEN[:2]:
        text = re.sub(hidden, "", text, flags=re.MULTILINE | re.DOTALL)
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE):
        for table in re.findall(r"(?:^ *\|.*\n)+", section, re.MULTILINE):
            yield section, table


def without_source(text: str) -> Iterator[tuple[int, str]]:
    """Yield (position in `words`, what stands around it) for the figures of a page that have no source."""
    if _GENERATED.search(text):
        return
    line, shown = words(text), prose(text)
    spans = [m.span() for pattern in quoted() for m in pattern.finditer(line)]
    code = set(re.findall(r"[\d.]+[GMKT]i?B", " ".join(_CODE.findall(text))))
    for match in FIGURE.finditer(shown):
        size = re.sub(r"[ ,]", "", match.group())
        if size in code or size.replace("i", "") in code:
            continue
        if not any(a <= match.start() and match.end() <= b and b - a < 400 for a, b in spans):
            yield match.start(), line[max(0, match.start() - 60) : match.end() + 30]
