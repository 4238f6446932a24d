"""Pages are easy to read, by R. Flesch's measure of 1948: 60 to 70 is plain English, 70 to 80 easy, 90 very easy."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from .pages import PAGES, WRITTEN_BY_TOOLS, name_of

LISTS = (*WRITTEN_BY_TOOLS, "python_api.md", "index.md", "models.md")  # with hardly a sentence
READ = [page for page in PAGES if page.name not in LISTS]
PLAIN, EASY = 60, 75
LONGEST = 28  # words of a sentence where one begins


def sentences(text: str) -> list[str]:
    """The sentences of a page's paragraphs and lists, in words alone; code in a line counts as a word."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.level and not re.fullmatch(r"#+", token.markup):
            parts = [
                t.content if t.type == "text" else " code " if t.type == "code_inline" else " " for t in token.children
            ]
            found += re.split(r"(?<=[.!?:])\s+", "".join(parts))
    return [s for s in found if len(words(s)) > 2]  # cells of tables are no sentences


def words(sentence: str) -> list[str]:
    return re.findall(r"[A-Za-z][A-Za-z'-]*", sentence)


def syllables(word: str) -> int:
    """Groups of vowels, without a silent e at the end and the e of -ed."""
    lower = re.sub(r"[^a-z]", "", word.lower())
    short = re.sub(r"(?<=[^aeiouylstd])e[sd]?$|(?<=[^aeioudt])ed$|(?<=[aeiouy][lstd])e$", "", lower)
    return max(1, len(re.findall(r"[aeiouy]+", short)))


def ease(text: str) -> float:
    """Flesch's reading ease: 206.835 - 1.015 words a sentence - 84.6 syllables a word."""
    each = [words(s) for s in sentences(text)]
    count = sum(map(len, each))
    return 206.835 - 1.015 * count / len(each) - 84.6 * sum(syllables(w) for ws in each for w in ws) / count


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_it_is_plain_english_and_easy_where_one_begins(page):
    first = page.name in ("README.md", "how_lms_works.md", "lms_first_steps.md") or page.parent.name == "tutorials"
    assert ease(page.read_text()) >= (EASY if first else PLAIN)
    long = [s for s in sentences(page.read_text()) if len(words(s)) > LONGEST]
    assert not first or not long, long


def test_syllables():
    counted = {"the": 1, "memory": 3, "trains": 1, "trained": 1, "needed": 2, "larger": 2, "time": 1, "values": 2}
    assert {word: syllables(word) for word in counted} == counted


def test_long_words_in_long_sentences_are_found():
    assert ease("The cat sat on the mat. It was warm there.") > 100
    assert (
        ease("Notwithstanding considerable architectural heterogeneity, optimisation necessitates materialisation.") < 0
    )
