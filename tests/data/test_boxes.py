"""Boxes against formulas written box by box, in float64: projection, emit constraints, every way to resize."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from pycaffe_lms.data.transform.boxes import Objects, coverages, jaccard_overlaps
from pycaffe_lms.errors import DataError
from pycaffe_lms.proto.caffe_pb2 import EmitConstraint, ResizeParameter

RNG = np.random.default_rng(3)


def random_boxes(count, low=-0.2, high=1.2):
    corners = np.sort(RNG.uniform(low, high, (count, 2, 2)), axis=1)
    return corners.reshape(count, 4).astype(np.float32)


def objects(boxes):
    return Objects(np.asarray(boxes, np.float32), np.stack([np.arange(len(boxes)), *[np.zeros(len(boxes))] * 2], 1))


def resize(text):
    return text_format.Parse(text, ResizeParameter())


def emit(text):
    return text_format.Parse(text, EmitConstraint())


def shared(a, b):
    wide = min(a[2], b[2]) - max(a[0], b[0])
    tall = min(a[3], b[3]) - max(a[1], b[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0


def area(a):
    return (a[2] - a[0]) * (a[3] - a[1])


def test_overlaps_box_by_box():
    one, other = random_boxes(40).astype(np.float64), random_boxes(40).astype(np.float64)
    for a, b, overlap, cover in zip(one, other, jaccard_overlaps(one, other), coverages(one, other), strict=True):
        common = shared(a, b)
        assert overlap == pytest.approx(common / (area(a) + area(b) - common), abs=1e-12)
        assert cover == pytest.approx(common / area(a), abs=1e-12)


def test_boxes_without_an_area_cover_nothing():
    flat = np.array([[0.2, 0.2, 0.2, 0.8]])
    whole = np.array([[0.0, 0.0, 1.0, 1.0]])
    assert coverages(flat, whole) == coverages(whole, flat) == jaccard_overlaps(flat, flat) == 0


@pytest.mark.parametrize("text", [None, "", "emit_type: MIN_OVERLAP emit_overlap: 0.4"])
@pytest.mark.parametrize("crop", [(0.0, 0.0, 1.0, 1.0), (0.25, 0.4, 0.6, 0.9), (-0.5, -1.0, 2.5, 1.5)])
def test_a_crop_moves_clips_and_drops(crop, text):
    given_boxes = np.concatenate([random_boxes(60), [[0.3, 0.5, 0.3, 0.6], [0.6, 0.5, 0.7, 0.6]]])
    found = objects(given_boxes).cropped(crop, None if text is None else emit(text))
    expected, kept = [], []
    wide, tall = crop[2] - crop[0], crop[3] - crop[1]
    for k, (xmin, ymin, xmax, ymax) in enumerate(given_boxes.astype(np.float64)):
        x, y = (xmin + xmax) / 2, (ymin + ymax) / 2
        if text == "" and not (crop[0] <= x <= crop[2] and crop[1] <= y <= crop[3]):
            continue
        here = (xmin, ymin, xmax, ymax)
        if text and not (area(here) > 0 and shared(here, crop) / area(here) > 0.4):
            continue
        moved = [(xmin - crop[0]) / wide, (ymin - crop[1]) / tall, (xmax - crop[0]) / wide, (ymax - crop[1]) / tall]
        moved = [min(max(value, 0.0), 1.0) for value in moved]
        if moved[0] < moved[2] and moved[1] < moved[3]:
            expected.append(moved)
            kept.append(k)
    assert found.tags[:, 0].tolist() == kept and 0 < len(kept) < len(given_boxes)
    np.testing.assert_allclose(found.boxes, expected, atol=1e-6)


def test_a_centre_on_the_edge_remains_and_an_overlap_of_just_the_limit_does_not():
    box = objects([[0.25, 0.0, 0.75, 1.0]])
    assert len(box.cropped((0.5, 0, 1, 1), emit("emit_type: CENTER"))) == 1
    assert len(box.cropped((0.5, 0, 1, 1), emit("emit_type: MIN_OVERLAP emit_overlap: 0.5"))) == 0
    assert len(box.cropped((0.5, 0, 1, 1), emit("emit_type: MIN_OVERLAP emit_overlap: 0.49"))) == 1
    assert len(box.cropped((0.75, 0, 1, 1), None)) == 0


@pytest.mark.parametrize("height, width", [(100, 200), (200, 100), (90, 90)])
def test_padding_shrinks_boxes_towards_the_middle(height, width):
    """A picture of 100 x 200 becomes 30 x 60 in the middle of 50 x 60, and so on."""
    param = resize("resize_mode: FIT_LARGE_SIZE_AND_PAD height: 50 width: 60")
    boxes = random_boxes(30, 0, 1).astype(np.float64)
    scale = min(50 / height, 60 / width)
    tall, wide = height * scale, width * scale
    left, top = (60 - wide) / 2, (50 - tall) / 2
    expected = (boxes * [wide, tall, wide, tall] + [left, top, left, top]) / [60, 50, 60, 50]
    np.testing.assert_allclose(objects(boxes).resized(param, height, width).boxes, expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["WARP", "FIT_SMALL_SIZE"])
def test_other_ways_keep_fractions(mode):
    boxes = random_boxes(30, -0.5, 1.5)
    made = objects(boxes).resized(resize(f"resize_mode: {mode} height: 50 width: 60"), 70, 110).boxes
    expected = np.concatenate([np.maximum(boxes[:, :2], 0), np.minimum(boxes[:, 2:], 1)], axis=1)
    np.testing.assert_allclose(made, expected, atol=1e-6)


def test_scales_of_fit_small_size():
    """A picture of 100 x 200 becomes 50 x 100; its right half is 50 x 50, of which boxes are given in 25 x 40."""
    param = resize("resize_mode: FIT_SMALL_SIZE height: 50 width: 60 height_scale: 25 width_scale: 40")
    found = objects([[0.1, 0.2, 0.3, 0.4]]).rescaled(param, 100, 200, np.array([0.5, 0, 1, 1])).boxes
    np.testing.assert_allclose(found, [[0.1 * 50 / 40, 0.2 * 50 / 25, 0.3 * 50 / 40, 0.4 * 50 / 25]], rtol=1e-6)
    with pytest.raises(DataError, match="50 x 30 pixels .* smaller than height_scale 25 x width_scale 40"):
        objects([[0.1, 0.2, 0.3, 0.4]]).rescaled(param, 100, 200, np.array([0.7, 0, 1, 1]))
    warp = resize("height: 50 width: 60 height_scale: 25 width_scale: 40")
    assert objects([[0.1, 0.2, 0.3, 0.4]]).rescaled(warp, 100, 200, np.array([0, 0, 1, 1])).boxes[0, 0] < 0.11


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4), max_size=5))
def test_two_mirrors_are_none_and_a_mirror_is_one_minus_x(given_boxes):
    boxes = np.array(given_boxes, np.float32).reshape(-1, 4)
    once = objects(boxes).mirrored()
    np.testing.assert_allclose(once.boxes[:, [2, 1, 0, 3]], np.abs([[1, 0, 1, 0]] - boxes), atol=1e-7)
    np.testing.assert_allclose(once.mirrored().boxes, boxes, atol=1e-7)


def test_rows():
    found = Objects(np.array([[0.25, 0.5, 0.75, 1]], np.float32), np.array([[7, 2, 1]]))
    assert found.rows(3).tolist() == [[3, 7, 2, 0.25, 0.5, 0.75, 1, 1]]
    assert objects(np.empty((0, 4))).rows(0).shape == (0, 8)
