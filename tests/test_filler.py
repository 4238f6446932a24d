"""Every filler against its definition, and every check."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.filler import FILLERS, fill, gabor_filters
from pycaffe_lms.proto import caffe_pb2
from pycaffe_lms.random import CaffeRandom

AVERAGE, FAN_IN, FAN_OUT = "AVERAGE", "FAN_IN", "FAN_OUT"


def filler(**fields):
    return caffe_pb2.FillerParameter(**fields)


def draw(shape, seed=1701, dtype=np.float32, **fields):
    return fill(filler(**fields), shape, dtype, CaffeRandom(seed))


def test_default_is_constant_zero():
    values = draw((2, 3))
    assert values.shape == (2, 3) and values.dtype == np.float32 and not values.any()


def test_constant():
    assert draw((), value=0.25).tolist() == 0.25
    values = draw((4,), value=-3, dtype=np.float64)
    assert values.dtype == np.float64 and values.tolist() == [-3] * 4 and values.flags.writeable


def test_uniform_takes_the_raw_stream_in_order():
    values = draw((2, 3), type="uniform", min=-1, max=2)
    raw = CaffeRandom(1701).raw(6) / 2.0**32
    assert values.ravel() == pytest.approx(raw * 3 - 1, abs=1e-6)


def test_gaussian_moments():
    values = draw((100, 500), type="gaussian", mean=1, std=0.5)
    assert abs(values.mean() - 1) < 0.01 and abs(values.std() - 0.5) < 0.01


@pytest.mark.parametrize("sparse, shape, share", [(3, (30, 400), 0.1), (0, (10, 50), 0.0), (10, (10, 50), 1.0)])
def test_sparse_gaussian_keeps_a_share_of_sparse_over_the_first_axis(sparse, shape, share):
    values = draw(shape, type="gaussian", sparse=sparse)
    assert abs((values != 0).mean() - share) < 0.01


def test_positive_unitball_sums_to_one_along_the_first_axis():
    values = draw((5, 2, 3), type="positive_unitball")
    assert (values >= 0).all()
    assert values.sum(axis=(1, 2)) == pytest.approx(np.ones(5), abs=1e-6)


@pytest.mark.parametrize(
    "shape, norm, n",
    [
        ((6, 4, 5, 5), FAN_IN, 100),
        ((6, 4, 5, 5), FAN_OUT, 150),
        ((6, 4, 5, 5), AVERAGE, 125),
        ((8,), FAN_IN, 1),
        ((8,), FAN_OUT, 8),
    ],
)
def test_xavier_and_msra_by_the_fan(shape, norm, n):
    bound = np.sqrt(3 / n)
    unit = draw(shape, type="uniform", min=-1, max=1)
    assert draw(shape, type="xavier", variance_norm=norm) == pytest.approx(unit * bound, abs=1e-6 * bound)
    normal = draw(shape, type="gaussian", std=1)
    assert draw(shape, type="msra", variance_norm=norm) == pytest.approx(normal * np.sqrt(2 / n), rel=1e-5)


def test_bilinear_of_four_is_the_outer_product_of_quarters():
    ramp = np.array([0.25, 0.75, 0.75, 0.25])
    values = draw((2, 3, 4, 4), type="bilinear")
    assert np.array_equal(values, np.broadcast_to(np.outer(ramp, ramp), (2, 3, 4, 4)))
    assert values[0, 0, 0, 0] == 1 / 16 and values[0, 0, 0, 1] == 3 / 16 and values[0, 0, 1, 1] == 9 / 16
    assert draw((1, 1, 3, 3), type="bilinear")[0, 0, 1, 1] == 1


@pytest.mark.parametrize("kind", FILLERS)
def test_an_empty_shape_is_refused(kind):
    with pytest.raises(LayerParamError, match="nothing to fill"):
        draw((3, 0, 2, 2), type=kind)


@pytest.mark.parametrize("kind", sorted(set(FILLERS) - {"gaussian"}))
def test_only_gaussian_may_be_sparse(kind):
    with pytest.raises(LayerParamError, match=f"a {kind} filler cannot be sparse"):
        draw((2, 2, 3, 3), type=kind, sparse=1)


@pytest.mark.parametrize(
    "shape, fields, message",
    [
        ((2,), {"type": "Xavier"}, 'no filler type "Xavier"; did you mean "xavier"'),
        ((2,), {"type": "uniform", "min": 1, "max": 0}, "cannot draw between 1 and 0"),
        ((2,), {"type": "uniform", "min": -3e38, "max": 3e38}, "cannot draw"),
        ((2,), {"type": "gaussian", "std": 0}, "std > 0"),
        ((2,), {"type": "gaussian", "sparse": 3}, "sparse 3"),
        ((2,), {"type": "gaussian", "sparse": -2}, "sparse -2"),
        ((), {"type": "xavier"}, "at least one axis"),
        ((2, 3, 4), {"type": "bilinear"}, "square kernel"),
        ((2, 3, 4, 5), {"type": "bilinear"}, "square kernel"),
    ],
)
def test_refused(shape, fields, message):
    with pytest.raises(LayerParamError, match=message) as caught:
        draw(shape, **fields)
    assert caught.value.fix


# 1 - |x / f - c|, f = ceil(width / 2), c = (2 f - 1 - f % 2) / (2 f)
RAMPS = {1: [1], 2: [1, 0], 3: [0.25, 0.75, 0.75], 4: [0.25, 0.75, 0.75, 0.25], 5: [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]}


@pytest.mark.parametrize("width, ramp", RAMPS.items())
def test_bilinear_3d_is_a_product_of_three_ramps(width, ramp):
    values = draw((2, 3, *(width,) * 3), type="bilinear_3D", dtype=np.float64)
    for z, y, x in np.ndindex(width, width, width):
        assert values[:, :, z, y, x] == pytest.approx(np.full((2, 3), ramp[z] * ramp[y] * ramp[x]), abs=1e-6)


@pytest.mark.parametrize("shape, given", [((2, 3, 1, 1), [20.0]), ((3, 2, 2, 5), [0.5, -3, 7]), ((2, 2), [])])
def test_diagonal_joins_each_output_with_its_input(shape, given):
    """diag_val, or 1 beyond its end, divided by the number of places of the kernel."""
    values, area = draw(shape, type="diagonal", diag_val=given, dtype=np.float64), np.prod(shape[2:])
    for o, i in np.ndindex(shape[:2]):
        wanted = ((given + [1.0] * 3)[i] / area) if o == i else 0
        assert values[o, i] == pytest.approx(np.full(shape[2:], wanted), abs=1e-7)


# Sums that the fork's own generator gives, compiled from its header: of value * cos(0.37 * place), of squares, of
# squares times the number of the filter.
GABOR = {
    (32, 5): (-1.3346464018147228, 51.330135249045135, 622.3837220972091),
    (64, 7): (-1.02305194186583, 279.0941072429875, 8888.097667049284),
    (64, 3): (-3.3102957687397323, 88.93611057361494, 2110.9177467612412),
    (96, 11): (-8.98055891109697, 176.26550425398875, 7367.795708538364),
}


@pytest.mark.parametrize("number, size", GABOR)
def test_gabor_filters_are_those_of_the_fork(number, size):
    values = gabor_filters(number, size)
    assert values.shape == (number, 3, size, size)
    squares = np.square(values).sum(axis=(1, 2, 3))
    found = (values.ravel() * np.cos(np.arange(values.size) * 0.37)).sum(), squares.sum(), squares @ np.arange(number)
    assert found == pytest.approx(GABOR[number, size], rel=1e-11)
    assert np.array_equal(draw(values.shape, type="gabor"), values.astype(np.float32))


@pytest.mark.parametrize(
    "kind, shape, message",
    [
        ("diagonal", (2, 2, 3, 3, 3), "a diagonal filler needs 2 to 4 axes"),
        ("diagonal", (4,), "a diagonal filler needs 2 to 4 axes"),
        ("gabor", (32, 3, 5, 7), "no gabor filters of the shape"),
        ("gabor", (32, 1, 5, 5), "no gabor filters of the shape"),
        ("gabor", (33, 3, 5, 5), "no gabor filters of the shape"),
        ("bilinear_3D", (1, 1, 2, 2), "a cubic kernel of 5 axes"),
        ("bilinear_3D", (1, 1, 2, 2, 3), "a cubic kernel of 5 axes"),
    ],
)
def test_shapes_that_fillers_of_forks_refuse(kind, shape, message):
    with pytest.raises(LayerParamError, match=message):
        draw(shape, type=kind)
