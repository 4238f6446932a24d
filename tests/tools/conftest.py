"""What tests of the scripts in tools/bench have in common."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "tools" / "bench"


@pytest.fixture
def script(monkeypatch) -> Callable[[str], ModuleType]:
    """Imports one by its name; they find each other as when they are run."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module
