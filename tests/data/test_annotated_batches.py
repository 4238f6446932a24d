"""AnnotatedBatches: colours, canvas, crop, then transform_param, against the same steps done one by one."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.feed.annotated_batches import AnnotatedBatches
from pycaffe_lms.data.transform.transformer import DataTransformer
from pycaffe_lms.proto.caffe_pb2 import AnnotatedDatum, BatchSampler, NormalizedBBox, TransformationParameter

cv2 = pytest.importorskip("cv2")

PICTURE = np.random.default_rng(8).integers(0, 256, (3, 30, 40), np.uint8)


@pytest.fixture
def source(tmp_path):
    record = AnnotatedDatum(type=AnnotatedDatum.BBOX)
    record.datum.ParseFromString(encode_datum(PICTURE))
    box = NormalizedBBox(xmin=0.25, ymin=0.5, xmax=0.5, ymax=0.9)
    record.annotation_group.add(group_label=5).annotation.add(bbox=box)
    write_lmdb(tmp_path / "db", [(b"0", record.SerializeToString())])
    return tmp_path / "db"


def batches(source, text, *samplers, seed=0, size=64):
    param = text_format.Parse(text, TransformationParameter())
    made = AnnotatedBatches(
        source,
        "lmdb",
        size,
        DataTransformer(param, 0, source="db"),
        transform_param=param,
        samplers=[text_format.Parse(s, BatchSampler()) for s in samplers],
        seed=seed,
    )
    data, label = made.produce(0)
    made.close()
    return data, label


def test_a_drawn_crop_is_cut_then_resized(source):
    """20.4 x 15.3 pixels, of which 20 x 15 are kept: boxes tell where the crop was, pixels say the same."""
    half = "max_sample: 1 sampler { min_scale: 0.51 max_scale: 0.51 }"
    data, label = batches(source, "resize_param { height: 15 width: 20 interp_mode: NEAREST }", half)
    assert len({tuple(row[3:]) for row in label.tolist()}) > 30
    for row in label:
        item = data[int(row[0])]
        found = [
            (top, left)
            for top in range(16)
            for left in range(21)
            if np.array_equal(PICTURE[:, top : top + 15, left : left + 20], item)
        ]
        assert len(found) == 1
        top, left = found[0]
        if row[3] > 0 and row[5] < 1:  # the whole width of the box is within
            assert row[3] == pytest.approx((0.25 * 40 - left) / 20.4, abs=1 / 20)
            assert row[5] - row[3] == pytest.approx(0.25 / 0.51, abs=1e-5)
        if row[4] > 0:
            assert row[4] == pytest.approx((0.5 * 30 - top) / 15.3, abs=1 / 15)


def test_a_constraint_that_no_box_meets_leaves_the_picture_whole(source):
    data, label = batches(
        source, "", "sampler { min_scale: 0.1 max_scale: 0.1 } sample_constraint { min_object_coverage: 0.9 }", size=3
    )
    np.testing.assert_array_equal(data, np.broadcast_to(PICTURE, (3, 3, 30, 40)))
    np.testing.assert_allclose(label[:, 3:7], [[0.25, 0.5, 0.5, 0.9]] * 3, atol=1e-6)


def test_a_canvas_of_the_mean_becomes_zero(source):
    data, label = batches(
        source,
        "expand_param { max_expand_ratio: 3 } mean_value: 9 resize_param { height: 60 width: 80 interp_mode: NEAREST }",
    )
    shares = (data == 0).all(1).mean((1, 2))
    widths = label[:, 5] - label[:, 3]
    assert shares.max() > 0.8 and widths.min() < 0.1 and widths.max() <= 0.25 + 1e-6
    # the picture's share of the canvas is the square of its share of the width, which is that of the box over 0.25
    np.testing.assert_allclose(1 - shares, (widths / 0.25) ** 2, atol=0.06)


def test_the_canvas_is_as_probable_as_asked(source):
    _, label = batches(
        source,
        "expand_param { max_expand_ratio: 3 prob: 0.25 } resize_param { height: 6 width: 8 } "
        "emit_constraint { emit_type: CENTER }",
        size=400,
    )
    changed = int((abs(label[:, 5] - label[:, 3] - 0.25) > 1e-6).sum())
    assert abs(changed - 100) < 5 * np.sqrt(400 * 0.25 * 0.75)


def test_all_samplers_are_as_probable(source):
    """Of a sampler of 2 boxes and one of 1, the latter, which keeps the whole picture, is taken in a third."""
    _, label = batches(
        source,
        "resize_param { height: 6 width: 8 }",
        "max_sample: 2 sampler { min_scale: 0.9 max_scale: 0.9 }",
        "max_trials: 1",
        size=600,
    )
    whole = int((abs(label[:, 3:7] - [0.25, 0.5, 0.5, 0.9]) < 1e-6).all(1).sum())
    assert abs(whole - 200) < 5 * np.sqrt(600 * 2 / 9)


def test_numbers_depend_on_the_seed_alone(source):
    text = (
        "distort_param { hue_prob: 1 hue_delta: 90 } expand_param { max_expand_ratio: 2 } mirror: true "
        "resize_param { height: 6 width: 8 interp_mode: LINEAR interp_mode: NEAREST } "
        "noise_param { saltpepper: true saltpepper_param { fraction: 0.1 value: 0 } }"
    )
    first, again, other = (batches(source, text, "max_sample: 4", seed=s) for s in (3, 3, 4))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (first[0] != other[0]).any()
    few = batches(source, text, "max_sample: 4", seed=3, size=5)[0]
    assert len(few) == 5 and few.shape[1:] == first[0].shape[1:]


def test_ranks_draw_the_same_size(source):
    text = "resize_param { prob: 0.5 height: 8 width: 8 } further_resize_param { prob: 0.5 height: 12 width: 16 }"
    param, shapes = text_format.Parse(text, TransformationParameter()), []
    for rank in range(2):
        transformer = DataTransformer(param, 0, source="db")
        made = AnnotatedBatches(source, "lmdb", 1, transformer, transform_param=param, rank=rank, ranks=2, seed=4)
        shapes.append([made.produce(batch)[0].shape for batch in range(0, 200, 10)])
        made.close()
    assert shapes[0] == shapes[1] and set(shapes[0]) == {(1, 3, 8, 8), (1, 3, 12, 16)}
