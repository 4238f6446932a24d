"""DataTransformer against plain loops over section-by-section rules: mean before scale, crop, mirror."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycaffe_lms.data.transform.mean import save_mean
from pycaffe_lms.data.transform.transformer import batch_rng
from pycaffe_lms.errors import DataError, LayerParamError
from tests.data.helpers import transformer

TRAIN, TEST = 0, 1
RNG = np.random.default_rng(7)


def picture(*shape, dtype=np.uint8):
    return RNG.integers(0, 256, shape).astype(dtype)


def by_loops(item, top, left, size, flip, mean, scale):
    """One item, one pixel at a time; mean (C, H, W) at the source's coordinates."""
    channels = item.shape[0]
    height, width = (size, size) if size else item.shape[1:]
    out = np.empty((channels, height, width), np.float32)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                value = np.float32(item[c, top + y, left + x]) - np.float32(mean[c, top + y, left + x])
                out[c, y, width - 1 - x if flip else x] = value * np.float32(scale)
    return out


def candidates(item, size, mirror, phase, mean, scale):
    """Return every result that the rules allow for an item."""
    height, width = item.shape[1:]
    if not size:
        places = [(0, 0)]
    elif phase == TEST:
        places = [((height - size) // 2, (width - size) // 2)]
    else:
        places = [(top, left) for top in range(height - size + 1) for left in range(width - size + 1)]
    for top, left in places:
        for flip in (False, True) if mirror else (False,):
            yield by_loops(item, top, left, size, flip, mean, scale)


@pytest.mark.parametrize("phase", [TRAIN, TEST])
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("mean_kind", ["none", "one", "channels", "file"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_every_rule(tmp_path, phase, mirror, size, mean_kind, dtype):
    items = [picture(2, 5, 6, dtype=dtype) for _ in range(6)]
    mean, text = np.zeros((2, 5, 6), np.float32), ""
    if mean_kind == "one":
        mean[:], text = 10.5, "mean_value: 10.5"
    elif mean_kind == "channels":
        mean[0], mean[1], text = 1.25, 200.1, "mean_value: 1.25 mean_value: 200.1"
    elif mean_kind == "file":
        mean = RNG.random((2, 5, 6)).astype(np.float32) * 255
        save_mean(tmp_path / "mean.binaryproto", mean)
        text = f'mean_file: "{tmp_path}/mean.binaryproto"'
    subject = transformer(f"{text} scale: 0.017 mirror: {str(mirror).lower()} crop_size: {size}", phase)
    originals = [item.copy() for item in items]
    out = np.full((6, *subject.output_shape((2, 5, 6))), np.nan, np.float32)
    subject.transform(items, out, batch_rng(1, 2) if subject.needs_random else None)
    for item, original, result in zip(items, originals, out, strict=True):
        np.testing.assert_array_equal(item, original)
        assert any(np.array_equal(result, c) for c in candidates(item, size, mirror, phase, mean, 0.017))


def test_centre_rounds_down():
    item = picture(1, 6, 9)
    out = np.empty((1, 3, 3), np.float32)
    transformer("crop_size: 3", TEST).transform([item], out[None])
    np.testing.assert_array_equal(out, item[:, 1:4, 3:6])


def test_float64():
    item, out = picture(1, 2, 2), np.empty((1, 2, 2), np.float64)
    transformer("scale: 0.5 mean_value: 3").transform([item], out[None])
    np.testing.assert_array_equal(out, (item - 3.0) * 0.5)


def test_distribution_of_crops_and_mirrors():
    subject = transformer("crop_size: 2 mirror: true")
    item = np.arange(16, dtype=np.uint8).reshape(1, 4, 4)
    out = np.empty((9000, 1, 2, 2), np.float32)
    subject.transform([item] * 9000, out, batch_rng(3, 0))
    _, counts = np.unique(out.reshape(9000, 4), axis=0, return_counts=True)
    assert len(counts) == 3 * 3 * 2
    assert abs(counts - 500).max() < 5 * 500**0.5  # five standard deviations


def test_mirror_is_random_in_test_too():
    item = picture(1, 2, 2)
    out = np.empty((64, 1, 2, 2), np.float32)
    transformer("mirror: true", TEST).transform([item] * 64, out, batch_rng(3, 0))
    assert len(np.unique(out.reshape(64, 4), axis=0)) == 2


@given(seed=st.integers(-(2**70), 2**70), batch=st.integers(0, 2**40), count=st.integers(1, 8))
def test_draws_depend_on_seed_batch_and_item_alone(seed, batch, count):
    item = np.arange(400, dtype=np.float32).reshape(1, 20, 20)
    subject = transformer("crop_size: 4 mirror: true")
    many, few = np.empty((8, 1, 4, 4), np.float32), np.empty((count, 1, 4, 4), np.float32)
    subject.transform([item] * 8, many, batch_rng(seed, batch))
    subject.transform([item] * count, few, batch_rng(seed, batch))
    np.testing.assert_array_equal(many[:count], few)
    subject.transform([item] * 8, other := np.empty_like(many), batch_rng(seed, batch + 1))
    assert not np.array_equal(many, other)
    subject.transform([item] * 8, other, batch_rng(seed, batch, stream=1))
    assert not np.array_equal(many, other)


def test_items_of_many_sizes_crop_to_one():
    items = [picture(3, 4 + k, 9 - k) for k in range(5)]
    out = np.empty((5, 3, 4, 4), np.float32)
    transformer("crop_size: 4", TEST).transform(items, out)
    for k, item in enumerate(items):
        top, left = k // 2, (5 - k) // 2
        np.testing.assert_array_equal(out[k], item[:, top : top + 4, left : left + 4])


def test_sizes_that_do_not_fit_the_batch():
    with pytest.raises(DataError, match="1 x 2 x 3 comes out as 1 x 2 x 3 in a batch of 1 x 2 x 2"):
        transformer().transform([picture(1, 2, 3)], np.empty((1, 1, 2, 2), np.float32))


@pytest.mark.parametrize(
    "text, words",
    [
        ("force_color: true force_gray: true", "force_color and force_gray"),
        ('mean_value: 1 mean_file: "x"', "mean_file and mean_value"),
    ],
)
def test_contradictions(text, words):
    with pytest.raises(LayerParamError, match=words) as caught:
        transformer(text, source="db")
    assert "db" in str(caught.value) and caught.value.fix


@pytest.mark.parametrize(
    "text, words", [("crop_size: 5", "crop_size 5"), ("mean_value: 1 mean_value: 2", "2 mean_value")]
)
def test_fields_that_do_not_fit_the_item(text, words):
    with pytest.raises(LayerParamError, match=words) as caught:
        transformer(text, source="db").output_shape((3, 4, 6))
    assert "db" in str(caught.value) and caught.value.fix


def test_mean_file_of_another_shape(tmp_path):
    save_mean(tmp_path / "mean", np.zeros((1, 4, 4)))
    with pytest.raises(DataError, match="1 x 4 x 4, this one is 1 x 4 x 5"):
        transformer(f'mean_file: "{tmp_path}/mean"').output_shape((1, 4, 5))


def test_mean_file_absent(tmp_path):
    with pytest.raises(DataError, match="absent"):
        transformer(f'mean_file: "{tmp_path}/absent"')


@pytest.mark.parametrize(
    "field",
    [
        "fix_crop: true",
        "more_fix_crop: true",
        "multi_scale: true",
        "scale_ratios: 1",
        "max_distort: 2",
        "is_flow: true",
    ],
)
def test_crops_of_segments_are_refused_elsewhere(field):
    with pytest.raises(LayerParamError, match=f"transform_param.{field.split(':')[0]} acts in VideoData"):
        transformer(field, TRAIN)
