"""Sizes, noise, colours and canvases against direct calls of OpenCV; random choices against their distributions."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

from pycaffe_lms.data.transform import augment
from pycaffe_lms.data.transform.transformer import batch_rng, item_rng
from pycaffe_lms.errors import DataError, LayerParamError
from pycaffe_lms.proto.caffe_pb2 import DistortionParameter, NoiseParameter, ResizeParameter
from tests.data.helpers import transformer

cv2 = pytest.importorskip("cv2")

RNG = np.random.default_rng(11)
COLOUR = RNG.integers(0, 256, (37, 52, 3), np.uint8)
GRAY = RNG.integers(0, 256, (37, 52), np.uint8)
MODES = {
    "LINEAR": cv2.INTER_LINEAR,
    "AREA": cv2.INTER_AREA,
    "NEAREST": cv2.INTER_NEAREST,
    "CUBIC": cv2.INTER_CUBIC,
    "LANCZOS4": cv2.INTER_LANCZOS4,
}


def rng(seed=0):
    return np.random.default_rng(seed)


def resize(text, image=COLOUR, seed=0):
    return augment.resize(image, text_format.Parse(text, ResizeParameter()), rng(seed))


def noise(text, image=COLOUR, seed=0):
    return augment.add_noise(image, text_format.Parse(text, NoiseParameter()), rng(seed))


def distort(text, seed=0, image=COLOUR):
    return augment.distort(image, text_format.Parse(text, DistortionParameter()), rng(seed))


# -- size ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("image", [COLOUR, GRAY], ids=["colour", "gray"])
def test_warped_as_opencv_does(name, image):
    made = resize(f"height: 30 width: 70 interp_mode: {name}", image)
    np.testing.assert_array_equal(made, cv2.resize(image, (70, 30), interpolation=MODES[name]))


# 37 x 52 (height x width): with the shorter (longer) side to fit, rounded down.
@pytest.mark.parametrize("asked, small, large", [((20, 20), (20, 28), (14, 20)), ((20, 60), (42, 60), (20, 28))])
def test_proportions(asked, small, large):
    text = f"height: {asked[0]} width: {asked[1]}"
    made = resize(f"{text} resize_mode: FIT_SMALL_SIZE")
    np.testing.assert_array_equal(made, cv2.resize(COLOUR, small[::-1]))
    param = text_format.Parse(f"{text} resize_mode: FIT_SMALL_SIZE", ResizeParameter())
    assert augment.resized_size(param, 37, 52) == small
    inner = cv2.resize(COLOUR, large[::-1])
    top, left = (asked[0] - large[0]) // 2, (asked[1] - large[1]) // 2
    edges = (top, asked[0] - large[0] - top, left, asked[1] - large[1] - left)
    for pad, border in (
        ("CONSTANT", cv2.BORDER_CONSTANT),
        ("MIRRORED", cv2.BORDER_REFLECT_101),
        ("REPEAT_NEAREST", cv2.BORDER_REPLICATE),
    ):
        made = resize(
            f"{text} resize_mode: FIT_LARGE_SIZE_AND_PAD pad_mode: {pad} pad_value: 7 pad_value: 8 pad_value: 200"
        )
        np.testing.assert_array_equal(made, cv2.copyMakeBorder(inner, *edges, border, value=(7, 8, 200)))


def test_pad_values():
    text = "height: 60 width: 52 resize_mode: FIT_LARGE_SIZE_AND_PAD"
    assert (resize(text)[0] == 0).all() and (resize(f"{text} pad_value: 9")[0] == 9).all()
    assert (resize(f"{text} pad_value: 9", GRAY)[0] == 9).all()
    with pytest.raises(LayerParamError, match="pad_value: 2 values for 3 channels"):
        resize(f"{text} pad_value: 1 pad_value: 2")


def test_every_interp_mode_is_as_probable():
    results = {name: cv2.resize(COLOUR, (9, 8), interpolation=mode).tobytes() for name, mode in MODES.items()}
    text = "height: 8 width: 9 " + " ".join(f"interp_mode: {name}" for name in MODES)
    drawn = [resize(text, seed=seed).tobytes() for seed in range(500)]
    counts = [drawn.count(value) for value in results.values()]
    assert sum(counts) == 500 and all(abs(n - 100) < 5 * np.sqrt(500 * 0.2 * 0.8) for n in counts)


# -- noise ---------------------------------------------------------------------------------------------------------
def on_luma(image, change):
    planes = list(cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2YCrCb)))
    planes[0] = change(planes[0])
    return cv2.cvtColor(cv2.merge(planes), cv2.COLOR_YCrCb2BGR)


def jpeg(image, quality, flag):
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], flag)


def clahe(plane):
    made = cv2.createCLAHE()
    made.setClipLimit(4)
    return made.apply(plane)


ELLIPSE = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], np.uint8)
NOISES = {  # colour, gray
    "decolorize": (
        lambda x: cv2.cvtColor(cv2.cvtColor(x, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR),
        lambda x: x,
    ),
    "gauss_blur": (lambda x: cv2.GaussianBlur(x, (7, 7), 1.5),) * 2,
    "hist_eq": (lambda x: on_luma(x, cv2.equalizeHist), cv2.equalizeHist),
    "clahe": (lambda x: on_luma(x, clahe), clahe),
    "erode": (lambda x: cv2.erode(x, ELLIPSE),) * 2,
    "posterize": (lambda x: np.array([32, 96, 160, 224], np.uint8)[x // 64],) * 2,
    "inverse": (cv2.bitwise_not,) * 2,
}


@pytest.mark.parametrize("name", NOISES)
def test_noise_is_opencvs(name):
    for image, expected in zip((COLOUR, GRAY), NOISES[name], strict=True):
        before = image.copy()
        np.testing.assert_array_equal(noise(f"{name}: true", image), expected(image))
        np.testing.assert_array_equal(image, before)


def test_compression_and_colour_spaces():
    np.testing.assert_array_equal(noise("jpeg: 30"), jpeg(COLOUR, 30, cv2.IMREAD_COLOR))
    np.testing.assert_array_equal(noise("jpeg: 30", GRAY), jpeg(GRAY, 30, cv2.IMREAD_GRAYSCALE))
    np.testing.assert_array_equal(noise("jpeg: -1"), COLOUR)
    np.testing.assert_array_equal(noise("convert_to_hsv: true"), cv2.cvtColor(COLOUR, cv2.COLOR_BGR2HSV))
    lab = cv2.cvtColor((COLOUR / np.float32(255)).astype(np.float32), cv2.COLOR_BGR2LAB)
    np.testing.assert_allclose(noise("convert_to_lab: true"), lab, atol=1e-3)
    for name in ("convert_to_hsv", "convert_to_lab"):
        with pytest.raises(DataError, match="gray picture") as caught:
            noise(f"{name}: true", GRAY)
        assert "force_color" in caught.value.fix


def test_noise_comes_in_the_forks_order():
    expected = cv2.bitwise_not(
        np.array([32, 96, 160, 224], np.uint8)[cv2.erode(cv2.GaussianBlur(COLOUR, (7, 7), 1.5), ELLIPSE) // 64]
    )
    np.testing.assert_array_equal(noise("inverse: true posterize: true erode: true gauss_blur: true"), expected)


@pytest.mark.parametrize("image", [COLOUR, GRAY], ids=["colour", "gray"])
def test_salt_and_pepper(image):
    black = np.zeros((200, 300, *image.shape[2:]), np.uint8)
    text = "saltpepper: true saltpepper_param { fraction: 0.1 value: 255 }"
    made = noise(text, black)
    assert set(np.unique(made)) == {0, 255}
    hit = (made > 0) if made.ndim == 2 else (made > 0).all(2)
    assert (made.reshape(*hit.shape, -1) > 0).any(2).sum() == hit.sum()
    # 6000 draws with replacement of 60,000 pixels: 1 - exp(-0.1) of them are hit
    assert hit.sum() == pytest.approx(60_000 * (1 - np.exp(-0.1)), rel=0.03)
    assert abs(hit.mean(0).mean() - hit.mean(1).mean()) < 1e-6 and hit[:100].sum() == pytest.approx(
        hit.sum() / 2, rel=0.1
    )
    if image.ndim == 3:
        three = noise("saltpepper: true saltpepper_param { fraction: 0.1 value: 1 value: 2 value: 3 }", black)
        assert {tuple(p) for p in np.unique(three.reshape(-1, 3), axis=0).tolist()} == {(0, 0, 0), (1, 2, 3)}


# -- colours -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("delta", [-40.3, -0.4, 17.6, 300.0])
def test_brightness_and_hue_add(delta):
    added = np.clip(np.rint(COLOUR + np.float32(delta)), 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(augment.adjust_brightness(COLOUR, delta), added)
    np.testing.assert_array_equal(added, cv2.addWeighted(COLOUR, 1, COLOUR, 0, delta))
    hsv = cv2.cvtColor(COLOUR, cv2.COLOR_BGR2HSV)
    hsv[..., 0] = cv2.addWeighted(hsv[..., 0].copy(), 1, hsv[..., 0].copy(), 0, delta)
    np.testing.assert_array_equal(augment.adjust_hue(COLOUR, delta), cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR))


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.77, 1.5])
def test_contrast_and_saturation_multiply(factor):
    np.testing.assert_array_equal(augment.adjust_contrast(COLOUR, factor), cv2.convertScaleAbs(COLOUR, alpha=factor))
    hsv = cv2.cvtColor(COLOUR, cv2.COLOR_BGR2HSV)
    hsv[..., 1] = cv2.convertScaleAbs(hsv[..., 1].copy(), alpha=factor)
    np.testing.assert_array_equal(augment.adjust_saturation(COLOUR, factor), cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR))


def test_a_contrast_of_nearly_one_does_nothing():
    assert augment.adjust_contrast(COLOUR, 1.0009) is COLOUR


def test_probabilities():
    plain = np.full((2, 2, 3), (60, 90, 120), np.uint8)
    for field, more in (
        ("brightness", "brightness_delta: 30"),
        ("contrast", "contrast_lower: 0.4 contrast_upper: 0.6"),
        ("saturation", "saturation_lower: 0.2 saturation_upper: 0.4"),
        ("hue", "hue_delta: 40"),
    ):
        changed = sum((distort(f"{field}_prob: 0.3 {more}", seed, plain) != plain).any() for seed in range(400))
        assert abs(changed - 120) < 5 * np.sqrt(400 * 0.3 * 0.7), field
        assert (distort(f"{field}_prob: 0 {more}", 1, plain) == plain).all()
    orders = [tuple(distort("random_order_prob: 1", seed, plain)[0, 0].tolist()) for seed in range(600)]
    assert len(set(orders)) == 6 and all(abs(orders.count(o) - 100) < 5 * np.sqrt(600 / 6 * 5 / 6) for o in set(orders))


def test_deltas_are_uniform_within_their_range():
    plain = np.full((1, 1, 3), 100, np.uint8)
    values = np.array([distort("brightness_prob: 1 brightness_delta: 32", s, plain)[0, 0, 0] for s in range(1000)])
    assert values.min() >= 68 and values.max() <= 132
    assert abs(values.mean() - 100) < 5 * 64 / np.sqrt(12 * 1000) and abs(values.std() - 64 / np.sqrt(12)) < 1
    factors = [
        distort("contrast_prob: 1 contrast_lower: 0.5 contrast_upper: 1.5", s, plain)[0, 0, 0] for s in range(1000)
    ]
    assert min(factors) >= 50 and max(factors) <= 150 and abs(np.mean(factors) - 100) < 5 * 100 / np.sqrt(12 * 1000)


def test_contrast_comes_second_or_last():
    plain = COLOUR[:4, :4].copy()
    text = "contrast_prob: 1 contrast_lower: 0.5 contrast_upper: 0.5 "
    text += "saturation_prob: 1 saturation_lower: 1.5 saturation_upper: 1.5"
    first = augment.adjust_saturation(augment.adjust_contrast(plain, 0.5), 1.5)
    last = augment.adjust_contrast(augment.adjust_saturation(plain, 1.5), 0.5)
    assert (first != last).any()
    found = [distort(text, seed, plain).tobytes() for seed in range(400)]
    assert found.count(first.tobytes()) + found.count(last.tobytes()) == 400
    assert abs(found.count(first.tobytes()) - 200) < 5 * 10


def test_a_gray_picture_has_no_colours_to_distort():
    assert distort("brightness_prob: 1 brightness_delta: 9", 0, GRAY).shape == GRAY.shape
    with pytest.raises(DataError, match="has 1 channels") as caught:
        distort("hue_prob: 0.1 hue_delta: 9", 0, GRAY)
    assert "force_color" in caught.value.fix


# -- a larger canvas -----------------------------------------------------------------------------------------------
def test_the_picture_is_where_the_canvas_says():
    picture = RNG.integers(0, 256, (3, 20, 30), np.uint8)
    ratios, places = [], []
    for seed in range(300):
        canvas, (xmin, ymin, xmax, ymax) = augment.expand(picture, 4, [1.4, 2.6, 300], rng(seed))
        left, top = round(-xmin * 30), round(-ymin * 20)
        assert canvas.shape == (3, round((ymax - ymin) * 20), round((xmax - xmin) * 30))
        inside = canvas[:, top : top + 20, left : left + 30].copy()
        np.testing.assert_array_equal(inside, picture)
        canvas[:, top : top + 20, left : left + 30] = np.array([1, 3, 255])[:, None, None]
        assert (canvas == np.array([1, 3, 255])[:, None, None]).all()
        ratios.append(canvas.shape[2] / 30)
        places.append(left / max(canvas.shape[2] - 30, 1))
    assert 1 <= min(ratios) < 1.1 and 3.9 < max(ratios) <= 4
    assert abs(np.mean(ratios) - 2.5) < 5 * 3 / np.sqrt(12 * 300) and abs(np.mean(places) - 0.5) < 0.1


# -- in transform_param --------------------------------------------------------------------------------------------
def test_resize_then_noise_then_crop_then_mean():
    picture = COLOUR.transpose(2, 0, 1)
    text = (
        "resize_param { height: 20 width: 24 interp_mode: CUBIC } noise_param { inverse: true } crop_h: 9 crop_w: 12 "
        "mean_value: 3 scale: 0.5"
    )
    subject = transformer(text, phase=1)
    assert subject.output_shape((3, 37, 52)) == (3, 9, 12) and subject.needs_random
    out = np.empty((1, 3, 9, 12), np.float32)
    (placement,) = subject.transform([picture], out, batch_rng(0, 0))
    small = 255 - cv2.resize(COLOUR, (24, 20), interpolation=cv2.INTER_CUBIC)
    np.testing.assert_array_equal(out[0], (small[5:14, 6:18].transpose(2, 0, 1).astype(np.float32) - 3) * 0.5)
    assert placement == ((6 / 24, 5 / 20, 18 / 24, 14 / 20), False)


def test_floats_can_be_resized_but_have_no_noise():
    floats = RNG.normal(size=(1, 8, 6)).astype(np.float32)
    out = np.empty((1, 1, 4, 3), np.float32)
    transformer("resize_param { height: 4 width: 3 }").transform([floats], out, batch_rng(0, 0))
    np.testing.assert_array_equal(out[0, 0], cv2.resize(floats[0], (3, 4)))
    with pytest.raises(DataError, match="noise_param changes pictures of bytes, not float32"):
        transformer("noise_param { inverse: true }").transform([floats], np.empty((1, 1, 8, 6)), batch_rng(0, 0))


def test_pictures_of_several_sizes_fit_one_batch():
    items = [RNG.integers(0, 256, (3, h, w), np.uint8) for h, w in ((5, 9), (12, 4), (7, 7))]
    out = np.empty((3, 3, 6, 8), np.float32)
    transformer("resize_param { height: 6 width: 8 }").transform(items, out, batch_rng(0, 0))
    for item, made in zip(items, out, strict=True):
        np.testing.assert_array_equal(made, cv2.resize(item.transpose(1, 2, 0), (8, 6)).transpose(2, 0, 1))


def test_numbers_of_an_item_do_not_depend_on_the_batchs():
    base = batch_rng(5, 9, 2)
    first = item_rng(base, 3).random(4)
    base.random(100)
    np.testing.assert_array_equal(item_rng(base, 3).random(4), first)
    others = [item_rng(base, 2), item_rng(base, 3, 1), item_rng(batch_rng(5, 8, 2), 3), item_rng(batch_rng(5, 9, 1), 3)]
    assert all(
        (other.random(4) != first).all() for other in [*others, batch_rng(5, 9, 2), item_rng(batch_rng(6, 9, 2), 3)]
    )


@pytest.mark.parametrize(
    "text, words",
    [
        ("resize_param { height: 3 }", "height 3 and width 0"),
        ("resize_param { height: 40000 width: 40000 }", "height 40000 and width 40000"),
        ("noise_param { saltpepper: true }", "saltpepper needs saltpepper_param"),
        ("noise_param { saltpepper: true saltpepper_param { fraction: 2 value: 1 } }", "fraction of 0 to 1"),
        ("noise_param { convert_to_hsv: true convert_to_lab: true }", "are both set"),
        ("distort_param { contrast_lower: 2 contrast_upper: 1 }", "contrast_lower 2 and contrast_upper 1"),
        ("distort_param { saturation_lower: -1 }", "saturation_lower -1"),
        ("distort_param { brightness_delta: -1 }", "brightness_delta is -1"),
        ("distort_param { hue_delta: -1 }", "hue_delta is -1"),
        ("expand_param { }", "max_expand_ratio is 1"),
        ('expand_param { max_expand_ratio: 2 } mean_file: "m"', "there is a mean_file"),
        ("crop_h: 3", "crop_h but no crop_w"),
        ("crop_w: 3", "crop_w but no crop_h"),
        ("crop_size: 3 crop_h: 3 crop_w: 3", "crop_size and crop_h are both set"),
    ],
)
def test_impossible_fields(text, words):
    with pytest.raises(LayerParamError, match=words) as caught:
        transformer(text, source="db")
    assert "db" in str(caught.value) and caught.value.fix


def test_prob_has_no_effect_and_says_so(caplog):
    transformer("resize_param { height: 3 width: 3 prob: 1 } noise_param { prob: 0.5 }")
    assert "noise_param.prob has no effect" in caplog.text and "resize_param" not in caplog.text


@pytest.mark.parametrize(
    "text, channels, words",
    [
        ("noise_param { hist_eq: true }", 4, "db: noise_param changes pictures of 1 or 3 channels, not 4"),
        (
            "resize_param { height: 2 width: 2 }",
            600,
            "db: OpenCV cannot change a picture of 600 x 8 x 6",
        ),
    ],
)
def test_what_cannot_be_changed_names_the_place(text, channels, words):
    subject, item = transformer(text, source="db"), np.zeros((channels, 8, 6), np.uint8)
    with pytest.raises(DataError, match=words) as caught:
        subject.transform([item], np.empty((1, *subject.output_shape(item.shape))), batch_rng(0, 0))
    assert "force_color" in caught.value.fix
