"""caffe.io.Transformer: order of the steps, each setter's errors, and back again."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.data.transform.preprocess import Transformer
from pycaffe_lms.data.transform.resize import resize_image
from pycaffe_lms.errors import ArrayError, UsageError

RNG = np.random.default_rng(2)
SHAPE = (10, 3, 5, 6)


def full():
    t = Transformer({"data": SHAPE})
    t.set_transpose("data", (2, 0, 1))
    t.set_channel_swap("data", (2, 0, 1))
    t.set_raw_scale("data", 255)
    t.set_mean("data", np.array([10.0, 20, 30]))
    t.set_input_scale("data", 0.5)
    return t


def test_steps_come_in_caffes_order():
    picture = RNG.uniform(size=(5, 6, 3)).astype(np.float32)
    before = picture.copy()
    out = full().preprocess("data", picture)
    assert out.shape == SHAPE[1:] and out.dtype == np.float32
    for c, (source, mean) in enumerate(((2, 10), (0, 20), (1, 30))):
        np.testing.assert_allclose(out[c], (picture[:, :, source] * 255 - mean) * 0.5, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(picture, before)


def test_nothing_set_changes_nothing_and_copies():
    t = Transformer({"data": (1, 5, 6, 3)})
    picture = RNG.uniform(size=(6, 3, 2)).astype(np.float32)
    out = t.preprocess("data", picture)
    np.testing.assert_array_equal(out, picture)
    assert not np.shares_memory(out, picture)
    assert t.preprocess("data", np.ones((6, 3, 2), np.uint8)).dtype == np.float32


def test_pictures_of_another_size_are_resized_first():
    picture = RNG.uniform(size=(9, 4, 3))
    t = Transformer({"data": list(SHAPE)})
    t.set_transpose("data", (2, 0, 1))
    expected = resize_image(picture.astype(np.float32), (5, 6)).transpose(2, 0, 1)
    np.testing.assert_array_equal(t.preprocess("data", picture), expected)


def test_deprocess_is_the_inverse():
    picture = RNG.uniform(size=(5, 6, 3)).astype(np.float32)
    t = full()
    blob = t.preprocess("data", picture)[None]
    kept = blob.copy()
    np.testing.assert_allclose(t.deprocess("data", blob), picture, atol=1e-6)
    np.testing.assert_array_equal(blob, kept)


def test_deprocess_drops_axes_of_one():
    t = Transformer({"data": (1, 1, 4, 5)})
    assert t.deprocess("data", np.zeros((1, 1, 4, 5))).shape == (4, 5)
    t.set_transpose("data", (2, 0, 1))
    t.set_mean("data", np.array([3.0]))
    back = t.deprocess("data", np.zeros((1, 1, 4, 5)))
    assert back.shape == (4, 5, 1) and (back == 3).all()


def test_means():
    t = Transformer({"data": SHAPE, "gray": (1, 1, 5, 6)})
    whole = RNG.uniform(size=SHAPE[1:])
    t.set_mean("data", whole)
    np.testing.assert_array_equal(t.mean["data"], whole)
    large = RNG.uniform(size=(3, 9, 8))
    t.set_mean("data", large)
    np.testing.assert_array_equal(t.mean["data"], resize_image(large.transpose(1, 2, 0), (5, 6)).transpose(2, 0, 1))
    t.set_mean("data", np.full((3, 9, 8), 4.0))
    np.testing.assert_array_equal(t.mean["data"], np.full(SHAPE[1:], 4.0))
    t.set_mean("gray", np.ones((5, 6)))
    assert t.mean["gray"].shape == (1, 5, 6)
    t.set_mean("data", np.arange(3))
    assert t.mean["data"].shape == (3, 1, 1)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2,), "Mean channels incompatible with input"),
        ((4, 5, 6), "Mean channels incompatible with input"),
        ((1, 3, 5, 6), "Mean shape invalid"),
        ((), "Mean shape invalid"),
    ],
)
def test_wrong_means_are_value_errors(shape, words):
    with pytest.raises(ValueError, match=words):
        Transformer({"data": SHAPE}).set_mean("data", np.zeros(shape))


def test_wrong_setters():
    t = Transformer({"data": SHAPE})
    with pytest.raises(UsageError, match=r"Transpose order needs to have the same number of dimensions as the input\."):
        t.set_transpose("data", (1, 0))
    with pytest.raises(UsageError, match="same number of dimensions as the input channels"):
        t.set_channel_swap("data", (1, 0))
    t.set_transpose("data", (2, 0, 1))
    with pytest.raises(ArrayError, match="do not fit values of shape"):
        t.preprocess("data", np.zeros((5, 6)))


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("set_transpose", (2, 0, 1)),
        ("set_channel_swap", (2, 1, 0)),
        ("set_raw_scale", 255.0),
        ("set_mean", np.zeros(3)),
        ("set_input_scale", 2.0),
        ("preprocess", np.zeros((5, 6, 3))),
        ("deprocess", np.zeros(SHAPE)),
    ],
)
def test_unknown_inputs_are_named(method, value):
    with pytest.raises(UsageError, match="imgs is not one of the net inputs: {'data'"):
        getattr(Transformer({"data": SHAPE}), method)("imgs", value)
