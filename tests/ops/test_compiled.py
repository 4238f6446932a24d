"""Kernels of the CPU where compiled code cannot be kept."""

import errno
import tempfile

import numpy as np
import pytest

from pycaffe_lms.ops.cpu import compiled


def _twice(a, out):
    for i in range(a.size):
        out[i] = 2 * a[i]


def _added(a, out):
    for i in range(a.size):
        out[i] += a[i]


@pytest.fixture
def read_only(monkeypatch):
    """Nothing can be written, as in a container with a read-only root: so Numba tries every folder in vain."""

    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    compiled._say_that_nothing_is_kept.cache_clear()
    yield
    compiled._say_that_nothing_is_kept.cache_clear()


def test_kernels_run_where_nothing_can_be_written_and_say_so_once(read_only, caplog):
    a, out = np.arange(5.0), np.empty(5)
    compiled.Kernel(_twice)(a, out)
    compiled.Kernel(_added)(a, out)
    np.testing.assert_array_equal(out, [0, 3, 6, 9, 12])
    (warning,) = caplog.messages
    assert "every run compiles them again. fix: set NUMBA_CACHE_DIR" in warning


def test_other_errors_of_numba_are_raised():
    def broken(function):
        raise RuntimeError("cannot")

    with pytest.raises(RuntimeError, match="^cannot$"):
        compiled.Kernel(_twice)._made(lambda **options: broken)
