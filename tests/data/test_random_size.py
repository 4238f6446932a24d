"""Random sizes of pictures against direct calls of OpenCV with drawn numbers, and against their distributions."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.data.transform import random_size
from pycaffe_lms.data.transform.transformer import batch_rng, item_rng
from pycaffe_lms.errors import DataError, LayerParamError
from tests.data.helpers import transformer

cv2 = pytest.importorskip("cv2")
COLOUR = np.random.default_rng(2).integers(0, 256, (40, 60, 3), np.uint8)  # height 40, width 60
WIDE = "random_resize_param { min_size: 30 max_size: 50 resize_param { interp_mode: CUBIC } } crop_size: 30"
PART = "random_aspect_ratio_param { min_area_ratio: 0.2 aspect_ratio_change: 0.75 } crop_size: 24"
SQUARE = "img_rand_resize_lower: 25 img_rand_resize_upper: 38 crop_size: 24"


def sizes(text, image=COLOUR, n=300):
    """The sizes (height, width) of a picture in n draws."""
    change = transformer(text)._random_size
    return [change.apply(image, np.random.default_rng(seed)).shape[:2] for seed in range(n)]


def test_the_shorter_side_is_drawn_and_the_other_follows():
    found = sizes(WIDE)
    assert {height for height, _ in found} == set(range(30, 51))
    assert all(width == int(1.5 * height) for height, width in found)
    assert {width for _, width in sizes(WIDE, COLOUR.transpose(1, 0, 2).copy())} == set(range(30, 51))
    height, width = found[0]
    made = transformer(WIDE)._random_size.apply(COLOUR, np.random.default_rng(0))
    np.testing.assert_array_equal(made, cv2.resize(COLOUR, (width, height), interpolation=cv2.INTER_CUBIC))


def test_without_bounds_it_is_drawn_between_both_sides():
    assert {height for height, _ in sizes("random_resize_param { } crop_size: 8")} == set(range(40, 61))


def test_a_part_of_the_picture_has_the_area_and_proportions_asked_for(monkeypatch):
    parts = []
    monkeypatch.setattr(random_size, "resize", lambda image, param, rng: parts.append(image.shape[:2]) or image)
    change = transformer(PART.replace("24", "1"))._random_size
    for seed in range(400):
        change.apply(COLOUR[:, :40], np.random.default_rng(seed))
    areas = np.array([h * w for h, w in parts]) / 1600
    changes = np.array([h / w for h, w in parts])
    assert 0.17 < areas.min() < 0.25 and 0.85 < areas.max() <= 1  # both sides are rounded down
    assert 0.5 < changes.min() < 0.7 and 1.4 < changes.max() < 2  # squares of 0.75 and 1 / 0.75, rounded
    assert 0.4 < (changes < 1).mean() < 0.6
    monkeypatch.undo()
    assert set(sizes(PART)) == {(24, 24)}


def test_a_part_that_never_fits_is_the_whole_picture_by_its_shorter_side():
    text = "random_aspect_ratio_param { min_area_ratio: 1 max_attempt: 3 } crop_size: 20"
    assert set(sizes(text, n=20)) == {(20, 30)}


def test_nvidias_sizes():
    found = sizes(SQUARE)
    assert {height for height, _ in found} == set(range(25, 39))
    assert all(width == np.floor(height * 1.5 + 0.5) for height, width in found)
    up = "img_rand_resize_lower: 80 img_rand_resize_upper: 80 crop_size: 8"
    assert set(sizes(up)) == {(40, 60)}  # no side gets longer
    assert set(sizes(up + " allow_upscale: true")) == {(80, 120)}
    ratios = [w / h for h, w in sizes("rand_resize_ratio_lower: 1 rand_resize_ratio_upper: 1.4 crop_size: 8")]
    assert min(ratios) < 1.03 and 1.37 < max(ratios) <= 1.4
    tall = {h for h, w in sizes("vertical_stretch_lower: 0.5 vertical_stretch_upper: 1 crop_size: 8") if w == 60}
    assert min(tall) in (20, 21) and max(tall) == 40
    flat = {w for h, w in sizes("horizontal_stretch_lower: 0.5 horizontal_stretch_upper: 1 crop_size: 8") if h == 40}
    assert min(flat) in (30, 31) and max(flat) == 60


@pytest.mark.parametrize("field, algorithm", [("", cv2.INTER_NEAREST), ("INTER_AREA", cv2.INTER_AREA)])
def test_nvidias_interpolation(field, algorithm):
    more = f"interpolation_algo_down: {field}" if field else ""
    text = f"img_rand_resize_lower: 30 img_rand_resize_upper: 30 crop_size: 8 {more}"
    made = transformer(text)._random_size.apply(COLOUR, np.random.default_rng(0))
    np.testing.assert_array_equal(made, cv2.resize(COLOUR, (45, 30), interpolation=algorithm))
    up = "img_rand_resize_lower: 60 img_rand_resize_upper: 60 crop_size: 8 allow_upscale: true"
    for more, algorithm in (("", cv2.INTER_CUBIC), ("interpolation_algo_up: INTER_LINEAR", cv2.INTER_LINEAR)):
        made = transformer(f"{up} {more}")._random_size.apply(COLOUR, np.random.default_rng(0))
        np.testing.assert_array_equal(made, cv2.resize(COLOUR, (90, 60), interpolation=algorithm))


@pytest.mark.parametrize("text", [WIDE, PART, SQUARE])
def test_a_batch_of_several_sizes_depends_on_seed_batch_and_item_alone(text):
    change, rng = transformer(text), np.random.default_rng(3)
    pictures = [rng.integers(0, 256, (3, h, w), np.uint8) for h, w in ((40, 60), (60, 41), (44, 44))]
    side = change.crop[0]
    assert change.output_shape((3, 40, 60)) == (3, side, side)
    found = [np.empty((3, 3, side, side), np.float32) for _ in range(2)]
    for out in found:
        change.transform(pictures, out, batch_rng(5, 7))
    np.testing.assert_array_equal(*found)
    own = change._random_size.apply(pictures[1].transpose(1, 2, 0), item_rng(batch_rng(5, 7), 1))
    planes = own.transpose(2, 0, 1).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(planes, (3, side, side)).reshape(-1, 3, side, side)
    assert any(np.array_equal(window, found[0][1]) for window in windows)


@pytest.mark.parametrize(
    "text, said",
    [
        ("random_resize_param { min_size: 9 }", "random_resize_param needs a crop"),
        ("random_resize_param { min_size: 9 max_size: 8 } crop_size: 4", "min_size is 9, max_size 8"),
        ("random_resize_param { } random_aspect_ratio_param { } crop_size: 4", "are both set"),
        ("random_resize_param { } img_rand_resize_lower: 8 crop_size: 4", "are both set"),
        ("random_resize_param { } resize_param { height: 9 width: 9 } crop_size: 4", "are both set"),
        ("random_aspect_ratio_param { min_area_ratio: 0 } crop_size: 4", "areas 0 to 1"),
        ("random_aspect_ratio_param { aspect_ratio_change: 2 } crop_size: 4", "aspect_ratio_change 2"),
        ("vertical_stretch_lower: 2 vertical_stretch_upper: 1.5 crop_size: 4", "vertical_stretch_lower is 2"),
        ('random_resize_param { } mean_file: "m" crop_size: 4', "does not go with a mean_file"),
    ],
)
def test_what_contradicts_itself(text, said):
    with pytest.raises(LayerParamError, match=said):
        transformer(text)


def test_a_picture_that_gets_smaller_than_the_crop():
    change = transformer("img_rand_resize_lower: 50 img_rand_resize_upper: 50 crop_size: 48")
    with pytest.raises(DataError, match="40 x 60 one of 40 x 60, which is smaller than the crop of 48 x 48") as caught:
        change.transform([COLOUR.transpose(2, 0, 1)], np.empty((1, 3, 48, 48), np.float32), batch_rng(1, 1))
    assert caught.value.where.file == "a database"
