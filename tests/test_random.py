"""Check Caffe's random stream against recorded draws, and the formulas for values from them."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.random import CaffeRandom


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


def test_same_seed_same_stream_and_none_is_another():
    assert np.array_equal(CaffeRandom(9).raw(4), CaffeRandom(9).raw(4))
    assert not np.array_equal(CaffeRandom(None).raw(4), CaffeRandom(-1).raw(4))
    assert np.array_equal(CaffeRandom(2**32 + 7).raw(4), CaffeRandom(7).raw(4)), "Caffe keeps 32 bits of the seed"
