"""Resizing: numbers printed by scikit-image and SciPy, and a plain loop of the coordinate mapping."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from pycaffe_lms.data.transform.resize import resize_image
from pycaffe_lms.errors import ArrayError, MissingDependency
from tests.shared_data import SHARED, needs_shared

RNG = np.random.default_rng(11)


def pattern(channels):
    """5 x 4 pixels whose channel 0 has both 0 and, elsewhere, values up to 0.95."""
    return ((np.arange(20 * channels).reshape(5, 4, channels) * 37) % 61 / 60.0).astype(np.float32)


def spread(image):
    """The same with 0 and 1 in it, so that pycaffe's normalisation to [0, 1] is the identity."""
    assert image.min() == 0
    return image / image.max()


# Printed by scikit-image 0.26.0, resize(pattern(3), (3, 7), order=1, mode="constant", anti_aliasing=False)[..., 0].
CENTRED = [
    [0.07420635, 0.27103174, 0.5535714, 0.6666666, 0.7313492, 0.6265873, 0.44087303],
    [0.44523808, 0.5011905, 0.39642856, 0.29166666, 0.18690476, 0.08214286, 0.013095239],
    [0.28373018, 0.5376984, 0.8202381, 0.7638889, 0.659127, 0.55436504, 0.384127],
]
# Printed by SciPy 1.17.1, ndimage.zoom(pattern(2), (3/5, 7/4, 1), order=1)[..., 0].
CORNERS = [
    [0.0, 0.108333334, 0.21666667, 0.325, 0.43333334, 0.5416666, 0.65],
    [0.71666664, 0.825, 0.93333334, 0.53333336, 0.13333334, 0.24166667, 0.35],
    [0.41666666, 0.525, 0.6333333, 0.7416667, 0.85, 0.45000002, 0.05],
]


def test_three_channels_as_scikit_image():
    resized = resize_image(pattern(3), (3, 7))
    assert resized.dtype == np.float32 and resized.shape == (3, 7, 3)
    np.testing.assert_allclose(resized[..., 0], CENTRED, atol=1e-7)


def test_other_channel_counts_as_scipy():
    resized = resize_image(pattern(2), (3, 7))
    assert resized.dtype == np.float32 and resized.shape == (3, 7, 2)
    np.testing.assert_allclose(resized[..., 0], CORNERS, atol=2e-7)


def by_loop(image, dims, order, *, centred):
    """Resize one pixel at a time; outside is the smallest value (centred), or nothing is outside."""
    (height, width, channels), (h, w) = image.shape, dims
    low = image.min()
    out = np.empty((h, w, channels))

    def place(i, new, old):
        if centred:
            return (i + 0.5) * old / new - 0.5
        return i * (old - 1) / (new - 1) if new > 1 else 0.0

    def pixel(y, x, k):
        inside = 0 <= y < height and 0 <= x < width
        return float(image[y, x, k]) if inside else float(low)

    for i in range(h):
        for j in range(w):
            y, x = place(i, h, height), place(j, w, width)
            for k in range(channels):
                if order == 0:
                    out[i, j, k] = pixel(math.floor(y + 0.5), math.floor(x + 0.5), k)
                    continue
                y0, x0 = math.floor(y), math.floor(x)
                fy, fx = y - y0, x - x0
                top = pixel(y0, x0, k) * (1 - fx) + (pixel(y0, x0 + 1, k) * fx if fx else 0)
                bottom = pixel(y0 + 1, x0, k) * (1 - fx) + (pixel(y0 + 1, x0 + 1, k) * fx if fx else 0)
                out[i, j, k] = top * (1 - fy) + (bottom * fy if fy else 0)
    return out


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dims", [(3, 7), (9, 2), (5, 4), (1, 1), (10, 8), (6, 3)], ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_every_size_as_by_loop(channels, dims, order):
    image = RNG.uniform(-50, 200, (5, 4, channels))
    expected = by_loop(image, dims, order, centred=channels in (1, 3))
    np.testing.assert_allclose(resize_image(image, dims, order), expected, rtol=1e-6, atol=1e-4)


def test_bytes_and_constants():
    image = RNG.integers(3, 250, (4, 4, 3), dtype=np.uint8)
    np.testing.assert_allclose(
        resize_image(image, (7, 3)), by_loop(image.astype(float), (7, 3), 1, centred=True), rtol=1e-6
    )
    np.testing.assert_array_equal(resize_image(np.full((4, 5, 3), 0.3), (9, 9)), np.full((9, 9, 3), np.float32(0.3)))


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("channels", [2, 3])
def test_splines_are_scipys(order, channels):
    ndimage = pytest.importorskip("scipy.ndimage")
    image = spread(pattern(channels))
    grid = {"mode": "grid-constant", "grid_mode": True} if channels == 3 else {}
    expected = ndimage.zoom(image.astype(float), (8 / 5, 3 / 4, 1), order=order, **grid)
    if channels == 3:
        expected = expected.clip(0, 1)
    np.testing.assert_allclose(resize_image(image, (8, 3), order), expected, atol=1e-6)


def test_splines_need_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingDependency, match=r"interp_order 3 needs the package scipy"):
        resize_image(pattern(3), (3, 3), interp_order=3)
    resize_image(pattern(3), (3, 3))


@pytest.mark.parametrize(
    ("shape", "dims", "order", "words"),
    [
        ((4, 4), (2, 2), 1, "height, width, channels"),
        ((4, 4, 3), (0, 2), 1, "cannot be resized to"),
        ((4, 4, 3), (2,), 1, "cannot be resized to"),
        ((4, 4, 3), (10**6, 10**6), 1, "cannot be resized to"),
        ((4, 4, 3), (2, 2), 6, "interp_order 6"),
    ],
)
def test_what_cannot_be(shape, dims, order, words):
    with pytest.raises(ArrayError, match=words) as caught:
        resize_image(np.zeros(shape), dims, order)
    assert isinstance(caught.value, ValueError)


@needs_shared
@pytest.mark.shared
def test_a_real_picture_as_scikit_image():
    """cat.jpg from 360 x 480 to 227 x 227 as pycaffe does it, by scikit-image 0.26.0."""
    from pycaffe_lms.io import load_image

    small = resize_image(load_image(SHARED / "data" / "images" / "cat.jpg"), (227, 227))
    expected = [
        [0.10414615, 0.22571479, 0.1966399],
        [0.76960784, 0.7382353, 0.66764706],
        [0.7246011, 0.689307, 0.6226403],
        [0.19476272, 0.35301304, 0.075799964],
    ]
    np.testing.assert_allclose(small[[0, 113, 226, 50], [0, 113, 226, 60]], expected, atol=1e-6)
    assert small.mean(dtype=np.float64) == pytest.approx(0.4541450261062416, rel=1e-6)
