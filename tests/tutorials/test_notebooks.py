"""Every notebook of the documentation is valid, is stored without outputs, and runs from top to bottom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# Cells share their names, as in a kernel; a line of a traceback says the cell.
RUN = """
import json, sys
names = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1]))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
"""


def run(path, folder):
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "MPLBACKEND": "agg",
    }
    return subprocess.run([sys.executable, "-c", RUN, path], cwd=folder, env=env, capture_output=True, text=True)


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["1_lenet", "2_net_surgery", "3_lms"]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.thorough if path.stem != "2_net_surgery" else ())
        for path in NOTEBOOKS
    ],
)
def test_it_runs(path, tmp_path):
    done = run(path, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


@each
def test_it_is_stored_clean(path):
    """Outputs of a run would change at every run, and hide what a reader's own run says."""
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["cells"][0]["cell_type"] == "markdown" and notebook["cells"][0]["source"][0].startswith("# ")
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)


@each
def test_it_is_valid(path):
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(path, as_version=4))


def test_a_cell_that_fails_is_named(tmp_path):
    cells = [{"cell_type": "code", "source": ["x = 1"]}, {"cell_type": "code", "source": ["\n", "assert x == 2"]}]
    path = tmp_path / "bad.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    done = run(path, tmp_path)
    assert done.returncode == 1 and 'File "cell 1", line 2' in done.stderr
