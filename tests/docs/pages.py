"""The pages of the documentation, and the code blocks in them.

A block that is not run has a comment before it that says why:

    <!-- not run: needs two GPUs -->          never
    <!-- long: trains for a minute -->        only in thorough runs
    <!-- blocks of this page are not run: ... -->    once on a page, for all of its blocks
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / n for n in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((ROOT / "docs").rglob("*.md"))
WRITTEN_BY_TOOLS = ("cli.md", "layers.md")  # their blocks are usages and docstrings; tests of their own look at them
RUN = ("bash", "python")
SHOWN = ("text", "prototxt", "json", "mermaid")
_NOT_RUN = re.compile(r"<!--\s*not run: (.+?)\s*-->")
_LONG = re.compile(r"<!--\s*long: (.+?)\s*-->")
_PAGE = re.compile(r"<!--\s*blocks of this page are not run: (.+?)\s*-->")


@dataclass(frozen=True)
class Block:
    """One code block: its language, text and first line; why it is not run ("": it is); whether it takes long."""

    language: str
    text: str
    line: int
    not_run: str = ""
    long: bool = False


def blocks_of(page: Path) -> list[Block]:
    """The code blocks of a page, without Sphinx's directives. An indented block has the language ""."""
    text = page.read_text()
    of_page = _PAGE.search(text)
    found, before = [], ""
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in ("fence", "code_block") and not token.info.startswith("{"):
            reason = of_page or _NOT_RUN.search(before)
            found.append(
                Block(
                    token.info.strip(),
                    token.content,
                    token.map[0] + (2 if token.type == "fence" else 1),
                    reason.group(1) if reason else "",
                    bool(_LONG.search(before)),
                )
            )
        before = token.content if token.type == "html_block" else ""
    return found


def name_of(page: Path) -> str:
    """A page's path from the root."""
    return page.relative_to(ROOT).as_posix()
