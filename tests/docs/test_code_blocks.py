"""Every code block of README and docs runs, on the CPU or the simulated device, or says why it does not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from pycaffe_lms.proto.caffe_pb2 import NetParameter, SolverParameter

from .pages import PAGES, ROOT, RUN, SHOWN, WRITTEN_BY_TOOLS, blocks_of, name_of

BY_HAND = [page for page in PAGES if page.name not in WRITTEN_BY_TOOLS]
RUNNER = Path(__file__).with_name("run_blocks.py")


def to_run(page, long):
    blocks = [b for b in blocks_of(page) if b.language in RUN and not b.not_run]
    return [b for b in blocks if long or not b.long]


def run(page, blocks, folder):
    """Run blocks in a folder that has what a checkout has: models and the small net."""
    shutil.copytree(ROOT / "models", folder / "models")
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "small_net.prototxt", folder / "docs")
    command = folder / "bin" / "pycaffe-lms"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pycaffe_lms "$@"\n')
    command.chmod(0o755)
    todo = folder / "blocks.json"
    todo.write_text(json.dumps([(b.language, b.text, b.line, name_of(page)) for b in blocks]))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    folders = os.pathsep.join([str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    if any("mpirun " in b.text for b in blocks) and shutil.which("mpirun", path=folders) is None:
        pytest.skip("no mpirun: pip install mpi4py mpich")
    env = os.environ | {"PATH": folders, "PYTHONPATH": path}
    return subprocess.run([sys.executable, RUNNER, todo], cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("page", BY_HAND, ids=name_of)
def test_every_block_has_a_language(page):
    wrong = [b.line for b in blocks_of(page) if b.language not in RUN + SHOWN]
    assert not wrong, f"{name_of(page)}: blocks at lines {wrong} need one of {', '.join(RUN + SHOWN)}"


LONGER = ("1_first_net.md", "2_your_own_pictures.md", "4_larger_than_memory.md", "5_several_gpus.md")  # these train
LONGER += ("lms_first_steps.md", "many_hosts.md", "how_lms_works.md", "python_notebook.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=name_of(p), marks=pytest.mark.thorough if p.name in LONGER else ())
        for p in BY_HAND
        if to_run(p, long=False)
    ],
)
def test_blocks_run(page, tmp_path):
    done = run(page, to_run(page, long=False), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    compare(page, shown(page, long=False), done)


def compare(page, texts, done):
    """Check what a page shows against what its blocks printed: its lines, and accuracies to a few records."""
    printed = " ".join(f"{done.stdout}\n{done.stderr}".split())
    for line in lines_of(texts):
        assert pattern_of(line).search(printed), f"{name_of(page)} shows what its blocks do not print: {line}"
    found = accuracies(done.stderr)
    for when, value in accuracies("".join(texts)):
        near = [other for where, other in found if where == when and abs(other - value) <= ROUNDING]
        assert near, f"{name_of(page)} shows accuracy = {value} at iteration {when}; found: {found}"


ROUNDING = 3.5 / 297  # of digits' 297 test records three may be read otherwise where sums round differently
_ACCURACY = re.compile(r"Iteration (\d+), Testing net|(?:^|\] |#0: )accuracy = ([\d.]+)", re.MULTILINE)


def accuracies(log: str) -> list[tuple[int | None, float]]:
    """The accuracies that `train` and `test` (iteration: None) log as means of a test."""
    found, iteration = [], None
    for match in _ACCURACY.finditer(log):
        if match[1]:
            iteration = int(match[1])
        else:
            found.append((iteration, float(match[2])))
            iteration = None
    return found


def shown(page: Path, long: bool) -> list[str]:
    """The blocks of text right behind a block that is run: what it prints, with ... for what is left out."""
    blocks, run = blocks_of(page), to_run(page, long)
    return [b.text for a, b in zip(blocks, blocks[1:], strict=False) if a in run and b.language == "text"]


def lines_of(texts: list[str]) -> list[str]:
    """Their lines, without those that leave something out and say nothing."""
    lines = [" ".join(line.split()) for text in texts for line in text.splitlines()]
    return [line for line in lines if line.strip(". ")]


_OF_SUMS = re.compile(r"-?\d+\\\.\d+(?:e-?\d+)?(?!\d|\\ (?:[KMG]i)?B\b|\\ ms\b)")


def pattern_of(line: str) -> re.Pattern[str]:
    """What a line may be elsewhere: with other fractions, which depend on the order of sums; sizes and counts stay."""
    return re.compile(r".*?".join(_OF_SUMS.sub(r"[-+\\d.e]+", re.escape(part)) for part in line.split("...")))


def test_what_a_line_may_be():
    said = pattern_of("loss = 0.25, 122.0 KiB in, of 7 ... end")
    assert said.search("x: loss = 1e-05, 122.0 KiB in, of 7 and the end")
    assert not said.search("loss = 0.25, 123.0 KiB in, of 7 end")
    assert not said.search("loss = 1, 122.0 KiB in, of 8 end")


def test_what_pages_show_is_looked_at():
    of = {page.name: lines_of(shown(page, long=True)) for page in BY_HAND}
    assert len(of["1_first_net.md"]) > 15 and len(of["4_larger_than_memory.md"]) > 12
    first = next(page for page in BY_HAND if page.name == "1_first_net.md")
    assert [when for when, _ in accuracies("".join(shown(first, long=False)))] == [0, 600, None]


@pytest.mark.thorough
@pytest.mark.parametrize("page", [p for p in BY_HAND if any(b.long for b in to_run(p, long=True))], ids=name_of)
def test_blocks_run_the_long_ones_too(page, tmp_path):
    done = run(page, to_run(page, long=True), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    compare(page, shown(page, long=True), done)
    if page.name == "README.md":
        assert lines_of(shown(page, long=True))[-1] == "equal to the last bit"
        [about] = re.findall(r"ends with a test accuracy of\s+about ([\d.]+)", page.read_text())
        assert round(accuracies(done.stderr)[-1][1], 2) == float(about)


@pytest.mark.parametrize("page", [p for p in BY_HAND if p.parent.name == "tutorials"], ids=name_of)
def test_a_tutorial_says_how_long_it_takes(page):
    begin = " ".join(page.read_text().partition("\n## ")[0].split())
    assert re.search(r"takes? you (about )?\w+ minutes?, (in|of) which the computer (works|trains) for", begin)


@pytest.mark.parametrize("page", BY_HAND, ids=name_of)
def test_every_prototxt_is_a_net_or_a_solver(page):
    for block in blocks_of(page):
        if block.language == "prototxt" and not block.not_run:
            try:
                text_format.Parse(block.text, NetParameter())
            except text_format.ParseError:
                text_format.Parse(block.text, SolverParameter())


def test_a_block_that_fails_is_named(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```bash\ntrue\nfalse\n```\n")
    blocks = [[b.language, b.text, b.line, "page.md"] for b in blocks_of(page)]
    (tmp_path / "b.json").write_text(json.dumps(blocks))
    done = subprocess.run([sys.executable, RUNNER, tmp_path / "b.json"], capture_output=True, text=True)
    assert done.returncode != 0 and "page.md:6: exit code 1" in done.stderr


def test_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: a reason -->\n```bash\na\n```\n\n<!-- long: b -->\n```bash\nb\n```\n\n    c\n")
    a, b, c = blocks_of(page)
    assert (a.not_run, a.long, a.line) == ("a reason", False, 3)
    assert (b.not_run, b.long) == ("", True)
    assert (c.language, c.text) == ("", "c\n")
