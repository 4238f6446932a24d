"""Layers that can save bits: values and gradients are the same with bits, and backward reads nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.layers.base import Needs
from pycaffe_lms.layers.mixins import Masked
from pycaffe_lms.layers.registry import LAYERS

from .harness import LayerBench

KINDS = [
    ("ReLU", "", 1),
    ("ReLU", "relu_param { negative_slope: 0.1 }", 2),
    ("ReLU", "relu_param { negative_slope: -0.5 }", 2),
    ("ReLU6", "", 1),
    ("ReLU6", "relu6_param { negative_slope: 0.2 }", 2),
    ("Clip", "clip_param { min: -1 max: 2 }", 1),
]


def test_every_type_that_can_is_tried():
    assert {name for name, cls in LAYERS.items() if issubclass(cls, Masked)} == {name for name, _, _ in KINDS}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("type_name, text, planes", KINDS)
def test_bits_give_what_values_give(type_name, text, planes, in_place):
    shape = (3, 5, 7)
    rng = np.random.default_rng(1)
    x, dy = rng.normal(scale=4, size=shape), rng.normal(size=shape)
    plain = LayerBench(type_name, text, (shape,))
    bench = LayerBench(type_name, text, (shape,), in_place=in_place)
    bench.layer.update_context(saves_bits=True)
    bench.reshape([shape])
    bits = bench.layer.scratches["bits"]
    assert bits.dtype == np.uint32 and bits.shape == (planes * 4,)  # 105 elements
    assert bench.layer.backward_needs([True], []) == Needs() != plain.layer.backward_needs([True], [])
    np.testing.assert_array_equal(bench.forward([x])[0], plain.forward([x])[0])
    (dx,), _ = bench.backward([dy])
    (expected,), _ = plain.backward([dy])
    assert dx.tobytes() == expected.tobytes()
    tops, written = bench.rematerialize() if not in_place else ([], {})
    for top in tops:
        np.testing.assert_array_equal(top, plain.forward([x])[0])
        assert written["bits"].tobytes() == bench.scratch["bits"].tobytes()


def test_without_backward_there_are_no_bits():
    bench = LayerBench("ReLU", "", ((2, 3),), needs_backward=False)
    bench.layer.update_context(saves_bits=True)
    bench.reshape([(2, 3)])
    assert not bench.layer.scratches
    np.testing.assert_array_equal(bench.forward([[[-1, 0, 2], [3, -4, 5]]])[0], [[0, 0, 2], [3, 0, 5]])
