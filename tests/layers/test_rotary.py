"""RotaryEmbedding against ONNX's reference implementation, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient
from .onnx_reference import onnx_operator


def _rotary(fields, shape, **more):
    return Case("RotaryEmbedding", f"rotary_embedding_param {{ {fields} }}", (shape,), **more)


CASES: list[Case] = [
    _rotary("", (2, 5, 4)),
    _rotary("heads: 2 interleaved: true", (2, 3, 8)),
    _rotary("heads: 3 rotary_dim: 2", (1, 4, 15)),  # an odd number of values that stay
    _rotary("heads: 2 rotary_dim: 4 interleaved: true base: 500", (2, 3, 12)),
    _rotary("heads: 2", (2, 5, 8), in_place=True),
    _rotary("heads: 2", (0, 5, 8)),
    _rotary("heads: 4", (2, 70, 64)),
    Case("RotaryEmbedding", "rotary_embedding_param { heads: 2 }", ((2, 3, 8), (2, 3)), integer_bottoms=((1, 9),)),
]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-6)], ids=["f32", "f64"])
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.shapes[0][0] and not c.in_place and len(c.shapes) == 1], ids=str
)
def test_is_onnx_s_operator(case, dtype, tolerance):
    """It is handed tables of cosines and sines, here by position."""
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward([x])
    r = bench.layer.rotation
    angles = [[p / r.base ** (2 * i / r.turned) for i in range(r.turned // 2)] for p in range(r.positions)]
    n = x.shape[0]
    tables = [np.broadcast_to(f(angles), (n, r.positions, r.turned // 2)).astype(dtype) for f in (np.cos, np.sin)]
    attributes = {"interleaved": int(r.interleaved), "num_heads": r.heads}
    if r.turned != r.dim:
        attributes["rotary_embedding_dim"] = r.turned
    (expected,) = onnx_operator("RotaryEmbedding", [x.astype(dtype), *tables], 1, **attributes)
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100 and not c.in_place], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_far_positions_keep_their_angle_in_single_precision():
    bench = LayerBench("RotaryEmbedding", "", ((1, 100_001, 2),), dtype=np.float32)
    (y,) = bench.forward([np.tile(np.array([1.0, 0.0]), (1, 100_001, 1))])
    np.testing.assert_allclose(y[0, -1], [np.cos(1e5), np.sin(1e5)], atol=1e-6)


def test_positions_as_a_bottom_choose_rows_of_the_whole():
    x, places = np.random.default_rng(3).normal(size=(2, 3, 8)), np.array([[0, 5, 2], [6, 6, 1]])
    whole = LayerBench("RotaryEmbedding", "rotary_embedding_param { heads: 2 }", ((6, 7, 8),))
    (turned,) = whole.forward([np.repeat(x.reshape(6, 1, 8), 7, axis=1)])
    bench = CASES[-1].bench()
    (y,) = bench.forward([x, places])
    np.testing.assert_allclose(y.reshape(6, 8), turned[np.arange(6), places.ravel()], rtol=1e-13)
    assert bench.layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1}))
    with pytest.raises(ShapeError, match="there are"):
        LayerBench("RotaryEmbedding", "", ((2, 3, 8), (2, 4)))


def test_needs():
    layer = LayerBench("RotaryEmbedding", "", ((1, 2, 4),)).layer
    assert layer.backward_needs([True], []) == Needs() and layer.splits_over_batch


@pytest.mark.parametrize(
    "fields, shape, error, message",
    [
        ("heads: 3", (1, 2, 4), ShapeError, "not a multiple of heads 3"),
        ("rotary_dim: 3", (1, 2, 4), LayerParamError, "rotary_dim 3 is not an even number up to 4"),
        ("rotary_dim: 6", (1, 2, 4), LayerParamError, "rotary_dim 6 is not an even number up to 4"),
        ("base: 0", (1, 2, 4), LayerParamError, "base 0 is not positive"),
        ("", (2, 4), ShapeError, "not 3 axes"),
    ],
)
def test_refused(fields, shape, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("RotaryEmbedding", f"rotary_embedding_param {{ {fields} }}", (shape,))
