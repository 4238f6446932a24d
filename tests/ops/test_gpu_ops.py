"""Operations that no layer case reaches, on the CPU and on a GPU: norms, sums, the solver's update."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.update_rules import UpdateNumbers

from . import updates

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.fixture(scope="module")
def both():
    cupy = cuda.require()

    def run(name, *args):
        """The arrays among `args` after the operation, from both devices."""
        results = []
        for ops, put, get in ((load_ops("cpu"), np.array, np.array), (load_ops("cuda"), cupy.array, cupy.asnumpy)):
            placed = [_move(a, put) for a in args]
            ops.functions()[name](*placed)
            results.append([get(a) for a in placed if hasattr(a, "shape")])
        return results

    return run


def _move(value, put):
    if isinstance(value, list):
        return [put(v) for v in value]
    return put(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("size", [1, 1000, 700_001])
def test_sum_of_squares(both, dtype, size):
    x = np.random.default_rng(1).normal(size=size).astype(dtype)
    ours, theirs = both("sum_squares", x, np.full(3, 7.0), 1, np.zeros(1024))
    assert theirs[1] == pytest.approx(ours[1], rel=1e-12)
    assert theirs[1][1] == pytest.approx((x.astype(np.float64) ** 2).sum(), rel=1e-12)


def test_sum_of_arrays(both):
    xs = [np.random.default_rng(i).normal(size=1001).astype(np.float32) for i in range(5)]
    ours, theirs = both("sum_arrays", xs, np.empty(1001, np.float32))
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
def test_scaling_of_arrays(dtype):
    """More small ones than a launch takes, an empty one, and some that have a launch of their own."""
    xs = [np.random.default_rng(n).normal(size=n).astype(dtype) for n in [3, 0, *range(1, 40), 70_000, 300_000]]
    cupy = cuda.require()
    ys = [cupy.array(x) for x in xs]
    load_ops("cuda").functions()["scale_all"](ys, 1 / 3)
    for x, y in zip(xs, ys, strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(y), x * dtype(1 / 3))


@pytest.mark.parametrize("name", ["copy_columns", "add_columns"])
@pytest.mark.parametrize("numbers", [(3, 8, 12, 4, 16, 8), (5, 3, 7, 1, 11, 6), (70_001, 2, 2, 0, 5, 3)], ids=str)
def test_columns(both, name, numbers):
    outer, width, x_total, x_start, y_total, y_start = numbers
    rng = np.random.default_rng(width)
    x, y = (rng.normal(size=(outer, total)).astype(np.float32) for total in (x_total, y_total))
    ours, theirs = both(name, x, y, *numbers)
    expected = y.copy()
    moved = x[:, x_start : x_start + width]
    expected[:, y_start : y_start + width] = moved + (y[:, y_start : y_start + width] if name == "add_columns" else 0)
    for found in (ours, theirs):
        np.testing.assert_array_equal(found[1], expected)


@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("rule", updates.HISTORIES)
def test_solver_updates(both, rule, dtype, l1):
    weight, diff, *histories = updates.start(rule, 777, dtype)
    numbers = UpdateNumbers(0.1, 0.5, 0.01, float(l1), 0.9, 0.99, 1e-3, 0.75)
    ours, theirs = both("solver_update", rule, weight, diff, histories, np.array(numbers), 1.0, 1.0)
    w, d, *h = (a.astype(np.float64) for a in (weight, diff, *histories))
    g = updates.gradient(w, d, scale=0.5, decay=0.01, l1=l1, rule=rule)
    pull = updates.pull(rule, w, rate=0.75, decay=0.01, l1=l1)
    w, u, _ = updates.step(rule, w, g, h, rate=0.1, keep=0.9, keep2=0.99, delta=1e-3, pull=pull)
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    for on_cpu, on_gpu, expected in zip(ours[:2], theirs[:2], (w, u), strict=True):
        np.testing.assert_allclose(on_gpu, on_cpu, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(on_gpu, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("most", [400, 8732])
def test_a_gpu_chooses_the_boxes_of_the_cpu(most, dtype):
    """The default boxes of SSD300: every operation gives the bits of the CPU."""
    cupy, rng = cuda.require(), np.random.default_rng(most)
    n, p, c, keep = 3, 8732, 5, 200
    corners = rng.uniform(0, 1, (p, 2))
    priors = np.concatenate([corners, corners + rng.uniform(0.05, 0.6, (p, 2))], axis=1)
    priors = np.stack([priors, np.full((p, 4), 0.3)]).reshape(1, 2, -1).astype(dtype)
    moves = rng.normal(size=(n, p * 4)).astype(dtype)
    scores = np.round(rng.uniform(size=(n, p * c)), 4).astype(dtype)
    results = []
    for name, put, get in (("cpu", np.array, np.array), ("cuda", cupy.array, cupy.asnumpy)):
        ops = load_ops(name).functions()
        boxes, rows = put(np.zeros((n, p, 1, 4), dtype)), put(np.zeros((n, keep, 7), dtype))
        kept, numbers, found = (put(np.zeros(s, np.int32)) for s in ((n, c, most), (n, c), (n,)))
        ops["decode_boxes"](put(moves), put(priors), boxes, 2, True)
        ops["batched_nms"](put(scores), boxes, kept, numbers, 0.01, 0.45, 0.95, 0)
        ops["detection_rows"](put(scores), boxes, kept, numbers, rows, found)
        kept, numbers = get(kept), get(numbers)
        for i, k in np.ndindex(n, c):
            kept[i, k, numbers[i, k] :] = -1
        results.append([get(boxes), kept, numbers, get(rows), get(found)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (results[0][2][:, 1:] > 20).all() and results[0][4].tolist() == [keep] * n
