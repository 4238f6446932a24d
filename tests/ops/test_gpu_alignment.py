"""Kernels that move 16 bytes at a time: the right values on a GPU, and the same bits where arrays start in between."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.geometry import PoolGeometry
from pycaffe_lms.ops.update_rules import UpdateNumbers

from . import updates

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]

MAX = PoolGeometry(6, (9, 12), (4, 6), (3, 2), (2, 2), (0, 0))
GLOBAL = PoolGeometry(6, (9, 12), (1, 1), (9, 12), (1, 1), (0, 0))
PLANES = (6, 9, 12)


def _ops_by_array(x, dy, y, size):
    """[(operation, arrays, other arguments after them)] over arrays of `size` elements."""
    mask = (np.arange(size) % 3).astype(np.uint8)
    return [
        ("tanh_forward", [x, y], ()),
        ("power_backward", [x, dy, y], (3.0, 2.0, 1.0)),
        ("relu_backward", [x, dy, y], (0.1,)),
        ("dropout_forward", [x, y, np.array([2**40 + 3, 2**33 + 1, 2**32 + 5], np.uint64)], ()),
        ("drop_path_forward", [x, y, np.array([2**40 + 3, 2**33 + 1, 2**32 + 5], np.uint64)], ()),
        ("eltwise_max_backward", [dy, mask, y], ()),
        ("fill", [y], (2.5,)),
        ("copy", [x, y], ()),
    ]


def _same_everywhere(name, arrays, call, tolerance):
    """The operation on the CPU, and on a GPU with every array, or every second one, off a multiple of 16 bytes."""
    cupy = cuda.require()
    expected = [a.copy() for a in arrays]
    load_ops("cpu").functions()[name](*call(expected))
    first = None
    for offsets in ((0, 0), (1, 1), (0, 1)):
        placed, behind = [], []
        for i, a in enumerate(arrays):
            at = offsets[i % 2]
            memory = cupy.full(a.size + at + 1, 77, a.dtype)
            placed.append(memory[at : at + a.size].reshape(a.shape))
            placed[-1][...] = cupy.asarray(a)
            behind.append(memory[at + a.size :])
        load_ops("cuda").functions()[name](*call(placed))
        assert all(int(rest[0]) == 77 for rest in behind), f"{name} wrote past an array"
        got = [cupy.asnumpy(a) for a in placed]
        first = first or got
        for ours, theirs, same in zip(expected, got, first, strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=tolerance, atol=tolerance)
            np.testing.assert_array_equal(theirs, same)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("size", [1, 6, 2048, 4101])
def test_element_wise(dtype, size):
    rng = np.random.default_rng(size)
    x, dy, y = (rng.normal(size=size).astype(dtype) for _ in range(3))
    tolerance = 2e-5 if dtype is np.float32 else 1e-12
    for name, arrays, rest in _ops_by_array(x, dy, y, size):
        if name == "eltwise_max_backward":
            _same_everywhere(name, arrays, lambda a: (a[0], a[1], [1], [a[2]]), tolerance)
        elif name in ("drop_path_forward", "dropout_forward"):
            _same_everywhere(name, arrays, lambda a: (a[0], a[1], 0.4, a[2], 1 / 0.6), tolerance)
        else:
            _same_everywhere(name, arrays, lambda a, rest=rest: (*a, *rest), tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("size", [1, 6, 2048, 4101])
@pytest.mark.parametrize("rule", updates.HISTORIES)
def test_solver_updates(rule, size, dtype):
    numbers = np.array(UpdateNumbers(0.1, 0.5, 0.01, 1.0, 0.9, 0.99, 1e-3, 0.75))
    tolerance = 2e-5 if dtype is np.float32 else 1e-12
    arrays = [*updates.start(rule, size, dtype), numbers]
    _same_everywhere("solver_update", arrays, lambda a: (rule, a[0], a[1], a[2:-1], a[-1], 0.5, 2.0), tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("width", [8, 7, 6])
def test_copies_of_rows(dtype, width):
    rng = np.random.default_rng(width)
    narrow, wide = rng.normal(size=(5, width)).astype(dtype), rng.normal(size=(5, 20)).astype(dtype)
    swapped = rng.normal(size=(20, 5, width)).astype(dtype)
    tiled, cut = rng.normal(size=(5, 3, width)).astype(dtype), rng.normal(size=(3, width)).astype(dtype)
    _same_everywhere("copy_block_in", [narrow, wide], lambda a: (*a, 5, width, 20, 4), 0)
    _same_everywhere("copy_block_out", [wide, narrow], lambda a: (*a, 5, width, 20, 4), 0)
    for name in ("copy_columns", "add_columns"):
        _same_everywhere(name, [narrow, wide], lambda a: (*a, 5, width - 2, width, 1, 20, 4), 0)
        _same_everywhere(name, [wide, narrow], lambda a: (*a, 5, 4, 20, 8, width, width - 4), 0)
    _same_everywhere("tile_forward", [narrow, tiled], lambda a: (*a, 5, 3, width), 0)
    _same_everywhere("crop_forward", [wide, cut], lambda a: (*a, (5, 20), (3, width), (1, 4)), 0)
    _same_everywhere("crop_backward", [cut, wide], lambda a: (*a, (5, 20), (3, width), (1, 4)), 0)
    x = rng.normal(size=(5, 20, width)).astype(dtype)
    _same_everywhere("transpose", [x, swapped], lambda a: (*a, (5, 20, width), (1, 0, 2)), 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_pooling_backward(dtype):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=PLANES).astype(dtype), np.zeros((6, *MAX.out_spatial), dtype)
    mask, tolerance = np.zeros(y.shape, np.uint8), 2e-6 if dtype is np.float32 else 1e-14
    load_ops("cpu").max_pool.forward(x, y, mask, None, MAX)
    dy = rng.normal(size=y.shape).astype(dtype)
    _same_everywhere("max_pool_backward", [dy, mask, x], lambda a: (*a, MAX), tolerance)
    _same_everywhere("average_pool_backward", [dy, x], lambda a: (*a, MAX), tolerance)
    _same_everywhere("average_pool_backward", [dy[:, :1, :1].copy(), x], lambda a: (*a, GLOBAL), tolerance)
    _same_everywhere("average_pool_forward", [x, y[:, :1, :1].copy()], lambda a: (*a, GLOBAL), tolerance)
