"""DetectionEvaluate: rows by hand, as in the fork's own test, pixels, files, refusals, shapes that change."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DataError, LayerParamError, ShapeError
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import LayerBench

# Facts of weiliu89/caffe, test_detection_evaluate_layer.cpp: ground-truth boxes of two images, and found ones.
TRUTH = [
    [0, 1, 0, 0.1, 0.1, 0.3, 0.3, 0],
    [0, 1, 0, 0.6, 0.6, 0.8, 0.8, 1],
    [1, 2, 0, 0.3, 0.3, 0.6, 0.5, 0],
    [1, 1, 0, 0.7, 0.1, 0.9, 0.3, 0],
]
FOUND = [
    [0, 1, 0.3, 0.1, 0.0, 0.4, 0.3],
    [0, 1, 0.7, 0.0, 0.1, 0.2, 0.3],
    [0, 1, 0.9, 0.7, 0.6, 0.8, 0.8],
    [1, 2, 0.8, 0.2, 0.1, 0.4, 0.4],
    [1, 2, 0.1, 0.4, 0.3, 0.7, 0.5],
    [1, 1, 0.2, 0.8, 0.1, 1.0, 0.3],
    [1, 3, 0.2, 0.8, 0.1, 1.0, 0.3],
    [2, 1, 0.2, 0.8, 0.1, 1.0, 0.3],
]


def maker(rng, shapes):
    return [np.array(FOUND)[None, None], np.array(TRUTH)[None, None]]


SHAPES = ((1, 1, 8, 7), (1, 1, 4, 8))
HOST_CASES = [
    Case("DetectionEvaluate", "detection_evaluate_param { num_classes: 4 }", SHAPES, maker=maker),
    Case(
        "DetectionEvaluate",
        "detection_evaluate_param { num_classes: 4 evaluate_difficult_gt: false overlap_threshold: 0.3 }",
        SHAPES,
        maker=maker,
    ),
]


def rows(text="", found=FOUND, truth=TRUTH):
    blobs = [np.array(found, float)[None, None], np.array(truth, float)[None, None]]
    bench = LayerBench(
        "DetectionEvaluate", f"detection_evaluate_param {{ num_classes: 4 {text} }}", tuple(b.shape for b in blobs)
    )
    (top,) = bench.forward(blobs)
    assert top.shape[:2] == (1, 1)
    return top[0, 0].tolist()


def test_rows_of_the_forks_test():
    """Overlaps in the first image: 0.04 / 0.09, a third, a half; in the second: 0.01 / 0.11, a half; a third."""
    assert rows("overlap_threshold: 0.3") == [
        [-1, 1, 3, -1, -1],
        [-1, 2, 1, -1, -1],
        [-1, 3, 0, -1, -1],
        [0, 1, 0.9, 1, 0],
        [0, 1, 0.7, 1, 0],
        [0, 1, 0.3, 0, 1],  # its box is taken
        [1, 1, 0.2, 1, 0],
        [1, 2, 0.8, 0, 1],
        [1, 2, 0.1, 1, 0],
        [1, 3, 0.2, 0, 1],
        [2, 1, 0.2, 0, 1],  # an image without ground-truth boxes
    ]


def test_difficult_boxes_do_not_count():
    made = rows("overlap_threshold: 0.3 evaluate_difficult_gt: false")
    assert made[0] == [-1, 1, 2, -1, -1] and made[3] == [0, 1, 0.9, 0, 0]
    assert made[4:] == rows("overlap_threshold: 0.3")[4:]


def test_another_threshold_and_background():
    assert [r[3:] for r in rows("overlap_threshold: 0.6")[3:]] == [[0, 1]] * 8
    assert [r[1] for r in rows("background_label_id: 7")[:4]] == [0, 1, 2, 3]


def test_images_without_true_or_found_boxes():
    assert rows(found=[[0, -1, -1, -1, -1, -1, -1], [1, -1, -1, -1, -1, -1, -1]]) == [
        [-1, 1, 3, -1, -1],
        [-1, 2, 1, -1, -1],
        [-1, 3, 0, -1, -1],
    ]
    assert rows(truth=[[-1] * 8])[:4] == [*([-1, c, 0, -1, -1] for c in (1, 2, 3)), [0, 1, 0.9, 0, 1]]


def test_pixels_count_both_ends_in(tmp_path):
    """In a picture of 10 x 10: the found box has 3 x 4 pixels, the true one 4 x 4, of which 3 x 4 are common."""
    sizes = tmp_path / "sizes.txt"
    sizes.write_text("a 10 10\nb 1000 1000\n")
    truth, found = [[0, 1, 0, 0.1, 0.1, 0.4, 0.4, 0]], [[0, 1, 0.9, 0.2, 0.1, 0.4, 0.4]]
    for threshold, right in ((0.74, 1), (0.76, 0)):
        made = rows(f"name_size_file: '{sizes}' overlap_threshold: {threshold}", found, truth)
        assert made[3] == [0, 1, 0.9, right, 1 - right]
        plain = rows(f"overlap_threshold: {threshold}", found, truth)
        assert plain[3] == [0, 1, 0.9, 0, 1]  # as fractions, 0.06 / 0.09


def test_the_next_image_has_the_next_size(tmp_path):
    sizes = tmp_path / "sizes.txt"
    sizes.write_text("a 10 10\nb 1000 1000\n")
    bench = LayerBench(
        "DetectionEvaluate",
        f"detection_evaluate_param {{ num_classes: 2 name_size_file: '{sizes}' overlap_threshold: 0.74 }}",
        ((1, 1, 1, 7), (1, 1, 1, 8)),
    )
    blobs = [np.array([[[[0, 1, 0.9, 0.2, 0.1, 0.4, 0.4]]]]), np.array([[[[0, 1, 0, 0.1, 0.1, 0.4, 0.4, 0]]]])]
    assert [bench.forward(blobs)[0][0, 0, 1, 3] for _ in range(4)] == [1, 0, 1, 0]


def test_resizing_is_undone(tmp_path):
    """The picture of 200 x 100 lies in the middle half of a square, so that a wrong location beside it is cut off."""
    sizes = tmp_path / "sizes.txt"
    sizes.write_text("a 100 200\n")
    truth, found = [[0, 1, 0, 0.1, 0.3, 0.5, 0.5, 0]], [[0, 1, 0.9, 0.1, 0.1, 0.5, 0.5]]
    pad = "resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 300 width: 300 }"
    assert rows(f"name_size_file: '{sizes}' overlap_threshold: 0.6", found, truth)[3][3] == 0
    assert rows(f"name_size_file: '{sizes}' overlap_threshold: 0.6 {pad}", found, truth)[3][3] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "num_classes is not given"), ("num_classes: 2 overlap_threshold: 0", "overlap_threshold is 0")],
)
def test_refused(text, message):
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        LayerBench("DetectionEvaluate", f"detection_evaluate_param {{ {text} }}", SHAPES)


def test_wrong_values_and_shapes():
    with pytest.raises(DataError, match='blob "b0": a box is of class 0, which is the background'):
        rows(found=[[0, 0, 0.3, 0.1, 0.0, 0.4, 0.3]])
    with pytest.raises(DataError, match='blob "b1": a box is of class 0'):
        rows(truth=[[0] * 8])
    with pytest.raises(ShapeError, match=r"give ground-truth boxes \(1, 1, rows, 8\)"):
        LayerBench("DetectionEvaluate", "detection_evaluate_param { num_classes: 2 }", (SHAPES[0], (1, 1, 4, 7)))
    with pytest.raises(DataError, match=r"(?s)none\.txt.*cannot be read.*correct name_size_file"):
        rows("name_size_file: '/nowhere/none.txt'")


NET = """
layer { name: "in" type: "Input" top: "loc" top: "scores" top: "priors" top: "truth" input_param {
  shape { dim: 2 dim: 64 } shape { dim: 2 dim: 48 } shape { dim: 1 dim: 2 dim: 64 }
  shape { dim: 1 dim: 1 dim: 4 dim: 8 } } }
layer { name: "found" type: "DetectionOutput" bottom: "loc" bottom: "scores" bottom: "priors" top: "found"
  detection_output_param { num_classes: 3 confidence_threshold: 0.5 code_type: CENTER_SIZE } }
layer { name: "eval" type: "DetectionEvaluate" bottom: "found" bottom: "truth" top: "eval"
  detection_evaluate_param { num_classes: 3 overlap_threshold: 0.2 } }
"""


def test_in_a_net_behind_detection_output(tmp_path):
    from .test_detection_output import inputs

    (tmp_path / "net.prototxt").write_text(NET)

    def run(**options):
        net, seen = caffe.Net(tmp_path / "net.prototxt", caffe.TEST, **options), []
        net.blobs["truth"].data[...] = np.array(TRUTH)
        for scale in (1, 0.9, 0.1, 1.4):
            for name, blob in zip(("loc", "scores", "priors"), inputs(2, 16, 3), strict=True):
                net.blobs[name].data[...] = blob * scale if name == "scores" else blob
            found = net.forward()["eval"]
            objects = net.blobs["found"].data[0, 0]
            assert found.shape == (1, 1, 2 + (objects[:, 1] >= 0).sum(), 5)
            seen.append(found.tobytes())
        return seen

    plain = run()
    assert len(set(plain)) == 4
    for order in ("latest", "random"):
        assert run(device=SimDevice(64 << 20, order=order)) == plain
        assert run(device=SimDevice(64 << 20, order=order), lms=LMSConfig(threshold_kb=1)) == plain
