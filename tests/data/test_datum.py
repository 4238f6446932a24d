"""Datum records: to arrays and back, pictures, and every kind of damage."""

import struct
import sys
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycaffe_lms.data.database.datum import datum_array, decode_datum, encode_datum, encode_picture_datum, parse_datum
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.transform.picture import (
    MAX_PICTURE_VALUES,
    decode_picture,
    decodes,
    encode_pixels,
    header_size,
    stored_channels,
    to_pixels,
    usual_jpeg_shape,
)
from pycaffe_lms.errors import DataError, MissingDependency, Where
from pycaffe_lms.proto.caffe_pb2 import Datum
from tests.data.helpers import shared_db
from tests.shared_data import SHARED, needs_shared

PICTURE = np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8)


def decode(record, **rules):
    place = {"source": "some_lmdb", "key": b"0007"}
    datum = parse_datum(record, **place)
    return datum_array(datum, **place, **rules), datum.label


def encoded(image, kind=".png"):
    return encode_picture_datum(cv2.imencode(kind, image)[1].tobytes(), 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_round_trip(dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    found, label = decode(encode_datum(array, -5))
    assert found.dtype == dtype and label == -5
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 127), (1, 1, 128), (3, 5, 9), (2, 64, 128), (3, 512, 1400)])
@pytest.mark.parametrize("label", [None, 0, -5, 70000])
@pytest.mark.parametrize("say_raw", [False, True])
def test_bytes_are_those_of_protobuf(shape, label, say_raw):
    array = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    datum = Datum(channels=shape[0], height=shape[1], width=shape[2], data=array.tobytes(), label=label)
    if say_raw:
        datum.encoded = False
    assert encode_datum(array, label, say_raw=say_raw) == datum.SerializeToString(deterministic=True)


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_planes_are_those_of_opencv(channels, dtype):
    shape = (7, 5) if channels is None else (7, 5, channels)
    pixels = np.random.default_rng(2).integers(0, np.iinfo(dtype).max, shape, dtype)
    data = cv2.imencode(".png", pixels)[1].tobytes()
    found = decode_picture(data, where=Where(file="x.png"), sixteen_bits=True)
    assert found.flags.c_contiguous and found.dtype == dtype
    np.testing.assert_array_equal(found, np.moveaxis(pixels.reshape(7, 5, -1), 2, 0))
    if dtype == np.uint8:
        assert encode_pixels(to_pixels(found), "png", where=Where(file="x.png")) == data


@pytest.mark.parametrize(
    ("kind", "pixels", "channels"),
    [
        (".png", PICTURE, 3),
        (".jpg", PICTURE, 3),
        (".png", PICTURE[..., 0], 1),
        (".jpg", PICTURE[..., 0], 1),
        (".png", PICTURE.astype(np.uint16), None),
        (".png", np.concatenate([PICTURE, PICTURE[..., :1]], 2), None),
        (".bmp", PICTURE, None),
    ],
)
def test_stored_channels(kind, pixels, channels):
    data = cv2.imencode(kind, pixels)[1].tobytes()
    assert stored_channels(data) == channels
    assert all(stored_channels(data[:n]) in (None, channels) for n in range(len(data)))


def shape_by_eighth(data, gray):
    shape = usual_jpeg_shape(data, gray=gray)
    return shape if shape is not None and decodes(data, shape) else None


def shape_by_opencv(data, gray):
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE if gray else cv2.IMREAD_COLOR)
    return None if pixels is None else (1 if gray else 3, *pixels.shape[:2])


SAMPLING = [v for name, v in vars(cv2).items() if name.startswith("IMWRITE_JPEG_SAMPLING_FACTOR_")]
"""Sizes of the colours: 4:1:1, 4:2:0, 4:2:2, 4:4:0, 4:4:4."""


@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("sampling", [*SAMPLING, None], ids=[*map(hex, SAMPLING), "gray"])
@pytest.mark.parametrize("shape", [(33, 17), (16, 40), (1, 1), (7, 9)])
def test_decoding_an_eighth_refuses_what_decoding_refuses(shape, sampling, progressive):
    """JPEGs cut at every place, and with wrong bytes anywhere: all that an eighth accepts has the shape it says."""
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 256, (*shape, 3) if sampling else shape, np.uint8)
    rules = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling] if sampling else []
    rules += [cv2.IMWRITE_JPEG_PROGRESSIVE, progressive, cv2.IMWRITE_JPEG_RST_INTERVAL, 0 if progressive else 2]
    data = cv2.imencode(".jpg", pixels, rules)[1].tobytes()
    cuts = sorted({*range(1, len(data), 7), *range(len(data) - 12, len(data))})
    damaged = [data[:cut] for cut in cuts]
    for place in rng.integers(2, len(data), 150):
        damaged.append(data[:place] + bytes([rng.choice([0, 255, rng.integers(256)])]) + data[place + 1 :])
    for gray in (False, True):
        assert shape_by_eighth(data, gray) == (1 if gray else 3, *shape)
        found = [shape_by_eighth(each, gray) for each in damaged]
        wanted = [shape_by_opencv(each, gray) for each in damaged]
        assert [f for f, w in zip(found, wanted, strict=True) if f not in (None, w)] == []
        assert len([w for w in wanted if w is None]) > 20 and len([f for f in found if f is not None]) > 20


def segment(marker, body):
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def test_jpegs_whose_shape_a_header_does_not_tell():
    """EXIF data that turns the picture; two headers; markers without a length; other kinds and damaged headers."""
    data = cv2.imencode(".jpg", PICTURE)[1].tobytes()
    turned = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"  # orientation 6
    exif = data[:2] + segment(0xE1, turned) + data[2:]
    assert shape_by_opencv(exif, False) == (3, 5, 7) and usual_jpeg_shape(exif, gray=False) is None
    kept = data[:2] + segment(0xE2, turned) + segment(0xFE, b"a comment") + data[2:]
    assert usual_jpeg_shape(kept, gray=False) == shape_by_opencv(kept, False) == (3, 7, 5)
    frame = data.index(b"\xff\xc0")
    body = data[frame + 4 : frame + 19]
    changed = [
        data[:frame] + segment(0xC0, body) + data[frame:],
        data[:2] + b"\xff\x01" + data[2:],
        data[:2] + b"\xff" + data[2:],
        *(data[:frame] + segment(kind, body) + data[frame + 19 :] for kind in (0xC3, 0xC5, 0xC9, 0xCF)),
        data[:frame] + segment(0xC0, b"\x0c" + body[1:]) + data[frame + 19 :],  # 12 bits
        data[:frame] + segment(0xC0, body[:1] + b"\0\0" + body[3:]) + data[frame + 19 :],  # no height
        data[:frame] + segment(0xC0, body[:1] + b"\xff" * 4 + body[5:]) + data[frame + 19 :],  # gigabytes
        data[:frame] + segment(0xC0, body[:10] + b"\x21" + body[11:]) + data[frame + 19 :],  # colours twice as wide
        data[:frame] + segment(0xC0, body[:5] + b"\x04" + body[6:] + b"\4\x11\0") + data[frame + 19 :],
        cv2.imencode(".png", PICTURE)[1].tobytes(),
        b"",
    ]
    assert [usual_jpeg_shape(each, gray=False) for each in changed] == [None] * len(changed)


def test_float64_is_stored_as_float32():
    found, _ = decode(encode_datum(np.full((1, 1, 1), 1 / 3)))
    assert found.dtype == np.float32 and found[0, 0, 0] == np.float32(1 / 3)


def test_label_is_zero_where_absent():
    assert decode(Datum(channels=1, height=1, width=1, data=b"x").SerializeToString())[1] == 0


def test_bytes_win_over_floats():
    datum = Datum(channels=1, height=1, width=2, data=b"\1\2", float_data=[9.0])
    assert decode(datum.SerializeToString())[0].tolist() == [[[1, 2]]]


def test_encoded_colour_is_bgr_in_planes():
    found, label = decode(encoded(PICTURE))
    assert label == 3
    np.testing.assert_array_equal(found, PICTURE.transpose(2, 0, 1))


def test_colour_rules():
    gray = PICTURE[:, :, 0]
    assert decode(encoded(gray))[0].shape == (1, 7, 5)
    np.testing.assert_array_equal(decode(encoded(gray), force_color=True)[0], np.stack([gray] * 3))
    assert decode(encoded(PICTURE), force_gray=True)[0].shape == (1, 7, 5)
    transparent = np.dstack([PICTURE, gray])
    assert decode(encoded(transparent))[0].shape == (4, 7, 5)
    assert decode(encoded(transparent), force_color=True)[0].shape == (3, 7, 5)


def test_colour_rules_leave_raw_records_alone():
    array = np.zeros((1, 2, 2), np.uint8)
    assert decode(encode_datum(array), force_color=True)[0].shape == (1, 2, 2)


@pytest.mark.parametrize(
    "record, words",
    [
        (b"\xff\xff\xff", "not a Datum"),
        (b"", "holds no value"),
        (Datum(channels=3, height=-1, width=2, data=b"123").SerializeToString(), "3 x -1 x 2"),
        (Datum(channels=3, height=2, width=2, data=b"123").SerializeToString(), "holds 3 bytes"),
        (Datum(channels=3, height=2, width=2, float_data=[1]).SerializeToString(), "holds 1 float values"),
        (Datum(channels=2**31 - 1, height=2**31 - 1, width=2**31 - 1, data=b"1").SerializeToString(), "holds 1 bytes"),
        (Datum(encoded=True, data=b"no picture").SerializeToString(), "not a picture"),
        (Datum(encoded=True).SerializeToString(), "picture"),
    ],
)
def test_damage_names_database_and_key(record, words):
    with pytest.raises(DataError) as caught:
        decode(record)
    assert words in str(caught.value) and 'some_lmdb (record "0007")' in str(caught.value) and caught.value.fix


def test_sixteen_bits_per_value_are_refused_unless_converted():
    record = encoded(PICTURE.astype(np.uint16) * 257)
    with pytest.raises(DataError, match="uint16"):
        decode(record)
    assert decode(record, force_color=True)[0].shape == (3, 7, 5)


def test_a_header_that_claims_gigabytes_is_refused_unread():
    body = struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + body
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(body)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    with pytest.raises(DataError, match="60000 x 60000"):
        decode(encode_picture_datum(bomb))
    assert MAX_PICTURE_VALUES < 60000 * 60000 * 3


@pytest.mark.parametrize("kind", [".png", ".jpg"])
def test_header_size(kind):
    data = cv2.imencode(kind, PICTURE)[1].tobytes()
    assert header_size(data) == (7, 5)
    for cut in range(len(data)):
        header_size(data[:cut])


def test_without_opencv(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependency, match=r"pip install 'pycaffe-lms\[image\]'"):
        decode(encode_picture_datum(b"x"))


@pytest.mark.parametrize(
    "array, label",
    [(np.zeros(3, np.uint8), 0), (np.zeros((1, 0, 3), np.uint8), 0), (np.zeros((1, 1, 1), int), 0)]
    + [(np.zeros((1, 1, 1), np.uint8), 2**31)],
)
def test_what_a_datum_cannot_hold(array, label):
    with pytest.raises(DataError):
        encode_datum(array, label)


@given(st.data())
def test_random_damage_is_an_error_or_an_array(data):
    whole = data.draw(st.sampled_from([encode_datum(np.zeros((2, 3, 4), np.uint8), 1), encoded(PICTURE)]))
    record = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    try:
        array, _ = decode(bytes(record[: data.draw(st.integers(0, len(record)))]))
    except DataError as error:
        assert "0007" in str(error)
    else:
        assert array.ndim == 3 and array.size


@needs_shared
def test_real_encoded_pictures(tmp_path):
    with LMDBSource(shared_db("images_encoded_lmdb", tmp_path)) as source:
        for name, label in (("cat.jpg", 281), ("fish-bike.jpg", 1), ("cat_gray.jpg", 281)):
            key, record = source.next()
            array, found = decode_datum(record, source="real", key=key)
            want = cv2.imread(str(SHARED / "data" / "images" / name), cv2.IMREAD_UNCHANGED)
            assert key.endswith(name.encode()) and found == label
            np.testing.assert_array_equal(array, want[None] if want.ndim == 2 else want.transpose(2, 0, 1))


@needs_shared
def test_real_raw_pictures(tmp_path):
    with LMDBSource(shared_db("images_raw_lmdb", tmp_path)) as source:
        for name in ("cat.jpg", "fish-bike.jpg", "cat_gray.jpg"):
            key, record = source.next()
            array, _ = decode_datum(record, source="real", key=key)
            image = cv2.imread(str(SHARED / "data" / "images" / name), cv2.IMREAD_COLOR)
            want = cv2.resize(image, (80, 64)).transpose(2, 0, 1)
            assert array.shape == (3, 64, 80)
            # another OpenCV decoded and resized it, so single gray values may differ
            assert np.abs(array.astype(int) - want).mean() < 1
