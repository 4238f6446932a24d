"""Loading cuDNN's frontend, with packages of the test's own in place of the frontend and PyTorch."""

from __future__ import annotations

import sys

import pytest

from pycaffe_lms.ops.cuda.cudnn import library

FRONTEND = """
try:
    import torch
except ImportError:
    torch = None
def backend_version(): return 91900
def tensors(): return torch.Tensor
"""
TORCH = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
class Tensor: pass
"""


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder with a frontend, from which modules are imported; none of them stays."""
    (tmp_path / "cudnn.py").write_text(FRONTEND)
    for name in ("cudnn", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(library, "_open", lambda *args: True)
    monkeypatch.setattr(library, "_cuda_family", lambda: None)
    monkeypatch.syspath_prepend(str(tmp_path))
    library.load.cache_clear()
    yield tmp_path
    library.load.cache_clear()
    for name in ("cudnn", "torch"):
        sys.modules.pop(name, None)


def test_torch_is_imported_when_the_frontend_uses_it(packages):
    (packages / "torch.py").write_text(TORCH)
    frontend, why = library.load()
    assert frontend is not None, why
    assert "torch" not in sys.modules and not (packages / "imported").exists()
    tensor = frontend.tensors()
    assert (packages / "imported").exists() and sys.modules["torch"].Tensor is tensor


def test_a_frontend_that_uses_torch_at_once_gets_it(packages):
    (packages / "torch.py").write_text(TORCH)
    (packages / "cudnn.py").write_text(FRONTEND + "\nfrom torch import Tensor\n")
    frontend, why = library.load()
    assert frontend is not None, why
    assert sys.modules["torch"].Tensor is frontend.Tensor and (packages / "imported").exists()


def test_torch_that_is_there_already_is_what_the_frontend_gets(packages):
    (packages / "torch.py").write_text(TORCH)
    import torch  # type: ignore[import-not-found]

    frontend, why = library.load()
    assert frontend is not None, why
    assert frontend.torch is torch is sys.modules["torch"]


def test_without_torch_the_frontend_hears_that_there_is_none(packages, monkeypatch):
    find_spec = library.importlib.util.find_spec
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    (packages / "torch.py").write_text("raise ImportError('none')")
    frontend, why = library.load()
    assert frontend is not None and frontend.torch is None, why
