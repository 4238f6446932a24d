"""Windows have several spellings (one value, one per axis, _h and _w, _shape): the same numbers for each."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError

from .case_run import Run
from .cases import Case

_SQUARE = ("kernel_size: 3 pad: 1 stride: 2", "kernel_size: 3 kernel_size: 3 pad: 1 pad: 1 stride: 2 stride: 2")
_SIDES = "kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 stride_h: 1 stride_w: 2"
_AXES = "kernel_size: 3 kernel_size: 2 pad: 1 pad: 0 stride: 1 stride: 2"
_CUBE = "kernel_shape { dim: 3 } pad_shape { dim: 1 } stride_shape { dim: 2 }"
_SHAPES = "kernel_shape { dim: 3 dim: 2 } pad_shape { dim: 1 dim: 0 } stride_shape { dim: 1 dim: 2 }"

SAME = [
    (kind, f"convolution_param {{ {more} {a} }}", f"convolution_param {{ {more} {b} }}")
    for kind, more in (
        ("Convolution", "num_output: 4 group: 2"),
        ("Deconvolution", "num_output: 4 group: 2"),
        ("DepthwiseConvolution", "num_output: 4"),
        ("ConvolutionDepthwise", "num_output: 4"),
        ("NdConvolution", "num_output: 4 group: 2"),
        ("Im2col", ""),
    )
    for a, b in (_SQUARE, (_SIDES, _AXES), (_SHAPES, _AXES))
] + [
    (kind, f"pooling_param {{ pool: {pool} {a} }}", f"pooling_param {{ pool: {pool} {b} }}")
    for kind in ("Pooling", "NdPooling")
    for pool in ("MAX", "AVE")
    for a, b in ((_SIDES, _SHAPES), (_SQUARE[0], _CUBE))
]
_SHAPE = ((2, 4, 5, 7),)
CASES: list[Case] = [Case(kind, text, _SHAPE) for kind, text, _ in SAME if "_h" in text or "_shape" in text]


@pytest.mark.parametrize("kind, one, other", SAME)
def test_both_spellings_give_the_same_numbers(kind, one, other):
    runs = [Run(Case(kind, text, _SHAPE)) for text in (one, other)]
    (a,), (b,) = (run.forward() for run in runs)
    np.testing.assert_array_equal(a, b)
    gradients = [run.backward(run.top_diffs()) for run in runs]
    assert gradients[0].keys() == gradients[1].keys()
    for target in gradients[0]:
        np.testing.assert_array_equal(gradients[0][target], gradients[1][target])


@pytest.mark.parametrize(
    "kind, message, more",
    [
        ("Convolution", "convolution_param", "num_output: 4 kernel_size: 3"),
        ("Deconvolution", "convolution_param", "num_output: 4 kernel_size: 3"),
        ("Im2col", "convolution_param", "kernel_size: 3"),
    ],
)
@pytest.mark.parametrize(
    "one, both",
    [
        ("stride_h: 2", "stride_h: 2 stride_w: 1"),
        ("stride_w: 2", "stride_h: 1 stride_w: 2"),
        ("pad_h: 1", "pad_h: 1 pad_w: 0"),
        ("pad_w: 1", "pad_h: 0 pad_w: 1"),
    ],
)
def test_a_missing_partner_counts_as_not_given(kind, message, more, one, both):
    """As in Caffe for a pad, whose default is 0. For a stride Caffe takes 0, too, and divides by it."""
    a, b = (Run(Case(kind, f"{message} {{ {more} {text} }}", _SHAPE)).forward()[0] for text in (one, both))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["Pooling", "NdPooling"])
@pytest.mark.parametrize("given, missing", [("h", "w"), ("w", "h")])
@pytest.mark.parametrize("field, kernel", [("kernel", ""), ("stride", "kernel_size: 3"), ("pad", "kernel_size: 3")])
def test_pooling_refuses_one_without_its_partner(kind, field, kernel, given, missing):
    """The checks of Caffe's pooling_layer.cpp: both or neither."""
    text = f"pooling_param {{ {kernel} {field}_{given}: 2 }}"
    with pytest.raises(LayerParamError, match=rf"has {field}_{given} but no {field}_{missing}") as caught:
        Run(Case(kind, text, _SHAPE))
    assert caught.value.fix == f"add {field}_{missing}, or use {'kernel_size' if field == 'kernel' else field} for both"
