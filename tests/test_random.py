"""Check Caffe's random stream against recorded draws, and the formulas for values from them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.ops import load_ops
from pycaffe_lms.random import MANY, CaffeRandom


def test_raw_stream_is_caffes():
    assert CaffeRandom(1701).raw(3).tolist() == [384112814, 2227967492, 495543390]


def test_uniform_is_the_formula_in_float32():
    raw = CaffeRandom(1701).raw(1000).astype(np.float32)
    low, high = np.float32(-2), np.nextafter(np.float32(5), np.float32(np.inf))
    expected = raw / np.float32(2**32) * (high - low) + low
    assert np.array_equal(CaffeRandom(1701).uniform(1000, -2, 5), expected)


def test_uniform_draws_again_at_the_open_end():
    class AtTheEnd(CaffeRandom):
        draws = [2**32 - 1, 0, 2**32 - 1, 2**31]

        def raw(self, n):
            part, self.draws = self.draws[:n], self.draws[n:]
            return np.array(part, np.uint32)

    assert AtTheEnd(0).uniform(2, 0, 1).tolist() == pytest.approx([0.0, 0.5], abs=1e-7)


def test_uniform_of_one_value_and_of_nothing():
    assert set(CaffeRandom(1).uniform(50, 3, 3).tolist()) == {3.0}
    for a, b in ((1, 0), (0, np.nan), (-np.inf, 0), (-3e38, 3e38)):
        with pytest.raises(ValueError, match="no uniform values"):
            CaffeRandom(1).uniform(1, a, b)


def test_bernoulli_is_the_formula():
    raw = CaffeRandom(5).raw(2000)
    kept = CaffeRandom(5).bernoulli(2000, 0.3)
    assert np.array_equal(kept, raw <= 0.3 * (2**32 - 1))
    assert CaffeRandom(5).bernoulli(50, 1).all()
    assert not CaffeRandom(5).bernoulli(50, 0).any()
    with pytest.raises(ValueError, match="no probability"):
        CaffeRandom(5).bernoulli(1, 1.5)


def test_gaussian_moments():
    values = CaffeRandom(3).gaussian(200_001, 2.0, 3.0)
    assert values.dtype == np.float32
    assert abs(values.mean() - 2) < 0.03 and abs(values.std() - 3) < 0.03


def test_many_gaussian_values_are_the_counter_based_generators():
    """Their key are the next two raw draws, after which the stream goes on; one value fewer are of the stream."""
    rng, raw = CaffeRandom(3), CaffeRandom(3).raw(3)
    values = rng.gaussian(MANY, 2.0, 3.0)
    assert values.dtype == np.float32 and rng.raw(1) == raw[2]
    ours = np.empty(MANY, np.float32)
    load_ops("cpu").random_gaussian(ours, np.array([int(raw[0]) + (int(raw[1]) << 32), 0, 0], np.uint64), 2.0, 3.0)
    assert np.array_equal(values, ours)
    standard = np.sort((values.astype(np.float64) - 2) / 3)
    normal = 0.5 * (1 + np.array([math.erf(x / math.sqrt(2)) for x in standard[::1024]]))
    assert np.abs(normal - np.arange(0, MANY, 1024) / MANY).max() < 1.95 / math.sqrt(MANY)  # Kolmogorov, p = 0.001
    fewer = np.random.RandomState(3).normal(2.0, 3.0, MANY - 1)
    assert np.array_equal(CaffeRandom(3).gaussian(MANY - 1, 2.0, 3.0), fewer.astype(np.float32))


def test_same_seed_same_stream_and_none_is_another():
    assert np.array_equal(CaffeRandom(9).raw(4), CaffeRandom(9).raw(4))
    assert not np.array_equal(CaffeRandom(None).raw(4), CaffeRandom(-1).raw(4))
    assert np.array_equal(CaffeRandom(2**32 + 7).raw(4), CaffeRandom(7).raw(4)), "Caffe keeps 32 bits of the seed"
