"""MS-CNN's training layers against loops over single positions and regions; drawn samples; a small net that learns."""

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

REG = "bbox_reg_param { bbox_mean: [0.1, -0.1, 0.05, 0] bbox_std: [0.5, 0.4, 0.3, 0.2] }"
FIELD = "field_w: 24 field_h: 20 downsample_rate: 8 field_whr: 1.5 field_xyr: 3"


def _loss(more, classes=3, after=""):
    return f"detection_loss_param {{ cls_num: {classes} {FIELD} {more} }} {after}"


def _maps(rng, shapes):
    """Scores with moves, and labels: objects at some positions, and overlaps."""
    x, (n, _, h, w) = rng.normal(size=shapes[0]), shapes[1]
    labels = np.zeros(shapes[1])
    labels[:, 0] = rng.integers(shapes[0][1] - 4, size=(n, h, w)) * (rng.uniform(size=(n, h, w)) < 0.3)
    rows, columns = np.mgrid[:h, :w] * 8 + 4
    labels[:, 1:3] = np.stack([columns, rows]) + rng.normal(size=(n, 2, h, w)) * 4
    labels[:, 3:5] = rng.uniform(1, 40, size=(n, 2, h, w))
    labels[:, 5] = rng.uniform(size=(n, h, w))
    return [x, labels]


SHAPES = ((2, 7, 5, 6), (2, 6, 5, 6))
LOSSES = [
    Case("DetectionLoss", _loss('sample_mode: "all"'), SHAPES, maker=_maps),
    Case(
        "DetectionLoss",
        _loss('sample_mode: "bootstrap" bg_multiple: 2 bg_threshold: 0.7', after=REG),
        SHAPES,
        maker=_maps,
    ),
    Case(
        "DetectionLoss",
        _loss('sample_mode: "all" bb_smooth: false lambda: 0.5 iou_weighted: true'),
        SHAPES,
        maker=_maps,
    ),
    Case(
        "DetectionLoss",
        _loss('sample_mode: "bootstrap" pos_neg_weighted: true coord_num: 4', after="loss_param { ignore_label: 2 }"),
        SHAPES,
        maker=_maps,
    ),
    Case("DetectionLoss", _loss('sample_mode: "all" objectness: true', 2), ((1, 6, 3, 4), (1, 6, 3, 4)), maker=_maps),
]
DRAWN = [
    Case("DetectionLoss", _loss('sample_mode: "random"'), SHAPES, maker=_maps),
    Case("DetectionLoss", _loss('sample_mode: "mixture" bg_multiple: 3'), SHAPES, maker=_maps),
]
SCORES = [
    Case("DetectionAccuracy", f"detection_accuracy_param {{ cls_num: 3 {FIELD} }}", SHAPES, 2, maker=_maps),
    Case(
        "DetectionAccuracy",
        f"detection_accuracy_param {{ cls_num: 3 coord_num: 4 {FIELD} top_k: 2 bg_threshold: 0.4 }} {REG} "
        "loss_param { ignore_label: 1 }",
        SHAPES,
        maker=_maps,
    ),
    Case(
        "DetectionAccuracy",
        f"detection_accuracy_param {{ cls_num: 2 {FIELD} objectness: true }}",
        ((1, 6, 3, 4), (1, 6, 3, 4)),
        2,
        maker=_maps,
    ),
]


def _regions(rng, shapes):
    """Regions of two pictures, the first ones near the objects that are bottom 1 of ProposalTarget."""
    rows, objects = shapes[0][0], shapes[1][0]
    low = rng.uniform(0, 90, size=(objects, 2))
    truth = np.zeros((objects, 7))
    truth[:, 0], truth[:, 5] = np.arange(objects) % 2, rng.integers(1, 3, size=objects)
    truth[:, 1:3], truth[:, 3:5] = low, low + rng.uniform(20, 60, size=(objects, 2))
    truth[-1, 6] = 1
    near = truth[np.arange(rows) % objects]
    spread = np.linspace(0.5, 30, rows)[:, None]
    found = np.zeros((rows, 5))
    found[:, 0], found[:, 1:] = near[:, 0], near[:, 1:5] + rng.normal(size=(rows, 4)) * spread
    found[:, 3:] = np.maximum(found[:, 3:], found[:, 1:3] + 5)
    return [found.reshape(shapes[0]), truth.reshape(shapes[1])]


SIZES = "img_width: 160 img_height: 150 num_img_per_batch: 2"
ROWS = ((40, 5, 1, 1), (5, 7, 1, 1))
TARGETS = [
    Case("ProposalTarget", f"proposal_target_param {{ cls_num: 3 batch_size: 12 {SIZES} }}", ROWS, 6, maker=_regions),
    Case(
        "ProposalTarget",
        f"proposal_target_param {{ cls_num: 3 batch_size: 60 fg_fraction: 0.5 bg_thr_lw: 0.2 "
        f"iou_weighted: true {SIZES} }} {REG}",
        ROWS,
        7,
        maker=_regions,
    ),
    Case(
        "ProposalTarget",
        "proposal_target_param { cls_num: 3 batch_size: -1 fg_thr: 0.6 bg_thr_hg: 0.4 } "
        "bbox_reg_param { cls_aware: false }",
        ROWS,
        7,
        maker=_regions,
    ),
]


def _pairs(rng, shapes):
    found, truth = _regions(rng, ((shapes[0][0], 5), (4, 7)))
    near = truth[np.arange(len(found)) % 4]
    matched = np.concatenate([near[:, 5:6], near[:, 1:5], rng.uniform(size=(len(found), 1)) * 1.2], axis=1)
    matched[::5] = 0
    return [rng.normal(size=shapes[0]) * 0.2, found.reshape(shapes[1]), matched.reshape(shapes[2])]


BOXES = [
    Case("BboxAccuracy", "", ((20, 12), (20, 5, 1, 1), (20, 6, 1, 1)), 2, maker=_pairs),
    Case("BboxAccuracy", REG, ((9, 12, 1, 1), (9, 5), (9, 6)), maker=_pairs),
]
HOST_CASES = LOSSES + DRAWN + SCORES + TARGETS + BOXES


def _iou(a, b):
    """Of boxes (x, y, width, height)."""
    if min(a[2], a[3], b[2], b[3]) <= 0:
        return 0.0
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    common = max(wide, 0) * max(high, 0)
    return common / (a[2] * a[3] + b[2] * b[3] - common)


def _means(param):
    p = param.bbox_reg_param
    return (list(p.bbox_mean), list(p.bbox_std)) if p.bbox_std else ([0.0] * 4, [1.0] * 4)


def _kept(p, x, labels):
    """Which positions without an object count, where nothing is drawn."""
    free = [
        [j for j in np.ndindex(x.shape[2:]) if labels[n, 0][j] == 0 and labels[n, 5][j] < p.bg_threshold]
        for n in range(len(x))
    ]
    if p.sample_mode == "all":
        return [set(places) for places in free]
    kept = []
    for n, places in enumerate(free):
        mine = set()
        for k in range(1, p.cls_num):
            wanted = max(4, (labels[n, 0] == k).sum() * p.bg_multiple)
            mine |= set(sorted(places, key=lambda j: -x[n, k][j])[:wanted])
        kept.append(mine)
    return kept


def _detection_loss(param, x, truth, ignore=None):
    p, classes, (mean, std) = param.detection_loss_param, param.detection_loss_param.cls_num, _means(param)
    kept = _kept(p, x, truth)
    places = [(n, *j) for n in range(len(x)) for j in np.ndindex(x.shape[2:])]
    label = {(n, h, w): int(truth[n, 0, h, w]) for n, h, w in places}
    weight = {j: 1.0 for j in places}
    positive = [j for j in places if label[j]]
    negative = [j for j in places if not label[j] and j[1:] in kept[j[0]]]
    if p.iou_weighted:
        weight |= {(n, h, w): truth[n, 5, h, w] for n, h, w in positive}
    if p.pos_neg_weighted:
        share, number = 1 / (1 + p.bg_multiple), len(positive) + len(negative)
        total = sum(weight[j] for j in positive)
        for group, part in ((positive, share / total), (negative, (1 - share) / len(negative))):
            for j in group:
                weight[j] *= part * number
    counts = [j for j in positive + negative if label[j] != ignore]
    slopes, losses = np.zeros(x.shape), [0.0, 0.0]
    for n, h, w in counts:
        k = min(label[n, h, w], 1) if p.objectness else label[n, h, w]
        chance = np.exp(x[n, :classes, h, w]) / np.exp(x[n, :classes, h, w]).sum()
        losses[0] -= math.log(chance[k]) * weight[n, h, w] / len(counts)
        slopes[n, :classes, h, w] = (chance - np.eye(classes)[k]) * weight[n, h, w] / len(counts)
    objects = [j for j in positive if label[j] != ignore]
    sides, middle = (p.field_w, p.field_h), lambda k: (k + 0.5) * p.downsample_rate
    for n, h, w in objects:
        for c in range(4):
            value = truth[n, 1 + c, h, w]
            wanted = (value - middle((w, h)[c])) / sides[c] if c < 2 else math.log(max(value, 2) / sides[c - 2])
            first = c // 2 * 2
            centre = (mean[first] + mean[first + 1]) / 2
            deviation = math.sqrt(std[first] * std[first + 1])
            limit = 1 / p.field_xyr if c < 2 else math.log(p.field_whr)
            seen = min(max(x[n, classes + c, h, w], (-limit - centre) / deviation), (limit - centre) / deviation)
            d, share = seen - (wanted - mean[c]) / std[c], getattr(p, "lambda") / (4 * len(objects))
            linear = p.bb_smooth and abs(d) >= 1
            losses[1] += share * (abs(d) - 0.5 if linear else d * d / 2)
            slopes[n, classes + c, h, w] = share * (math.copysign(1, d) if linear else d)
    return losses, slopes


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", LOSSES, ids=str)
def test_the_loss_is_the_loop(case, dtype, tolerance):
    bottoms = [value.astype(dtype) for value in case.make_bottoms(np.random.default_rng(5))]
    bench = case.bench(dtype)
    (top,) = bench.forward(bottoms)
    ignore = 2 if "ignore_label" in case.text else None
    (classes, places), slopes = _detection_loss(bench.layer.param, *(b.astype(float) for b in bottoms), ignore)
    assert min(classes, places) > 0 and top.shape == (1, 1, 1, 2)
    np.testing.assert_allclose(top.ravel(), [classes + places, places], rtol=tolerance)
    (dx, none), _ = bench.backward([np.reshape([3.0, 99.0], top.shape)])
    np.testing.assert_allclose(dx, 3 * slopes, rtol=10 * tolerance, atol=tolerance)
    assert none is None


@pytest.mark.parametrize("label", [3, -1])
def test_an_object_of_no_class_is_refused(label):
    """Unless the label is ignored."""
    rng = np.random.default_rng(3)
    x, truth = _maps(rng, SHAPES)
    truth[0, 0, 0, 0] = label
    with pytest.raises(DataError, match=rf"bottom 1 has the label {label}, outside 0\.\.2"):
        LayerBench("DetectionLoss", LOSSES[0].text, SHAPES).forward([x, truth])
    ignored = f"{LOSSES[0].text} loss_param {{ ignore_label: {label} }}"
    assert np.isfinite(LayerBench("DetectionLoss", ignored, SHAPES).forward([x, truth])[0]).all()


def test_the_slope_of_the_loss():
    """Central differences of the first number, where no move is limited."""
    case = Case(
        "DetectionLoss", LOSSES[0].text.replace("field_whr: 1.5 field_xyr: 3", "field_whr: 1e9 field_xyr: 1e-9"), SHAPES
    )
    bottoms, bench = _maps(np.random.default_rng(6), SHAPES), case.bench()
    bench.forward(bottoms)
    (dx, _), _ = bench.backward([np.reshape([1.0, 0.0], (1, 1, 1, 2))])
    rng = np.random.default_rng(7)
    for _ in range(5):
        step = rng.normal(size=SHAPES[0]) * 1e-6
        up, down = (float(bench.forward([bottoms[0] + s * step, bottoms[1]])[0].ravel()[0]) for s in (1, -1))
        assert (up - down) / 2 == pytest.approx((dx * step).sum(), rel=1e-4, abs=1e-13)


@pytest.mark.parametrize("case", DRAWN, ids=str)
def test_drawn_background(case):
    bottoms, bench = _maps(np.random.default_rng(3), SHAPES), case.bench()
    truth, seen = bottoms[1], []
    free = (truth[:, 0] == 0) & (truth[:, 5] < 0.5)
    for _ in range(3):
        bench.forward(bottoms)
        (dx, _), _ = bench.backward([np.reshape([1.0, 0.0], (1, 1, 1, 2))])
        chosen = dx[:, :3].any(axis=1)
        assert (chosen[truth[:, 0] != 0]).all() and not (chosen & ~free & (truth[:, 0] == 0)).any()
        seen.append(chosen & free)
    assert 0 < seen[0].sum() < free.sum() and not np.array_equal(seen[0], seen[1])
    other = case.bench()
    other.layer.set_state({"seed": bench.layer.seed, "draws": 2})
    other.forward(bottoms)
    (dx, _), _ = other.backward([np.reshape([1.0, 0.0], (1, 1, 1, 2))])
    np.testing.assert_array_equal(dx[:, :3].any(axis=1) & free, seen[2])
    if "mixture" in case.text:  # the half that is not drawn is always there
        hard = [set(zip(*np.nonzero(s), strict=True)) for s in seen]
        assert hard[0] & hard[1] & hard[2]


def _detection_accuracy(param, x, truth, ignore):
    p, (mean, std) = param.detection_accuracy_param, _means(param)
    right, found, ious = [], [], []
    for n in range(len(x)):
        for h, w in np.ndindex(x.shape[2:]):
            label = int(truth[n, 0, h, w])
            own = min(label, 1) if p.objectness else label
            if own == ignore or (label == 0 and truth[n, 5, h, w] >= p.bg_threshold):
                continue
            order = sorted(range(p.cls_num), key=lambda k: -x[n, k, h, w])
            right.append(own in order[: p.top_k])
            if label == 0:
                continue
            found.append(right[-1])
            t = [x[n, p.cls_num + c, h, w] * std[c] + mean[c] for c in range(4)]
            reach, most = 1 / p.field_xyr, math.log(p.field_whr)
            centre = [min(max(t[c], -reach), reach) * (p.field_w, p.field_h)[c] + ((w, h)[c] + 0.5) * 8 for c in (0, 1)]
            sides = [(p.field_w, p.field_h)[c] * math.exp(min(max(t[2 + c], -most), most)) for c in (0, 1)]
            gx, gy, gw, gh = truth[n, 1:5, h, w]
            mine = (centre[0] - sides[0] / 2, centre[1] - sides[1] / 2, *sides)
            ious.append(_iou(mine, (gx - gw / 2, gy - gh / 2, gw, gh)))
    return [np.mean(right), np.mean(found), np.mean(ious)]


@pytest.mark.parametrize("case", SCORES, ids=str)
def test_the_accuracy_is_the_loop(case):
    bottoms, bench = case.make_bottoms(np.random.default_rng(8)), case.bench()
    expected = _detection_accuracy(bench.layer.param, *bottoms, 1 if "ignore_label" in case.text else None)
    found = [value for top in bench.forward(bottoms) for value in top.ravel()]
    np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-12)


def test_without_objects_there_are_no_scores():
    x, truth = _maps(np.random.default_rng(1), SHAPES)
    truth[:, 0] = 0
    (accuracy, iou) = SCORES[0].bench().forward([x, truth])
    assert accuracy.ravel()[1] == -1 and iou.ravel()[0] == -1
    (top,) = LOSSES[0].bench().forward([x, truth])
    assert top.ravel()[1] == 0 < top.ravel()[0]


@pytest.mark.parametrize("case", BOXES, ids=str)
def test_overlaps_of_moved_regions(case):
    (moves, regions, matched), bench = case.make_bottoms(np.random.default_rng(2)), case.bench()
    mean, std = _means(bench.layer.param)
    before, after = [], []
    for move, region, own in zip(moves.reshape(-1, 12), regions.reshape(-1, 5), matched.reshape(-1, 6), strict=True):
        if own[0] <= 0 or own[5] > 0.975:
            continue
        k = int(own[0])
        x, y, w, h = (move[4 * k + c] * std[c] + mean[c] for c in range(4))
        left, top, wide, high = region[1], region[2], region[3] - region[1] + 1, region[4] - region[2] + 1
        target = (own[1], own[2], own[3] - own[1] + 1, own[4] - own[2] + 1)
        new_w, new_h = wide * math.exp(w), high * math.exp(h)
        new = (x * wide + left + wide / 2 - new_w / 2, y * high + top + high / 2 - new_h / 2, new_w, new_h)
        before.append(_iou((left, top, wide, high), target))
        after.append(_iou(new, target))
    assert before
    found = [float(top.ravel()[0]) for top in bench.forward([moves, regions, matched])]
    np.testing.assert_allclose(found, [np.mean(after), np.mean(before)][: len(found)], rtol=1e-12)


def _pixels(box):
    return box[0], box[1], box[2] - box[0] + 1, box[3] - box[1] + 1


@pytest.mark.parametrize("case", TARGETS, ids=str)
def test_rows_of_regions_are_what_their_overlaps_say(case):
    regions, truth = case.make_bottoms(np.random.default_rng(4))
    bench = case.bench()
    p, (mean, std) = bench.layer.param.proposal_target_param, _means(bench.layer.param)
    kept, labels, targets, inside, outside, matched, *weights = bench.forward([regions, truth])
    kept, labels, matched = kept.reshape(-1, 5), labels.ravel(), matched.reshape(-1, 6)
    np.testing.assert_array_equal(inside, outside)
    known = [tuple(row) for row in np.concatenate([regions.reshape(-1, 5), truth.reshape(-1, 7)[:, :5]])]
    objects, kinds = truth.reshape(-1, 7), {"object": 0, "background": 0, "neither": 0, "drawn": 0}
    for i, row in enumerate(kept):
        ious = [_iou(_pixels(row[1:]), _pixels(g[1:5])) if g[0] == row[0] else 0 for g in objects]
        best = int(np.argmax(ious))
        inside_columns = np.flatnonzero(inside.reshape(len(kept), -1)[i])
        if ious[best] >= p.fg_thr:
            kinds["object"] += 1
            own = objects[best]
            assert own[6] == 0 and labels[i] == own[5]
            np.testing.assert_allclose(matched[i], [own[5], *own[1:5], ious[best]], rtol=1e-9)
            column = 4 * (int(own[5]) if targets.shape[1] == 12 else 1)
            assert inside_columns.tolist() == list(range(column, column + 4))
            (x, y, w, h), (gx, gy, gw, gh) = _pixels(row[1:]), _pixels(own[1:5])
            moves = [(gx + gw / 2 - x - w / 2) / w, (gy + gh / 2 - y - h / 2) / h, math.log(gw / w), math.log(gh / h)]
            expected = [(m - a) / s for m, a, s in zip(moves, mean, std, strict=True)]
            np.testing.assert_allclose(
                targets.reshape(len(kept), -1)[i, inside_columns], expected, rtol=1e-9, atol=1e-12
            )
            continue
        assert labels[i] == 0 and not matched[i].any() and not len(inside_columns)
        kind = "drawn" if tuple(row) not in known else "background"
        kinds["neither" if kind != "drawn" and not p.bg_thr_lw <= ious[best] < p.bg_thr_hg else kind] += 1
    if p.batch_size > 0:
        assert len(kept) == p.batch_size and 0 < kinds["object"] <= round(p.fg_fraction * p.batch_size)
        assert bool(kinds["drawn"]) == (p.batch_size > len(known)) and not targets[labels == 0].any()
        assert p.batch_size < 20 or kinds["neither"]
    else:
        assert kinds["neither"] == kinds["drawn"] == 0 and kinds["object"] and kinds["background"]
    if weights:
        w, share = weights[0].ravel(), p.fg_fraction
        assert w[labels > 0].sum() == pytest.approx(share * len(kept))
        assert w[labels == 0].sum() == pytest.approx((1 - share) * len(kept))
        if p.iou_weighted:
            assert np.ptp(w[labels > 0] / matched[labels > 0, 5]) < 1e-9


NET = """
layer { name: "in" type: "Input" top: "x" top: "labels" top: "objects" input_param { shape { dim: [2, 3, 6, 8] }
  shape { dim: [2, 6, 6, 8] } shape { dim: [3, 7, 1, 1] } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "box" type: "Convolution" bottom: "c" top: "box"
  convolution_param { num_output: 7 kernel_size: 1 weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "loss" type: "DetectionLoss" bottom: "box" bottom: "labels" top: "loss"
  detection_loss_param { cls_num: 3 field_w: 24 field_h: 24 downsample_rate: 8 sample_mode: "mixture" } }
layer { name: "out" type: "BoxOutput" bottom: "box" top: "rois"
  box_output_param { field_w: 24 field_h: 24 downsample_rate: 8 iou_thr: 0.4 } }
layer { name: "target" type: "ProposalTarget" bottom: "rois" bottom: "objects" top: "regions" top: "kinds"
  top: "moves" top: "in" top: "out" top: "matched"
  proposal_target_param { cls_num: 3 batch_size: 9 num_img_per_batch: 2 img_width: 64 img_height: 48 bg_thr_lw: 0 } }
layer { name: "pool" type: "ROIPooling" bottom: "c" bottom: "regions" top: "pool"
  roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.125 } }
layer { name: "reg" type: "InnerProduct" bottom: "pool" top: "reg"
  inner_product_param { num_output: 12 weight_filler { type: "gaussian" std: 0.05 } } }
layer { name: "cls" type: "InnerProduct" bottom: "pool" top: "cls"
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.05 } } }
layer { name: "l2" type: "SmoothL1Loss" bottom: "reg" bottom: "moves" bottom: "in" bottom: "out" top: "l2" }
layer { name: "l3" type: "SoftmaxWithLoss" bottom: "cls" bottom: "kinds" top: "l3"
  propagate_down: true propagate_down: false }
"""


OBJECTS = [[0, 3, 4, 30, 28, 1, 0], [0, 20, 10, 50, 40, 2, 0], [1, 8, 8, 35, 30, 2, 0]]


def _run(**options):
    net, found = Net(parse_net(NET).message, TRAIN, dtype="float64", seed=3, **options), []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        net.blobs["x"].data[...] = rng.normal(size=(2, 3, 6, 8))
        net.blobs["labels"].data[...] = _maps(rng, ((2, 7, 6, 8), (2, 6, 6, 8)))[1]
        net.blobs["objects"].data[...] = np.reshape(OBJECTS, (3, 7, 1, 1))
        net.forward()
        net.backward()
        found.append([net.blobs[n].data.copy() for n in ("loss", "regions", "moves", "l2", "l3")])
        found[-1] += [p.diff.copy() for name in ("c", "box", "reg") for p in net.params[name]]
    net.close()
    return found


def test_in_a_net():
    plain = _run()
    assert all(diff.any() for values in plain for diff in values[5:])
    for order in ("latest", "random"):
        for lms in (None, LMSConfig(threshold_kb=0.1)):
            for ours, theirs in zip(plain, _run(device=SimDevice(64 << 20, order=order), lms=lms), strict=True):
                assert all(map(np.array_equal, ours, theirs))


def test_objects_without_a_class_are_refused():
    regions, truth = TARGETS[0].make_bottoms(np.random.default_rng(4))
    truth[0, 5] = 0
    with pytest.raises(DataError, match="an object's class is 0"):
        TARGETS[0].bench().forward([regions, truth])
    truth[0, 5] = 9
    with pytest.raises(DataError, match="an object's class is 9, of cls_num 3"):
        TARGETS[1].bench().forward([regions, truth])


@pytest.mark.parametrize(
    "type_name, text, shapes, error, message",
    [
        ("DetectionLoss", _loss("coord_num: 3"), SHAPES, LayerParamError, "coord_num is 3"),
        ("DetectionLoss", _loss("objectness: true"), SHAPES, LayerParamError, "objectness, but cls_num 3"),
        ("DetectionLoss", "detection_loss_param { cls_num: 3 field_w: 2 }", SHAPES, LayerParamError, "field_h is 0"),
        ("DetectionLoss", _loss(""), (SHAPES[0], (2, 5, 5, 6)), ShapeError, '"b1"'),
        ("DetectionLoss", _loss("", 4), SHAPES, ShapeError, '"b0": has shape .2, 7, 5, 6.'),
        (
            "DetectionAccuracy",
            SCORES[0].text.replace("cls_num: 3", "cls_num: 3 top_k: 4"),
            SHAPES,
            LayerParamError,
            "top_k",
        ),
        ("BboxAccuracy", "", ((3, 8), (3, 5), (4, 6)), ShapeError, '"b2"'),
        ("ProposalTarget", "proposal_target_param { }", ROWS, LayerParamError, "cls_num is 0"),
        ("ProposalTarget", "proposal_target_param { cls_num: 2 }", ROWS, LayerParamError, "img_width or img_height"),
        ("ProposalTarget", TARGETS[2].text.replace("fg_thr: 0.6", "fg_thr: 0.3"), ROWS, LayerParamError, "is below"),
        ("ProposalTarget", TARGETS[0].text, ((4, 4), (2, 7)), ShapeError, '"b0"'),
    ],
)
def test_refused(type_name, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type_name, text, shapes, 6 if type_name == "ProposalTarget" else 1)
