"""Every relative link of the pages leads to a file, and its anchor to a heading."""

from __future__ import annotations

import re
from functools import cache

import pytest
from markdown_it import MarkdownIt

from .pages import PAGES, ROOT, name_of

EVERY = PAGES + [ROOT / "CHANGES.md", *sorted((ROOT / "models").rglob("README.md"))]


@cache
def anchors(page):
    """The anchors that a code host and the site make of a page's headings."""
    tokens = MarkdownIt("commonmark").parse(page.read_text())
    titles = [after.content for before, after in zip(tokens, tokens[1:], strict=False) if before.type == "heading_open"]
    found: set[str] = set()
    for title in titles:
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        n = next(i for i in range(len(titles)) if (f"{slug}-{i}" if i else slug) not in found)
        found.add(f"{slug}-{n}" if n else slug)
    return found


def links(page):
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        for child in token.children or ():
            target = child.attrs.get("href") or child.attrs.get("src")
            if target and not re.match(r"\w+:", target):
                yield target


@pytest.mark.parametrize("page", EVERY, ids=name_of)
def test_every_link_leads_somewhere(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), f"{target}: no heading of {name_of(file)} has this anchor"


def test_readme_is_short_and_has_two_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    commands = re.findall(r"^pip install .*$", text, re.MULTILINE)
    assert commands == [
        "pip install . && pycaffe-lms dataset digits && "
        "pycaffe-lms train --solver=models/digits/solver.prototxt -lms 1000 -lms_frac 0.4",
        "pip install '.[test]' && pytest",
    ]
