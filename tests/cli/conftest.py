"""Fixtures of the tests of a run that is followed."""

from __future__ import annotations

import pytest

from pycaffe_lms.cli.main import main

from ..solvers.helpers import solver_text
from .watching import NET, OPTIONS


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Trains with more flags and options in `tmp_path`; returns the exit code and what stood on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*argv, **options):
        text = solver_text(NET, **OPTIONS | {"snapshot_prefix": '"s"'} | options)
        (tmp_path / "solver.prototxt").write_text(text)
        code = main(["train", "-solver", "solver.prototxt", "-backend", "cpu", *argv])
        return code, capsys.readouterr().err

    return run
