"""Every message that docs/troubleshooting.md quotes is one that the package can print."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
QUOTED = [
    line
    for block in re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@cache
def messages():
    """All strings of the package; "\\0" stands for what is filled in, by an f-string or by logging."""
    found = set()
    for path in (ROOT / "pycaffe_lms").rglob("*.py"):
        if path.name.endswith("_pb2.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(v.value if isinstance(v, ast.Constant) else "\0" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(re.sub(r"%[.\d]*[sdfg]", "\0", node.value))
    return found


def is_printed(quoted):
    """Whether a string has all parts of a quoted message in this order, with something filled in between."""
    parts = [re.escape(part.strip()) for part in quoted.split("...")]
    pattern = re.compile(r"(?<!\w)" + ".*\0.*".join(parts) + r"(?!\w)", re.DOTALL)
    return any(pattern.search(message) for message in messages())


@pytest.mark.parametrize("quoted", QUOTED)
def test_the_message_is_in_the_source(quoted):
    assert is_printed(quoted)


def test_many_messages_are_there():
    assert len(QUOTED) >= 25


@pytest.mark.parametrize("quoted", ["there is no databas", "there is no ... database here", "it fits not into ..."])
def test_what_nobody_prints_is_found_out(quoted):
    assert not is_printed(quoted)
