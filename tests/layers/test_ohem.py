"""Online hard example mining: losses of single items, and BoxAnnotatorOHEM against a loop; together in a net."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms import TRAIN, Net
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DataError, LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import LayerBench
from .test_smooth_l1_loss import loop

PARAM = "box_annotator_ohem_param { roi_per_img: 3 ignore_label: -7 }"


def _regions(rng, shapes):
    """Regions of two images, losses with equal ones among them, labels and weights."""
    made = [rng.normal(size=s) for s in shapes]
    made[0][:, 0] = rng.integers(2, size=made[0][:, 0].shape)
    made[1] = rng.integers(5, size=shapes[1]).astype(np.float64)
    made[2] = rng.integers(1, 4, size=shapes[2]).astype(np.float64)
    return made


HOST_CASES = [
    Case("BoxAnnotatorOHEM", PARAM, ((12, 5), (12,), (12,), (12, 8)), n_top=2, maker=_regions),
    Case("BoxAnnotatorOHEM", PARAM, ((4, 5, 2, 3), *((4, 1, 2, 3),) * 2, (4, 8, 2, 3)), n_top=2, maker=_regions),
]
SMOOTH = [
    Case("SmoothL1LossOHEM", "", ((3, 4, 2, 2),) * 3, n_top=2),
    Case("SmoothL1LossOHEM", "loss_param { normalization: FULL }", ((3, 4, 1, 5),) * 2),
    Case("SmoothL1LossOHEM", "loss_param { normalization: BATCH_SIZE }", ((3, 4, 2, 2),) * 3, n_top=2),
    Case("SmoothL1LossOHEM", "loss_param { normalize: false }", ((3, 4, 2, 2),) * 2, n_top=2),
    Case("SmoothL1LossOHEM", "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 5 }", ((3, 4),) * 3),
    Case("SmoothL1LossOHEM", "smooth_l1_loss_param { sigma: 2 } loss_param { normalization: NONE }", ((3, 4),) * 2),
    Case("SmoothL1Loss", "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 5 }", ((3, 4),) * 4, n_top=2),
    Case("SmoothL1Loss", "loss_param { normalization: VALID }", ((3, 4, 2, 3),) * 4),
    Case("SmoothL1Loss", "", ((300, 7, 5),) * 4, n_top=2),
]
SOFTMAX = [
    Case("SoftmaxWithLossOHEM", "", ((5, 4), (5,)), n_top=3, integer_bottoms=((1, 4),)),
    Case(
        "SoftmaxWithLossOHEM",
        "loss_param { ignore_label: 2 }",
        ((2, 4, 3, 2), (2, 1, 3, 2)),
        n_top=3,
        integer_bottoms=((1, 4),),
    ),
    Case(
        "SoftmaxWithLossOHEM",
        "loss_param { ignore_label: 0 normalization: BATCH_SIZE }",
        ((6, 4), (6,)),
        integer_bottoms=((1, 4),),
    ),
    Case("SoftmaxWithLoss", "softmax_param { axis: 2 }", ((2, 3, 4), (2, 3)), n_top=3, integer_bottoms=((1, 4),)),
    Case("SoftmaxWithLoss", "", ((900, 70), (900, 1, 1, 1)), n_top=3, integer_bottoms=((1, 70),)),
]
CASES = SMOOTH + SOFTMAX
DTYPES = pytest.mark.parametrize("dtype, tolerance", [(np.float32, 3e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
_DIVISORS = {"FULL": (1, 1), "VALID": (1, 1), "BATCH_SIZE": (1, 0), "normalize: false": (1, 0), "NONE": (0, 0)}


def _divisor(case, items, places):
    if "PRE_FIXED" in case.text:
        return 5
    found = [powers for name, powers in _DIVISORS.items() if name in case.text]
    powers = found[0] if found else (1, case.type.endswith("OHEM"))
    return items ** powers[0] * places ** powers[1]


@DTYPES
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_smooth_l1_of_items(case, dtype, tolerance):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    loss, *items = bench.forward(bottoms)
    sigma = 2 if "sigma" in case.text else 1
    shape = case.shapes[0]
    places = math.prod(shape[2:])
    expected = np.zeros((shape[0], places))
    for n, place in np.ndindex(expected.shape):
        expected[n, place] = loop([b.reshape(*shape[:2], -1)[n, :, place] for b in bottoms], sigma)[0]
    divisor = _divisor(case, shape[0], places)
    assert float(loss) == pytest.approx(expected.sum() / divisor, rel=10 * tolerance)
    for top in items:
        assert top.shape == (shape[0], 1, *shape[2:], *(1,) * (4 - len(shape)))
        np.testing.assert_allclose(top.reshape(expected.shape), expected, rtol=tolerance, atol=tolerance)
    _, slopes = loop(bottoms, sigma)
    (da, *_), _ = bench.backward([np.array(0.5), *(t * 0 for t in items)])
    np.testing.assert_allclose(da.reshape(-1), 0.5 * slopes / divisor, rtol=10 * tolerance, atol=tolerance)


@DTYPES
@pytest.mark.parametrize("case", SOFTMAX, ids=str)
def test_softmax_of_items(case, dtype, tolerance):
    bench, (x, labels) = case.bench(dtype), case.make_bottoms(np.random.default_rng(2))
    loss, *others = bench.forward([x, labels])
    axis = 2 if "axis" in case.text else 1
    scores = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    ignored = {"ignore_label: 2": 2, "ignore_label: 0": 0}.get(case.text[13:28].strip())
    expected = []
    for row, label in zip(scores, labels.reshape(-1).astype(int), strict=True):
        expected.append(0.0 if label == ignored else math.log(sum(math.exp(v - row[label]) for v in row)))
    counted = len(x) if "BATCH_SIZE" in case.text else int((labels != ignored).sum())
    assert float(loss) == pytest.approx(sum(expected) / counted, rel=tolerance)
    if others:
        assert others[1].shape == labels.shape
        np.testing.assert_allclose(others[1].reshape(-1), expected, rtol=tolerance, atol=tolerance)


def test_a_label_that_is_no_class():
    bench = LayerBench("SoftmaxWithLossOHEM", "", ((3, 2), (3,)), n_top=3)
    assert np.isnan(bench.forward([np.zeros((3, 2)), [0, 2, 1]])[2]).tolist() == [False, True, False]


@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_annotator_is_the_loop(case):
    rois, losses, labels, weights = case.make_bottoms(np.random.default_rng(3))
    kept, marked = case.bench().forward([rois, losses, labels, weights])
    regions, places = len(rois), math.prod(case.shapes[0][2:])
    image = [int(rois.reshape(regions, 5, places)[n, 0, s]) for n in range(regions) for s in range(places)]
    left, loss = {0: 3, 1: 3}, losses.reshape(-1)
    want_labels, want_weights = np.full(regions * places, -7.0), np.zeros((regions, 8, places))
    for i in sorted(range(len(loss)), key=lambda i: (-loss[i], i)):
        if left[image[i]]:
            left[image[i]] -= 1
            want_labels[i] = labels.reshape(-1)[i]
            want_weights[i // places, :, i % places] = weights.reshape(regions, 8, places)[i // places, :, i % places]
    shape = (*case.shapes[0][2:], 1, 1)[:2]
    assert kept.shape == (regions, 1, *shape) and marked.shape == (regions, 8, *shape)
    assert np.array_equal(kept.reshape(-1), want_labels) and np.array_equal(
        marked.reshape(want_weights.shape), want_weights
    )


def test_ignore_label_is_minus_one():
    bench = LayerBench(
        "BoxAnnotatorOHEM", "box_annotator_ohem_param { roi_per_img: 1 }", ((2, 5), (2,), (2,), (2, 4)), 2
    )
    kept, _ = bench.forward([np.zeros((2, 5)), [1, 2], [5, 6], np.ones((2, 4))])
    assert kept.reshape(-1).tolist() == [-1, 6]


SHAPES = ((4, 5), (4,), (4,), (4, 8))


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("", SHAPES, LayerParamError, "has no roi_per_img"),
        (PARAM, ((4, 4), *SHAPES[1:]), ShapeError, r'"b0".*\(4, 5, 1, 1\)'),
        (PARAM, (SHAPES[0], (3,), *SHAPES[2:]), ShapeError, r'"b1".*\(4, 1, 1, 1\)'),
        (PARAM, (*SHAPES[:3], (4, 8, 2, 2)), ShapeError, r'"b3".*\(4, 8, 1, 1\)'),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'(?s)layer "l".*{message}'):
        LayerBench("BoxAnnotatorOHEM", text, shapes, 2)


@pytest.mark.parametrize("number", [-1, np.nan, np.inf])
def test_a_region_without_image_is_refused(number):
    bench = LayerBench("BoxAnnotatorOHEM", PARAM, SHAPES, 2)
    rois = np.zeros((4, 5))
    rois[2, 0] = number
    with pytest.raises(DataError, match='layer "l".*has no image'):
        bench.forward([rois, *map(np.zeros, SHAPES[1:])])


def test_other_losses_refuse_what_they_lack():
    with pytest.raises(ShapeError, match="losses of items have 4 axes"):
        LayerBench("SmoothL1Loss", "", ((2, 3, 1, 1, 1),) * 2, 2)
    weighed = "loss_param { weight_by_label_freqs: true class_weighting: [1, 2] }"
    with pytest.raises(LayerParamError, match="weights and a third top"):
        LayerBench("SoftmaxWithLoss", weighed, ((2, 2), (2,)), 3)


TRAIN_NET = """
layer { name: "in" type: "Input" top: "x" top: "rois" top: "labels" top: "targets" top: "weights"
  input_param { shape { dim: 12 dim: 6 } shape { dim: 12 dim: 5 } shape { dim: 12 dim: 1 dim: 1 dim: 1 }
                shape { dim: 12 dim: 8 dim: 1 dim: 1 } shape { dim: 12 dim: 8 dim: 1 dim: 1 } } }
layer { name: "hidden" type: "InnerProduct" bottom: "x" top: "h"
  inner_product_param { num_output: 40 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "score" type: "InnerProduct" bottom: "h" top: "score"
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "box" type: "InnerProduct" bottom: "h" top: "box_flat"
  inner_product_param { num_output: 8 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "shape" type: "Reshape" bottom: "box_flat" top: "box"
  reshape_param { shape { dim: 0 dim: 8 dim: 1 dim: 1 } } }
layer { name: "each_class" type: "SoftmaxWithLossOHEM" bottom: "score" bottom: "labels" top: "temp_class" top: "prob"
  top: "each_class" loss_weight: 0 loss_weight: 0 loss_weight: 0 propagate_down: false propagate_down: false }
layer { name: "each_box" type: "SmoothL1LossOHEM" bottom: "box" bottom: "targets" bottom: "weights" top: "temp_box"
  top: "each_box" loss_weight: 0 loss_weight: 0 propagate_down: [false, false, false] }
layer { name: "each" type: "Eltwise" bottom: "each_class" bottom: "each_box" top: "each"
  propagate_down: [false, false] }
layer { name: "annotate" type: "BoxAnnotatorOHEM" bottom: "rois" bottom: "each" bottom: "labels" bottom: "weights"
  top: "labels_ohem" top: "weights_ohem" box_annotator_ohem_param { roi_per_img: 3 } }
layer { name: "silence" type: "Silence" bottom: "temp_class" bottom: "prob" bottom: "temp_box" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "labels_ohem" top: "loss"
  loss_param { ignore_label: -1 } propagate_down: true propagate_down: false }
layer { name: "loss_box" type: "SmoothL1LossOHEM" bottom: "box" bottom: "targets" bottom: "weights_ohem" top: "loss_box"
  loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 6 } propagate_down: [true, false, false] }
"""


def _trained(**options):
    net = Net(parse_net(TRAIN_NET).message, TRAIN, dtype="float64", seed=3, **options)
    rng = np.random.default_rng(4)
    for name, values in {
        "x": rng.normal(size=(12, 6)),
        "rois": np.repeat(np.arange(12.0)[:, None] % 2, 5, axis=1),
        "labels": rng.integers(3, size=(12, 1, 1, 1)),
        "targets": rng.normal(size=(12, 8, 1, 1)),
        "weights": rng.integers(2, size=(12, 8, 1, 1)),
    }.items():
        net.blobs[name].data[...] = values
    net.forward()
    net.backward()
    return net


def test_a_net_learns_from_the_chosen_regions_alone():
    net = _trained()
    labels, each = net.blobs["labels_ohem"].data.reshape(-1), net.blobs["each"].data.reshape(-1)
    for image in range(2):
        own = np.arange(12) % 2 == image
        assert (labels[own] != -1).sum() == 3 and each[own & (labels != -1)].min() >= each[own & (labels == -1)].max()
    chosen = labels != -1
    d = (net.blobs["box"].data - net.blobs["targets"].data).reshape(12, 8) * net.blobs["weights"].data.reshape(12, 8)
    slope = np.clip(d, -1, 1) * net.blobs["weights"].data.reshape(12, 8) * chosen[:, None] / 6
    np.testing.assert_allclose(net.params["box"][0].diff, slope.T @ net.blobs["h"].data, rtol=1e-10, atol=1e-14)
    p = net.blobs["prob"].data.copy()
    p[np.arange(12), net.blobs["labels"].data.reshape(-1).astype(int)] -= 1
    np.testing.assert_allclose(
        net.params["score"][0].diff, (p * chosen[:, None] / 6).T @ net.blobs["h"].data, rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("order", ["latest", "random"])
def test_the_net_has_the_same_bits_with_lms(order):
    plain = _trained()
    for lms in (None, LMSConfig(threshold_kb=0.1)):
        device = SimDevice(64 << 20, order=order)
        net = _trained(device=device, lms=lms)
        assert lms is None or device.bytes_in > 0
        for name, blobs in plain.params.items():
            for a, b in zip(blobs, net.params[name], strict=True):
                assert np.array_equal(a.diff, b.diff)
