"""Every figure with a unit in a sentence of the pages has a second source, or a reason here why it needs none."""

from __future__ import annotations

import re

import pytest

from .figures import FIGURE, prose, tables, without_source, words
from .pages import PAGES, ROOT, WRITTEN_BY_TOOLS, name_of

READ = [page for page in PAGES if page.name not in WRITTEN_BY_TOOLS] + sorted((ROOT / "models").rglob("README.md"))
# what a reader sets or is told to try, limits of other programs' formats, titles: nothing that could change
GIVEN = {
    "CONTRIBUTING.md": ["rarely more than 500 lines"],
    "docs/how_lms_works.md": ["every value larger than 1000 KB"],
    "docs/install.md": ["of which Docker gives 64 MB"],
    "docs/lms_first_steps.md": ["every buffer larger than 1000 KB", "up to 40% of the GPU's memory"],
    "docs/plan_search.md": [
        "iterations take 2% longer with the change, so what was changed gains 2%",
        "What gains under 1% on average, and in no case more than 1.5%, was removed",
    ],
    "docs/speed.md": [
        "125 GB of host memory",
        "ResNet-152 in 8, 4 and 2 GiB are from",
        "1.35 billion",
        "and in 8 GB too",
    ],
    "docs/troubleshooting.md": [
        "leaves 1024 MB to others",
        "is 10 times lower",
        "Try 10 times less, then 10 times more",
    ],
    "docs/tutorials/2_your_own_pictures.md": ["10 times smaller"],
    "docs/tutorials/3_fine_tune.md": ["10 to 100 times lower", "had compressed to 0.5 MB"],
    "docs/tutorials/4_larger_than_memory.md": ["every buffer larger than 10 KB"],
    "docs/tutorials/7_detect_objects.md": ["is 21 times that now"],
    "models/README.md": ["for a batch 4 times as large"],
    "models/digits/README.md": ["1 KiB = 1024 bytes", "a device of 2 MiB", "need not have 2 MiB"],
    "models/squeezenet-1.0/README.md": ["<0.5MB model size", "compressed to 0.5 MB"],
    "models/squeezenet-1.1/README.md": ["<0.5MB model size"],
}
# measured, and in no table: the command that the page names for it
COMMANDS = {
    ("docs/lms.md", "125 GiB of host memory)"): "an iteration of `pycaffe-lms train`",
    (
        "docs/lms.md",
        "needs 170.2 GiB without Large Model Support, and in 32 slabs copies 83.0 GiB to the GPU and 57.0 GiB back in "
        "an iteration, with 49.8 GiB of the host's memory",
    ): "an iteration of `pycaffe-lms train`",
    ("docs/lms.md", "fits a host with 125 GiB, in all three budgets: 640 needs 131.9 GiB"): "`pycaffe-lms plan ...",
    ("docs/install.md", "They take about 1.3 GB (`cpu`), 4.6 GB (`cuda`) and 5.9 GB"): "docker images pycaffe-lms",
    ("docs/speed.md", "with 14.3 GiB of host memory"): "python tools/bench/transformer.py --net 1.3b",
    ("docs/speed.md", "it took 371, 376 and 383 ms"): "python tools/bench/transformer.py --net 1.3b",
    ("docs/speed.md", "times as long, with 18.4 GiB"): "python tools/bench/transformer.py --net 1.3b",
    ("docs/speed.md", "take 344 ms of a step, copies to the GPU 356"): "python tools/bench/transformer.py --net 1.3b",
    ("docs/speed.md", "needs 98.9 GiB of host memory"): "--net 6.7b --batch 16 --budget 24GB",
    ("docs/speed.md", "it took 3161 ms in the same hour on the same H200"): "--net 6.7b --batch 16 --budget 24GB",
    ("docs/speed.md", "878 ms, of which copies to the GPU ran for 800, at 51.8 GB/s"): "--net 2.7b --batch 8",
    ("docs/speed.md", "on another one GoogLeNet took 14.3 s"): "python tools/bench/engines.py --nets --start",
    (
        "docs/speed.md",
        "One process compiles these in 48 s, and the others, whose code CUDA then has on disk, in 6 s",
    ): "`tools/bench/engines.py --nets googlenet:256 --math bf16`",
    ("docs/speed.md", "without the imports (1.4 to 2.2 s)"): "python tools/bench/engines.py --nets --start",
    ("docs/speed.md", "PyTorch had not compiled GoogLeNet after 90 s"): "`incore.py --peers compile`",
    (
        "docs/speed.md",
        "With threads in place of processes bf16 had 5,437 images a second, and 5,206 where the host made float values"
        ", too (0.78 and 0.76 of those in memory",
    ): "`python tools/bench/pictures.py --pictures 20000 --threads 8",
    ("docs/speed.md", "one plan took 172.2, 172.3, 174.5 and 176.9 ms"): "python tools/bench/lms.py",
    ("docs/speed.md", "With `--math bf16` ResNet-50 takes 0.68 and 1.69 ms"): "python tools/bench/inference.py",
}


def left(page: str, text: str) -> list[str]:
    """The figures of a page that have neither a source nor a reason, with what stands around each."""
    line = words(text)
    phrases = [*GIVEN.get(page, []), *(phrase for of, phrase in COMMANDS if of == page)]
    spans = [(line.find(phrase), line.find(phrase) + len(phrase)) for phrase in phrases]
    return [said for where, said in without_source(text) if not any(a <= where < b for a, b in spans)]


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_every_figure_has_a_source(page):
    found = left(name_of(page), page.read_text())
    assert not found, "test these figures in tests/docs, let a tool write them, or leave them out: " + "; ".join(found)


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_tables_of_figures_name_a_command_in_their_section(page):
    for section, table in tables(page.read_text()):
        numbers = re.findall(r"\|\s*[\d,.]+(?:e-?\d+)?(?: \w+/?s?| %)?\s*(?=\|)", table)
        if len(numbers) > 5:
            assert re.search(r"tools/(bench/)?\w+\.py|pycaffe-lms \w+|`\w+\.py", section), table.partition("\n")[0]


def test_tables_are_seen():
    assert len([*tables((ROOT / "docs" / "speed.md").read_text())]) == 13
    assert not [*tables("# A\n<!-- a: generated -->\n| 1 | 2 |\n<!-- a: end -->\n")]


def test_reasons_are_of_sentences_that_are_there():
    for page, phrases in GIVEN.items():
        for phrase in phrases:
            assert phrase in words((ROOT / page).read_text()), (page, phrase)
    for (page, phrase), command in COMMANDS.items():
        text = words((ROOT / page).read_text())
        assert phrase in text and command in text, (page, phrase)


def test_what_is_a_figure():
    text = (
        "It takes 41.8 GiB, 87% or `9 ms` of 1,400 images/s; 3 layers, TF32, 2x2.\n\n| 5 ms |\n\n```text\n6 ms\n```\n"
    )
    assert FIGURE.findall(prose(text)) == ["41.8 GiB", "87%", "1,400 images/s"]
    assert [said for _, said in without_source("It takes 12.3 zillion ms and 45.6 GiB of it.")] == [
        "It takes 12.3 zillion ms and 45.6 GiB of it."
    ]
    assert not [*without_source("It has 8 GB: `-lms_budget 8GB`.")]


def test_a_figure_in_a_sentence_that_a_test_quotes_has_a_source():
    text = "ResNet-152 at batch 256 takes 41.8 GiB. It is warm at 41.8 GiB."
    assert [said for _, said in without_source(text)] == [text]  # the second one alone
