"""Random numbers that fill arrays: their definition, their distribution, and the same bits from a GPU's kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cpu.activation.dropout import philox
from pycaffe_lms.ops.cuda import elementwise, random

from .emulated import COMPILER, Kernels

KEYS = [(0, 0, 0), (2**63 + 12345, 2**32 + 3, 2**41 - 1)]  # the second: its blocks pass a multiple of 2^32
SIZES = [1, 2, 3, 6, 4097, 3 * 2048 + 5]
N = 1 << 22


def words(key, size):
    """The words that the definition gives each element."""
    seed, offset, start = key
    block = np.arange(start, start + -(-size // 4), dtype=np.uint64)
    low, high = (np.full_like(block, word) for word in (offset & 0xFFFFFFFF, offset >> 32))
    found = philox([block & np.uint64(0xFFFFFFFF), block >> np.uint64(32), low, high], seed)
    return np.stack(found, axis=1).reshape(-1)[:size]


def drawn(name, size, key, *numbers, dtype=np.float32):
    y = np.full(size, np.nan, dtype)
    load_ops("cpu").functions()[name](y, np.array(key, np.uint64), *numbers)
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("key", KEYS, ids=["zeros", "large"])
@pytest.mark.parametrize("size", SIZES)
def test_uniform_is_the_definition(size, key, dtype):
    unit = (words(key, size) >> 8).astype(np.float64) / 2**24
    got = drawn("random_uniform", size, key, -1.5, 2.5, dtype=dtype)
    np.testing.assert_allclose(got, unit * 4 - 1.5, atol=2e-7)
    assert np.array_equal(drawn("random_uniform", size, key, 0.0, 1.0, dtype=dtype), unit), "of 24 bits: exact"


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("key", KEYS, ids=["zeros", "large"])
@pytest.mark.parametrize("size", SIZES)
def test_gaussian_is_box_and_mullers_formula(size, key, dtype):
    both = words(key, size + size % 2).reshape(-1, 2)
    a, b = both[:, 0].astype(np.float64), both[:, 1]
    radius = np.sqrt(-2 * np.log((a + 0.5) / 2**32))
    angle = (b << np.uint32(2)).view(np.int32) * (math.pi / 4 / 2**31)  # from -45 to 45 degrees
    angle = np.where(b >> 31, math.pi / 2 - angle, angle)  # mirrored at the diagonal
    angle = angle + np.where(b >> 30 & 1, math.pi, 0)
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:size]
    got = drawn("random_gaussian", size, key, 0.0, 1.0, dtype=dtype)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=2e-6)
    scaled = drawn("random_gaussian", size, key, 3.0, 0.25, dtype=dtype)
    np.testing.assert_allclose(scaled, 3 + 0.25 * expected, rtol=1e-6)


def test_ends_of_the_words():
    """u nearest to 0 and to 1, and every quadrant: r of (a + 1/2) / 2^32, no NaN, nothing beyond its bound."""
    from pycaffe_lms.ops.cpu.random import _gaussian
    from pycaffe_lms.ops.normal_numbers import ANGLE, COS, LN2, LOG, SIN

    a = np.array([0, 1, 2**23, 2**31, 2**32 - 2**8, 2**32 - 1], np.uint32)
    b = np.array([0, 2**29, 2**30 - 1, 2**30, 2**31, 2**32 - 1], np.uint32)
    bits = np.stack(np.meshgrid(a, b, indexing="ij"), axis=-1).reshape(-1)
    y = np.full(bits.size, np.nan, np.float32)
    _gaussian(np.float32(0), np.float32(1), LOG, LN2, SIN, COS, ANGLE, bits, y)
    radius = np.hypot(*y.reshape(-1, 2).T.astype(np.float64)).reshape(a.size, b.size)
    expected = np.sqrt(-2 * np.log((a + 0.5) / 2**32))
    np.testing.assert_allclose(radius[:4], np.repeat(expected[:4, None], b.size, 1), rtol=1e-6)
    np.testing.assert_allclose(radius[4:], np.repeat(expected[4:, None], b.size, 1), atol=4e-4)  # u has 24 bits there
    assert abs(y).max() < 6.77


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def kolmogorov_smirnov(values, distribution):
    """sqrt(n) times the largest distance from the distribution; above 1.95 with a probability of 0.001."""
    values = np.sort(values.astype(np.float64))
    n, expected = values.size, np.array([distribution(x) for x in values])
    steps = np.arange(n + 1) / n
    return math.sqrt(n) * max((expected - steps[:-1]).max(), (steps[1:] - expected).max())


def test_gaussian_distribution():
    y = drawn("random_gaussian", N, (77, 3, 0), 0.0, 1.0).astype(np.float64)
    # a moment's deviation: sqrt((E x^2k - (E x^k)^2) / n)
    for k, (moment, variance) in enumerate([(0, 1), (1, 2), (0, 15), (3, 96), (0, 945), (15, 10170)], 1):
        assert abs((y**k).mean() - moment) < 4 * math.sqrt(variance / N), k
    for limit in (0.5, 1, 2, 3, 4, 4.5):
        for side in (y > limit, y < -limit):
            expected = N * phi(-limit)
            assert abs(side.sum() - expected) < 4 * math.sqrt(expected), limit
    assert kolmogorov_smirnov(y[:1_000_000], phi) < 1.95
    pairs = y.reshape(-1, 2)
    for one, other in ((pairs[:, 0], pairs[:, 1]), (pairs[:-1, 1], pairs[1:, 0]), (pairs[:, 0] ** 2, pairs[:, 1] ** 2)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / math.sqrt(one.size)


def test_uniform_distribution():
    y = drawn("random_uniform", N, (78, 3, 0), -3.0, 5.0).astype(np.float64)
    assert y.min() >= -3 and y.max() <= 5
    for k in range(1, 5):
        unit = (y + 3) / 8
        deviation = math.sqrt((1 / (2 * k + 1) - 1 / (k + 1) ** 2) / N)
        assert abs((unit**k).mean() - 1 / (k + 1)) < 4 * deviation
    assert kolmogorov_smirnov(y[:1_000_000], lambda x: (x + 3) / 8) < 1.95
    counts = np.bincount((unit * 256).astype(int), minlength=256)
    square = ((counts - N / 256) ** 2 / (N / 256)).sum()  # of 255 degrees of freedom: mean 255, variance 510
    assert abs(square - 255) < 4 * math.sqrt(510)


@pytest.mark.parametrize("low, high", [(0.0, 999.99), (-1e30, 1e30), (3.0, 3.0), (0.1, 0.1 + 2**-26), (1e8, 1e8 + 16)])
def test_uniform_stays_between_its_ends(low, high):
    y = drawn("random_uniform", 1 << 20, (1, 2, 3), low, high)
    assert np.float32(low) <= y.min() and y.max() <= np.float32(high)


def test_a_key_of_another_seed_draw_or_block_gives_other_numbers():
    keys = [(1, 0, 0), (2, 0, 0), (1 << 32, 0, 0), (1, 1, 0), (1, 1 << 32, 0), (1, 0, 1 << 40)]
    for name, numbers in (("random_gaussian", (0.0, 1.0)), ("random_uniform", (0.0, 1.0))):
        drawings = [drawn(name, 100_000, key, *numbers) for key in keys]
        for i, one in enumerate(drawings):
            for other in drawings[:i]:
                assert abs(np.corrcoef(one, other)[0, 1]) < 4 / math.sqrt(one.size)


@pytest.mark.parametrize("name, numbers", [("random_gaussian", (1.0, 2.0)), ("random_uniform", (-1.0, 1.0))])
def test_parts_draw_what_the_whole_would(name, numbers):
    whole = drawn(name, 40_000, (5, 6, 7), *numbers)
    parts = [drawn(name, 10_000, (5, 6, 7 + 2500 * i), *numbers) for i in range(4)]
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_unit_rows_are_shares_of_exact_sums(dtype):
    y = drawn("random_unit_rows", 7 * 1001, (3, 1, 0), 7, dtype=dtype)
    units = 2**24 - (words((3, 1, 0), y.size) >> 8).astype(np.int64).reshape(7, 1001)
    assert (units > 0).all()
    np.testing.assert_allclose(y.reshape(7, 1001), units / units.sum(axis=1, keepdims=True), rtol=3e-7)
    np.testing.assert_allclose(y.reshape(7, 1001).sum(axis=1, dtype=np.float64), 1, rtol=1e-6)
    assert drawn("random_unit_rows", 5, (3, 1, 0), 5).tolist() == [1.0] * 5
    assert drawn("random_unit_rows", 0, (3, 1, 0), 5).size == 0


# --- the kernels for GPUs -------------------------------------------------------------------------------------------
CASES = [
    ("random_uniform", (-1.5, 2.5)),
    ("random_uniform", (0.0, 999.99)),
    ("random_gaussian", (0.0, 1.0)),
    ("random_gaussian", (-3.0, 0.7)),
]


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["f32", "f64"])
def kernels(request, tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    sources = {"random_uniform": random._UNIFORM, "random_gaussian": random._GAUSSIAN}
    return request.param, Kernels(tmp_path_factory.mktemp("kernels"), request.param, sources)


@pytest.mark.parametrize("key", KEYS, ids=["zeros", "large"])
@pytest.mark.parametrize("name, numbers", CASES)
def test_kernels_run_on_the_host_give_the_bits_of_the_cpu(name, numbers, key, kernels, monkeypatch):
    dtype, host = kernels
    monkeypatch.setattr(elementwise, "aligned", lambda *arrays: 0)
    monkeypatch.setattr(
        elementwise,
        "launch",
        lambda source, name, dtype, threads, *args, block, grid: host.run(name, grid, block, *args),
    )
    for size in SIZES:
        y = np.full(size, np.nan, dtype)
        load_ops("cuda").functions()[name](y, np.array(key, np.uint64), *numbers)
        assert y.tobytes() == drawn(name, size, key, *numbers, dtype=dtype).tobytes(), size


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("key", KEYS, ids=["zeros", "large"])
@pytest.mark.parametrize("name, numbers", [*CASES, ("random_unit_rows", (1,)), ("random_unit_rows", (3,))])
def test_a_gpu_gives_the_bits_of_the_cpu(name, numbers, key, dtype):
    cupy = cuda.require()
    for size in (*SIZES, 1 << 22) if name != "random_unit_rows" else (3, 6, 3 * 4099):
        y = cupy.full(size + 1, cupy.nan, dtype)
        load_ops("cuda").functions()[name](y[:size], cupy.array(key, cupy.uint64), *numbers)
        assert cupy.asnumpy(y[:size]).tobytes() == drawn(name, size, key, *numbers, dtype=dtype).tobytes(), size
        assert cupy.isnan(y[size])
