"""LocallyConnected against loops and a Convolution of equal weights, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

TYPE = "LocallyConnected"
FILLERS = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
FIELDS = "locally_connected_param {{ {} " + FILLERS.replace("{", "{{").replace("}", "}}") + " }}"
CASES: list[Case] = [
    Case(TYPE, FIELDS.format("num_output: 3 kernel_size: 3 pad: 1 stride: 2"), ((2, 2, 5, 4),)),
    Case(TYPE, FIELDS.format("num_output: 2 kernel_size: 2 bias_term: false"), ((3, 3, 4, 5),)),
    Case(TYPE, FIELDS.format("num_output: 4 kernel_size: 1"), ((2, 3, 3, 3),)),
    Case(TYPE, "locally_connected_param { num_output: 2 kernel_size: 2 }", ((1, 2, 2, 3),)),
    Case(TYPE, FIELDS.format("num_output: 2 kernel_size: 3"), ((0, 1, 3, 3),)),
]


def _loop(x, w, b, p):
    """Each output by itself, of a map with zeros around it."""
    x = np.pad(x.astype(float), ((0, 0), (0, 0), (p.pad, p.pad), (p.pad, p.pad)))
    out = [(size - p.kernel_size) // p.stride + 1 for size in x.shape[2:]]
    y = np.zeros((len(x), len(w), *out))
    for n, m, h, v in np.ndindex(*y.shape):
        place = h * out[1] + v
        window = x[n, :, h * p.stride :, v * p.stride :][:, : p.kernel_size, : p.kernel_size]
        y[n, m, h, v] = window.reshape(-1) @ w[m, 0, :, place].astype(float)
        y[n, m, h, v] += 0 if b is None else b[0, 0, m, place]
    return y


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_is_the_loop(case, dtype, tolerance):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    w, b = (*bench.params, None)[:2]
    y = _loop(x.astype(dtype), w, b, bench.layer.param.locally_connected_param)
    np.testing.assert_allclose(bench.forward([x.astype(dtype)])[0], y, rtol=tolerance, atol=tolerance)


def test_with_equal_weights_everywhere_it_is_a_convolution():
    rng, shape = np.random.default_rng(4), (2, 3, 6, 5)
    local = LayerBench(TYPE, FIELDS.format("num_output: 4 kernel_size: 3 pad: 1 stride: 2"), (shape,))
    window = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 }"
    convolution = LayerBench("Convolution", window, (shape,))
    w, b, x = rng.normal(size=(4, 3, 3, 3)), rng.normal(size=4), rng.normal(size=shape)
    convolution.params = [w, b]
    local.params[0][...] = w.reshape(4, 1, 27, 1)
    local.params[1][...] = b.reshape(1, 1, 4, 1)
    (y,), (expected,) = local.forward([x]), convolution.forward([x])
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
    dy = rng.normal(size=y.shape)
    ((dx,), (dw, db)), ((other_dx,), (other_dw, other_db)) = local.backward([dy]), convolution.backward([dy])
    np.testing.assert_allclose(dx, other_dx, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dw.sum(axis=-1).reshape(w.shape), other_dw, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(db.sum(axis=-1).reshape(4), other_db, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(5)))


@pytest.mark.parametrize(
    "fields, shape, error",
    [
        ("kernel_size: 1", (1, 1, 2, 2), LayerParamError),
        ("num_output: 1", (1, 1, 2, 2), LayerParamError),
        ("num_output: 1 kernel_size: 1 stride: 0", (1, 1, 2, 2), LayerParamError),
        ("num_output: 1 kernel_size: 3", (1, 1, 2, 4), ShapeError),
        ("num_output: 1 kernel_size: 1", (1, 2, 2), ShapeError),
    ],
)
def test_refused(fields, shape, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(TYPE, FIELDS.format(fields), (shape,))


def test_maps_of_another_size_are_refused():
    bench = CASES[1].bench()
    with pytest.raises(ShapeError, match=r"maps of \(3, 4, 6\), but the weights are for \(3, 4, 5\)"):
        bench.layer.infer_shapes([(3, 3, 4, 6)])
