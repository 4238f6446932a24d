"""Every block of docs/python_notebook.md runs, in order, as one script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pycaffe_lms as caffe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python_notebook.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    assert len(BLOCKS) >= 7
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in BLOCKS:
        if "import torch" in block and not _there("torch"):
            continue
        try:
            exec(compile(block, str(PAGE), "exec"), names)
        finally:
            caffe.set_mode_cpu()
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert names["seen"] == ["start", "gradients"] * 2 and len(names["history"]) == 100
    assert names["n"].to_proto().layer[1].convolution_param.num_output == 16
    printed = capsys.readouterr().out
    assert "7.0 MiB are there" in printed, "too little memory without Large Model Support"
    [copied] = [int(line) for line in printed.splitlines() if line.isdigit()]
    assert copied > 0, "bytes that were copied to the host with it"
    assert 'call net.keep("ra")' in printed and "invalid value encountered in reduce" in printed


def _there(package: str) -> bool:
    try:
        __import__(package)
    except ImportError:
        return False
    return True
