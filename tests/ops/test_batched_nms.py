"""Boxes decoded and chosen for all images and classes at once: against plain loops, and CUDA kernels emulated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.layers.detection.boxes import decode
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.detection import box_codes, nms

from .emulated import COMPILER, Kernels

DTYPES = (np.float32, np.float64)
CPU = load_ops("cpu").functions()


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """Return run(dtype, name, *arguments): an operation of the GPU, with its kernels run on the host."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    sources = {"batched_nms": nms._NMS, "detection_rows": nms._ROWS, "decode_boxes": box_codes._SOURCE}
    kernels = {d: Kernels(tmp_path_factory.mktemp(np.dtype(d).name), d, sources) for d in DTYPES}

    def run(dtype, name, *args):
        def launch(source, kernel, given, threads, *args, block=64, grid=3):
            assert given == dtype
            kernels[dtype].run(kernel, grid, block, *args)

        module = box_codes if name == "decode_boxes" else nms
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "launch", launch)
            getattr(module, name)(*args)

    return run


def on_cpu(dtype, name, *args):
    CPU[name](*args)


@pytest.fixture(params=["cpu", "emulated"])
def run(request):
    return on_cpu if request.param == "cpu" else request.getfixturevalue("emulated")


# -- plain loops -----------------------------------------------------------------------------------------------------
def overlap(a, b):
    """Intersection divided by union, every step rounded to the type of the boxes."""
    kind = type(a[0])
    wide, high = kind(min(a[2], b[2]) - max(a[0], b[0])), kind(min(a[3], b[3]) - max(a[1], b[1]))
    if wide <= 0 or high <= 0:
        return kind(0)
    size = [kind(kind(x2 - x1) * kind(y2 - y1)) for x1, y1, x2, y2 in (a, b)]
    common = kind(wide * high)
    return kind(common / kind(kind(size[0] + size[1]) - common))


def chosen(scores, boxes, least, most, threshold, eta):
    """The kept boxes of one class, best first. scores: (P). boxes: (P, 4)."""
    kind = scores.dtype.type
    order = sorted((i for i in range(len(scores)) if scores[i] > least), key=lambda i: (-scores[i], i))
    kept, limit = [], kind(threshold)
    for i in order[:most]:
        if all(overlap(boxes[i], boxes[k]) <= limit for k in kept):
            kept.append(i)
            if eta < 1 and limit > 0.5:
                limit = kind(limit * kind(eta))
    return kept


def random_boxes(rng, n, p, each, dtype):
    corners = rng.uniform(0, 1, (n, p, each, 2))
    return np.concatenate([corners, corners + rng.uniform(0.05, 0.6, (n, p, each, 2))], axis=-1).astype(dtype)


CASES = {
    # images, boxes, classes, boxes of a class, K, least score, threshold, eta, skipped class, distinct scores
    "usual": (3, 70, 4, 1, 20, 0.3, 0.45, 1.0, 0, None),
    "all of them": (2, 40, 3, 1, 40, -1e30, 0.3, 1.0, -1, None),
    "eta": (2, 90, 2, 1, 60, 0.1, 0.9, 0.8, -1, None),
    "ties": (2, 300, 2, 1, 37, 0.2, 0.5, 1.0, 1, 4),
    "all alike": (1, 290, 1, 1, 270, 0.0, 0.6, 0.95, -1, 1),
    "boxes of their own": (2, 50, 3, 3, 30, 0.5, 0.4, 1.0, 2, 9),
    "one of one": (1, 1, 1, 1, 1, 0.0, 0.45, 1.0, -1, None),
    "few above": (4, 33, 2, 1, 33, 0.97, 0.45, 1.0, -1, None),
    "many images": (9, 12, 5, 1, 5, 0.5, 0.2, 1.0, 3, 20),
    "more than threads": (1, 1000, 1, 1, 600, 0.2, 0.7, 1.0, -1, 500),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("case", CASES)
def test_kept_boxes_are_those_of_plain_loops(run, case, dtype):
    n, p, c, each, most, least, threshold, eta, skipped, distinct = CASES[case]
    rng = np.random.default_rng(len(case))
    scores = rng.uniform(0, 1, (n, p, c)) if distinct is None else rng.integers(0, distinct, (n, p, c)) / distinct + 0.1
    scores = scores.astype(dtype)
    boxes = random_boxes(rng, n, p, each, dtype)
    kept, numbers = np.full((n, c, most), -7, np.int32), np.full((n, c), -7, np.int32)
    run(dtype, "batched_nms", scores.reshape(n, p * c), boxes, kept, numbers, least, threshold, eta, skipped)
    expected = [
        [
            [] if k == skipped else chosen(scores[i, :, k], boxes[i, :, k % each], least, most, threshold, eta)
            for k in range(c)
        ]
        for i in range(n)
    ]
    assert numbers.tolist() == [[len(one) for one in image] for image in expected]
    assert [[kept[i, k, : numbers[i, k]].tolist() for k in range(c)] for i in range(n)] == expected

    for limit in (1, numbers.sum(axis=1).max(), 7, c * most):
        rows, found = np.full((n, limit, 7), np.nan, dtype), np.full(n, -7, np.int32)
        run(dtype, "detection_rows", scores.reshape(n, p * c), boxes, kept, numbers, rows, found)
        for i in range(n):
            every = [(k, b) for k in range(c) for b in expected[i][k]]
            best = sorted(sorted(range(len(every)), key=lambda r: (-scores[i, every[r][1], every[r][0]], r))[:limit])
            assert found[i] == len(best)
            want = [[i, k, scores[i, b, k], *boxes[i, b, k % each]] for k, b in (every[r] for r in best)]
            np.testing.assert_array_equal(rows[i, : found[i]], np.array(want, dtype).reshape(-1, 7))
            assert np.isnan(rows[i, found[i] :]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
def test_numbers_that_are_none_and_negative_scores(run, dtype):
    """NaN is above no threshold, -0 equals 0, infinity is best; a box that is empty overlaps none."""
    scores = np.array([[-0.0, np.nan, 0.0, np.inf, -2, -1, -np.inf, 0.5]], dtype)
    boxes = np.array([[i, 0, i + 0.5, 1] for i in range(8)], dtype).reshape(1, 8, 1, 4)
    boxes[0, 7, 0] = boxes[0, 3, 0]
    for most, expected in ((8, [3, 0, 2, 5, 4]), (4, [3, 0, 2]), (3, [3, 0]), (5, [3, 0, 2, 5])):
        kept, numbers = np.zeros((1, 1, most), np.int32), np.zeros((1, 1), np.int32)
        run(dtype, "batched_nms", scores, boxes, kept, numbers, -3.0, 0.5, 1.0, -1)
        assert kept[0, 0, : numbers[0, 0]].tolist() == expected
    boxes[0, 7, 0, 2] = boxes[0, 7, 0, 0]
    kept = np.zeros((1, 1, 8), np.int32)
    run(dtype, "batched_nms", scores, boxes, kept, numbers, -3.0, 0.5, 1.0, -1)
    assert kept[0, 0, : numbers[0, 0]].tolist() == [3, 7, 0, 2, 5, 4]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
def test_infinite_boxes_are_chosen_alike(emulated, dtype):
    """Boxes of a net that is not trained: infinite, of no number, and far apart in size."""
    rng = np.random.default_rng(3)
    boxes = random_boxes(rng, 2, 60, 1, dtype) * 10.0 ** rng.integers(-30, 30, (2, 60, 1, 1)).astype(dtype)
    boxes[rng.uniform(size=boxes.shape) < 0.1] = np.inf
    boxes[rng.uniform(size=boxes.shape) < 0.1] = -np.inf
    boxes[rng.uniform(size=boxes.shape) < 0.03] = np.nan
    scores = rng.uniform(size=(2, 120)).astype(dtype)
    results = []
    for device in (on_cpu, emulated):
        kept, numbers = np.zeros((2, 2, 50), np.int32), np.zeros((2, 2), np.int32)
        device(dtype, "batched_nms", scores, boxes.astype(dtype), kept, numbers, 0.1, 0.4, 1.0, -1)
        results.append([kept[i, k, : numbers[i, k]].tolist() for i in range(2) for k in range(2)])
    assert results[0] == results[1] and min(map(len, results[0])) > 5


# -- decoding --------------------------------------------------------------------------------------------------------
def decoded(code, prior, variance, move):
    """One box, in Python's numbers."""
    (x1, y1, x2, y2), (a, b, c, d) = prior, (v * m for v, m in zip(variance, move, strict=True))
    wide, high = x2 - x1, y2 - y1
    if code == 1:
        return x1 + a, y1 + b, x2 + c, y2 + d
    if code == 3:
        return x1 + a * wide, y1 + b * high, x2 + c * wide, y2 + d * high
    x, y, w, h = a * wide + (x1 + x2) / 2, b * high + (y1 + y2) / 2, math.exp(c) * wide, math.exp(d) * high
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def predictions(dtype, n=3, p=25, each=2, spread=4.0):
    rng = np.random.default_rng(p)
    priors = np.concatenate(
        [random_boxes(rng, 1, p, 1, dtype).reshape(1, 1, -1), rng.uniform(0.1, 1, (1, 1, p * 4))], 1
    )
    return (
        rng.normal(0, spread, (n, p * each * 4)).astype(dtype),
        priors.astype(dtype),
        np.empty((n, p, each, 4), dtype),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("code", [1, 2, 3])
def test_decoded_boxes_are_those_of_plain_loops(run, code, scaled, dtype):
    moves, priors, boxes = predictions(dtype)
    run(dtype, "decode_boxes", moves, priors, boxes, code, scaled)
    places, variances = priors.astype(float).reshape(2, -1, 4)
    tolerance = 2e-6 if dtype is np.float32 else 1e-14
    for i, p, k in np.ndindex(boxes.shape[:3]):
        move = moves.astype(float).reshape(*boxes.shape)[i, p, k]
        want = decoded(code, places[p], variances[p] if scaled else [1] * 4, move)
        np.testing.assert_allclose(boxes[i, p, k], want, rtol=tolerance, atol=tolerance * max(map(abs, want)))
    other = decode(code, places, variances if scaled else np.ones_like(variances), moves.reshape(3, 25, 2, 4)[:, :, 0])
    np.testing.assert_allclose(boxes[:, :, 0], other, rtol=10 * tolerance, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("spread", [1.0, 30.0, 500.0])
@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_gpus_kernel_decodes_to_the_same_bits(emulated, code, spread, dtype):
    """Also where boxes are infinite, and where predictions are no numbers."""
    moves, priors, boxes = predictions(dtype, p=400, spread=spread)
    moves[0, :8] = np.nan, np.inf, -np.inf, 0, 1e30, -1e30, -0.0, np.nan
    other = np.empty_like(boxes)
    on_cpu(dtype, "decode_boxes", moves, priors, boxes, code, True)
    emulated(dtype, "decode_boxes", moves, priors, other, code, True)
    np.testing.assert_array_equal(boxes, other)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
def test_the_exponential_is_that_of_the_c_library(run, dtype):
    """The width of a box of width 1: to half a unit in the last place in float32, to two in float64."""
    powers = np.concatenate([np.linspace(-87, 88, 2001), np.linspace(-1, 1, 1001), [0, 1e-20]]).astype(dtype)
    moves = np.zeros((1, len(powers), 4), dtype)
    moves[0, :, 2] = powers
    priors = np.tile(np.array([-1, -1, 1, 1], dtype), 2 * len(powers)).reshape(1, 2, -1)
    boxes = np.empty((1, len(powers), 1, 4), dtype)
    run(dtype, "decode_boxes", moves.reshape(1, -1), priors, boxes, 2, False)
    want = [math.exp(x) for x in powers.tolist()]
    np.testing.assert_allclose(boxes[0, :, 0, 2], want, rtol=6e-8 if dtype is np.float32 else 4.5e-16)
