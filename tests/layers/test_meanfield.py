"""MultiStageMeanfield: its lattice by hand and beside Gaussians, the fork's numbers, gradients, a net under LMS."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pycaffe_lms import TRAIN, Net
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.coord_map import crop
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.layers.conv.permutohedral import Lattice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net import weights
from pycaffe_lms.net_spec import layers as L

from .cases import Case
from .harness import LayerBench, check_gradient


def _text(more="", steps=2, alpha=4, beta=30, gamma=2):
    return (
        f"multi_stage_meanfield_param {{ num_iterations: {steps} theta_alpha: {alpha} theta_beta: {beta} "
        f"theta_gamma: {gamma} {more} }}"
    )


def _scene(rng, shapes):
    """Scores, and pictures of two colours with some noise."""
    unary, _, pictures = shapes
    half = np.where(np.arange(pictures[-1]) < pictures[-1] / 2, 40.0, 160.0)
    return [rng.normal(size=unary), rng.normal(size=unary), half + rng.normal(size=pictures) * 10]


HOST_CASES = [
    Case("MultiStageMeanfield", _text(), ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5)), maker=_scene),
    Case("MultiStageMeanfield", _text(steps=1), ((1, 2, 3, 3), (1, 2, 3, 3), (1, 3, 3, 3)), maker=_scene),
]


def simplex(point):
    """Return {corner: share} of the simplex of the lattice that a point (d + 1 numbers that add up to 0) lies in.

    Tries every corner whose coordinates are multiples of d + 1, until the point is a mean of the corners that belong to
    it. A corner of remainder k is that one plus k, less d + 1 in the k coordinates that come last.
    """
    size = len(point)
    low = np.floor(point / size)
    for up in itertools.product((0, 1), repeat=size):
        first = (low + up) * size
        if first.sum() != 0:
            continue
        order = np.argsort(-(point - first), kind="stable")  # the coordinate that is farthest above comes first
        corners = []
        for k in range(size):
            corner = first + k
            corner[order[size - k :]] -= size
            corners.append(corner)
        shares = np.linalg.lstsq(np.array([*np.transpose(corners), np.ones(size)]), [*point, 1], rcond=None)[0]
        if (shares > -1e-9).all() and np.allclose(shares @ corners, point, atol=1e-9):
            return {tuple(int(v) for v in c): s for c, s in zip(corners, shares, strict=True)}
    raise AssertionError("no simplex")


def lattice_loop(features, x):
    """Return filtered x (C, N), one point and one corner at a time."""
    d = features.shape[1]
    basis = np.zeros((d + 1, d))  # axes of the plane of the lattice
    for i in range(d):
        basis[: i + 1, i], basis[i + 1, i] = 1, -(i + 1)
    scale = (d + 1) * np.sqrt(2 / 3) / np.sqrt([(i + 1) * (i + 2) for i in range(d)])
    places = [simplex(basis @ (f * scale)) for f in features]
    corners = sorted({corner for place in places for corner in place})

    def run(values):
        held = dict.fromkeys(corners, 0.0)
        for place, value in zip(places, values, strict=True):
            for corner, share in place.items():
                held[corner] += share * value
        for axis in range(d + 1):
            step = np.ones(d + 1, int)
            step[axis] = -d
            around = {c: [tuple(int(v) for v in c + sign * step) for sign in (-1, 1)] for c in corners}
            held = {c: held[c] / 2 + sum(held.get(n, 0.0) for n in around[c]) / 4 for c in corners}
        return np.array([sum(share * held[c] for c, share in place.items()) for place in places])

    return np.array([run(row) for row in x]) / run(np.ones(len(features)))


def _features(d, points=40):
    rng = np.random.default_rng(d)
    return rng.normal(size=(points, d)) * 1.5, rng.normal(size=(3, points))


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_lattice_is_the_loop(d):
    features, x = _features(d)
    lattice = Lattice(features, np.dtype(np.float64))
    np.testing.assert_allclose(lattice.apply(x), lattice_loop(features, x), atol=1e-12)
    np.testing.assert_allclose(lattice.weights.sum(axis=1), 1)
    np.testing.assert_allclose(lattice.apply(np.ones((1, 40))), 1)


@pytest.mark.parametrize("d", [2, 5])
def test_the_transposed_filter_is_its_matrix_turned(d):
    features, _ = _features(d, 25)
    lattice = Lattice(features, np.dtype(np.float64))
    matrix = lattice.apply(np.eye(25))  # row i: what the others get of point i
    np.testing.assert_allclose(lattice.transposed(np.eye(25)), matrix.T, atol=1e-14)
    assert np.abs(matrix - matrix.T).max() > 1e-3


def test_the_lattice_is_close_to_gaussian_weights():
    """Its kernel is made of straight pieces, so means of numbers in 0..1 differ by some hundredths from exact ones."""
    y, x = np.mgrid[:16, :20].reshape(2, -1)
    rng = np.random.default_rng(0)
    colours = (
        np.repeat(rng.uniform(0, 255, (3, 4)), 5, axis=1)[:, None].repeat(16, 1) + rng.normal(size=(3, 16, 20)) * 3
    )
    values = np.stack([rng.uniform(size=320), (x > 9).astype(float)])
    for features, most in (
        (np.stack([x, y], axis=1) / 3, 0.03),
        (np.column_stack([x / 20, y / 20, *(colours.reshape(3, -1) / 40)]), 0.06),
    ):
        squares = ((features[:, None] - features) ** 2).sum(axis=2)
        exact = np.exp(-squares / 2)
        exact /= exact.sum(axis=1, keepdims=True)
        found, expected = Lattice(features, np.dtype(np.float64)).apply(values), values @ exact.T
        assert np.abs(found - expected).max() < most
        assert np.ptp(expected) > 0.5  # a mean over all points would be far away


def test_threads_and_types(monkeypatch):
    """Each channel is filtered by itself: the bits do not depend on how many there are, and float32 rounds alone."""
    features, x = _features(5)
    lattice = Lattice(features, np.dtype(np.float64))
    np.testing.assert_array_equal(lattice.apply(x), np.concatenate([lattice.apply(row[None]) for row in x]))
    single = Lattice(features, np.dtype(np.float32)).apply(x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, lattice.apply(x), atol=1e-6)


# modified_permutohedral.cpp of Seaball/crfasrnn_newercaffe c30d104 (torrvision's), compiled, within the formula:
# pixels 0, 7, 14, 21, 28; classes.
RECORDED = [
    [6.4162, 2.3470, 2.8979],
    [4.8237, 0.4655, 1.9749],
    [4.1042, -1.4454, 0.0385],
    [4.2952, -2.6989, -1.8256],
    [5.5959, -2.6717, -3.0512],
]
MATRICES = [
    [[3, 0.5, 0], [0, 2, 1], [-0.5, 0, 1]],
    [[5, 0, 1], [0, 4, 0], [0.5, 0, 3]],
    [[-1, 0.2, 0], [0, -1, 0.3], [0.1, 0, -1]],
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_of_the_fork(dtype):
    i = np.arange(90).reshape(1, 3, 5, 6)
    bottoms = [3 * np.sin(i * 1.7), 2 * np.sin(i * 0.9 + 1), 60 * np.sin(i * 0.35) + 100]
    bench = LayerBench("MultiStageMeanfield", _text(steps=3), (i.shape,) * 3, dtype=dtype)
    bench.params = [np.array(m, dtype)[None, None] for m in MATRICES]
    (y,) = bench.forward(bottoms)
    np.testing.assert_allclose(y.reshape(3, -1)[:, ::7].T, RECORDED, atol=7e-5)


@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_gradients(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(0)), tol=1e-7)


def test_first_parameters():
    more = 'spatial_filter_weights_str: "3 2.5, 1" bilateral_filter_weight: 5 '
    more += "forced_spatial_filter_weight: 7 forced_bilateral_filter_weight: 8"  # nothing reads these
    layer = LayerBench("MultiStageMeanfield", _text(more), ((1, 3, 2, 2),) * 3).layer
    found = [param.values for param in layer.params]
    assert [f.shape for f in found] == [(1, 1, 3, 3)] * 3
    for values, diagonal in zip(found, ([3, 2.5, 1], [5, 5, 5], [-1, -1, -1]), strict=True):
        np.testing.assert_array_equal(values[0, 0], np.diag(diagonal))


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        (_text(steps=0), ((1, 3, 2, 2),) * 3, LayerParamError, "num_iterations is 0"),
        (_text(beta=-1), ((1, 3, 2, 2),) * 3, LayerParamError, "theta_beta is -1"),
        (_text('spatial_filter_weights_str: "1 2"'), ((1, 3, 2, 2),) * 3, LayerParamError, "2 numbers for 3 classes"),
        (_text('bilateral_filter_weights_str: "a"'), ((1, 3, 2, 2),) * 3, LayerParamError, "weights_str is 'a'"),
        (_text(), ((1, 3, 2, 2), (1, 3, 2, 3), (1, 3, 2, 2)), ShapeError, '"b1"'),
        (_text(), ((1, 2, 2, 2), (1, 2, 2, 2), (1, 1, 2, 2)), ShapeError, '"b2"'),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("MultiStageMeanfield", text, shapes)


NET = """
layer { name: "in" type: "Input" top: "data" top: "label"
  input_param { shape { dim: [2, 3, 6, 7] } shape { dim: [2, 1, 6, 7] } } }
layer { name: "score" type: "Convolution" bottom: "data" top: "score"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "split" type: "Split" bottom: "score" top: "unary" top: "Q0" }
layer { name: "inference1" type: "MultiStageMeanfield" bottom: "unary" bottom: "Q0" bottom: "data" top: "pred"
  param { lr_mult: 10000 } param { lr_mult: 10000 } param { lr_mult: 1000 }
  multi_stage_meanfield_param { num_iterations: 3 compatibility_mode: POTTS threshold: 2 theta_alpha: 160
    theta_beta: 3 theta_gamma: 3 spatial_filter_weight: 3 bilateral_filter_weight: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "pred" bottom: "label" top: "loss" }
"""


def _run(**options):
    net = Net(parse_net(NET).message, TRAIN, seed=3, **options)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(2):
        net.blobs["data"].data[...] = rng.uniform(0, 255, (2, 3, 6, 7))
        net.blobs["label"].data[...] = rng.integers(0, 4, (2, 1, 6, 7))
        net.clear_param_diffs()
        net.forward()
        net.backward()
        found += [net.blobs["pred"].data.copy(), *(p.diff.copy() for ps in net.params.values() for p in ps)]
    return net, found


def test_in_a_net_with_and_without_lms():
    """The layer of CRF-RNN's public prototxt; the same bits on every device, with LMS and without."""
    _, plain = _run()
    assert all(np.abs(values).max() > 0 for values in plain)
    for order in ("latest", "random"):
        for lms in (None, LMSConfig(threshold_kb=0.1)):
            _, found = _run(device=SimDevice(64 << 20, order=order), lms=lms)
            assert all(map(np.array_equal, plain, found))


def test_offsets_of_the_forks_crops():
    """The net before the field, FCN-8s of torrvision/crfasrnn: what docs/differences.md says to write."""

    def conv(x, size, pad=0):
        return L.Convolution(x, num_output=2, kernel_size=size, pad=pad)

    def up(x, size, stride):
        return L.Deconvolution(x, convolution_param={"num_output": 2, "kernel_size": size, "stride": stride})

    data = L.Input(shape={"dim": [1, 3, 500, 500]})
    pools = [data]
    for i in range(5):
        x = conv(conv(pools[-1], 3, pad=1 if i else 100), 3, pad=1)
        pools.append(L.Pooling(x, pool=0, kernel_size=2, stride=2))
    score2 = up(conv(conv(conv(pools[5], 7), 1), 1), 4, 2)
    pool4 = crop(conv(pools[4], 1), score2)
    score4 = up(L.Eltwise(score2, pool4), 4, 2)
    pool3 = crop(conv(pools[3], 1), score4)
    coarse = crop(up(L.Eltwise(score4, pool3), 16, 8), data)
    assert [top.fn.params["crop_param"]["offset"] for top in (pool4, pool3, coarse)] == [[5], [9], [31]]


def test_weights_of_a_file(tmp_path):
    net, _ = _run()
    for param, matrix in zip(net.params["inference1"], (2, 4, -3), strict=True):
        param.data[...] = np.arange(16).reshape(1, 1, 4, 4) * matrix
    net.save(tmp_path / "w.caffemodel")
    other, _ = _run()
    weights.copy_from(other, tmp_path / "w.caffemodel", must_match=True)
    for ours, theirs in zip(net.params["inference1"], other.params["inference1"], strict=True):
        np.testing.assert_array_equal(ours.data, theirs.data)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=0.1)])
def test_on_a_gpu_its_bits_are_those_of_the_cpu(lms):
    text = NET.replace('bottom: "unary" bottom: "Q0"', 'bottom: "data4" bottom: "data4"')
    text = text.replace('top: "data"', 'top: "data4" top: "data"').replace(
        "shape {", "shape { dim: [2, 4, 6, 7] } shape {", 1
    )
    found = []
    for device in (None, get_device("cuda")):
        net = Net(parse_net(text).message, TRAIN, seed=3, device=device, lms=lms if device else None)
        rng = np.random.default_rng(1)
        for name in ("data4", "data"):
            net.blobs[name].data[...] = rng.uniform(0, 255, net.blobs[name].shape)
        net.forward()
        found.append(net.blobs["pred"].data.copy())
    np.testing.assert_array_equal(*found)
