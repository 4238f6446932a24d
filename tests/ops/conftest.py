"""Fixtures for cuDNN: a stand-in for its frontend, or the real one on a GPU."""

from types import SimpleNamespace

import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.ops.cuda.cudnn import build, convolution, library

from .fake_cudnn import Frontend


@pytest.fixture
def frontend(monkeypatch, tmp_path):
    """The stand-in in the place of cuDNN, its stream and device as `frontend.here`, with an empty store of choices."""
    fake, here = Frontend(), SimpleNamespace(device=0, stream=0)
    cupy = SimpleNamespace(
        runtime=SimpleNamespace(getDevice=lambda: here.device, getDeviceProperties=lambda device: {"name": b"GPU 9/x"}),
        get_current_stream=lambda: SimpleNamespace(ptr=here.stream),
    )
    monkeypatch.setattr(library, "load", lambda: (fake, ""))
    monkeypatch.setattr(cuda, "require", lambda: SimpleNamespace(cuda=cupy))
    monkeypatch.setattr(cuda.cublas, "_math", "tf32")
    for name in ("_graphs", "_candidates", "_handles", "_stores"):
        monkeypatch.setattr(build, name, {})
    monkeypatch.delenv("PYCAFFE_LMS_CUDNN", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fake.here = here
    return fake


@pytest.fixture
def math_mode():
    before = cuda.math()
    yield cuda.set_math
    cuda.set_math(before)


@pytest.fixture
def gpu():
    if not cuda.available():
        pytest.skip("no GPU")
    if not convolution.available():
        pytest.skip(f"no cuDNN: {convolution.why_not()}")
