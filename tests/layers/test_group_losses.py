"""DetectionGroupLoss and DetectionGroupAccuracy against loops over single positions; drawn samples; refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import DataError, LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench

REG = "bbox_reg_param { bbox_mean: [0.1, -0.1, 0.05, 0] bbox_std: [0.5, 0.4, 0.3, 0.2] }"
FIELD = "field_w: [24, 16] field_h: [20, 30] stride: 8"
SIZES = ((24, 20), (16, 30))


def _loss(more, classes=3, after=""):
    return f"detection_group_loss_param {{ cls_num: {classes} {FIELD} {more} }} {after}"


def _accuracy(more, classes=3, after=""):
    return f"detection_group_accuracy_param {{ cls_num: {classes} {FIELD} {more} }} {after}"


def _maps(rng, shapes):
    """Scores, moves and labels: objects at some positions, and overlaps."""
    scores, moves, (n, _, h, w) = rng.normal(size=shapes[0]), rng.normal(size=shapes[1]) * 0.7, shapes[2]
    labels = np.zeros(shapes[2])
    labels[:, 0] = rng.integers(shapes[0][1], size=(n, h, w)) * (rng.uniform(size=(n, h, w)) < 0.3)
    rows, columns = np.mgrid[:h, :w] * 8 + 4
    labels[:, 1:3] = np.stack([columns, rows]) + rng.normal(size=(n, 2, h, w)) * 4
    labels[:, 3:5] = rng.uniform(1, 40, size=(n, 2, h, w))
    labels[:, 5] = rng.uniform(size=(n, h, w))
    return [scores, moves, labels]


SHAPES = ((4, 3, 4, 5), (4, 4, 4, 5), (4, 6, 4, 5))
TWO = ((4, 2, 4, 5), (4, 4, 4, 5), (4, 6, 4, 5))
MINED = 'neg_mining_type: "bootstrap"'
CERTAIN = [
    Case("DetectionGroupLoss", _loss("min_num_neg: 99"), SHAPES, maker=_maps),  # all background
    Case(
        "DetectionGroupLoss",
        _loss(f"{MINED} bg_multiple: 1 min_num_neg: 3 field_whr: 1.5 field_xyr: 3 lambda: 0.5", after=REG),
        SHAPES,
        maker=_maps,
    ),
    Case(
        "DetectionGroupLoss",
        _loss(
            f'{MINED} neg_ranking_type: "conf_prob" bg_multiple: 2 pos_neg_weighted: true bg_threshold: 0.8 '
            'bbox_loss_type: "Euclidean_L2" batch_size: -1',
            after="loss_param { ignore_label: 2 }",
        ),
        SHAPES,
        maker=_maps,
    ),
    Case("DetectionGroupLoss", _loss(f"{MINED} batch_size: 30 bg_multiple: 1 objectness: true", 2), TWO, maker=_maps),
]
DRAWN = [
    Case("DetectionGroupLoss", _loss("batch_size: 12 bg_multiple: 2"), SHAPES, maker=_maps),
    Case("DetectionGroupLoss", _loss('neg_mining_type: "mixture" bg_multiple: 1'), SHAPES, maker=_maps),
]
SCORES = [
    Case("DetectionGroupAccuracy", _accuracy("field_whr: 1.5 field_xyr: 3"), SHAPES, 2, maker=_maps),
    Case(
        "DetectionGroupAccuracy",
        _accuracy("bg_threshold: 0.4", after=f"{REG} loss_param {{ ignore_label: 1 }}"),
        SHAPES,
        2,
        maker=_maps,
    ),
    Case("DetectionGroupAccuracy", _accuracy("objectness: true", 2), TWO, maker=_maps),
]
HOST_CASES = CERTAIN + DRAWN + SCORES


def _means(param):
    p = param.bbox_reg_param
    return (list(p.bbox_mean), list(p.bbox_std)) if p.bbox_std else ([0.0] * 4, [1.0] * 4)


def _chance(scores, n, h, w):
    e = np.exp(scores[n, :, h, w])
    return e / e.sum()


def _kept(p, scores, labels):
    """Which positions count, picture by picture, where the background is not drawn and no object is left out."""
    kept = []
    for image in range(len(scores) // 2):
        places = [(2 * image + g, h, w) for g in (0, 1) for h, w in np.ndindex(labels.shape[2:])]
        positive = [(n, h, w) for n, h, w in places if labels[n, 0, h, w] > 0]
        free = [(n, h, w) for n, h, w in places if labels[n, 0, h, w] == 0 and labels[n, 5, h, w] < p.bg_threshold]
        if p.batch_size == -1:
            wanted = max(len(positive) * p.bg_multiple, p.min_num_neg)
        else:
            assert len(positive) <= round(p.batch_size / (1 + p.bg_multiple))
            wanted = p.batch_size - len(positive)
        assert p.neg_mining_type == "bootstrap" or wanted >= len(free)
        kept += positive + sorted(free, key=lambda place: _chance(scores, *place)[0])[:wanted]
    return kept


def _group_loss(param, scores, moves, truth, ignore):
    p, (mean, std) = param.detection_group_loss_param, _means(param)
    kept = _kept(p, scores, truth)
    label = {place: int(truth[place[0], 0, place[1], place[2]]) for place in kept}
    positive = [place for place in kept if label[place]]
    weight = dict.fromkeys(kept, 1.0)
    if p.pos_neg_weighted:
        share = 1 / (1 + p.bg_multiple)
        for place in kept:
            many = len(positive) if label[place] else len(kept) - len(positive)
            weight[place] = (share if label[place] else 1 - share) * len(kept) / many
    counts = [place for place in kept if label[place] != ignore]
    losses, of_classes, of_places = [0.0, 0.0], np.zeros(scores.shape), np.zeros(moves.shape)
    for n, h, w in counts:
        k = min(label[n, h, w], 1) if p.objectness else label[n, h, w]
        chance = _chance(scores, n, h, w)
        losses[0] -= math.log(chance[k]) * weight[n, h, w] / len(counts)
        of_classes[n, :, h, w] = (chance - np.eye(len(chance))[k]) * weight[n, h, w] / len(counts)
    objects = [place for place in positive if label[place] != ignore]
    limited = p.HasField("field_xyr")
    for n, h, w in objects:
        for c in range(4):
            side = SIZES[n % 2][c % 2]
            value = truth[n, 1 + c, h, w]
            wanted = (value - ((w, h)[c] + 0.5) * 8) / side if c < 2 else math.log(max(value, 2) / side)
            seen = moves[n, c, h, w]
            if limited:
                first = c // 2 * 2
                centre, deviation = (mean[first] + mean[first + 1]) / 2, math.sqrt(std[first] * std[first + 1])
                limit = 1 / p.field_xyr if c < 2 else math.log(p.field_whr)
                seen = min(max(seen, (-limit - centre) / deviation), (limit - centre) / deviation)
            d, part = seen - (wanted - mean[c]) / std[c], getattr(p, "lambda") / (4 * len(objects))
            linear = p.bbox_loss_type == "Smooth_L1" and abs(d) >= 1
            losses[1] += part * (abs(d) - 0.5 if linear else d * d / 2)
            of_places[n, c, h, w] = part * (math.copysign(1, d) if linear else d)
    return losses, of_classes, of_places


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CERTAIN, ids=str)
def test_the_loss_is_the_loop(case, dtype, tolerance):
    bottoms = [value.astype(dtype) for value in case.make_bottoms(np.random.default_rng(5))]
    bench = case.bench(dtype)
    (top,) = bench.forward(bottoms)
    ignore = 2 if "ignore_label" in case.text else None
    (classes, places), *slopes = _group_loss(bench.layer.param, *(b.astype(float) for b in bottoms), ignore)
    assert min(classes, places) > 0 and top.shape == (1, 1, 1, 2)
    np.testing.assert_allclose(top.ravel(), [classes + places, places], rtol=tolerance)
    (*found, none), _ = bench.backward([np.reshape([3.0, 99.0], top.shape)])
    assert none is None
    for ours, wanted in zip(found, slopes, strict=True):
        np.testing.assert_allclose(ours, 3 * wanted, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [CERTAIN[0], CERTAIN[3]], ids=str)
def test_the_slope_of_the_loss(case):
    """Central differences of the first number; the background is the same for small steps."""
    bottoms, bench = case.make_bottoms(np.random.default_rng(6)), case.bench()
    bench.forward(bottoms)
    slopes, _ = bench.backward([np.reshape([1.0, 0.0], (1, 1, 1, 2))])
    rng = np.random.default_rng(7)
    for _ in range(5):
        steps = [rng.normal(size=b.shape) * 1e-6 for b in bottoms[:2]] + [0]
        up, down = (
            float(bench.forward([b + s * step for b, step in zip(bottoms, steps, strict=True)])[0].ravel()[0])
            for s in (1, -1)
        )
        wanted = sum((slope * step).sum() for slope, step in zip(slopes[:2], steps[:2], strict=True))
        assert (up - down) / 2 == pytest.approx(wanted, rel=1e-4, abs=1e-13)


def test_of_equal_scores_the_last_are_taken():
    scores, moves, truth = _maps(np.random.default_rng(1), SHAPES)
    scores[...], truth[:, 0], truth[:, 5] = 0, 0, 0
    bench = LayerBench("DetectionGroupLoss", _loss(f"{MINED} min_num_neg: 3"), SHAPES)
    bench.forward([scores, moves, truth])
    (slopes, _, _), _ = bench.backward([np.reshape([1.0, 0.0], (1, 1, 1, 2))])
    chosen = slopes.any(axis=1).reshape(2, -1)
    assert all(np.flatnonzero(mine).tolist() == [37, 38, 39] for mine in chosen)


@pytest.mark.parametrize("case", DRAWN, ids=str)
def test_drawn_positions(case):
    bottoms, bench = _maps(np.random.default_rng(3), SHAPES), case.bench()
    truth, seen = bottoms[2], []
    objects, free = truth[:, 0] > 0, (truth[:, 0] == 0) & (truth[:, 5] < 0.5)
    for _ in range(3):
        bench.forward(bottoms)
        (slopes, moved, _), _ = bench.backward([np.reshape([1.0, 0.0], (1, 1, 1, 2))])
        chosen = slopes.any(axis=1)
        assert not (chosen & ~free & ~objects).any() and not (moved.any(axis=1) & ~(chosen & objects)).any()
        for mine, good, bad in zip(*(a.reshape(2, -1) for a in (chosen, objects, free)), strict=True):
            many = int((mine & good).sum())
            if "batch_size" in case.text:
                assert many == min(4, good.sum()) and (mine & bad).sum() == 12 - many
            else:
                assert many == good.sum() and (mine & bad).sum() == min(bad.sum(), max(many, 5))
        seen.append(chosen)
    assert not np.array_equal(seen[0], seen[1])
    other = case.bench()
    other.layer.set_state({"seed": bench.layer.seed, "draws": 2})
    other.forward(bottoms)
    (slopes, _, _), _ = other.backward([np.reshape([1.0, 0.0], (1, 1, 1, 2))])
    np.testing.assert_array_equal(slopes.any(axis=1), seen[2])
    if "mixture" in case.text:  # the half that is not drawn is always there
        certain = np.array([[_chance(bottoms[0], n, h, w)[0] for h, w in np.ndindex(4, 5)] for n in range(4)])
        for image in (0, 1):
            places = np.flatnonzero(free.reshape(2, -1)[image])
            number = int((seen[0] & free).reshape(2, -1)[image].sum())
            hard = places[np.argsort(certain.reshape(2, -1)[image][places])][: (number + 1) // 2]
            assert number < len(places) and all(s.reshape(2, -1)[image][hard].all() for s in seen)


def _group_accuracy(param, scores, moves, truth, ignore):
    p, (mean, std) = param.detection_group_accuracy_param, _means(param)
    right, found, ious = [], [], []
    for n in range(len(scores)):
        for h, w in np.ndindex(scores.shape[2:]):
            label = int(truth[n, 0, h, w])
            own = min(label, 1) if p.objectness else label
            if label != 0 and label != ignore:
                t = [moves[n, c, h, w] * std[c] + mean[c] for c in range(4)]
                reach, most = 1 / p.field_xyr, math.log(p.field_whr)
                wide, high = (SIZES[n % 2][c] * math.exp(min(max(t[2 + c], -most), most)) for c in (0, 1))
                x, y = (
                    min(max(t[c], -reach), reach) * SIZES[n % 2][c] + ((w, h)[c] + 0.5) * 8 - (wide, high)[c] / 2
                    for c in (0, 1)
                )
                gx, gy, gw, gh = truth[n, 1:5, h, w]
                gx, gy = gx - gw / 2, gy - gh / 2
                left, top = max(x, gx), max(y, gy)
                right_, bottom = min(x + wide - 1, gx + gw - 1), min(y + high - 1, gy + gh - 1)
                over = 0 if left > right_ or top > bottom else (right_ - left + 1) * (bottom - top + 1)
                ious.append(over / (wide * high + gw * gh - over))
            if own == ignore or (label == 0 and truth[n, 5, h, w] >= p.bg_threshold):
                continue
            right.append(max(range(p.cls_num), key=scores[n, :, h, w].__getitem__) == own)
            if label:
                found.append(right[-1])
    return [np.mean(right), np.mean(found), np.mean(ious)]


@pytest.mark.parametrize("case", SCORES, ids=str)
def test_the_accuracy_is_the_loop(case):
    bottoms, bench = case.make_bottoms(np.random.default_rng(8)), case.bench()
    expected = _group_accuracy(bench.layer.param, *bottoms, 1 if "ignore_label" in case.text else None)
    found = [value for top in bench.forward(bottoms) for value in top.ravel()]
    np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-12)


def test_without_objects_there_are_no_scores():
    scores, moves, truth = _maps(np.random.default_rng(1), SHAPES)
    truth[:, 0] = 0
    accuracy, iou = SCORES[0].bench().forward([scores, moves, truth])
    assert accuracy.ravel()[1] == -1 and iou.ravel()[0] == -1
    (top,) = CERTAIN[0].bench().forward([scores, moves, truth])
    assert top.ravel()[1] == 0 < top.ravel()[0]


def test_an_object_of_no_class_is_refused():
    scores, moves, truth = _maps(np.random.default_rng(3), SHAPES)
    truth[0, 0, 0, 0] = 3
    with pytest.raises(DataError, match=r"bottom 2 has the label 3, outside 0\.\.2"):
        CERTAIN[0].bench().forward([scores, moves, truth])


@pytest.mark.parametrize(
    "type_name, text, shapes, error, message",
    [
        ("DetectionGroupLoss", _loss("objectness: true"), SHAPES, LayerParamError, "objectness, but cls_num 3"),
        ("DetectionGroupLoss", _loss('neg_mining_type: "x"'), SHAPES, LayerParamError, 'neg_mining_type is "x"'),
        ("DetectionGroupLoss", _loss("batch_size: 0"), SHAPES, LayerParamError, "batch_size is 0"),
        ("DetectionGroupLoss", _loss("field_w: 3"), SHAPES, LayerParamError, "as many field_w as field_h"),
        ("DetectionGroupLoss", _loss("field_whr: 2 field_xyr: 0"), SHAPES, LayerParamError, "field_xyr is 0"),
        ("DetectionGroupLoss", _loss(""), (SHAPES[0], SHAPES[1], (4, 5, 4, 5)), ShapeError, '"b2"'),
        ("DetectionGroupLoss", _loss(""), tuple((3, *s[1:]) for s in SHAPES), ShapeError, "3 items, no multiple of 2"),
        ("DetectionGroupAccuracy", _accuracy("field_whr: 0"), SHAPES, LayerParamError, "field_whr is 0"),
        ("DetectionGroupAccuracy", _accuracy("", 4), SHAPES, ShapeError, '"b0"'),
    ],
)
def test_refused(type_name, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type_name, text, shapes)
