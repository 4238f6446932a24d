"""A random test that fails prints one line that replays it."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import seeds
from .seeds import seeded, swept

TESTS = Path(__file__).resolve().parent
DRAWN = """
import pytest
from hypothesis import given, strategies as st
from tests.seeds import seeded, swept

def test_drawn():
    for case in range(9):
        number = seeded("case", case).randrange(10**9)
        print("number", number)
        assert case < 5

@given(st.integers(10**6, 10**9))
def test_examples(number):
    print("number", number)
    assert number % 7

def test_plain():
    assert False

def test_some():
    for n in swept(40, 4):
        assert n % 10 != 9

@pytest.mark.thorough
def test_whole():
    for n in swept(40):
        assert n % 10 != 9
"""


def run(folder: Path, *tests: str, seed: str | None = None) -> str:
    """What pytest prints."""
    environment = {k: v for k, v in os.environ.items() if k != "PYCAFFE_LMS_SEED"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), *sys.path])}
    if seed is not None:
        environment["PYCAFFE_LMS_SEED"] = seed
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *tests],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


def lines(text: str) -> dict[str, str]:
    """The seed by test, of the lines that replay."""
    return {test: seed for seed, test in re.findall(r"PYCAFFE_LMS_SEED=(\d+) pytest[^']*'[^']*::(\w+)'", text)}


def numbers(text: str) -> list[str]:
    return re.findall(r"^number (\d+)$", text, re.M)


def test_the_line_replays_what_was_drawn(tmp_path):
    """Cases of `seeded`, faults of a sweep and examples of Hypothesis; a test that draws nothing has no line."""
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
        (folder / "test_it.py").write_text(DRAWN)
    first = run(folders[0], "test_it.py")
    seed = lines(first)["test_examples"]
    faults = {"test_some": "8", "test_whole": "8"}  # fault 9 is the first that a seed of 8 tries: see the next test
    assert lines(first) == {"test_drawn": "0", "test_examples": seed, **faults}
    assert "(the last case: 'case', 5)" in first and first.count("(the last case: 9 of 40)") == 2
    assert "pytest -m thorough 'test_it.py::test_whole'" in first and "pytest 'test_it.py::test_some'" in first
    drawn = [str(seeded("case", case).randrange(10**9)) for case in range(6)]
    assert numbers(first)[:6] == drawn and len(numbers(first)) > 6
    again = run(folders[1], "test_it.py", seed=seed)
    assert lines(again).items() >= {"test_drawn": seed, "test_examples": seed}.items()
    assert numbers(again)[6:] == numbers(first)[6:] and not set(numbers(again)[:6]) & set(drawn)


def test_a_case_is_the_same_in_every_run():
    assert seeded(5).random() == random.Random(5).random()
    assert seeded("a", 5).random() == seeded("a", 5).random() != seeded("a", 6).random()


@pytest.mark.parametrize(("count", "every"), [(1, 1), (7, 1), (7, 7), (40, 4), (41, 4), (467, 58)])
def test_seeds_choose_every_number_of_a_sweep(monkeypatch, count, every):
    """The first is the seed's; the others are so many apart; all with every = 1."""
    tried = set()
    for seed in range(2 * count):
        monkeypatch.setattr(seeds, "BASE", seed)
        found = list(swept(count, every))
        assert found[0] == 1 + seed % count and len(found) == len(set(found)) >= count // every
        assert {(n - found[0]) % every for n in found} == {0} and set(found) <= set(range(1, count + 1))
        tried |= set(found)
    assert len(tried) == count
