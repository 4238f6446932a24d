"""A random test that fails prints one line that replays it."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

from .seeds import seeded

TESTS = Path(__file__).resolve().parent
DRAWN = """
from hypothesis import given, strategies as st
from tests.seeds import seeded

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
"""


def run(folder: Path, *tests: str, seed: str | None = None) -> str:
    """What pytest prints."""
    environment = {k: v for k, v in os.environ.items() if k != "PYCAFFE_LMS_SEED"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), *sys.path])}
    if seed is not None:
        environment["PYCAFFE_LMS_SEED"] = seed
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *tests],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stdout


def lines(text: str) -> dict[str, str]:
    """The seed by test, of the lines that replay."""
    return {test: seed for seed, test in re.findall(r"PYCAFFE_LMS_SEED=(\d+) pytest '[^']*::(\w+)'", text)}


def numbers(text: str) -> list[str]:
    return re.findall(r"^number (\d+)$", text, re.M)


def test_the_line_replays_what_was_drawn(tmp_path):
    """Cases of `seeded` and examples of Hypothesis; a test that draws nothing has no line."""
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
        (folder / "test_it.py").write_text(DRAWN)
    first = run(folders[0], "test_it.py")
    seed = lines(first)["test_examples"]
    assert lines(first) == {"test_drawn": "0", "test_examples": seed} and "(the last case: 'case', 5)" in first
    drawn = [str(seeded("case", case).randrange(10**9)) for case in range(6)]
    assert numbers(first)[:6] == drawn and len(numbers(first)) > 6
    again = run(folders[1], "test_it.py", seed=seed)
    assert lines(again) == {"test_drawn": seed, "test_examples": seed}
    assert numbers(again)[6:] == numbers(first)[6:] and not set(numbers(again)[:6]) & set(drawn)


def test_a_case_is_the_same_in_every_run():
    assert seeded(5).random() == random.Random(5).random()
    assert seeded("a", 5).random() == seeded("a", 5).random() != seeded("a", 6).random()
