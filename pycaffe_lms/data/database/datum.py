"""Convert Datum records, one picture (or any C x H x W array) with its label, to arrays and back.

Covers: raw bytes, float values and encoded pictures (JPEG, PNG, ...); damaged records are errors.
See also: open.py, where records come from; transformer.py for cropping, mean and scale.
"""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from ...errors import DataError, Where
from ...proto.caffe_pb2 import AnnotatedDatum, Datum
from ..transform.picture import decode_picture

_RECREATE = "write the database again from its pictures, or copy it again from where it came"


def record_place(source: str, key: bytes | str | None) -> Where:
    """Return the place of a record for errors: the database and the key, escaped, at most 80 characters of it."""
    if key is None:
        return Where(file=source)
    text = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else key
    return Where(file=f'{source} (record "{text if len(text) <= 80 else text[:77] + "..."}")')


def parse_datum(record: bytes, *, source: str, key: bytes | str | None = None) -> Datum:
    """Parse a record. Raises: DataError, naming `source` and `key`, where the bytes are no Datum."""
    datum = Datum()
    try:
        datum.ParseFromString(record)
    except DecodeError:
        raise DataError(
            f"these {len(record)} bytes are not a Datum", where=record_place(source, key), fix=_RECREATE
        ) from None
    if not (datum.channels or datum.data or datum.float_data) and _has_boxes(record):
        raise DataError(
            "an AnnotatedDatum, that is a picture with boxes",
            where=record_place(source, key),
            fix='read it with a layer of type "AnnotatedData", or write a database with convert_imageset',
        )
    return datum


def _has_boxes(record: bytes) -> bool:
    """Return whether a record that is no Datum is an AnnotatedDatum."""
    annotated = AnnotatedDatum()
    try:
        annotated.ParseFromString(record)
    except DecodeError:
        return False
    return annotated.HasField("datum")


def datum_array(
    datum: Datum, *, source: str, key: bytes | str | None = None, force_color: bool = False, force_gray: bool = False
) -> np.ndarray:
    """Return the values of `datum`: (channels, height, width), uint8 for bytes and pictures, float32 for `float_data`.

    Raw bytes are not copied, so the array may be read-only. Encoded pictures come as OpenCV reads them, colour in the
    order blue, green, red. `force_color` and `force_gray`, of which DataTransformer allows one, act on those alone.
    Raises: DataError, naming `source` and `key`, for a damaged record; MissingDependency for a picture without OpenCV.
    """
    where = record_place(source, key)
    if datum.encoded:
        return decode_picture(datum.data, where=where, force_color=force_color, force_gray=force_gray)
    shape = (datum.channels, datum.height, datum.width)
    if min(shape) <= 0:
        raise DataError(
            f"a raw Datum of channels x height x width = {_times(shape)} holds no value", where=where, fix=_RECREATE
        )
    # Caffe: bytes win where a record has both, data_transformer.cpp
    found, kind = (len(datum.data), "bytes") if datum.data else (len(datum.float_data), "float values")
    # Python integers do not overflow, and no memory of the claimed size has been taken yet.
    if found != shape[0] * shape[1] * shape[2]:
        raise DataError(f"a Datum of shape {_times(shape)} holds {found} {kind}", where=where, fix=_RECREATE)
    if datum.data:
        return np.frombuffer(datum.data, np.uint8).reshape(shape)
    # Newer protobuf hands its numbers over as an array; iterating is the fastest way for the others.
    values = datum.float_data
    flat = np.array(values, np.float32) if hasattr(values, "__array__") else np.fromiter(values, np.float32, found)
    return flat.reshape(shape)


def decode_datum(record: bytes, *, source: str, key: bytes | str | None = None) -> tuple[np.ndarray, int]:
    """Return (array, label) of a serialized Datum: `parse_datum` and `datum_array` in one step; no label counts as 0.

    Raises: DataError, naming `source` (the database) and `key`; MissingDependency for a picture without OpenCV.
    """
    datum = parse_datum(record, source=source, key=key)
    return datum_array(datum, source=source, key=key), datum.label


def encode_datum(array: np.ndarray, label: int | None = 0, *, say_raw: bool = False) -> bytes:
    """Serialize one array of shape (channels, height, width): uint8 as bytes, float32 and float64 as `float_data`.

    float64 is rounded to float32, the only float that a Datum has.
    label: an int32; None writes none. say_raw: write `encoded: false` too, as Caffe's convert_imageset does.
    Raises: DataError for another shape or type of values, or a label outside int32.
    """
    array = np.asarray(array)
    if array.ndim != 3 or array.size == 0:
        raise DataError(
            f"a Datum holds channels x height x width values, not an array of shape {array.shape}",
            fix="give an array of three axes, for a gray picture of shape (1, height, width)",
        )
    shape, rest = Datum(channels=array.shape[0], height=array.shape[1], width=array.shape[2]), Datum()
    if label is not None:
        rest.label = _int32(label)
    if say_raw:
        rest.encoded = False
    data: tuple[bytes | memoryview, ...] = ()
    if array.dtype == np.uint8:  # protobuf takes a hundred times as long for them
        data = (_DATA_TAG, _varint(array.size), np.ascontiguousarray(array).data)
    elif array.dtype in (np.float32, np.float64):
        rest.float_data.extend(array.astype(np.float32).ravel().tolist())
    else:
        raise DataError(f"a Datum holds uint8 or float32 values, not {array.dtype}", fix="convert with array.astype")
    # Fields in the order of their numbers; joined, the values are copied once.
    return b"".join((shape.SerializeToString(), *data, rest.SerializeToString()))


_DATA_TAG = bytes([Datum.DATA_FIELD_NUMBER << 3 | 2])  # 2: a length comes first; see protobuf's encoding


def _varint(number: int) -> bytes:
    """Return a number in protobuf's variable length: 7 bits a byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def encode_picture_datum(file_bytes: bytes, label: int = 0) -> bytes:
    """Serialize the bytes of a picture file (JPEG, PNG, ...) unchanged, as `encoded`; the shape stays unset."""
    return Datum(data=file_bytes, label=_int32(label), encoded=True).SerializeToString()


def _int32(label: int) -> int:
    if not -(2**31) <= label < 2**31:
        raise DataError(f"label {label} does not fit in 32 bits", fix="number the classes from 0")
    return int(label)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
