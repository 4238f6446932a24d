"""RegionLoss and Yolov3: gradients against differences of what they are the gradients of, and values by hand."""

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

NO_EFFECT = "side: 9 softmax: 1 jitter: 0.1 absolute: 1 random: 0 coords: 4"
BIASES = " ".join(f"biases: {v}" for v in (1.3, 1.7, 3.2, 2.0))
WIDE = " ".join(f"biases: {v}" for v in (20, 26, 90, 60, 33, 70))


def _region(more="", anchors=f"num: 2 {BIASES}"):
    return f"region_loss_param {{ num_class: 3 {anchors} thresh: 0.3 {more} }}"


def _v3(more="", mask="mask: 2 mask: 0", num=2):
    head = f"num_class: 3 num: {num} anchors_scale: 16 thresh: 0.3 coord_scale: 1.5 class_scale: 0.75"
    return f"yolov3_param {{ {head} {WIDE} {mask} {more} }}"


def _listed(rng, shapes):
    """Objects in a list, of two per image, then a row of zeros."""
    objects = np.zeros((shapes[1][0], math.prod(shapes[1][1:]) // 5, 5))
    for each in objects:
        each[:2, 0] = rng.integers(3, size=2)
        each[:2, 1:3], each[:2, 3:] = rng.uniform(0.05, 0.95, size=(2, 2)), rng.uniform(0.2, 0.7, size=(2, 2))
    return [rng.normal(size=shapes[0]), objects.reshape(shapes[1])]


def _rows(rng, shapes):
    """The same as rows of AnnotatedData."""
    n = shapes[0][0]
    x, objects = _listed(rng, (shapes[0], (n, 15)))
    rows = np.full((shapes[1][2], 8), -1.0)
    for i, (image, t) in enumerate(np.ndindex(n, 2)):
        c, cx, cy, w, h = objects.reshape(n, 3, 5)[image, t]
        rows[i] = [image, c + 1, 0, cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2, 0]
    return [x, rows.reshape(shapes[1])]


MAP = (2, 16, 4, 5)
LISTED = [
    Case("RegionLoss", _region(NO_EFFECT), (MAP, (2, 15)), maker=_listed),
    Case("RegionLoss", _region("rescore: 0 object_scale: 3 noobject_scale: 0.25"), (MAP, (2, 3, 5)), maker=_listed),
    Case("RegionLoss", _region("bias_match: 0 coord_scale: 2 class_scale: 0.5"), (MAP, (2, 15)), maker=_listed),
    Case("Yolov3", _v3("label_smooth_eps: 0"), (MAP, (2, 15)), maker=_listed),
    Case("Yolov3", _v3("iou_thresh: 0.1 side: 4 noobject_scale: 2"), (MAP, (2, 15)), maker=_listed),
    Case("Yolov3", _v3("use_logic_gradient: true object_scale: 2 iou_thresh: 1"), (MAP, (2, 15)), maker=_listed),
    Case("Yolov3", _v3("use_focal_loss: false iou_loss: MSE iou_normalizer: 1 max_delta: 1 accumulate: false"),
         (MAP, (2, 15)), maker=_listed),
]  # fmt: skip
INTEL = Case("RegionLoss", _region(), (MAP, (1, 1, 6, 8)), maker=_rows)
HOST_CASES = [*LISTED, INTEL, Case("RegionLoss", "loss_weight: 0.5 " + _region(), (MAP, (2, 15)), maker=_listed)]


def _sigmoid(v):
    return 1 / (1 + math.exp(-v))


def _overlap(a, b):
    sides = [
        min(a[k] + a[k + 2] / 2, b[k] + b[k + 2] / 2) - max(a[k] - a[k + 2] / 2, b[k] - b[k + 2] / 2) for k in (0, 1)
    ]
    if min(sides) < 0:
        return 0.0
    return sides[0] * sides[1] / (a[2] * a[3] + b[2] * b[3] - sides[0] * sides[1])


class Objective:
    """What the gradients are gradients of: matches and overlaps are those of the first values, then numbers."""

    def __init__(self, layer, x, objects):
        self.layer, self.p, self.intel = layer, layer.options, layer.type == "RegionLoss" and layer.limits
        self.step = self.p.anchors_scale if layer.type == "Yolov3" else 1
        self.h, self.w, self.learnt, self.idle = *x.shape[2:], {}, set()
        for n, each in enumerate(objects):
            self._match(x, n, [row for row in each if row[3] > 0])

    def _values(self, x, n, a, h, w):
        return x[n, a * 8 : a * 8 + 8, h, w]

    def _box(self, v, a, h, w):
        sides = [math.exp(v[2 + k]) * self.layer.anchors[a][k] / ((self.w, self.h)[k] * self.step) for k in (0, 1)]
        return [(w + _sigmoid(v[0])) / self.w, (h + _sigmoid(v[1])) / self.h, *sides]

    def _match(self, x, n, objects):
        layer, p = self.layer, self.p
        for h, w, a in np.ndindex(self.h, self.w, 2):
            box = self._box(self._values(x, n, a, h, w), a, h, w)
            if all(_overlap(box, each[1:]) <= p.thresh for each in objects):
                self.idle.add((n, a, h, w))
        for each in objects:
            h, w = int(each[2] * self.h), int(each[1] * self.w)
            if layer.type == "Yolov3":
                sides = [
                    [s / (size * self.step) for s, size in zip(b, (self.w, self.h), strict=True)]
                    for b in layer.all_anchors
                ]
            elif p.bias_match:
                sides = [[b[0] / self.w, b[1] / self.h] for b in layer.anchors]
            else:
                sides = [self._box(self._values(x, n, a, h, w), a, h, w)[2:] for a in range(2)]
            common = [_overlap([0, 0, *s], [0, 0, *each[3:]]) for s in sides]
            chosen = [common.index(max(common))]
            if layer.type == "Yolov3":
                chosen += [i for i, c in enumerate(common) if p.iou_thresh < 1 and c > p.iou_thresh]
                chosen = [layer.mask.index(i) for i in dict.fromkeys(chosen) if i in layer.mask]
            for a in chosen:
                key = (n, a, h, w)
                iou = _overlap(self._box(self._values(x, n, a, h, w), a, h, w), each[1:])
                labels = {int(each[0])} | (
                    self.learnt[key][2] if layer.type == "Yolov3" and key in self.learnt else set()
                )
                self.learnt[key] = each, iou, labels
                self.idle.discard(key)

    def __call__(self, x):
        total = 0.0
        for n, a, h, w in self.idle:
            s = _sigmoid(self._values(x, n, a, h, w)[4])
            if self.layer.type == "RegionLoss":
                total += self.p.noobject_scale * s * s / 2
            else:
                total += s * s / 2 if self.p.use_logic_gradient else -math.log(1 - s)
        for (n, a, h, w), (each, iou, labels) in self.learnt.items():
            v, anchor = self._values(x, n, a, h, w), self.layer.anchors[a]
            wanted = [each[1] * self.w - w, each[2] * self.h - h]
            wanted += [
                math.log(each[3] * self.w * self.step / anchor[0]),
                math.log(each[4] * self.h * self.step / anchor[1]),
            ]
            total += (self._region if self.layer.type == "RegionLoss" else self._v3)(v, each, iou, labels, wanted)
        return total

    def _region(self, v, each, iou, labels, wanted):
        p, s, (label,) = self.p, _sigmoid(v[4]), labels
        scale = p.coord_scale * (1 if p.rescore or self.intel else 2 - each[3] * each[4])
        squares = 0.0
        for i in range(4):
            d = (_sigmoid(v[i]) if i < 2 else v[i]) - wanted[i]
            squares += d * d / 2 if not self.intel or abs(d) < 1 else abs(d) - 0.5
        score = (1 - s) ** 4 / 2 if self.intel else (s - (iou if p.rescore else 1)) ** 2 / 2
        entropy = math.log(sum(math.exp(u - v[5 + label]) for u in v[5:]))
        return scale * squares + p.object_scale * score + p.class_scale * entropy

    def _v3(self, v, each, iou, labels, wanted):
        p, logic = self.p, self.p.use_logic_gradient

        def entropy(u, target):
            s = _sigmoid(u)
            return (s - target) ** 2 / 2 if logic else -target * math.log(s) - (1 - target) * math.log(1 - s)

        boxes = sum(entropy(v[i], wanted[i]) if i < 2 else (v[i] - wanted[i]) ** 2 / 2 for i in range(4))
        classes = sum(
            entropy(v[5 + c], (c in labels) * (1 - p.label_smooth_eps) + p.label_smooth_eps / 2) for c in range(3)
        )
        scale = p.coord_scale * (2 - each[3] * each[4])
        return scale * boxes + entropy(v[4], 1) * (p.object_scale if logic else 1) + p.class_scale * classes


def _objects(case, labels):
    if case is INTEL:
        rows = [
            [r[1] - 1, (r[3] + r[5]) / 2, (r[4] + r[6]) / 2, r[5] - r[3], r[6] - r[4], r[0]]
            for r in labels.reshape(-1, 8)
        ]
        return [np.array([r[:5] for r in rows if r[5] == n]) for n in range(2)]
    return list(labels.reshape(2, 3, 5))


@pytest.mark.parametrize("case", [*LISTED, INTEL], ids=str)
def test_gradients_are_those_of_the_objective(case):
    bench = case.bench()
    x, labels = case.make_bottoms(np.random.default_rng(3))
    (loss,) = bench.forward([x, labels])
    (dx, _), _ = bench.backward([np.array(0.5)])
    objective = Objective(bench.layer, x, _objects(case, labels))
    assert len(objective.learnt) >= 2 and len(objective.idle) >= 60
    slopes = np.zeros(x.size)
    for i in range(x.size):
        values = []
        for step in (1e-5, -1e-5):
            moved = x.copy()
            moved.flat[i] += step
            values.append(objective(moved))
        slopes[i] = (values[0] - values[1]) / 2e-5
    np.testing.assert_allclose(dx.reshape(-1), 0.25 * slopes, rtol=1e-5, atol=1e-8)
    if "use_logic" not in case.text:
        assert float(loss) == pytest.approx((slopes**2).sum() / (1 if case is INTEL else 2), rel=1e-6)


@pytest.mark.parametrize("case", LISTED, ids=str)
def test_float32_is_near(case):
    x, labels = case.make_bottoms(np.random.default_rng(3))
    found = []
    for dtype in (np.float32, np.float64):
        bench = case.bench(dtype)
        (loss,) = bench.forward([x, labels])
        found.append((float(loss), bench.backward([np.array(1.0)])[0][0]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-3, atol=1e-5)


def test_background_by_hand():
    """Without objects every score is background: 0.5 * s^2 (1 - s) at s = 1/2 is 1/16; YOLO 3 takes s itself."""
    bench = LayerBench("RegionLoss", _region(), (MAP, (2, 15)))
    assert float(bench.forward([np.zeros(MAP), np.zeros((2, 15))])[0]) == pytest.approx(2 * 4 * 5 / 256)
    bench = LayerBench("Yolov3", _v3(), (MAP, (2, 15)))
    assert float(bench.forward([np.zeros(MAP), np.zeros((2, 15))])[0]) == pytest.approx(2 * 4 * 5 / 4)


def test_logic_gradient_by_hand():
    bench = LayerBench("Yolov3", _v3("use_logic_gradient: true"), (MAP, (2, 15)))
    assert float(bench.forward([np.zeros(MAP), np.zeros((2, 15))])[0]) == pytest.approx(2 * 4 * 5 / 4)
    dx = bench.backward([np.array(1.0)])[0][0].reshape(2, 2, 8, 20)
    assert np.allclose(dx[:, :, 4], 0.5 * 0.25 / 2) and not np.delete(dx, 4, axis=2).any()


def test_the_last_column_has_what_lies_on_the_border():
    labels = np.zeros((2, 15))
    labels[0, :5] = [1, 1.0, 1.0, 0.5, 0.5]
    bench = LayerBench("RegionLoss", _region(), (MAP, (2, 15)))
    bench.forward([np.zeros(MAP), labels])
    dx = bench.backward([np.array(1.0)])[0][0].reshape(2, 2, 8, 4, 5)
    assert {tuple(where) for where in np.argwhere(dx[:, :, 5])[:, 2:]} == {(3, 4)}


SHAPES = (MAP, (2, 15))


@pytest.mark.parametrize(
    "kind, text, shapes, error, message",
    [
        ("RegionLoss", _region(anchors=f"num: 3 {BIASES}"), SHAPES, LayerParamError, "4 biases for 3 anchors"),
        ("RegionLoss", _region("coords: 2"), SHAPES, LayerParamError, "coords is 2"),
        ("RegionLoss", _region('softmax_tree: "x"'), SHAPES, LayerParamError, "softmax_tree is not supported"),
        ("RegionLoss", _region('class_map: "x"'), SHAPES, LayerParamError, "class_map is not supported"),
        ("RegionLoss", _region(), ((2, 15, 4, 5), (2, 15)), ShapeError, '"b0".*16 channels'),
        ("RegionLoss", _region(), (MAP, (2, 14)), ShapeError, '"b1"'),
        ("RegionLoss", _region(), (MAP, (1, 1, 3, 7)), ShapeError, '"b1"'),
        ("Yolov3", _v3(), (MAP, (1, 1, 3, 8)), ShapeError, '"b1"'),
        ("Yolov3", _v3(mask="mask: 0 mask: 3"), SHAPES, LayerParamError, "does not name num 2 of 3"),
        ("Yolov3", _v3(mask="mask: 0"), SHAPES, LayerParamError, "does not name num 2 of 3"),
        ("Yolov3", _v3("iou_loss: GIOU"), SHAPES, LayerParamError, "iou_loss other than MSE"),
        ("Yolov3", _v3("use_focal_loss: true"), SHAPES, LayerParamError, "use_focal_loss"),
    ],
)
def test_refused(kind, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(kind, text, shapes)


@pytest.mark.parametrize(
    "row", [(3, 0.5, 0.5, 0.1, 0.1), (0, 1.1, 0.5, 0.1, 0.1), (0, 0.5, 0.5, 0.1, -0.1), (-1, 0, 0, 1, 1)]
)
def test_objects_out_of_range(row):
    labels = np.zeros((2, 15))
    labels[1, :5] = row
    with pytest.raises(DataError, match=r'layer "l".*"b1": image 1 has an object'):
        LayerBench("RegionLoss", _region(), SHAPES).forward([np.zeros(MAP), labels])


NET = """
layer { name: "in" type: "Input" top: "x" top: "label"
  input_param { shape { dim: [2, 3, 4, 5] } shape { dim: [2, 15] } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "v2" type: "RegionLoss" bottom: "c" bottom: "label" top: "v2" %s }
layer { name: "v3" type: "Yolov3" bottom: "c" bottom: "label" top: "v3" loss_weight: 0.5 %s }
"""


def _run(**options):
    net = Net(parse_net(NET % (_region(), _v3())).message, TRAIN, seed=3, **options)
    rng, losses = np.random.default_rng(5), []
    net.blobs["x"].data[...] = rng.normal(size=(2, 3, 4, 5))
    net.blobs["label"].data[...] = _listed(rng, (MAP, (2, 15)))[1]
    for _ in range(60):
        net.clear_param_diffs()
        net.forward()
        net.backward()
        losses.append((float(net.blobs["v2"].data), float(net.blobs["v3"].data)))
        for blob in net.params["c"]:
            blob.data[...] -= 0.005 * blob.diff
    return losses, net.params["c"][0].data.copy()


def test_a_net_learns_alike_everywhere():
    losses, weights = _run()
    assert losses[-1][0] < 0.5 * losses[0][0] and losses[-1][1] < 0.5 * losses[0][1]
    for lms in (None, LMSConfig(threshold_kb=0.1)):
        device = SimDevice(64 << 20, order="random")
        again = _run(device=device, lms=lms)
        assert again[0] == losses and np.array_equal(again[1], weights)
