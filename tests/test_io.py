"""caffe.io: messages, pictures, crops."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pycaffe_lms import io
from pycaffe_lms.errors import ArrayError, DataError
from pycaffe_lms.proto import caffe_pb2
from tests.shared_data import SHARED, needs_shared

RNG = np.random.default_rng(5)
IMAGES = SHARED / "data" / "images"


# -- blobs -------------------------------------------------------------------------------------------------------------
def test_blob_goes_to_a_message_and_back():
    values, grads = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 4))
    proto = io.array_to_blobproto(values, grads)
    assert list(proto.shape.dim) == [2, 3, 4] and len(proto.data) == 24 and not proto.double_data
    for array, expected in ((io.blobproto_to_array(proto), values), (io.blobproto_to_array(proto, True), grads)):
        assert array.dtype == np.float64 and array.shape == (2, 3, 4)
        np.testing.assert_array_equal(array, expected.astype(np.float32))


def test_old_sizes_win_over_the_shape():
    proto = caffe_pb2.BlobProto(channels=2, height=1, width=3, num=1, data=range(6))
    proto.shape.dim.extend([6])
    np.testing.assert_array_equal(io.blobproto_to_array(proto), np.arange(6.0).reshape(1, 2, 1, 3))


def test_blob_whose_sizes_disagree_is_a_value_error():
    with pytest.raises(ValueError, match="5"):
        io.blobproto_to_array(caffe_pb2.BlobProto(num=1, channels=1, height=2, width=3, data=range(5)))
    with pytest.raises(ValueError, match="shape"):
        io.array_to_blobproto(np.zeros((2, 3)), np.zeros((3, 2)))


def test_lists_of_arrays_go_to_bytes_and_back():
    arrays = [np.arange(6.0).reshape(2, 3), np.full((1, 1, 2, 2), 0.5)]
    text = io.arraylist_to_blobprotovector_str(arrays)
    back = io.blobprotovector_str_to_arraylist(text)
    assert isinstance(text, bytes) and len(back) == 2
    for ours, expected in zip(back, arrays, strict=True):
        np.testing.assert_array_equal(ours, expected)
    with pytest.raises(DataError, match="BlobProtoVector"):
        io.blobprotovector_str_to_arraylist(b"\xff\xff\xff")


# -- datums ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("array", "back"),
    [
        (RNG.integers(0, 256, (3, 4, 5), dtype=np.uint8), np.uint8),
        (RNG.normal(size=(1, 2, 3)).astype(np.float32), np.float64),
        (np.arange(8).reshape(2, 2, 2), np.float64),
    ],
    ids=["bytes", "floats", "integers"],
)
def test_datum_goes_there_and_back(array, back):
    datum = io.array_to_datum(array, 7)
    assert (datum.channels, datum.height, datum.width, datum.label) == (*array.shape, 7)
    again = io.datum_to_array(caffe_pb2.Datum.FromString(datum.SerializeToString()))
    assert again.dtype == back
    np.testing.assert_array_equal(again, array)
    again[...] = 0  # the caller's own


def test_datum_without_a_label_has_none():
    assert not io.array_to_datum(np.zeros((1, 1, 1))).HasField("label")
    assert io.array_to_datum(np.zeros((1, 1, 1)), 0).HasField("label")


def test_datum_has_three_axes():
    with pytest.raises(ValueError, match=r"^Incorrect array shape\."):
        io.array_to_datum(np.zeros((2, 2)))
    with pytest.raises(DataError, match="5 bytes"):
        io.datum_to_array(caffe_pb2.Datum(channels=1, height=2, width=3, data=b"12345"))


def test_encoded_datum_is_decoded():
    picture = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    datum = caffe_pb2.Datum(data=cv2.imencode(".png", picture)[1].tobytes(), encoded=True)
    np.testing.assert_array_equal(io.datum_to_array(datum), picture.transpose(2, 0, 1))


# -- pictures ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16], ids=str)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("color", [True, False])
def test_load_image(tmp_path, dtype, channels, color):
    top = np.iinfo(dtype).max
    rgba = RNG.integers(0, top + 1, (5, 7, channels), dtype=dtype)
    stored = rgba if channels == 1 else rgba[..., [2, 1, 0, 3][:channels]]  # OpenCV takes BGR(A)
    path = tmp_path / "picture.png"
    assert cv2.imwrite(str(path), stored)
    image = io.load_image(path, color)
    plain = np.repeat(rgba, 3, axis=2)[..., :3] if channels == 1 else rgba[..., :3]
    expected = plain / top
    if not color and channels == 1:
        expected = rgba / top
    elif not color:
        expected = (expected * [0.2125, 0.7154, 0.0721]).sum(-1, keepdims=True)
    assert image.dtype == np.float32 and image.shape == (5, 7, 3 if color else 1)
    np.testing.assert_allclose(image, expected, rtol=1e-7)
    if color or channels == 1:
        np.testing.assert_array_equal(image, expected.astype(np.float32))


def test_load_image_names_the_file(tmp_path):
    with pytest.raises(DataError, match="Could not open file .*absent.jpg"):
        io.load_image(tmp_path / "absent.jpg")
    path = tmp_path / "text.jpg"
    path.write_text("no picture")
    with pytest.raises(DataError, match=r"text\.jpg: these 10 bytes are not a picture"):
        io.load_image(str(path))


@needs_shared
@pytest.mark.shared
def test_real_pictures_read_as_scikit_image_reads_them():
    """The numbers were printed by scikit-image 0.26 (img_as_float of imread; as_gray)."""
    image = io.load_image(IMAGES / "cat.jpg")
    assert image.shape == (360, 480, 3) and np.rint(image * 255).sum(dtype=int) == 60033953
    np.testing.assert_array_equal(np.rint(image[[10, 100], [20, 200]] * 255), [[29, 72, 53], [155, 121, 86]])
    gray = io.load_image(IMAGES / "cat.jpg", color=False)
    np.testing.assert_allclose(gray[[100, 10], [200, 20], 0], [0.4929470588235294, 0.24114745098039217], rtol=1e-6)
    assert gray.mean(dtype=np.float64) == pytest.approx(0.5105639785698075, rel=1e-6)
    tiled = io.load_image(str(IMAGES / "cat_gray.jpg"))
    assert tiled.shape == (360, 480, 3) and np.rint(tiled[..., 1] * 255).sum(dtype=int) == 21732064


# -- crops -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("size", "crop"), [((6, 8), (4, 5)), ((7, 7), (4, 4)), ((5, 6), (5, 6))])
def test_oversample_takes_corners_centre_and_their_mirrors(size, crop):
    images = [RNG.normal(size=(*size, 2)).astype(np.float32) for _ in range(3)]
    crops = io.oversample(images, np.array(crop))
    assert crops.shape == (30, *crop, 2) and crops.dtype == np.float32
    (height, width), (h, w) = size, crop
    middle = (height - h) // 2, (width - w) // 2
    starts = [(0, 0), (0, width - w), (height - h, 0), (height - h, width - w), middle]
    for n, im in enumerate(images):
        for k, (y, x) in enumerate(starts):
            np.testing.assert_array_equal(crops[10 * n + k], im[y : y + h, x : x + w])
            np.testing.assert_array_equal(crops[10 * n + k + 5], im[y : y + h, x : x + w][:, ::-1])


def test_oversample_refuses_what_has_no_ten_crops():
    with pytest.raises(ArrayError, match="crops of 5 x 4 do not fit in pictures of 4 x 4"):
        io.oversample(np.zeros((1, 4, 4, 3)), (5, 4))
    with pytest.raises(ArrayError, match="one shape"):
        io.oversample([np.zeros((4, 4, 3)), np.zeros((5, 4, 3))], (2, 2))
