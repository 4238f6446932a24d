"""The program takes every command of the pages and of the READMEs of models, those of blocks that are not run too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pycaffe_lms.cli import flags
from pycaffe_lms.cli.catalogue import COMMANDS, module_of

from .pages import PAGES, ROOT, WRITTEN_BY_TOOLS, blocks_of, name_of

MODELS = sorted((ROOT / "models").rglob("README.md"))
READ = [page for page in PAGES if page.name not in WRITTEN_BY_TOOLS] + MODELS
ENDS = ("&&", "||", "|", ";", "&", ">", ">>", "2>", "<<")  # of a command, in a shell


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `pycaffe-lms ...` in lines of a shell, without its name."""
    text = re.sub(r"<< '(\w+)'\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)  # what `cat` writes to a file
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True) if "pycaffe-lms " in line else []
        while "pycaffe-lms" in words:
            words = words[words.index("pycaffe-lms") + 1 :]
            end = next((k for k, word in enumerate(words) if word in ENDS or word.startswith(">")), len(words))
            yield words[:end]


def of_page(page: Path) -> list[list[str]]:
    """The commands of a page's blocks of shell, and of blocks of text that begin with one.

    In READMEs of models they are indented blocks."""
    found = [b for b in blocks_of(page) if b.language == "bash" or (b.language == "" and page in MODELS)]
    found += [b for b in blocks_of(page) if b.language == "text" and re.match(r"(\$ )?pycaffe-lms ", b.text)]
    texts = [b.text if b.language != "text" else re.match(r"(.*\\\n)*.*", b.text)[0] for b in found]
    return [words for text in texts for words in commands(text)]


@pytest.mark.parametrize("page", [p for p in READ if of_page(p)], ids=name_of)
def test_the_program_takes_it(page):
    for words in of_page(page):
        name = max((c for c in COMMANDS if words[: len(c.split())] == c.split()), key=len)
        argv = words[len(name.split()) :]
        args = flags.parse(module_of(name).build_parser(), argv)
        assert args is not None
        if page in MODELS:  # what stands in a model's folder and is no result
            named = [word for word in argv if re.fullmatch(r"models/\S+\.prototxt", word)]
            assert all((ROOT / word).is_file() for word in named), words


def test_commands_of_a_shell():
    text = "pycaffe-lms a -b \\\n    1 && x || pycaffe-lms c > f  # pycaffe-lms d\nmpirun -np 2 pycaffe-lms e\n"
    assert [*commands(text)] == [["a", "-b", "1"], ["c"], ["e"]]
    assert [*commands("cat > s << 'END'\npycaffe-lms a\nEND\n$ pycaffe-lms b\n")] == [["b"]]
