"""FrcnnOutput, HardMining, and Cascade R-CNN's forms of ProposalTarget, BboxAccuracy and DetectionEvaluate: loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms import TEST, Net
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DataError, LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.proto.caffe_pb2 import SolverParameter
from pycaffe_lms.solvers.detection_scores import DetectionScores

from .cases import Case
from .harness import LayerBench

REG = "bbox_mean: [0.1, -0.1, 0.05, 0] bbox_std: [0.5, 0.4, 0.3, 0.2]"


def _found(rng, shapes):
    rows, classes = shapes[0][:2]
    low = rng.uniform(0, 50, size=(rows, 2))
    regions = np.column_stack([np.zeros(rows), low, low + rng.uniform(10, 40, size=(rows, 2)), rng.uniform(size=rows)])
    chances = rng.dirichlet(np.full(classes, 0.5), size=rows)
    size = np.array([48.0, 64.0])
    values = (chances, rng.normal(size=shapes[1]) * 0.3, regions[:, : shapes[2][1]], size)
    return [value.reshape(shape) for value, shape in zip(values, shapes, strict=True)]


def _mined(rng, shapes):
    regions = np.column_stack([rng.integers(2, size=shapes[1][0]), rng.uniform(0, 9, size=(shapes[1][0], 4))])
    losses = np.round(rng.uniform(size=shapes[0]), 1)  # some are equal
    return [losses, regions.reshape(shapes[1]), *(rng.normal(size=shape) for shape in shapes[2:])]


OUTPUT = "frcnn_output_param { conf_thr: 0.05 iou_thr: 0.4"
OUTPUTS = [
    Case(
        "FrcnnOutput",
        f'{OUTPUT} nms_type: "IOU" }} bbox_reg_param {{ {REG} }}',
        ((12, 3), (12, 12), (12, 5), (1, 2)),
        maker=_found,
    ),
    Case(
        "FrcnnOutput",
        f"{OUTPUT} max_det_num: 7 }} bbox_reg_param {{ cls_aware: false {REG} }}",
        ((12, 4, 1, 1), (12, 8, 1, 1), (12, 6, 1, 1), (1, 2, 1, 1)),
        maker=_found,
    ),
]
MINING = "hard_mining_param { num_image: 2 num_roi_per_image: 4 }"
MININGS = [
    Case("HardMining", MINING, ((20, 1, 1, 1), (20, 5, 1, 1), (20, 2, 3)), 2, maker=_mined),
    Case("HardMining", MINING, ((6,), (6, 5)), 1, maker=_mined),
]


def _targets(rng, shapes):
    rows, objects = shapes[0][0], shapes[1][0]
    low = rng.uniform(0, 90, size=(objects, 2))
    truth = np.zeros((objects, 8))
    truth[:, 0], truth[:, 5] = np.arange(objects) % 2, rng.integers(1, 3, size=objects)
    truth[:, 1:3], truth[:, 3:5] = low, low + rng.uniform(20, 60, size=(objects, 2))
    truth[-1] = -1
    near = truth[np.arange(rows) % (objects - 1)]
    found = np.zeros((rows, 5))
    found[:, 0], found[:, 1:] = (
        near[:, 0],
        near[:, 1:5] + rng.normal(size=(rows, 4)) * np.linspace(0.5, 30, rows)[:, None],
    )
    found[:, 3:] = np.maximum(found[:, 3:], found[:, 1:3] + 5)
    return [found.reshape(shapes[0]), truth.reshape(shapes[1])]


TARGET_SHAPES = ((24, 5, 1, 1), (5, 8, 1, 1))
TARGETS = [
    Case(
        "ProposalTarget",
        "proposal_target_param { cls_num: 3 batch_size: 64 num_img_per_batch: 2 img_width: 160 img_height: 150 "
        "bg_thr_lw: 0.2 pickup_discard: false bbox_thr_lw: 0.55 bbox_thr_hg: 0.9 } bbox_reg_param { cls_aware: false }",
        TARGET_SHAPES,
        6,
        maker=_targets,
    ),
    Case(
        "ProposalTarget",
        "proposal_target_param { cls_num: 3 batch_size: -1 append_gtbox: false fg_thr: 0.6 bg_thr_hg: 0.6 }",
        TARGET_SHAPES,
        6,
        maker=_targets,
    ),
]
TRUTH = [  # image, box, class, ignored, difficult
    [0, 10, 10, 29, 29, 1, 0, 0],
    [0, 60, 60, 79, 79, 1, 0, 1],
    [0, 5, 40, 24, 69, 2, 1, 0],
    [-1] * 8,
]
FOUND = [  # image, box, class, score
    [0, -1, -1, -1, -1, -1, -1],
    [0, 10, 0, 39, 29, 1, 0.3],
    [0, 0, 10, 19, 29, 1, 0.7],
    [0, 10, 11, 29, 29, 1, 0.9],
    [0, 62, 60, 80, 79, 1, 0.8],
    [0, 5, 40, 24, 59, 2, 0.2],
]


def _rows(rng, shapes):
    return [np.array(v, float).reshape(s) for v, s in zip((FOUND, TRUTH, [100, 200]), shapes, strict=True)]


EVAL_SHAPES = ((6, 7, 1, 1), (4, 8, 1, 1), (1, 2, 1, 1))
HOST_CASES = OUTPUTS + MININGS + TARGETS


def _iou(a, b):
    wide, high = (min(a[2 + k], b[2 + k]) - max(a[k], b[k]) + 1 for k in (0, 1))
    if wide < 1 or high < 1:
        return 0.0
    areas = sum((c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b))
    return wide * high / (areas - wide * high)


def _output(param, chances, moves, regions, size):
    p, reg, rows = param.frcnn_output_param, param.bbox_reg_param, []
    height, width = size.ravel()
    chances, moves, regions = (a.reshape(len(a), -1) for a in (chances, moves, regions))
    for k in range(1, chances.shape[1]):
        mine = []
        for i in range(len(chances)):
            if chances[i, k] < p.conf_thr:
                continue
            x1, y1, x2, y2 = regions[i, 1:5]
            first = 4 * k if reg.cls_aware else 4
            x, y, w, h = (moves[i, first + c] * reg.bbox_std[c] + reg.bbox_mean[c] for c in range(4))
            wide, high = (x2 - x1 + 1) * math.exp(w), (y2 - y1 + 1) * math.exp(h)
            left = x * (x2 - x1 + 1) + (x1 + x2) / 2 - (wide - 1) / 2
            top = y * (y2 - y1 + 1) + (y1 + y2) / 2 - (high - 1) / 2
            box = max(left, 0), max(top, 0), min(left + wide - 1, width), min(top + high - 1, height)
            mine.append((0, *box, k, chances[i, k]))
        kept = []
        for row in sorted(mine, key=lambda r: -r[6]):
            if all(_iou(row[1:5], other[1:5]) <= p.iou_thr for other in kept):
                kept.append(row)
        rows += kept
    if p.max_det_num:
        best = sorted(rows, key=lambda r: -r[6])[: p.max_det_num]
        rows = [row for row in rows if row in best]
    return [(0, *[-1] * 6), *rows]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", OUTPUTS, ids=str)
def test_the_output_is_the_loop(case, dtype, tolerance):
    bottoms = [value.astype(dtype) for value in case.make_bottoms(np.random.default_rng(5))]
    bench = case.bench(dtype)
    (top,) = bench.forward(bottoms)
    expected = np.array(_output(bench.layer.param, *(b.astype(float) for b in bottoms)))
    assert top.shape == (len(expected), 7, 1, 1) and len(expected) > 5
    np.testing.assert_allclose(top.reshape(-1, 7), expected, rtol=tolerance, atol=10 * tolerance)


def _hardest(losses, images, per_image, wanted):
    order = sorted(range(len(losses)), key=lambda i: (-losses[i], -i))
    first = [i for n in (0, 1) for i in [k for k in order if images[k] == n][:per_image]]
    rest = [i for i in order if i not in first]
    return sorted((first + rest)[:wanted])


@pytest.mark.parametrize("case", MININGS, ids=str)
def test_the_hardest_regions(case):
    bottoms, bench = case.make_bottoms(np.random.default_rng(2)), case.bench()
    if len(bottoms[0]) == 20:
        bottoms[1][:, 0] = np.reshape([0] * 18 + [1] * 2, (20, 1, 1))  # two of one picture, so more of the other
    tops = bench.forward(bottoms)
    images = bottoms[1].reshape(-1, 5)[:, 0]
    chosen = _hardest(bottoms[0].ravel(), images, 4, min(8, len(images)))
    assert len({tuple(t.shape[:1]) for t in tops}) == 1
    for top, bottom in zip(tops, bottoms[1:], strict=True):
        np.testing.assert_array_equal(top, bottom[chosen])


@pytest.mark.parametrize("case", TARGETS, ids=str)
def test_targets_of_eight_numbers(case):
    regions, truth = case.make_bottoms(np.random.default_rng(4))
    bench = case.bench()
    p, aware = bench.layer.param.proposal_target_param, bench.layer.param.bbox_reg_param.cls_aware
    kept, labels, _, inside, _, matched = (t.reshape(len(t), -1) for t in bench.forward([regions, truth]))
    objects = truth.reshape(-1, 8)[:4]
    known = [tuple(row) for row in regions.reshape(-1, 5)]
    if p.append_gtbox:
        known += [tuple(row) for row in objects[:, :5]]
    wanted = {"object": [], "background": []}
    for row in known:
        best = max((_iou(row[1:], g[1:5]) if g[0] == row[0] else 0) for g in objects)
        if best >= p.fg_thr:
            wanted["object"].append(row)
        elif p.bg_thr_lw <= best < p.bg_thr_hg:
            wanted["background"].append(row)
    rows = [tuple(row) for row in kept]
    good = [row for row, label in zip(rows, labels.ravel(), strict=True) if label]
    if p.batch_size > 0:
        assert len(good) == min(16, len(wanted["object"])) and set(good) <= set(wanted["object"])
    else:
        assert good == wanted["object"]
    assert rows[len(good) :] == wanted["background"]  # none is added, where there are too few
    overlap = matched[: len(good), 5]
    learnt = (overlap >= p.bbox_thr_lw) & (overlap <= p.bbox_thr_hg)
    columns = [4 * (int(k) if aware else 1) for k in labels.ravel()[: len(good)]]
    assert [inside[i, c] for i, c in enumerate(columns)] == learnt.tolist()
    assert p.bbox_thr_lw == 0 or 0 < learnt.sum() < len(good)


def test_without_regions_one_is_drawn_where_the_size_of_pictures_is_given():
    text = TARGETS[1].text.replace(
        "cls_num: 3", "cls_num: 3 bg_thr_lw: 0.5 img_width: 90 img_height: 80 num_img_per_batch: 1"
    )
    bench = LayerBench("ProposalTarget", text, ((1, 5), (1, 8)), 6)
    kept, labels, *_ = bench.forward([np.array([[0, 1, 1, 5, 5.0]]), np.array([[0, 20, 20, 60, 60, 1, 0, 0.0]])])
    assert kept.shape == (1, 5, 1, 1) and not labels.any()
    _, x1, y1, x2, y2 = kept.ravel()
    assert min(x2 - x1, y2 - y1) >= 31 and _iou((x1, y1, x2, y2), (20, 20, 60, 60)) < 0.6
    bench = LayerBench(
        "ProposalTarget", TARGETS[1].text.replace("0.6 bg", "0.6 bg_thr_lw: 0.5 bg"), ((1, 5), (1, 8)), 6
    )
    kept, *_ = bench.forward([np.array([[0, 1, 1, 5, 5.0]]), np.array([[0, 20, 20, 60, 60, 1, 0, 0.0]])])
    assert kept.shape == (0, 5, 1, 1)


def test_overlaps_without_classes():
    """One region moved by half its width onto an object of class 2; cls_aware: false has its move in column 1."""
    moves = np.zeros((1, 8))
    moves[0, 4] = 0.5
    matched = np.array([[2, 15, 10, 34, 29, 0.4]])
    bench = LayerBench("BboxAccuracy", "bbox_reg_param { cls_aware: false }", ((1, 8), (1, 5), (1, 6)), 2)
    after, before = bench.forward([moves, np.array([[0, 5, 10, 24, 29.0]]), matched])
    assert float(after.item()) == 1 and float(before.item()) == pytest.approx(200 / 600)


@pytest.fixture
def sizes(tmp_path):
    (tmp_path / "sizes.txt").write_text("a 50 200\nb 100 200\n")  # half as high, and then as it is
    return f'detection_evaluate_param {{ num_classes: 3 name_size_file: "{tmp_path}/sizes.txt"'


def _judged(bottoms, ratio, threshold, difficult):
    """Rows as the fork's text says, one detection after the other."""
    found, truth, _ = (b.reshape(len(b), -1) for b in bottoms)
    truth = truth[truth[:, 0] >= 0]
    counted = truth if difficult else truth[truth[:, 7] == 0]
    rows = [[-1, k, (counted[:, 5] == k).sum(), -1, -1] for k in (1, 2)]
    stretch = [1, ratio, 1, ratio]
    for k in (1, 2):
        mine, taken = truth[truth[:, 5] == k], set()
        for row in sorted(found[found[:, 5] == k], key=lambda r: -r[6]):
            ious = [_iou(row[1:5] * stretch, g[1:5] * stretch) for g in mine]
            j = int(np.argmax(ious))
            if ious[j] < threshold:
                rows.append([0, k, row[6], 0, 1])
            elif not difficult and mine[j][7]:
                rows.append([0, k, row[6], 0, 0])
            else:
                rows.append([0, k, row[6], int(j not in taken), int(j in taken)])
                taken.add(j)
    return rows


@pytest.mark.parametrize("difficult", [True, False])
@pytest.mark.parametrize("threshold", [0.3, 0.49, 0.6])
def test_evaluation_in_pixels_of_the_picture(sizes, threshold, difficult):
    text = f"{sizes} overlap_threshold: {threshold} evaluate_difficult_gt: {str(difficult).lower()} }}"
    bench = LayerBench("DetectionEvaluate", text, EVAL_SHAPES)
    bottoms = _rows(None, EVAL_SHAPES)
    for ratio in (0.5, 1, 0.5):  # the lines of the file, in turn
        (top,) = bench.forward(bottoms)
        expected = _judged(bottoms, ratio, threshold, difficult)
        assert top.shape == (len(expected), 5, 1, 1)
        np.testing.assert_allclose(top.reshape(-1, 5), expected)


NET = """
layer {{ name: "in" type: "Input" top: "chances" top: "moves" top: "regions" top: "size" top: "gt" input_param {{
  shape {{ dim: [12, 3] }} shape {{ dim: [12, 12] }} shape {{ dim: [12, 5] }} shape {{ dim: [1, 2, 1, 1] }}
  shape {{ dim: [4, 8, 1, 1] }} }} }}
layer {{ name: "out" type: "FrcnnOutput" bottom: "chances" bottom: "moves" bottom: "regions" bottom: "size" top: "out"
  {output} }} }}
layer {{ name: "eval" type: "DetectionEvaluate" bottom: "out" bottom: "gt" bottom: "size" top: "eval" {sizes} }} }}
"""


def test_in_a_net(sizes):
    message, found = parse_net(NET.format(output=OUTPUT, sizes=sizes)).message, []
    for options in ({}, {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=0.1)}):
        net = Net(message, TEST, dtype="float64", **options)
        found.append([])
        for seed in (1, 2):
            values = (*_found(np.random.default_rng(seed), [net.blobs[n].shape for n in list(net.blobs)[:4]]), TRUTH)
            for name, value in zip(("chances", "moves", "regions", "size", "gt"), values, strict=True):
                net.blobs[name].data[...] = np.reshape(value, net.blobs[name].shape)
            net.forward()
            rows = net.blobs["out"].data.copy(), net.blobs["eval"].data.copy()
            assert len(rows[1]) == len(rows[0]) + 1  # without the row of no object, with one for each class
            found[-1] += rows
        net.close()
    assert all(map(np.array_equal, *found)) and len(found[0][0]) != len(found[0][2])


def test_a_solver_scores_it(sizes):
    """One object of two is found, and nothing else: its class has average precision 1, the other one 0."""
    text = NET.format(output=OUTPUT, sizes=sizes)
    for of_many, of_one in (("[12, 3]", "[1, 3]"), ("[12, 12]", "[1, 12]"), ("[12, 5]", "[1, 5]"), ("[4, 8", "[2, 8")):
        text = text.replace(of_many, of_one)
    net = Net(parse_net(text).message, TEST)
    truth = [[0, 10, 10, 29, 29, 1, 0, 0], [0, 60, 60, 79, 79, 2, 0, 0]]
    values = [[0, 1, 0]], np.zeros((1, 12)), [[0, 10, 10, 29, 29]], [50, 200], truth
    for name, value in zip(("chances", "moves", "regions", "size", "gt"), values, strict=True):
        net.blobs[name].data[...] = np.reshape(value, net.blobs[name].shape)
    net.forward()
    scores = DetectionScores(net, SolverParameter(ap_version="Integral"), ["eval"])
    scores.add()
    ((name, value, _),) = scores.outputs()
    assert (name, value) == ("eval", 0.5)
    net.close()


@pytest.mark.parametrize(
    "type_name, text, shapes, tops, error, message",
    [
        ("FrcnnOutput", 'frcnn_output_param { nms_type: "x" }', OUTPUTS[0].shapes, 1, LayerParamError, 'nms_type "x"'),
        ("FrcnnOutput", "", ((12, 3), (12, 8), (12, 5), (1, 2)), 1, ShapeError, '"b1"'),
        ("FrcnnOutput", "", ((12, 3), (12, 12), (12, 5), (2, 2)), 1, ShapeError, '"b3"'),
        ("HardMining", "hard_mining_param { num_image: 0 }", ((6,), (6, 5)), 1, LayerParamError, "is 0"),
        ("HardMining", "", ((6,), (6, 5)), 2, LayerParamError, "2 bottoms and 2 tops"),
        ("HardMining", "", ((6, 2), (6, 5)), 1, ShapeError, '"b0"'),
        (
            "DetectionEvaluate",
            "detection_evaluate_param { num_classes: 3 }",
            EVAL_SHAPES,
            1,
            LayerParamError,
            "no name_size",
        ),
        ("ProposalTarget", TARGETS[1].text, ((6, 5), (4, 9)), 6, ShapeError, '"b1": has shape .4, 9.'),
    ],
)
def test_refused(type_name, text, shapes, tops, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type_name, text, shapes, tops)


def test_a_region_of_another_picture_is_refused(sizes):
    bottoms = OUTPUTS[0].make_bottoms(np.random.default_rng(1))
    bottoms[2][3, 0] = 1
    with pytest.raises(DataError, match="a region is of image 1, but there is one picture"):
        OUTPUTS[0].bench().forward(bottoms)
    losses, regions = MININGS[1].make_bottoms(np.random.default_rng(1))
    regions[2, 0] = 2
    with pytest.raises(DataError, match="a region is of image 2, of num_image 2"):
        MININGS[1].bench().forward([losses, regions])
    bottoms = _rows(None, EVAL_SHAPES)
    bottoms[0][1, 0] = 1
    with pytest.raises(DataError, match="there are 1 sizes, but a detection of image 1"):
        LayerBench("DetectionEvaluate", f"{sizes} }}", EVAL_SHAPES).forward(bottoms)
