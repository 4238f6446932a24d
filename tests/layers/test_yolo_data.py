"""AnnotatedData with MobileNet-YOLO's fields: sizes drawn for ten batches, labels of YOLO's losses, jitter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pycaffe_lms.data.feed.annotated_batches import yolo_rows
from pycaffe_lms.data.transform.sampler import jittered
from pycaffe_lms.errors import DataError, LayerParamError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net

from . import test_annotated_data as annotated
from .test_annotated_data import TALL, WIDE, database, forward, layer, objects

source = annotated.source
YOLO = "annotated_data_param { yolo_data_type: 1 yolo_data_jitter: 0 }"
SIZES = ((8, 8), (12, 16), (20, 4))


def sizes(*probs):
    names = ["resize_param", *["further_resize_param"] * (len(probs) - 1)]
    written = (
        f"{name} {{ prob: {prob} height: {h} width: {w} }}"
        for name, prob, (h, w) in zip(names, probs, SIZES, strict=False)
    )
    return "transform_param { " + " ".join(written) + " }"


def test_one_size_is_drawn_for_ten_batches_by_its_probability(source):
    bench = layer(database("boxes", 1, sizes(0.2, 0.5, 0.3)), source)
    try:
        seen = [bench.layer._batches._policy(batch)[1] for batch in range(4000)]
        shapes = [forward(bench)[0].shape for _ in range(30)]
    finally:
        bench.layer.close()
    assert shapes == seen[:30]
    drawn = [set(seen[k : k + 10]) for k in range(0, 4000, 10)]
    assert all(len(ten) == 1 for ten in drawn)
    counts = Counter(ten.pop() for ten in drawn)
    for (h, w), share in zip(SIZES, (0.2, 0.5, 0.3), strict=True):
        assert abs(counts[1, 3, h, w] - 400 * share) < 5 * np.sqrt(400 * share * (1 - share))


def test_labels_are_classes_centres_and_sizes(source):
    bench = layer(database("boxes", 5, YOLO), source)
    try:
        _, label = forward(bench)
    finally:
        bench.layer.close()
    expected = np.zeros((5, 1, 300, 5))
    for number in range(5):
        for k, (kind, _, xmin, ymin, xmax, ymax, _) in enumerate(sorted(objects(number), key=lambda o: -o[0])):
            centre = (xmin + xmax) / 2 / WIDE, (ymin + ymax) / 2 / TALL
            expected[number, 0, k] = kind - 1, *centre, (xmax - xmin) / WIDE, (ymax - ymin) / TALL
    np.testing.assert_allclose(label, expected, atol=1e-6)


def test_difficult_objects_may_be_left_out_and_the_300th_is_the_last():
    rows = np.array([[0, 3, 0, 0, 0, 0.5, 0.5, 1], [0, 4, 0, 0.5, 0.25, 1, 0.75, 0]])
    found = yolo_rows([rows, np.empty((0, 8)), np.repeat(rows, 200, 0)], difficult=False)
    assert found.shape == (3, 1, 300, 5)
    np.testing.assert_array_equal(found[0, 0, 0], [3, 0.75, 0.5, 0.5, 0.5])
    assert not found[0, 0, 1:].any() and not found[1].any() and (found[2, 0, :, 0] == [3] * 200 + [0] * 100).all()
    assert yolo_rows([np.repeat(rows, 200, 0)], difficult=True)[0, 0, 299, 0] == 3


@pytest.mark.parametrize("square", [False, True])
def test_jittered_boxes_lie_in_the_picture_and_are_as_large_as_asked(square):
    rng = np.random.default_rng(3)
    boxes = np.concatenate([jittered(0.4, square, rng) for _ in range(5000)])
    assert (boxes[:, :2] >= 0).all() and (boxes[:, 2:] <= 1).all()
    sides = boxes[:, 2:] - boxes[:, :2]
    assert sides.min() > 0.6 - 1e-6
    np.testing.assert_array_equal(np.isclose(*sides.T, atol=1e-6), square | np.isclose(sides, 1).all(1))
    assert abs((sides > 1 - 1e-6).all(1).mean() - 0.2) < 0.03  # whole pictures: one in five
    below = (sides[:, 0] < 0.8).mean()  # half of the three in five that may be so small
    assert abs(below - 0.3) < 0.04


def test_jitter_is_the_default_of_the_dialect_while_training(source):
    for text, phase, changes in (("yolo_data_type: 1", 0, True), ("yolo_data_type: 1", 1, False), ("", 0, False)):
        more = (
            f"annotated_data_param {{ {text} }} transform_param {{ resize_param {{ height: {TALL} width: {WIDE} }} }}"
        )
        bench, plain = (layer(database("boxes", 8, m), source, phase=phase) for m in (more, ""))
        try:
            assert (not np.array_equal(forward(bench)[0], forward(plain)[0])) is changes
        finally:
            bench.layer.close()
            plain.layer.close()


def test_a_size_that_is_given_again_is_read_from_text():
    text = """layer { name: "d" type: "AnnotatedData" top: "d"
      transform_param { resize_param { prob: 0.5 height: 8 width: 9 }
        resize_param { prob: 0.25 height: 2 width: 3 } mirror: true
        resize_param { prob: 0.25 height: 4 width: 5 } } }"""
    param = parse_net(text).message.layer[0].transform_param
    assert (param.resize_param.height, param.mirror) == (8, True)
    assert [(p.height, p.width, p.prob) for p in param.further_resize_param] == [(2, 3, 0.25), (4, 5, 0.25)]


def test_errors_and_warnings(source, caplog):
    for text, message in (
        (sizes(0.5, 0.4), "prob of 2 resize_param add up to 0.9"),
        ("annotated_data_param { yolo_data_type: 2 }", "yolo_data_type 2 is not known"),
        ("annotated_data_param { yolo_data_jitter: 1 }", "yolo_data_jitter is 1"),
        ("transform_param { resize_param { height: 8 width: 8 } further_resize_param { height: 8 } }", "width 0"),
    ):
        with pytest.raises(LayerParamError, match=message):
            layer(database("boxes", 1, text), source)
    text = f'layer {{ name: "d" type: "Data" top: "d" {database("classes", 1, sizes(0.5, 0.5))} }}'
    with pytest.raises(DataError, match="an AnnotatedDatum"):
        Net(parse_net(text.replace("SOURCE", source)).message, 0)
    assert "transform_param.further_resize_param has no effect: it acts in AnnotatedData alone" in caplog.text
