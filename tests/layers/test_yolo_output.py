"""YoloDetectionOutput and Yolov3DetectionOutput against loops over plain numbers; in a net."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from pycaffe_lms import TEST, Net
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import LayerBench

BIASES = (1.3, 1.7, 3.2, 4.0, 2.5, 0.9)
WIDE = (10, 13, 33, 23, 30, 61, 62, 45)


def _numbers(name, values):
    return " ".join(f"{name}: {v}" for v in values)


def _v2(more="", box=3, biases=BIASES, classes=4):
    return (
        f"yolo_detection_output_param {{ num_classes: {classes} num_box: {box} {_numbers('biases', biases)} {more} }}"
    )


def _v3(more="", groups=2, masks=(2, 3, 0, 1), biases=WIDE, scales=(32, 16)):
    lists = f"{_numbers('biases', biases)} {_numbers('mask', masks)} {_numbers('anchors_scale', scales)}"
    head = f"num_classes: 3 num_box: 2 mask_group_num: {groups}"
    return f"yolov3_detection_output_param {{ {head} {lists} {more} }}"


HOST_CASES = [
    Case(
        "YoloDetectionOutput", _v2("confidence_threshold: 0.2 nms_threshold: 0.3 coords: 4 side: 9"), ((2, 27, 4, 5),)
    ),
    Case("YoloDetectionOutput", _v2(classes=1), ((1, 18, 3, 3), (1, 18, 6, 6))),
    Case("Yolov3DetectionOutput", _v3("confidence_threshold: 0.4 nms_threshold: 0.3"), ((2, 16, 2, 3), (2, 16, 4, 6))),
    Case("Yolov3DetectionOutput", _v3(groups=1, masks=(1, 3), scales=(8,)), ((1, 16, 3, 3),)),
]


def _sigmoid(v):
    return 1 / (1 + math.exp(-v))


def _overlap(a, b):
    sides = [
        min(a[k] + a[k + 2] / 2, b[k] + b[k + 2] / 2) - max(a[k] - a[k + 2] / 2, b[k] - b[k + 2] / 2) for k in (0, 1)
    ]
    if min(sides) < 0:
        return 0.0
    return sides[0] * sides[1] / (a[2] * a[3] + b[2] * b[3] - sides[0] * sides[1])


def loop(layer, maps):
    """Return the rows, in float64."""
    rows = []
    for n in range(len(maps[0])):
        found = []
        for t, x in enumerate(maps):
            newer = layer.type == "Yolov3DetectionOutput"
            anchors, step = (layer.anchors[t], layer.steps[t]) if newer else (layer.anchors, 1)
            each = 5 + layer.classes
            for h, w, a in np.ndindex(*x.shape[2:], len(anchors)):
                v = x[n, a * each : (a + 1) * each, h, w]
                size = [math.exp(v[2 + k]) * anchors[a][k] / (x.shape[3 - k] * step) for k in (0, 1)]
                box = [(w + _sigmoid(v[0])) / x.shape[3], (h + _sigmoid(v[1])) / x.shape[2], *size]
                if newer:
                    scores = {c: _sigmoid(v[5 + c]) * _sigmoid(v[4]) for c in range(layer.classes)}
                    found += [(s, c + 1, box) for c, s in scores.items() if s > layer.least]
                else:
                    chance = [math.exp(s) for s in v[5:]]
                    score = _sigmoid(v[4]) * max(chance) / sum(chance)
                    found += [(score, chance.index(max(chance)) + 1, box)] if score >= layer.least else []
        kept = []
        for each in sorted(found, key=lambda f: -f[0]):
            if all(_overlap(each[2], k[2]) < layer.nms for k in kept):
                kept.append(each)
        rows += [[n, c, s, b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2] for s, c, b in kept]
    return np.array(rows)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_it_is_the_loop(case, dtype, tolerance):
    bench, maps = case.bench(dtype), case.make_bottoms(np.random.default_rng(4))
    assert bench.top_shapes == [(1, 1, 1, 7)]
    rows = loop(bench.layer, maps)
    (top,) = bench.forward(maps)
    assert top.shape == (1, 1, len(rows), 7) and len(rows) > 3
    np.testing.assert_allclose(top[0, 0], rows, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [HOST_CASES[0], HOST_CASES[2]], ids=str)
def test_no_detection(case):
    bench = case.bench()
    (top,) = bench.forward([np.full(shape, -20.0) for shape in case.shapes])
    assert top[0, 0].tolist() == [[n] + [-1] * 6 for n in range(2)]


def test_one_box_by_hand():
    x = np.full((1, 6, 1, 2), -50.0)
    x[0, :, 0, 1] = [0, 0, math.log(2), 0, 0, 7]
    text = (
        "yolo_detection_output_param { num_classes: 1 num_box: 1 biases: 0.5 biases: 0.25 confidence_threshold: 0.5 }"
    )
    (top,) = LayerBench("YoloDetectionOutput", text, (x.shape,)).forward([x])
    np.testing.assert_allclose(top[0, 0], [[0, 1, 0.5, 0.5, 0.375, 1.0, 0.625]])


def test_defaults_and_what_has_no_effect(caplog):
    with caplog.at_level(logging.WARNING):
        layer = LayerBench("YoloDetectionOutput", _v2('label_map_file: "x"'), ((1, 27, 2, 2),)).layer
    assert (layer.least, layer.nms) == (
        np.float32(0.01),
        np.float32(0.45),
    ) and "label_map_file has no effect" in caplog.text


V2, V3 = ((2, 27, 4, 5),), ((2, 16, 2, 3), (2, 16, 4, 6))


@pytest.mark.parametrize(
    "kind, text, shapes, error, message",
    [
        ("YoloDetectionOutput", _v2(biases=BIASES[:4]), V2, LayerParamError, "4 biases for 3 anchors"),
        ("YoloDetectionOutput", _v2("coords: 5"), V2, LayerParamError, "coords is 5"),
        ("YoloDetectionOutput", _v2(classes=0), V2, LayerParamError, "num_classes is 0"),
        ("YoloDetectionOutput", _v2("nms_threshold: -1"), V2, LayerParamError, "nms_threshold is -1"),
        ("YoloDetectionOutput", _v2(), ((2, 28, 4, 5),), ShapeError, '"b0".*27 channels'),
        ("YoloDetectionOutput", _v2(), (*V2, (1, 27, 4, 5)), ShapeError, '"b1"'),
        ("Yolov3DetectionOutput", _v3("gaussian_box: true"), V3, LayerParamError, "gaussian_box"),
        ("Yolov3DetectionOutput", _v3(groups=1), V3, LayerParamError, "2 bottoms do not fit mask_group_num 1"),
        ("Yolov3DetectionOutput", _v3(masks=(0, 1, 2, 4)), V3, LayerParamError, "mask 4 is none of 4"),
        ("Yolov3DetectionOutput", _v3(biases=WIDE[:3]), V3, LayerParamError, "3 biases for 1 anchors"),
        ("Yolov3DetectionOutput", _v3(), (V3[0], (2, 15, 4, 6)), ShapeError, '"b1".*16 channels'),
    ],
)
def test_refused(kind, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(kind, text, shapes)


NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3, 4, 6] } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 27 kernel_size: 1 weight_filler { type: "gaussian" std: 0.7 } } }
layer { name: "found" type: "YoloDetectionOutput" bottom: "c" top: "found" %s }
"""


def _run(**options):
    net, found = Net(parse_net(NET % _v2("confidence_threshold: 0.3")).message, TEST, seed=3, **options), []
    for seed in range(3):
        net.blobs["x"].data[...] = np.random.default_rng(seed).normal(size=(2, 3, 4, 6))
        net.forward()
        found.append(net.blobs["found"].data.copy())
    return found


def test_in_a_net():
    plain = _run()
    assert len({len(rows[0, 0]) for rows in plain}) > 1 and {0, 1} == set(plain[0][0, 0, :, 0])
    for lms in (None, LMSConfig(threshold_kb=0.1)):
        for ours, theirs in zip(plain, _run(device=SimDevice(64 << 20, order="random"), lms=lms), strict=True):
            assert np.array_equal(ours, theirs)
