"""SpatialTransformer against a loop, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

TYPE = "SpatialTransformer"
FIELDS = "st_param {{ {} }}"
SHIFT = "theta_1_1: 0.8 theta_1_2: 0.1 theta_2_1: -0.2 theta_2_2: 1.3"


def drawn(rng, shapes):
    """Draw a map and numbers near those that change nothing."""
    same = np.array([1.0, 0, 0, 0, 1, 0])[: shapes[1][1]] if shapes[1][1] == 6 else np.zeros(shapes[1][1])
    return [rng.normal(size=shapes[0]), (same + 0.3 * rng.normal(size=(shapes[1][0], shapes[1][1]))).reshape(shapes[1])]


CASES: list[Case] = [
    Case(TYPE, "", ((2, 3, 5, 6), (2, 6)), maker=drawn),
    Case(TYPE, FIELDS.format("output_H: 4 output_W: 7"), ((2, 2, 6, 5), (2, 6, 1, 1)), maker=drawn),
    Case(TYPE, FIELDS.format(f"{SHIFT} output_W: 9"), ((3, 2, 6, 7), (3, 2)), maker=drawn),
    Case(TYPE, FIELDS.format("theta_1_3: 0.25 theta_2_3: -0.5"), ((1, 2, 20, 24), (1, 4)), maker=drawn),
]


def loop(x, theta, constants, size):
    """Return the formula: each output is a sum over all inputs."""
    n, c, height, width = x.shape
    y = np.zeros((n, c, *size))
    for i in range(n):
        given = iter(theta.reshape(n, -1)[i])
        m = [next(given) if k is None else k for k in constants]
        for p, q in np.ndindex(*size):
            g, k = p / size[0] * 2 - 1, q / size[1] * 2 - 1
            u, v = (m[0] * g + m[1] * k + m[2] + 1) / 2 * height, (m[3] * g + m[4] * k + m[5] + 1) / 2 * width
            rows = np.maximum(0, 1 - np.abs(u - np.arange(height)))
            columns = np.maximum(0, 1 - np.abs(v - np.arange(width)))
            y[i, :, p, q] = rows @ x[i] @ columns
    return y


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_a_loop(case, dtype, tolerance):
    bench, (x, theta) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    p = bench.layer.param.st_param
    names = [f"theta_{i}_{j}" for i in (1, 2) for j in (1, 2, 3)]
    constants = [float(getattr(p, name)) if p.HasField(name) else None for name in names]
    wanted = loop(x.astype(dtype), theta.astype(dtype), constants, bench.top_shapes[0][2:])
    np.testing.assert_allclose(bench.forward([x, theta])[0], wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(5)), eps=1e-6)


def test_the_identity_changes_nothing():
    bench, x = LayerBench(TYPE, "", ((1, 2, 5, 6), (1, 6))), np.random.default_rng(1).normal(size=(1, 2, 5, 6))
    np.testing.assert_allclose(bench.forward([x, [[1, 0, 0, 0, 1, 0]]])[0], x, rtol=1e-14, atol=1e-15)


def test_places_far_away_are_zero():
    bench, x = LayerBench(TYPE, "", ((1, 1, 3, 3), (1, 6))), np.ones((1, 1, 3, 3))
    for theta in ([1, 0, 9, 0, 1, 0], [np.nan, 0, 0, 0, 1, 0], [1e300, 0, 3e300, 0, 1, 0]):
        assert not bench.forward([x, [theta]])[0].any()
        assert not any(g.any() for g in bench.backward([x])[0])


def test_a_transformation_without_inverse():
    bench, x = LayerBench(TYPE, "", ((1, 1, 3, 4), (1, 6))), np.arange(12.0).reshape(1, 1, 3, 4)
    assert (bench.forward([x, [[0, 0, 0, 0, 0, 0]]])[0] == 8).all()  # row 1.5, column 2
    dx = bench.backward([np.ones((1, 1, 3, 4))])[0][0]
    assert dx[0, 0, :, 2].tolist() == [0, 6, 6] and dx.sum() == 12


def test_no_gradient_of_the_map_where_none_is_wanted():
    bench = LayerBench(TYPE, FIELDS.format("to_compute_dU: false"), ((1, 1, 3, 4), (1, 6)))
    bottoms = drawn(np.random.default_rng(1), ((1, 1, 3, 4), (1, 6)))
    (y,) = bench.forward(bottoms)
    dx, dtheta = bench.backward([np.ones(y.shape)])[0]
    assert not dx.any() and dtheta.all()


@pytest.mark.parametrize(
    "fields, shapes, error",
    [
        ('transform_type: "tps"', ((1, 2, 5, 5), (1, 6)), LayerParamError),
        ('sampler_type: "nearest"', ((1, 2, 5, 5), (1, 6)), LayerParamError),
        ("output_H: 0", ((1, 2, 5, 5), (1, 6)), LayerParamError),
        ("theta_1_1: 1", ((1, 2, 5, 5), (1, 6)), ShapeError),
        ("", ((1, 2, 5, 5), (2, 6)), ShapeError),
        ("", ((1, 2, 5), (1, 6)), ShapeError),
    ],
)
def test_refused(fields, shapes, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(TYPE, FIELDS.format(fields), shapes)
