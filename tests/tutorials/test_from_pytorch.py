"""The code of docs/tutorials/6_from_pytorch.md runs where PyTorch is installed; it compares both nets itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorials" / "6_from_pytorch.md"


def test_the_code_of_the_page_runs(tmp_path):
    pytest.importorskip("torch")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    (tmp_path / "page.py").write_text("\n".join(blocks))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "largest difference" in done.stdout and done.stdout.endswith(
        "tensor([0., 0., 0., 0., 0., 0., 0., 0., 0., 0.])\n"
    )
