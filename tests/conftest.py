"""Our own kernels run on the CPU in all tests but those that ask for oneDNN: many compare the CPU with the simulated
device to the bit, which has no library."""

import os

import hypothesis
import pytest

from pycaffe_lms.ops.cpu import onednn_library

os.environ[onednn_library.VARIABLE] = "off"  # for the processes that tests start, too

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is slow, not wrong
hypothesis.settings.load_profile("any machine")


@pytest.fixture
def onednn(monkeypatch):
    """oneDNN where it is installed, as users have it; else the test is skipped."""
    monkeypatch.delenv(onednn_library.VARIABLE)
    onednn_library.load.cache_clear()
    if onednn_library.load() is None:
        pytest.skip("oneDNN is not installed")
    yield
    onednn_library.load.cache_clear()
