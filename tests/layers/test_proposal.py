"""Proposal against the regions of py-faster-rcnn's Python layer and a loop; in a net with ROIPooling behind it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms import TEST, TRAIN, Net
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.layers.detection.boxes import suppress
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import LayerBench

ANCHORS = "ratio: [0.5, 1, 2] scale: [8, 16, 32]"


def _text(more="", anchors="ratio: [0.667, 1.5] scale: 2"):
    return f"proposal_param {{ {anchors} {more} }}"


def _blobs(rng, shapes):
    scores, moves, info = shapes
    pictures = np.broadcast_to([50.0, 64.0, 1.25], (info[0], 3)).copy()
    return [rng.uniform(size=scores), 0.3 * rng.normal(size=moves), pictures.reshape(info)]


SMALL = ((2, 4, 3, 4), (2, 8, 3, 4), (2, 3))
HOST_CASES = [
    Case(
        "Proposal",
        _text("pre_nms_topn: 20 post_nms_topn: 6 nms_thresh: 0.3 min_size: 20"),
        SMALL,
        n_top=2,
        maker=_blobs,
    ),
    Case("Proposal", _text("feat_stride: 8 base_size: 12"), ((1, 4, 5, 4), (1, 8, 5, 4), (1, 3, 1, 1)), maker=_blobs),
    Case("Proposal", _text("post_nms_topn: 1"), (*SMALL[:2], (1, 3)), maker=_blobs),
]


def loop(text, scores, moves, info):
    """Return rows (image, x1, y1, x2, y2, score), one box at a time, in float64."""
    p = LayerBench("Proposal", text, tuple(a.shape for a in (scores, moves, info))).layer.options
    sizes = []
    for ratio in p.ratio:
        w = math.floor(math.sqrt(p.base_size**2 / ratio) + 0.5)
        h = math.floor(w * ratio + 0.5)
        sizes += [(w * scale, h * scale) for scale in p.scale]
    rows = []
    for n, row, column in np.ndindex(scores.shape[0], 1, 1):
        height, width, scale = info.reshape(len(info), -1)[min(n, len(info) - 1)][:3]
        found = []
        for row, column, a in np.ndindex(*scores.shape[2:], len(sizes)):
            w, h = sizes[a]
            middle = (p.base_size - 1) / 2
            x1 = column * p.feat_stride + middle - (w - 1) / 2
            y1 = row * p.feat_stride + middle - (h - 1) / 2
            dx, dy, dw, dh = moves[n, 4 * a : 4 * a + 4, row, column]
            x, y = x1 + w / 2 + dx * w, y1 + h / 2 + dy * h
            w, h = w * math.exp(dw), h * math.exp(dh)
            cut = lambda value, size: max(0.0, min(value, size - 1))  # noqa: E731
            box = [cut(x - w / 2, width), cut(y - h / 2, height), cut(x + w / 2, width), cut(y + h / 2, height)]
            small = min(box[2] - box[0], box[3] - box[1]) + 1 < p.min_size * scale
            found.append([n, *box, 0.0 if small else scores[n, len(sizes) + a, row, column]])
        kept = []
        for r in sorted(found, key=lambda r: -r[5])[: p.pre_nms_topn]:
            if len(kept) < p.post_nms_topn and all(_overlap(r[1:5], k[1:5]) <= p.nms_thresh for k in kept):
                kept.append(r)
        rows += kept
    return np.array(rows)


def _overlap(a, b):
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if wide < 0 or high < 0:
        return 0.0
    area = lambda box: (box[2] - box[0] + 1) * (box[3] - box[1] + 1)  # noqa: E731
    return (wide + 1) * (high + 1) / (area(a) + area(b) - (wide + 1) * (high + 1))


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_it_is_the_loop(case, dtype, tolerance):
    bottoms = case.make_bottoms(np.random.default_rng(5))
    bench = case.bench(dtype)
    assert bench.top_shapes[0] == (case.shapes[0][0] * bench.layer.options.post_nms_topn, 5)
    rois, *scores = bench.forward(bottoms)
    rows = loop(case.text, *bottoms)
    np.testing.assert_allclose(rois, rows[:, :5], rtol=tolerance, atol=tolerance)
    for top in scores:
        np.testing.assert_allclose(top, rows[:, 5], rtol=tolerance)


# ProposalLayer of rbgirshick/py-faster-rcnn 781a917 in float64, with pictures of 60 x 75 pixels: feat_stride 16,
# RPN_PRE_NMS_TOP_N 40, RPN_POST_NMS_TOP_N 9, RPN_NMS_THRESH 0.5, RPN_MIN_SIZE 1.
RECORDED = [
    (0.9954, 0, 25.6514, 74, 59),
    (0.9952, 31.0909, 0, 74, 59),
    (0.9951, 65.3112, 40.6376, 74, 59),
    (0.9950, 0, 0, 43.2611, 39.4835),
    (0.9906, 0, 0, 19.6864, 34.7338),
    (0.9902, 0, 44.7296, 74, 59),
    (0.9434, 54.0662, 0, 74, 59),
    (0.9411, 0, 0, 26.8914, 59),
]


@pytest.mark.parametrize("scale", [(1.5,), (1.5, 1.5)])
def test_regions_of_the_python_layer(scale):
    scores = np.abs(np.sin(np.arange(360) * 2.9)).reshape(1, 18, 4, 5)
    moves = (0.4 * np.sin(np.arange(720) * 1.3)).reshape(1, 36, 4, 5)
    text = _text("pre_nms_topn: 40 post_nms_topn: 9 nms_thresh: 0.5 min_size: 1", ANCHORS)
    bench = LayerBench("Proposal", text, (scores.shape, moves.shape, (1, 2 + len(scale))), 2)
    rois, values = bench.forward([scores, moves, [[60.0, 75.0, *scale]]])
    np.testing.assert_allclose(np.column_stack([values, rois[:, 1:]]), RECORDED, atol=6e-5)
    assert not rois[:, 0].any() and values.shape == (8,)


def test_anchors_of_the_python_layer():
    layer = LayerBench("Proposal", _text(anchors=ANCHORS), ((1, 18, 1, 1), (1, 36, 1, 1), (1, 3))).layer
    assert layer.anchors.tolist() == [  # rpn/generate_anchors.py
        [-84, -40, 99, 55], [-176, -88, 191, 103], [-360, -184, 375, 199],
        [-56, -56, 71, 71], [-120, -120, 135, 135], [-248, -248, 263, 263],
        [-36, -80, 51, 95], [-80, -168, 95, 183], [-168, -344, 183, 359],
    ]  # fmt: skip


def test_suppression_of_pixels():
    """torchvision.ops.nms of torchvision 0.29.2 on boxes whose far corners are one further."""
    k = np.arange(1, 61)[:, None]
    centre, side = 50 + 45 * np.sin(k * [1.7, 2.3]), 14 + 9 * np.sin(k * [3.1, 0.7])
    boxes = np.concatenate([centre - side, centre + side], axis=1)
    kept = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 17, 18, 21, 23, 24, 25, 27, 29, 31, 32, 33, 34, 35, 36, 37, 38, 41]
    kept += [42, 43, 45, 47, 49, 50, 51, 53, 56, 58, 59]
    assert suppress(boxes, 0.3, pixels=True).tolist() == kept
    assert suppress(boxes, 0.3, pixels=True, most=7).tolist() == kept[:7]
    assert suppress(boxes, 0.3).tolist() != kept
    apart = np.array([[0.0, 0, 9, 9], [9.5, 0, 9.6, 9]])  # less than a pixel apart: the fork takes that for no overlap
    assert suppress(apart, 0.0, pixels=True).tolist() == [0, 1]


@pytest.mark.parametrize("eta", [1.0, 0.995])
def test_many_boxes_that_remain(eta):
    """Boxes are compared with several that remain at a time; the threshold may fall in between."""
    rng = np.random.default_rng(2)
    centre, side = rng.uniform(0, 200, (500, 2)), rng.uniform(2, 18, (500, 2))
    boxes, kept, most = np.concatenate([centre - side, centre + side], axis=1), [], 0.6
    for i, box in enumerate(boxes):
        if all(_overlap(box, boxes[k]) <= most for k in kept):
            kept.append(i)
            most *= eta if most > 0.5 else 1
    assert suppress(boxes, 0.6, eta, pixels=True).tolist() == kept
    assert 200 < len(kept) < 480


def test_a_region_of_infinite_size_is_the_picture():
    moves = np.zeros((1, 4, 1, 1))
    moves[0, 2:] = 1e5
    bench = LayerBench("Proposal", _text(anchors="ratio: 1 scale: 1"), ((1, 2, 1, 1), moves.shape, (1, 3)))
    assert bench.forward([np.ones((1, 2, 1, 1)), moves, [[30.0, 40, 1]]])[0].tolist() == [[0, 0, 0, 39, 29]]


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("", SMALL, LayerParamError, "ratio is missing"),
        ("proposal_param { ratio: 1 scale: 0 }", SMALL, LayerParamError, "scale is missing, or not above 0"),
        (_text("post_nms_topn: 0"), SMALL, LayerParamError, "post_nms_topn is 0"),
        (_text(), ((2, 6, 3, 4), *SMALL[1:]), ShapeError, '"b0".*2 anchors have 4 channels'),
        (_text(), (SMALL[0], (2, 8, 3, 5), SMALL[2]), ShapeError, '"b1"'),
        (_text(), (*SMALL[:2], (3, 3)), ShapeError, '"b2"'),
        (_text(), (*SMALL[:2], (2, 2)), ShapeError, '"b2"'),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Proposal", text, shapes)


NET = """force_backward: false
layer { name: "in" type: "Input" top: "x" top: "im_info" top: "label"
  input_param { shape { dim: [1, 3, 6, 8] } shape { dim: [1, 3] } shape { dim: 1 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "score" type: "Convolution" bottom: "c" top: "score"
  convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "pair" type: "Reshape" bottom: "score" top: "pair" reshape_param { shape { dim: [0, 2, -1, 0] } } }
layer { name: "soft" type: "Softmax" bottom: "pair" top: "soft" }
layer { name: "prob" type: "Reshape" bottom: "soft" top: "prob" reshape_param { shape { dim: [0, 4, -1, 0] } } }
layer { name: "move" type: "Convolution" bottom: "c" top: "move"
  convolution_param { num_output: 8 kernel_size: 1 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "proposal" type: "Proposal" bottom: "prob" bottom: "move" bottom: "im_info" top: "rois" top: "values"
  proposal_param { ratio: [0.667, 1.5] scale: 2 nms_thresh: 0.4 post_nms_topn: 50 min_size: 4 } }
layer { name: "pool" type: "ROIPooling" bottom: "c" bottom: "rois" top: "pool"
  roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.0625 } }
layer { name: "sum" type: "Reduction" bottom: "pool" top: "sum" loss_weight: 1 }
"""


def _run(phase, **options):
    net = Net(parse_net(NET).message, phase, dtype="float64", seed=3, **options)
    found = []
    for seed in range(3):  # other numbers of regions
        net.blobs["x"].data[...] = np.random.default_rng(seed).normal(size=(1, 3, 6, 8))
        net.blobs["im_info"].data[...] = [[96, 128, 1]]
        net.forward()
        if phase == TRAIN:
            net.backward()
        values = [net.blobs[name].data.copy() for name in ("rois", "values", "pool")]
        found.append((values, [p.diff.copy() for p in net.params["c"]], np.abs(net.params["move"][0].diff).max()))
    return found


@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_in_a_net(phase):
    plain = _run(phase)
    assert len({len(values[0]) for values, *_ in plain}) > 1
    for values, diffs, moved in plain:
        assert len(values[0]) == len(values[1]) == len(values[2]) and (np.diff(values[1]) <= 0).all()
        assert bool(diffs[0].any()) == (phase == TRAIN) and moved == 0  # nothing is learnt through the regions
    for order in ("latest", "random"):
        for lms in (None, LMSConfig(threshold_kb=0.1)):
            for ours, theirs in zip(plain, _run(phase, device=SimDevice(64 << 20, order=order), lms=lms), strict=True):
                assert all(map(np.array_equal, [*ours[0], *ours[1]], [*theirs[0], *theirs[1]]))
