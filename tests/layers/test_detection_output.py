"""DetectionOutput: against OpenCV's rows and loops over plain numbers, in nets, with the files that it writes."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DataError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Pass, ShapesChanged, count
from pycaffe_lms.layers.detection.boxes import areas, overlaps
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import LayerBench
from .ssd_loops import detections


def inputs(n, p, c, locations=1, seed=0):
    """Locations, scores (a softmax) and default boxes, by a formula."""
    k = np.arange(1, 1 + p)[:, None]
    centre, size = 0.5 + 0.35 * np.sin(k * [1.7, 2.3] + seed), 0.18 + 0.1 * np.sin(k * [3.1, 0.7] + seed)
    priors = [np.concatenate([centre - size, centre + size], axis=1), np.tile([0.1, 0.1, 0.2, 0.2], (p, 1))]
    scores = np.exp(2 * np.sin(np.arange(n * p * c) * 2.9 + seed)).reshape(n, p, c)
    conf = (scores / scores.sum(axis=-1, keepdims=True)).reshape(n, p * c)
    loc = np.sin(np.arange(n * p * locations * 4) * 1.3 + seed).reshape(n, p * locations * 4)
    return [loc, conf, np.stack(priors).reshape(1, 2, -1)]


def maker(rng, shapes):
    n, p = shapes[0][0], shapes[2][2] // 4
    made = inputs(n, p, shapes[1][1] // p, shapes[0][1] // p // 4, rng.uniform(0, 6))
    return [made[i].reshape(shape) if i < 3 else np.zeros(shape) for i, shape in enumerate(shapes)]


def detect(blobs, text, dtype=np.float64):
    bench = LayerBench(
        "DetectionOutput", f"detection_output_param {{ {text} }}", tuple(b.shape for b in blobs), dtype=dtype
    )
    (top,) = bench.forward(blobs)
    assert top.shape[:2] == (1, 1) and top.dtype == dtype
    return top[0, 0]


HOST_CASES = [
    Case(
        "DetectionOutput",
        "detection_output_param { num_classes: 4 code_type: CENTER_SIZE confidence_threshold: 0.3 keep_top_k: 9 "
        "nms_param { nms_threshold: 0.45 top_k: 20 eta: 0.9 } }",
        ((2, 64), (2, 64), (1, 2, 64), (2, 3, 5, 5)),
        maker=maker,
    ),
    Case(
        "DetectionOutput",
        "detection_output_param { num_classes: 3 share_location: false background_label_id: -1 "
        "variance_encoded_in_target: true }",
        ((2, 72, 1, 1), (2, 18, 1, 1), (1, 2, 24)),
        maker=maker,
    ),
    Case(
        "DetectionOutput",
        "detection_output_param { num_classes: 3 share_location: false code_type: CORNER_SIZE keep_top_k: 5 "
        "nms_param { nms_threshold: 0.4 top_k: 4 } }",
        ((2, 72), (2, 18), (1, 2, 24)),
        maker=maker,
    ),
    Case(
        "DetectionOutput",
        "detection_output_param { num_classes: 3 nbottom: 2 no_permute: true code_type: CENTER_SIZE }",
        ((2, 3, 2, 6), (2, 3, 3, 1), (2, 8, 2, 3), (2, 12, 1, 1), (1, 2, 60)),
        maker=lambda rng, shapes: turned(inputs(shapes[0][0], 15, 3, seed=rng.uniform(0, 6)), MAPS, 3),
    ),
    Case(
        "DetectionOutput",
        "detection_output_param { num_classes: 3 nbottom: 2 share_location: false }",
        ((2, 36), (2, 9), (2, 144), (2, 36), (1, 2, 48), (1, 2, 12)),
        maker=lambda rng, shapes: parted(inputs(shapes[0][0], 15, 3, locations=3, seed=rng.uniform(0, 6)), (12, 3), 3),
    ),
]
MAPS = ((2, 3, 2), (1, 1, 3))  # rows, columns, boxes at each place


def parted(blobs, boxes, classes, locations=1):
    """Cut SSD's bottoms into those of maps with these numbers of boxes: scores, locations, default boxes."""
    edges, (loc, conf, priors) = np.cumsum(boxes)[:-1], blobs
    n, p = len(loc), priors.size // 8
    cut = (np.split(b.reshape(n, p, count(b.shape[1:]) // p), edges, axis=1) for b in (conf, loc))
    both = np.split(priors.reshape(1, 2, p, 4), edges, axis=2)
    return [b.reshape(n, count(b.shape[1:])) for part in cut for b in part] + [b.reshape(1, 2, -1) for b in both]


def turned(blobs, maps, classes):
    """Turn SSD's bottoms into Synopsys': for each map scores (N, C, R, H * W), and locations (N, R * L * 4, H, W)."""
    scores, places, first, (loc, conf, priors) = [], [], 0, blobs
    n, p = len(loc), priors.size // 8
    numbers = count(loc.shape[1:]) // p
    for height, width, kinds in maps:
        score = np.zeros((n, classes, kinds, height * width))
        place = np.zeros((n, kinds, numbers, height, width))
        for y in range(height):
            for x in range(width):
                for r in range(kinds):
                    score[:, :, r, y * width + x] = conf.reshape(n, p, classes)[:, first]
                    place[:, r, :, y, x] = loc.reshape(n, p, numbers)[:, first]
                    first += 1
        scores.append(score)
        places.append(place.reshape(n, kinds * numbers, height, width))
    assert first == p
    return [*scores, *places, priors]


# cv2.dnn of opencv-python-headless 4.14.0 (readNetFromCaffe), inputs(2, 16, 3, locations) in float32. Its rows come by
# score, then zeros; here by image, class, score.
OPENCV = {
    "center": [
        (0, 1, 0.961577, 0.720782, 0.128997, 0.919022, 0.300438),
        (0, 1, 0.961528, -0.065214, 0.337442, 0.353419, 0.986293),
        (0, 1, 0.951439, 0.305940, 0.317143, 0.678230, 0.811312),
        (0, 1, 0.925395, 0.593661, 0.218376, 0.950979, 0.477469),
        (1, 1, 0.961625, 0.294282, 0.004766, 0.711624, 0.354366),
        (1, 1, 0.951256, 0.650156, 0.272235, 0.964089, 0.470257),
        (1, 1, 0.925823, 0.574267, -0.008319, 0.958861, 0.337627),
        (1, 1, 0.863715, -0.078959, 0.474278, 0.384439, 0.995288),
    ],
    "corner": [
        (0, 1, 0.961577, 0.740887, 0.075041, 0.749478, 0.351482),
        (0, 1, 0.961528, -0.099263, 0.359935, 0.452444, 1.166129),
        (0, 1, 0.951439, 0.322341, 0.290138, 0.486132, 0.716260),
        (1, 1, 0.961625, 0.319015, 0.007135, 0.589743, 0.169916),
        (1, 1, 0.951256, 0.675142, 0.330897, 1.011358, 0.298912),
        (1, 1, 0.925823, 0.546661, -0.051170, 0.937614, 0.515453),
    ],
    "own": [
        (0, 1, 0.961577, 0.697093, 0.174078, 0.938502, 0.310350),
        (0, 1, 0.961528, -0.094470, 0.407302, 0.372245, 0.997700),
        (0, 1, 0.951439, 0.166664, 0.176297, 0.654628, 0.855514),
        (0, 1, 0.925395, 0.700769, 0.261929, 0.957473, 0.457867),
        (0, 1, 0.864674, 0.154483, 0.756450, 0.417642, 0.915925),
        (0, 1, 0.742806, 0.188128, -0.145591, 0.671848, 0.371936),
        (0, 1, 0.536360, 0.589678, 0.510984, 1.039409, 1.032042),
        (0, 1, 0.533790, 0.052887, 0.656083, 0.297309, 0.891398),
        (0, 2, 0.652043, 0.008948, 0.037205, 0.318273, 0.465231),
        (0, 2, 0.621437, 0.450128, 0.411214, 0.849939, 0.603567),
        (0, 2, 0.621024, 0.275696, -0.029824, 0.597795, 0.426420),
        (0, 2, 0.523886, 0.070207, 0.252371, 0.470248, 0.447529),
        (1, 1, 0.961625, 0.310428, -0.066834, 0.689616, 0.339985),
        (1, 1, 0.951256, 0.614872, 0.256383, 0.962255, 0.475310),
        (1, 1, 0.925823, 0.605523, 0.002822, 0.961499, 0.330351),
        (1, 1, 0.863715, -0.005617, 0.339387, 0.348709, 0.960282),
        (1, 1, 0.862749, 0.641555, 0.135402, 0.928507, 0.317035),
        (1, 1, 0.744620, -0.021158, -0.006069, 0.314803, 0.473919),
        (1, 1, 0.531216, 0.293389, 0.249694, 0.663344, 0.808419),
        (1, 2, 0.651864, 0.151574, 0.295374, 0.497997, 0.440439),
        (1, 2, 0.621847, 0.675901, 0.367420, 0.974658, 1.006249),
        (1, 2, 0.524504, 0.444589, 0.360231, 0.843753, 0.814755),
    ],
}
OPTIONS = {
    "center": "code_type: CENTER_SIZE keep_top_k: 4 confidence_threshold: 0.3 "
    "nms_param { nms_threshold: 0.25 top_k: 7 }",
    "corner": "background_label_id: 2 keep_top_k: 3 confidence_threshold: 0.4 "
    "nms_param { nms_threshold: 0.2 top_k: 5 }",
    "own": "share_location: false code_type: CENTER_SIZE keep_top_k: 100 confidence_threshold: 0.5 "
    "nms_param { nms_threshold: 0.45 top_k: 20 }",
}


@pytest.mark.parametrize("name", OPENCV)
def test_opencvs_rows(name):
    blobs = [b.astype(np.float32) for b in inputs(2, 16, 3, locations=3 if name == "own" else 1)]
    found = detect(blobs, f"num_classes: 3 {OPTIONS[name]}", np.float32)
    np.testing.assert_allclose(found, np.array(OPENCV[name]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE", "CORNER_SIZE"])
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("confidence_threshold: 0.375", {"least": 0.375}),
        ("nms_param { nms_threshold: 0.75 eta: 0.5 }", {"threshold": 0.75, "eta": 0.5}),
        ("nms_param { nms_threshold: 0.25 top_k: 3 }", {"threshold": 0.25, "top_k": 3}),
        ("keep_top_k: 7 nms_param { nms_threshold: 0.5 }", {"keep": 7, "threshold": 0.5}),
        ("keep_top_k: 0", {"keep": 0}),
        ("variance_encoded_in_target: true", {"by_target": True}),
        ("background_label_id: -1", {"background": -1}),
        ("share_location: false background_label_id: 1", {"shared": False, "background": 1}),
    ],
)
def test_rows_by_loops(code, text, options):
    for seed in range(3):
        blobs = inputs(2, 20, 3, locations=1 if options.get("shared", True) else 3, seed=seed)
        found = detect(blobs, f"num_classes: 3 code_type: {code} {text}")
        expected = detections(*blobs, classes=3, code=code, **{"threshold": 0.300000012, **options})
        if not len(expected):
            expected = np.array([[0, *[-1] * 6], [1, *[-1] * 6]])
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE"])
def test_refinedets_rows_by_loops(code):
    """A fourth bottom is read where objectness_score is given, or a fifth bottom follows."""
    for seed in range(3):
        blobs, rng = inputs(2, 20, 3, seed=seed), np.random.default_rng(seed)
        more = [rng.uniform(size=(2, 40)), rng.normal(size=(2, 80)) * 0.5]
        given = {"objectness": more[0], "refinement": more[1], "least_object": 0.01, "threshold": 0.5, "least": 0.125}
        text = f"num_classes: 3 code_type: {code} confidence_threshold: 0.125 nms_param {{ nms_threshold: 0.5 }}"
        expected = detections(*blobs, classes=3, code=code, **given)
        np.testing.assert_allclose(detect([*blobs, *more], text), expected, rtol=1e-9, atol=1e-12)
        given["least_object"] = 0.5
        fewer = detections(*blobs, classes=3, code=code, **given)
        np.testing.assert_allclose(detect([*blobs, *more], f"{text} objectness_score: 0.5"), fewer, rtol=1e-9)
        assert 0 < len(fewer) < len(expected)
        del given["refinement"]
        without = detections(*blobs, classes=3, code=code, **given)
        np.testing.assert_allclose(detect([*blobs, more[0]], f"{text} objectness_score: 0.5"), without, rtol=1e-9)
    with pytest.raises(ShapeError, match=r'blob "b4".*\n.*give a blob \(2, 80\)'):
        detect([*blobs, more[0], more[0]], text)


@pytest.mark.parametrize("locations", [1, 3])
def test_maps_as_bottoms_of_their_own_give_the_rows_of_their_concat(locations):
    text = f"num_classes: 3 code_type: CENTER_SIZE share_location: {'true' if locations == 1 else 'false'}"
    for seed in range(3):
        blobs = inputs(2, 15, 3, locations, seed)
        expected = detections(*blobs, classes=3, code="CENTER_SIZE", shared=locations == 1, threshold=0.300000012)
        unturned = detect(turned(blobs, MAPS, 3), f"{text} nbottom: 2 no_permute: true")
        np.testing.assert_allclose(unturned, expected, rtol=1e-9, atol=1e-12)
        own = parted(blobs, (12, 3), 3)
        np.testing.assert_array_equal(detect(own, f"{text} nbottom: 2"), unturned)
        np.testing.assert_array_equal(detect([*own[:4], blobs[2]], f"{text} nbottom: 2"), unturned)
        own = parted(blobs, (15,), 3)
        np.testing.assert_array_equal(detect(own, f"{text} nbottom: 1"), unturned)


def test_equal_scores_of_unturned_maps_are_in_the_order_of_their_kinds():
    """One row of two places with two kinds of boxes: PriorBox has (place, kind), the fork reads (kind, place)."""
    corners = np.array([[0, 0, 1, 1], [2, 0, 3, 1], [4, 0, 5, 1], [6, 0, 7, 1]])
    priors = np.stack([corners, np.full((4, 4), 0.5)]).reshape(1, 2, -1)
    blobs = [np.full((1, 2, 2, 2), 0.5), np.zeros((1, 8, 1, 2)), priors]
    found = detect(blobs, "num_classes: 2 nbottom: 1 no_permute: true")
    np.testing.assert_array_equal(found[:, 3], [0, 4, 2, 6])


def test_maps_that_do_not_belong_together_are_refused():
    blobs = turned(inputs(2, 15, 3), MAPS, 3)
    with pytest.raises(LayerParamError, match="has 5 bottoms, but with nbottom 3 it takes 7"):
        detect(blobs, "num_classes: 3 nbottom: 3 no_permute: true")
    with pytest.raises(LayerParamError, match="has 5 bottoms, but with nbottom 1 it takes 3: scores"):
        detect(blobs, "num_classes: 3 nbottom: 1")
    with pytest.raises(LayerParamError, match="takes 3 to 5 bottoms, but 6 given"):
        detect([*blobs, blobs[0]], "num_classes: 3 nbottom: 7")
    with pytest.raises(ShapeError, match=r'blob "b0".*\(2, 3, 2, 6\), but bottom 2.*asks for \(2, 4, 2, 6\)'):
        detect(blobs, "num_classes: 4 nbottom: 2 no_permute: true")
    with pytest.raises(ShapeError, match='blob "b4".*has shape'):
        detect([*blobs[:4], np.zeros((2, 60))], "num_classes: 3 nbottom: 2 no_permute: true")
    with pytest.raises(ShapeError, match='blob "b1".*has 1 images, but bottom 0 has 2'):
        detect([blobs[0], blobs[1][:1], *blobs[2:]], "num_classes: 3 nbottom: 2 no_permute: true")


def test_nothing_found_gives_a_row_for_each_image():
    found = detect(inputs(3, 8, 2), "num_classes: 2 confidence_threshold: 1")
    np.testing.assert_array_equal(found, [[n, -1, -1, -1, -1, -1, -1] for n in range(3)])


def test_equal_scores_and_numbers_that_are_none():
    """The first of equal scores is best; NaN is above no threshold."""
    priors = np.stack([np.array([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]), np.full((3, 4), 0.1)])
    blobs = [np.arange(12.0)[None] / 1000, np.array([[0, 0.5, 0, 0.5, 0, np.nan]]), priors.reshape(1, 2, -1)]
    found = detect(blobs, "num_classes: 2 confidence_threshold: 0.1")
    np.testing.assert_allclose(found, [[0, 1, 0.5, 0, 0.0001, 0.5002, 0.5003]], atol=1e-12)


NET = """
layer { name: "in" type: "Input" top: "loc" top: "x" top: "priors" input_param {
  shape { dim: 2 dim: 64 } shape { dim: 2 dim: 48 } shape { dim: 1 dim: 2 dim: 64 } } }
layer { name: "scores" type: "Power" bottom: "x" top: "scores" }
layer { name: "found" type: "DetectionOutput" bottom: "loc" bottom: "scores" bottom: "priors" top: "found"
  detection_output_param { num_classes: 3 confidence_threshold: 0.5 code_type: CENTER_SIZE } }
layer { name: "twice" type: "Power" bottom: "found" top: "twice" power_param { scale: 2 } }
"""


def run(tmp_path, more="", **options):
    (tmp_path / "net.prototxt").write_text(NET.replace("confidence", f"{more} confidence"))
    net = caffe.Net(tmp_path / "net.prototxt", caffe.TEST, **options)
    seen = []
    for scale in (1, 0.9, 0.1, 1.4, 1.4):
        for name, blob in zip(("loc", "x", "priors"), inputs(2, 16, 3), strict=True):
            net.blobs[name].data[...] = blob * scale if name == "x" else blob
        out = net.forward()["twice"]
        found = net.blobs["found"].data
        assert found.shape == out.shape == net.blobs["found"].shape == (1, 1, found.shape[2], 7)
        np.testing.assert_array_equal(out, 2 * found)
        seen.append((found.shape[2], found.tobytes()))
    return seen


def test_infinite_boxes_of_a_net_that_is_not_trained():
    """Their areas and overlaps follow IEEE arithmetic, without a warning, which would be an error here."""
    inf = np.inf
    boxes = np.float32([[-inf, 0, inf, 1], [0, 0, 2, 3], [-inf, 0, inf, 0], [inf, 0, inf, 1]])
    np.testing.assert_array_equal(areas(boxes), [inf, 6, np.nan, 0])
    np.testing.assert_array_equal(overlaps(boxes[1:2], boxes), [[0, 1, 0, 0]])


def test_rows_change_from_forward_to_forward(tmp_path):
    """Expect the same bits on the CPU and the simulated device, with and without Large Model Support."""
    plain = run(tmp_path)
    assert plain[0][0] > plain[1][0] > plain[2][0] == 2 and plain[3] == plain[4]
    np.testing.assert_array_equal(np.frombuffer(plain[2][1], np.float32).reshape(2, 7)[:, 1:], -1)
    for order in ("latest", "earliest", "random"):
        assert run(tmp_path, device=SimDevice(64 << 20, order=order)) == plain
        assert run(tmp_path, device=SimDevice(64 << 20, order=order), lms=LMSConfig(threshold_kb=1)) == plain


FEW = {
    "best of an image": "keep_top_k: 7",
    "best of a class": "keep_top_k: 7 nms_param { nms_threshold: 0.45 top_k: 5 }",
    "eta": "keep_top_k: 7 background_label_id: -1 nms_param { nms_threshold: 0.8 eta: 0.7 }",
}


@pytest.mark.parametrize("more", FEW.values(), ids=FEW)
def test_boxes_chosen_on_the_device_are_those_chosen_on_the_host(tmp_path, more):
    """As before; here the device has few rows to tell, and alone reads locations and scores."""
    plain = run(tmp_path, more)
    for order in ("latest", "earliest", "random"):
        for lms in (None, LMSConfig(threshold_kb=1)):
            assert run(tmp_path, more, device=SimDevice(64 << 20, order=order), lms=lms) == plain
    given = {"classes": 3, "code": "CENTER_SIZE", "least": 0.5, "keep": 7}
    options = {
        "best of a class": {"threshold": 0.45, "top_k": 5},
        "eta": {"threshold": 0.8, "eta": 0.7, "background": -1},
    }
    (name,) = (name for name, text in FEW.items() if text == more)
    rows = detections(*(b.astype(np.float32) for b in inputs(2, 16, 3)), **given | options.get(name, {}))
    shown = np.frombuffer(plain[0][1], np.float32).reshape(-1, 7)
    np.testing.assert_allclose(shown, rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("", False), ("keep_top_k: 15", True), ("keep_top_k: 16", False), ("keep_top_k: 7 nms_param { top_k: 0 }", False)],
)
def test_only_rows_reach_the_host_where_they_are_fewer_bytes(tmp_path, text, prepared):
    """An image has 16 boxes and 48 scores, 112 numbers; 15 rows are 105."""
    (tmp_path / "net.prototxt").write_text(NET.replace("confidence", f"{text} confidence"))
    net = caffe.Net(tmp_path / "net.prototxt", caffe.TEST, device=SimDevice(64 << 20))
    steps = {step.step.name: step.step for step in net.arrangement.all_steps(fused=False)}
    assert ("prepare:found" in steps) is prepared and steps["forward:found"].host
    values = {v.name: v.data for v in net.run_graph.values}
    for step, reads in (("prepare:found", prepared), ("forward:found", not prepared)):
        if step in steps:
            touched = {a.buffer for a in steps[step].accesses}
            assert touched.issuperset([values["loc"], values["scores"]]) is reads
            assert touched.isdisjoint([values["loc"], values["scores"]]) is not reads


def test_rows_are_not_found_twice_nor_shown_for_other_values(monkeypatch):
    """A forward that waits for a top of its rows uses them, but never those of values from before."""
    calls, blobs = [], inputs(2, 16, 3)
    shapes = tuple(b.shape for b in blobs)
    bench = LayerBench("DetectionOutput", "detection_output_param { num_classes: 3 confidence_threshold: 0.5 }", shapes)
    find = bench.layer._found
    monkeypatch.setattr(bench.layer, "_found", lambda *values: calls.append(1) or find(*values))
    (top,) = bench.forward(blobs)
    assert len(calls) == 1 and top.shape[2] > 2
    io = Pass(ops=None, bottom=[blobs[0], blobs[1] * 0, blobs[2]], top=[top])
    with pytest.raises(ShapesChanged):  # and the net fails to follow
        bench.layer.forward(io)
    io.bottom[1] = blobs[1]
    io.top[0] = np.zeros_like(top)
    bench.layer.forward(io)
    np.testing.assert_array_equal(io.top[0], top)
    assert len(calls) == 3


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("more", ["", *FEW.values()], ids=["all boxes", *FEW])
def test_a_gpus_net_has_the_same_rows(tmp_path, more):
    expected = run(tmp_path, more)
    for lms in (None, LMSConfig(threshold_kb=1)):
        assert run(tmp_path, more, device=get_device("cuda"), lms=lms) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "num_classes is not given"),
        ("num_classes: 2 nms_param { nms_threshold: -0.5 }", "nms_threshold is below 0"),
        ("num_classes: 2 nms_param { eta: 0 }", "eta is 0"),
        ("num_classes: 2 nms_param { eta: 1.5 }", "eta is 1.5"),
    ],
)
def test_refused(text, message):
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        detect(inputs(1, 4, 2), text)


def test_shapes_refused():
    blobs = inputs(2, 8, 3)
    with pytest.raises(ShapeError, match='blob "b1".*24 numbers per image, but 8 default boxes have 32 scores, 4 each'):
        detect(blobs, "num_classes: 4")
    with pytest.raises(
        ShapeError, match='blob "b0".*32 numbers per image, but 8 default boxes have 96 locations, 12 each'
    ):
        detect(blobs, "num_classes: 3 share_location: false")
    with pytest.raises(ShapeError, match='blob "b2".*has shape'):
        detect([*blobs[:2], np.zeros((2, 64))], "num_classes: 3")


def test_visualize_is_ignored_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        rows = detect(inputs(1, 8, 2), "num_classes: 2 visualize: true visualize_threshold: 0.3 save_file: 'x.avi'")
    assert "visualize has no effect here" in caplog.text
    np.testing.assert_array_equal(rows, detect(inputs(1, 8, 2), "num_classes: 2"))


# -- files -----------------------------------------------------------------------------------------------------------
LABELS = "".join(f'item {{ name: "{name}" label: {i} }} ' for i, name in enumerate(("none", "cat", "17")))


@pytest.fixture
def saving(tmp_path):
    """Run two batches of two pictures; return {file: text}."""
    (tmp_path / "map.prototxt").write_text(LABELS)
    (tmp_path / "sizes.txt").write_text("0001 100 200\nb 50 50\n000003 10 20\n4 300 100\nmore 1 1\n")

    def save(more, prefix="", pictures=4):
        priors = np.array([[[0.1, 0.2, 0.5, 0.6, 0.4, 0.4, 1.2, 0.904], [1.0] * 8]])
        scores = np.array([[0, 0.75, 0, 0.1, 0.1, 0.9], [0, 0.1, 0.2, 0, 0, 0.1]])
        out = tmp_path / "out"
        text = (
            f"layer {{ name: 'in' type: 'Input' top: 'l' top: 's' top: 'p' input_param {{ shape {{ dim: 2 dim: 8 }} "
            f"shape {{ dim: 2 dim: 6 }} shape {{ dim: 1 dim: 2 dim: 8 }} }} }} layer {{ name: 'd' type: "
            f"'DetectionOutput' bottom: 'l' bottom: 's' bottom: 'p' top: 'd' detection_output_param {{ num_classes: 3 "
            f"confidence_threshold: 0.5 save_output_param {{ output_directory: '{out}' output_name_prefix: '{prefix}' "
            f"label_map_file: '{tmp_path}/map.prototxt' name_size_file: '{tmp_path}/sizes.txt' "
            f"num_test_image: {pictures} {more} }} }} }}"
        )
        (tmp_path / "net.prototxt").write_text(text)
        net = caffe.Net(tmp_path / "net.prototxt", caffe.TEST)
        for name, values in (("p", priors), ("s", scores), ("l", 0)):
            net.blobs[name].data[...] = values
        for _ in range(2):
            assert not out.exists()
            net.forward()
        return {path.name: path.read_text() for path in out.iterdir()}

    return save


def test_voc_files(saving):
    """x = 0.1 * 200 to 0.5 * 200 and so on, by hand; beyond the picture is cut off."""
    assert saving("output_format: 'VOC'", "det_") == {
        "det_cat.txt": "0001 0.75 20 20 100 60\n000003 0.75 2 2 10 6\n",
        "det_17.txt": "0001 0.9 80 40 200 90\n000003 0.9 8 4 20 9\n",
    }


def test_ilsvrc_file(saving):
    (text,) = saving("output_format: 'ILSVRC'", "all").values()
    assert text == (
        "0001 1 0.75 20 20 100 60\n0001 2 0.9 80 40 200 90\n000003 1 0.75 2 2 10 6\n000003 2 0.9 8 4 20 9\n"
    )


def test_coco_file(saving):
    ((name, text),) = saving("output_format: 'COCO'", "all").items()
    assert name == "all.json"
    assert json.loads(text)[:2] == [
        {"image_id": 1, "category_id": "cat", "bbox": [20, 20, 80, 40], "score": 0.75},
        {"image_id": 1, "category_id": 17, "bbox": [80, 40, 120, 50.4], "score": pytest.approx(0.9)},
    ]


def test_files_undo_resizing(saving):
    """The first picture, 200 x 100, lies in the middle half of a square; FIT_SMALL_SIZE counts pixels of its own."""
    pad = saving("output_format: 'ILSVRC' resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 300 width: 300 }")
    assert pad[".txt"].splitlines()[0] == "0001 1 0.75 20 0 100 70"  # (0.2 - 0.25) * 2 < 0, (0.6 - 0.25) * 2 = 0.7


def test_fit_small_size(saving):
    more = "resize_param { resize_mode: FIT_SMALL_SIZE height: 300 width: 300 height_scale: 100 width_scale: 150 }"
    small = saving(f"output_format: 'ILSVRC' {more}")
    assert small[".txt"].splitlines()[:2] == ["0001 1 0.75 15 20 75 60", "0001 2 0.9 60 40 180 90"]


def test_what_cannot_be_saved_is_refused(saving, tmp_path):
    with pytest.raises(LayerParamError, match='"d".*output_format is "XML"'):
        saving("output_format: 'XML'")
    with pytest.raises(LayerParamError, match="num_test_image is 9, but .*sizes.txt has 5 pictures"):
        saving("output_format: 'VOC'", pictures=9)
    (tmp_path / "sizes.txt").write_text("a 3\n")
    with pytest.raises(DataError, match="sizes.txt.*is no list of names and sizes"):
        saving("output_format: 'VOC'")
    (tmp_path / "map.prototxt").write_text("item { lable: 1 }")
    with pytest.raises(DataError, match="map.prototxt.*cannot be read"):
        saving("output_format: 'VOC'")


def test_without_lists_nothing_is_saved(caplog, tmp_path):
    """Published deploy nets name files of their authors."""
    out = tmp_path / "out"
    for more, why in (
        ("", "label_map_file is not given"),
        (
            "label_map_file: 'data/VOC0712/labelmap_voc.prototxt'",
            "label_map_file data/VOC0712/labelmap_voc.prototxt is",
        ),
        (f"label_map_file: '{__file__}' name_size_file: 'no.txt'", "name_size_file no.txt is not there"),
    ):
        with caplog.at_level(logging.WARNING):
            detect(inputs(1, 4, 2), f"num_classes: 2 save_output_param {{ output_directory: '{out}' {more} }}")
        assert f'layer "l" (DetectionOutput): nothing is saved in {out}: {why}' in caplog.text and not out.exists()
