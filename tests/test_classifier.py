"""Tests Classifier and Detector: crops, means and batches against plain NumPy on a net of one matrix product."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.errors import ArrayError, DataError, MissingDependency, UsageError

SIDE, CLASSES = 4, 5
NET = f"""
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 3 dim: 3 dim: {SIDE} dim: {SIDE} }} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: {CLASSES} weight_filler {{ type: "gaussian" std: 0.1 }} }} }}
layer {{ name: "prob" type: "Softmax" bottom: "ip" top: "prob" }}
"""
MEAN = np.array([90.0, 100.0, 110.0])
HOW = {"mean": MEAN, "raw_scale": 255, "channel_swap": (2, 1, 0), "input_scale": 0.02}
RNG = np.random.default_rng(8)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    model, weights = str(folder / "deploy.prototxt"), str(folder / "net.caffemodel")
    (folder / "deploy.prototxt").write_text(NET)
    caffe.set_random_seed(1)
    caffe.Net(model, caffe.TEST).save(weights)
    return model, weights


def scores(net, crops):
    """Return the net's scores of crops (N, SIDE, SIDE, 3), RGB in [0, 1], computed in NumPy."""
    bgr = (np.asarray(crops, np.float64)[..., ::-1] * 255 - MEAN) * 0.02
    flat = bgr.transpose(0, 3, 1, 2).reshape(len(crops), -1)
    z = flat @ net.params["ip"][0].data.T.astype(np.float64) + net.params["ip"][1].data
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# -- Classifier --------------------------------------------------------------------------------------------------------
def test_centre_crop(files):
    net = caffe.Classifier(*files, image_dims=(7, 8), **HOW)
    pictures = [RNG.uniform(size=(7, 8, 3)).astype(np.float32) for _ in range(5)]  # five in batches of three
    out = net.predict(pictures, oversample=False)
    assert out.shape == (5, CLASSES)
    np.testing.assert_allclose(out, scores(net, [p[1:5, 2:6] for p in pictures]), rtol=1e-4)
    assert tuple(net.crop_dims) == (SIDE, SIDE) and net.image_dims == (7, 8)
    assert isinstance(net.transformer, caffe.io.Transformer)


def test_mean_over_ten_crops(files):
    net = caffe.Classifier(*files, image_dims=(6, 6), **HOW)
    pictures = RNG.uniform(size=(2, 6, 6, 3)).astype(np.float32)
    expected = []
    for picture in pictures:
        five = [picture[y : y + 4, x : x + 4] for y, x in ((0, 0), (0, 2), (2, 0), (2, 2), (1, 1))]
        expected.append(scores(net, five + [crop[:, ::-1] for crop in five]).mean(0))
    np.testing.assert_allclose(net.predict(pictures), expected, rtol=1e-4)


def test_pictures_of_any_size_are_resized(files):
    net = caffe.Classifier(*files, **HOW)
    assert net.image_dims == (SIDE, SIDE)
    pictures = [RNG.uniform(size=(9, 5, 3)), RNG.uniform(size=(3, 3, 3))]
    small = [caffe.io.resize_image(p, (SIDE, SIDE)) for p in pictures]
    np.testing.assert_allclose(net.predict(pictures, oversample=False), scores(net, small), rtol=1e-4)


def test_what_is_no_classifier(files):
    with pytest.raises(UsageError, match=r"image_dims \(3, 9\) are smaller than the net's input \(4, 4\)"):
        caffe.Classifier(*files, image_dims=(3, 9))
    with pytest.raises(ValueError, match="Mean channels incompatible with input"):
        caffe.Classifier(*files, mean=np.zeros(4))
    with pytest.raises(UsageError, match="no pictures"):
        caffe.Classifier(*files).predict([])
    with pytest.raises(ArrayError, match=r"not \(4, 4\)"):
        caffe.Classifier(*files).predict([np.zeros((4, 4))])


# -- Detector ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def picture(tmp_path):
    """Return a PNG of 12 x 10, and its values in [0, 1]."""
    rgb = RNG.integers(0, 256, (12, 10, 3), dtype=np.uint8)
    path = tmp_path / "picture.png"
    assert cv2.imwrite(str(path), rgb[..., ::-1])
    return str(path), rgb / 255


def test_windows(files, picture):
    path, values = picture
    net = caffe.Detector(*files, **HOW)
    windows = np.array([[0, 0, 4, 4], [8, 6, 12, 10], [2, 3, 10, 9], [5, 5, 9, 9]])
    found = net.detect_windows([(path, windows[:3]), (path, windows[3:])])
    crops = [caffe.io.resize_image(values[y0:y1, x0:x1], (SIDE, SIDE)) for y0, x0, y1, x1 in windows]
    assert [f["filename"] for f in found] == [path] * 4
    np.testing.assert_array_equal([f["window"] for f in found], windows)
    np.testing.assert_allclose([f["prediction"] for f in found], scores(net, crops), rtol=1e-4)
    assert net.detect_windows([]) == net.detect_windows([(path, [])]) == []


def test_context_shows_what_surrounds_the_window(files):
    """By hand: the input is 4 wide with 1 of context, so a window of 4 (0..3 after its "+ 1") doubles to 8."""
    net = caffe.Detector(*files, context_pad=1, **HOW)
    image = RNG.uniform(size=(20, 30, 3)).astype(np.float32)
    # Rows: centre 10.0, reach 4 -> 6..14. Columns: centre 15.0 -> 11..19. Nothing is outside: no mean is seen, and the
    # part stands at the origin; (14 - 6 + 1) / (14 - 6 + 1) * 4 = 4 pixels.
    crop = net.crop(image, [8, 13, 11, 16])
    np.testing.assert_allclose(crop, caffe.io.resize_image(image[6:14, 11:19], (4, 4)), rtol=1e-5)


def test_context_outside_of_the_picture_is_the_mean(files):
    net = caffe.Detector(*files, context_pad=1, **HOW)
    mean = MEAN[::-1] / 255  # RGB in [0, 1]
    np.testing.assert_allclose(net.crop_mean, mean.reshape(1, 1, 3), rtol=1e-6)
    image = RNG.uniform(size=(20, 30, 3)).astype(np.float32)
    # Window 0..3: centre 2, reach 4 -> -2..6, 9 pixels for 4: 2 * 4/9 = 0.89, rounded 1 pixel of mean before; then
    # 0..6, 7 * 4/9 = 3.1, 3 pixels.
    crop = net.crop(image, np.array([0, 0, 3, 3]))
    assert crop.shape == (4, 4, 3)
    np.testing.assert_allclose(crop[0], np.tile(mean, (4, 1)), rtol=1e-6)
    np.testing.assert_allclose(crop[:, 0], np.tile(mean, (4, 1)), rtol=1e-6)
    np.testing.assert_allclose(crop[1:, 1:], caffe.io.resize_image(image[:6, :6], (3, 3)), rtol=1e-5)
    # At the far corner (16..19 of 20 rows, 26..29 of 30 columns): 14..22 is cut to 14..20, and it is 7 * 4/9 again.
    crop = net.crop(image, [16, 26, 19, 29])
    np.testing.assert_allclose(crop[:3, :3], caffe.io.resize_image(image[14:20, 24:30], (3, 3)), rtol=1e-5)
    np.testing.assert_allclose(crop[3], np.tile(mean, (4, 1)), rtol=1e-6)


def test_without_a_mean_the_surroundings_are_black(files):
    net = caffe.Detector(*files, context_pad=1)
    assert not net.crop_mean.any() and tuple(net.crop_dims) == (SIDE, SIDE, 3)
    net.transformer.set_mean("data", MEAN)
    net.configure_crop(1)
    np.testing.assert_allclose(net.crop_mean.ravel(), MEAN)


def test_a_whole_mean_surrounds_too(files):
    whole = RNG.uniform(0, 255, (3, SIDE, SIDE))
    net = caffe.Detector(*files, mean=whole, raw_scale=255, channel_swap=(2, 0, 1), context_pad=1)
    unprocessed = np.empty((SIDE, SIDE, 3))
    for c, source in enumerate((2, 0, 1)):  # the input's channel c is the picture's channel `source`
        unprocessed[..., source] = whole[c] / 255
    np.testing.assert_allclose(net.crop_mean, unprocessed, rtol=1e-5)


def test_what_cannot_be_detected(files, picture, tmp_path):
    path, _ = picture
    net = caffe.Detector(*files)
    with pytest.raises(
        ArrayError, match=r"picture\.png: window \(12, 0, 14, 4\) holds no pixel of a picture of 12 x 10"
    ):
        net.detect_windows([(path, [[12, 0, 14, 4]])])
    with pytest.raises(DataError, match=r"absent\.png"):
        net.detect_windows([(str(tmp_path / "absent.png"), [[0, 0, 4, 4]])])
    with pytest.raises(UsageError, match="selective search runs in MATLAB") as caught:
        net.detect_selective_search([path])
    assert "detect_windows" in caught.value.fix
    with pytest.raises(UsageError, match="context_pad 2 leaves nothing"):
        caffe.Detector(*files, context_pad=2)
    net.configure_crop(1)
    with pytest.raises(ArrayError, match="holds no pixel"):
        net.crop(np.zeros((12, 10, 3)), [40, 0, 44, 4])


def test_reading_pictures_needs_opencv(files, picture, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependency, match="opencv"):
        caffe.Detector(*files).detect_windows([(picture[0], [[0, 0, 4, 4]])])
