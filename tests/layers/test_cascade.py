"""BoxOutput, BoxGroupOutput, DecodeBBox and ScaleRoute against loops over single boxes; in a net, with LMS."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms import TEST, TRAIN, Net
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import LayerBench

REG = "bbox_reg_param { bbox_mean: [0.1, -0.1, 0.05, 0] bbox_std: [0.5, 0.4, 0.3, 0.2] }"
BOX = """box_output_param { fg_thr: -0.5 iou_thr: 0.3 field_w: 20 field_h: 24 downsample_rate: 8
    field_w: 40 field_h: 30 downsample_rate: 16 max_nms_num: 20 max_post_nms_num: 6 min_size: 9
    field_whr: 1.5 field_xyr: 3 nms_type: "IOU" }"""
GROUP = """box_group_output_param { fg_thr: 0.4 iou_thr: 0.3 max_nms_num: 20 max_post_nms_num: 5 min_size: 9
    field_whr: 1.5 field_xyr: 3 nms_type: "IOU"
    box_group_param { field_w: [20, 24] field_h: [24, 16] stride: 8 }
    box_group_param { field_w: 40 field_h: 30 stride: 16 } }"""
BOX_SHAPES = ((2, 7, 5, 6), (2, 7, 3, 3))
GROUP_SHAPES = ((4, 3, 5, 6), (4, 4, 5, 6), (2, 3, 3, 3), (2, 4, 3, 3))


def _group_blobs(rng, shapes):
    return [rng.normal(size=shape) if i % 2 else rng.uniform(size=shape) for i, shape in enumerate(shapes)]


def _regions(rng, shapes):
    """Bottoms of DecodeBBox, or of ScaleRoute, whose regions are bottom 1 or 0."""
    out = [rng.normal(size=shape) for shape in shapes]
    at = 1 if np.prod(shapes[0][1:]) == 8 else 0
    rows = len(out[at])
    low = rng.uniform(0, 50, size=(rows, 2))
    found = np.column_stack([rng.integers(2, size=rows), low, low + 2.0 ** rng.uniform(2, 7, size=(rows, 2))])
    out[at] = found.reshape(shapes[at])
    if len(out) == 3 and at == 1:
        out[2] = rng.uniform(size=shapes[2])
    return out


HOST_CASES = [
    Case("BoxOutput", f"{BOX} {REG}", BOX_SHAPES, n_top=2),
    Case("BoxOutput", "box_output_param { field_w: 20 field_h: 20 downsample_rate: 8 }", ((1, 6, 4, 5),)),
    Case("BoxGroupOutput", f"{GROUP} {REG}", GROUP_SHAPES, n_top=2, maker=_group_blobs),
    Case("BoxGroupOutput", GROUP, GROUP_SHAPES, maker=_group_blobs),
    Case("DecodeBBox", REG, ((6, 8), (6, 5)), maker=_regions, phase=TEST),
    Case(
        "DecodeBBox",
        f"decode_bbox_param {{ gt_iou_thr: 0.5 }} {REG}",
        ((9, 8, 1, 1), (9, 5, 1, 1), (9, 6)),
        maker=_regions,
    ),
    Case("ScaleRoute", "scale_route_param { low_scale: 16 high_scale: 64 }", ((12, 5), (12, 2, 3)), 2, maker=_regions),
    Case("ScaleRoute", "scale_route_param { high_scale: 1 }", ((12, 5, 1, 1),), maker=_regions),
]


def _overlap(a, b, end):
    wide, high = min(a[2], b[2]) - max(a[0], b[0]) + end, min(a[3], b[3]) - max(a[1], b[1]) + end
    if wide <= 0 or high <= 0:
        return 0.0
    area = lambda box: (box[2] - box[0] + end) * (box[3] - box[1] + end)  # noqa: E731
    return wide * high / (area(a) + area(b) - wide * high)


def _cut(value, low, high):
    return max(low, min(high, value))


def _best(p, image, found, end):
    """Return the rows of one image, of all (score, box), as the options say."""
    found = [f for f in found if f[0] >= p.fg_thr and min(f[3] - f[1], f[4] - f[2]) + end >= p.min_size]
    found.sort(key=lambda f: -f[0])
    kept = []
    for score, *box in found[: p.max_nms_num or None]:
        if all(_overlap(box, k[1:5], end) <= p.iou_thr for k in kept):
            kept.append((image, *box, score))
    return kept[: p.max_post_nms_num or None]


def _moved(p, reg, moves, field, place, stride):
    """Return the centre and the size of one box."""
    means, stds = (reg.bbox_mean, reg.bbox_std) if reg.bbox_std else ((0,) * 4, (1,) * 4)
    x, y, w, h = (m * s + a for m, s, a in zip(moves, stds, means, strict=True))
    reach, most = 1 / p.field_xyr, math.log(p.field_whr)
    centre = [_cut(v, -reach, reach) * f + (k + 0.5) * stride for v, f, k in zip((x, y), field, place, strict=True)]
    return centre, [f * math.exp(_cut(v, -most, most)) for v, f in zip((w, h), field, strict=True)]


def _box_output(param, bottoms):
    p, rows = param.box_output_param, []
    for n in range(len(bottoms[0])):
        found = []
        for bottom, w, h, stride in zip(bottoms, p.field_w, p.field_h, p.downsample_rate, strict=True):
            classes, height, width = bottom.shape[1] - 4, *bottom.shape[2:]
            for row, column in np.ndindex(height, width):
                values = bottom[n, :, row, column]
                score = max(values[1:classes]) - values[0]
                centre, size = _moved(p, param.bbox_reg_param, values[classes:], (w, h), (column, row), stride)
                x, y = (max(0.0, c - s / 2) for c, s in zip(centre, size, strict=True))
                wide, high = min(size[0], width * stride - x), min(size[1], height * stride - y)
                found.append((score, x, y, x + wide, y + high))
        rows += _best(p, n, found, 0)
    return rows


def _box_group_output(param, bottoms):
    p, rows = param.box_group_output_param, []
    for n in range(len(bottoms[0]) // len(p.box_group_param[0].field_w)):
        found = []
        for i, group in enumerate(p.box_group_param):
            anchors = len(group.field_w)
            for k in range(anchors):
                scores, moves = bottoms[2 * i][n * anchors + k], bottoms[2 * i + 1][n * anchors + k]
                height, width = moves.shape[1:]
                for row, column in np.ndindex(height, width):
                    field = group.field_w[k], group.field_h[k]
                    move = moves[:, row, column]
                    centre, size = _moved(p, param.bbox_reg_param, move, field, (column, row), group.stride)
                    x, y = (c - s / 2 for c, s in zip(centre, size, strict=True))
                    x2 = min(x + size[0] - 1, width * group.stride)
                    y2 = min(y + size[1] - 1, height * group.stride)
                    found.append((1 - scores[0, row, column], max(x, 0.0), max(y, 0.0), x2, y2))
        rows += _best(p, n, found, 1)
    return rows


def _decode(param, bottoms, train):
    rows, reg = [], param.bbox_reg_param
    for k, (move, region) in enumerate(zip(bottoms[0].reshape(-1, 8), bottoms[1].reshape(-1, 5), strict=True)):
        image, x1, y1, x2, y2 = region
        x, y, w, h = (m * s + a for m, s, a in zip(move[4:], reg.bbox_std, reg.bbox_mean, strict=True))
        wide, high = (x2 - x1 + 1) * math.exp(w), (y2 - y1 + 1) * math.exp(h)
        left = x * (x2 - x1 + 1) + (x1 + x2) / 2 - (wide - 1) / 2
        top = y * (y2 - y1 + 1) + (y1 + y2) / 2 - (high - 1) / 2
        row = (image, left, top, left + wide - 1, top + high - 1)
        own = len(bottoms) == 3 and bottoms[2][k].reshape(-1)[-1] >= param.decode_bbox_param.gt_iou_thr
        if not train or not (own or row[1] > row[3] or row[2] > row[4]):
            rows.append(row)
    return rows


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES[:6], ids=str)
def test_it_is_the_loop(case, dtype, tolerance):
    bottoms = [value.astype(dtype) for value in case.make_bottoms(np.random.default_rng(5))]
    bench = case.bench(dtype)
    tops = bench.forward(bottoms)
    if case.type == "DecodeBBox":
        rows = _decode(bench.layer.param, bottoms, case.phase == TRAIN)
    else:
        rows = (_box_output if case.type == "BoxOutput" else _box_group_output)(bench.layer.param, bottoms)
        assert len(rows) > 1
    for top, numbers in zip(tops, (5, 6), strict=False):
        expected = np.array(rows)[:, :numbers]
        np.testing.assert_allclose(top.reshape(expected.shape), expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("low, high", [(0, math.inf), (16, 64), (0, 20), (40, math.inf), (1e-3, 1e-2), (1e5, math.inf)])
def test_routed_are_the_regions_of_these_sizes(low, high):
    text = " ".join(f"{name}: {v}" for name, v in (("low_scale", low), ("high_scale", high)) if 0 < v < math.inf)
    rng = np.random.default_rng(2)
    regions, other = _regions(rng, ((30, 5), (30, 2, 3)))
    bench = LayerBench("ScaleRoute", f"scale_route_param {{ {text} }}", ((30, 5), (30, 2, 3)), 2)
    tops = bench.forward([regions, other])
    sizes = [math.sqrt((r[3] - r[1] + 1) * (r[4] - r[2] + 1)) for r in regions]
    chosen = [k for k, size in enumerate(sizes) if low <= size < high]
    if not chosen:
        given = [v for v in (low, high) if 0 < v < math.inf]
        middle = math.sqrt(given[0] * given[-1])
        chosen = [min(range(30), key=lambda k: abs(math.log2(sizes[k] / middle)))]
    np.testing.assert_array_equal(tops[0], regions[chosen])
    np.testing.assert_array_equal(tops[1], other[chosen])


def test_without_boxes_there_is_one_region():
    for case in (HOST_CASES[0], HOST_CASES[2]):
        text = case.text.replace("fg_thr: -0.5", "fg_thr: 99").replace("fg_thr: 0.4", "fg_thr: 99")
        bench = LayerBench(case.type, text, case.shapes, 2)
        regions, scores = bench.forward(case.make_bottoms(np.random.default_rng(1)))
        assert regions.reshape(1, 5).tolist() == [[0, 1, 1, 10, 10]]
        assert scores.shape == (1, 6, 1, 1) and not scores.any()


@pytest.mark.parametrize(
    "type_name, text, shapes, error, message",
    [
        ("BoxOutput", BOX, BOX_SHAPES[:1], LayerParamError, "has 1 bottoms, but 2 field_w"),
        ("BoxOutput", BOX.replace('"IOU"', '"IOMU"'), BOX_SHAPES, LayerParamError, 'nms_type "IOMU" is not supported'),
        ("BoxOutput", BOX.replace("field_xyr: 3", "field_xyr: 0"), BOX_SHAPES, LayerParamError, "field_xyr is 0"),
        ("BoxOutput", BOX, ((2, 7, 5, 6), (2, 8, 3, 3)), ShapeError, '"b1": has shape .2, 8, 3, 3.'),
        ("BoxOutput", BOX + "bbox_reg_param { bbox_mean: 0 bbox_std: 1 }", BOX_SHAPES, LayerParamError, "1 bbox_mean"),
        ("BoxGroupOutput", GROUP, GROUP_SHAPES[:2], LayerParamError, "has 2 bottoms, but 2 box_group_param"),
        ("BoxGroupOutput", GROUP.replace("stride: 16", ""), GROUP_SHAPES, LayerParamError, "and a stride"),
        ("BoxGroupOutput", GROUP, (*GROUP_SHAPES[:3], (2, 4, 3, 4)), ShapeError, '"b2"'),
        ("DecodeBBox", "", ((6, 12), (6, 5)), ShapeError, '"b0": has shape .6, 12.'),
        ("DecodeBBox", "", ((6, 8), (5, 5)), ShapeError, '"b1"'),
        ("ScaleRoute", "", ((6, 4),), ShapeError, '"b0": has shape .6, 4.'),
        ("ScaleRoute", "", ((6, 5), (6, 2)), LayerParamError, "has 2 bottoms and 1 tops"),
        ("ScaleRoute", "scale_route_param { low_scale: 9 high_scale: 3 }", ((6, 5),), LayerParamError, "leave no size"),
    ],
)
def test_refused(type_name, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type_name, text, shapes)


def test_a_third_bottom_is_refused_in_test():
    with pytest.raises(LayerParamError, match="third bottom in TEST"):
        LayerBench("DecodeBBox", "", ((6, 8), (6, 5), (6, 6)), phase=TEST)


NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3, 6, 8] } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "box" type: "Convolution" bottom: "c" top: "box"
  convolution_param { num_output: 6 kernel_size: 1 weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "out" type: "BoxOutput" bottom: "box" top: "rois"
  box_output_param { field_w: 24 field_h: 24 downsample_rate: 8 iou_thr: 0.2 } }
layer { name: "pool" type: "ROIPooling" bottom: "c" bottom: "rois" top: "pool"
  roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.125 } }
layer { name: "reg" type: "InnerProduct" bottom: "pool" top: "reg"
  inner_product_param { num_output: 8 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "decode" type: "DecodeBBox" bottom: "reg" bottom: "rois" top: "moved" bbox_reg_param { } }
layer { name: "route" type: "ScaleRoute" bottom: "moved" top: "large" scale_route_param { low_scale: 24 } }
layer { name: "pool2" type: "ROIPooling" bottom: "c" bottom: "large" top: "pool2"
  roi_pooling_param { pooled_h: 1 pooled_w: 1 spatial_scale: 0.125 } }
layer { name: "sum" type: "Reduction" bottom: "pool2" top: "sum" loss_weight: 1 }
"""


def _run(phase, **options):
    net = Net(parse_net(NET).message, phase, dtype="float64", seed=3, **options)
    found = []
    for seed in range(3):  # other numbers of regions
        net.blobs["x"].data[...] = np.random.default_rng(seed).normal(size=(2, 3, 6, 8))
        net.forward()
        if phase == TRAIN:
            net.backward()
        values = [net.blobs[name].data.copy() for name in ("rois", "moved", "large", "pool2")]
        found.append((values, [p.diff.copy() for p in net.params["c"]], np.abs(net.params["reg"][0].diff).max()))
    net.close()
    return found


@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_in_a_net(phase):
    plain = _run(phase)
    assert len({len(values[0]) for values, *_ in plain}) > 1
    for values, diffs, moved in plain:
        assert len(values[0]) == len(values[1]) >= len(values[2]) == len(values[3])
        assert bool(diffs[0].any()) == (phase == TRAIN) and moved == 0  # nothing is learnt through the regions
    for order in ("latest", "random"):
        for lms in (None, LMSConfig(threshold_kb=0.1)):
            for ours, theirs in zip(plain, _run(phase, device=SimDevice(64 << 20, order=order), lms=lms), strict=True):
                assert all(map(np.array_equal, [*ours[0], *ours[1]], [*theirs[0], *theirs[1]]))
