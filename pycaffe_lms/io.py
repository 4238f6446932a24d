"""Define caffe.io: arrays to messages and back, pictures from files, crops, and the Transformer.

A mean for `Transformer.set_mean` comes from a .npy file (`np.load`), or from a mean file that compute_image_mean wrote:

    proto = caffe_pb2.BlobProto.FromString(open("mean.binaryproto", "rb").read())
    mean = caffe.io.blobproto_to_array(proto)[0]  # (C, H, W), channels as the database has them: BGR

`data.mean.load_mean("mean.binaryproto")` does the same with errors that name the file. `mean.mean(1).mean(1)` is the
mean per channel, which fits every crop.
See also: data/transform/resize.py and data/transform/preprocess.py, which define `resize_image` and `Transformer`.
Source of the behaviour: BVLC/caffe, python/caffe/io.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
from google.protobuf.message import DecodeError

from .data.database.datum import datum_array
from .data.transform.picture import decode_picture
from .data.transform.preprocess import Transformer
from .data.transform.resize import resize_image
from .errors import ArrayError, DataError, UsageError, WeightsError, Where
from .formats.rawfile import read_bytes
from .formats.weights import blobproto
from .proto import caffe_pb2

__all__ = [
    "Transformer",
    "array_to_blobproto",
    "array_to_datum",
    "arraylist_to_blobprotovector_str",
    "blobproto_to_array",
    "blobprotovector_str_to_arraylist",
    "datum_to_array",
    "load_image",
    "oversample",
    "resize_image",
]
_GRAY = (0.2125, 0.7154, 0.0721)  # weights of red, green, blue, as in scikit-image


def blobproto_to_array(blob: caffe_pb2.BlobProto, return_diff: bool = False) -> np.ndarray:
    """Return the values of a BlobProto, or its gradients with `return_diff`, as float64 in its shape.

    The shape is that of num, channels, height and width where any of them is set.
    Raises: ArrayError (a ValueError) where the number of values is not what the shape says; UsageError for bytes.
    """
    if not isinstance(blob, caffe_pb2.BlobProto):
        raise UsageError(
            f"{type(blob).__name__} is no BlobProto",
            fix="parse what the file holds: caffe_pb2.BlobProto.FromString(open(file, 'rb').read())",
        )
    try:
        return blobproto.blobproto_to_array(blob, np.float64, what="diff" if return_diff else "data")
    except WeightsError as error:
        raise ArrayError(error.message) from None


def array_to_blobproto(arr: np.ndarray, diff: np.ndarray | None = None) -> caffe_pb2.BlobProto:
    """Return a BlobProto of float values in the shape of `arr`; `diff`, of the same shape, becomes its gradients.

    Raises: ValueError where `diff` has another shape.
    """
    return blobproto.array_to_blobproto(
        np.asarray(arr, np.float32), None if diff is None else np.asarray(diff, np.float32)
    )


def arraylist_to_blobprotovector_str(arraylist: Iterable[np.ndarray]) -> bytes:
    """Serialize arrays as a BlobProtoVector."""
    vector = caffe_pb2.BlobProtoVector()
    vector.blobs.extend(array_to_blobproto(arr) for arr in arraylist)
    return vector.SerializeToString()


def blobprotovector_str_to_arraylist(str: bytes) -> list[np.ndarray]:
    """Return the arrays of a serialized BlobProtoVector, as float64. Raises: DataError for other bytes; ArrayError."""
    try:
        vector = caffe_pb2.BlobProtoVector.FromString(str)
    except DecodeError:
        raise DataError(f"these {len(str)} bytes are not a BlobProtoVector") from None
    return [blobproto_to_array(blob) for blob in vector.blobs]


def array_to_datum(arr: np.ndarray, label: int | None = None) -> caffe_pb2.Datum:
    """Return a Datum of an array (C, H, W): uint8 as bytes, anything else as `float_data`.

    Raises: ArrayError (a ValueError) for another number of axes.
    """
    arr = np.asarray(arr)
    if arr.ndim != 3:
        raise ArrayError("Incorrect array shape.", fix=f"a Datum is (channels, height, width), not {arr.shape}")
    datum = caffe_pb2.Datum(channels=arr.shape[0], height=arr.shape[1], width=arr.shape[2])
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(np.float32).ravel().tolist())
    if label is not None:
        datum.label = int(label)
    return datum


def datum_to_array(datum: caffe_pb2.Datum) -> np.ndarray:
    """Return the values of a Datum, (C, H, W): uint8 for bytes, float64 for `float_data`. The label is `datum.label`.

    An `encoded` picture is decoded as data layers do it: uint8, BGR.
    Raises: DataError where the sizes disagree or the picture is damaged; MissingDependency for one without OpenCV.
    """
    array = datum_array(datum, source="Datum")
    return np.array(array, dtype=np.uint8 if array.dtype == np.uint8 else np.float64)


def load_image(filename: str | os.PathLike[str], color: bool = True) -> np.ndarray:
    """Read a picture file as float32 in [0, 1]: RGB (H, W, 3), or with color=False gray (H, W, 1).

    The file has 8 or 16 bits per value. A gray picture is repeated three times for `color`; an alpha channel is
    dropped; the rotation in a camera's metadata is not applied. Most published nets want BGR in [0, 255]: see
    Transformer.
    Raises: DataError, naming the file, for one that is missing, damaged or too large; MissingDependency without OpenCV.
    """
    where = Where(file=os.fspath(filename))
    planes = decode_picture(read_bytes(filename, DataError), where=where, sixteen_bits=True)
    # Divided in float64, so that every value is the float32 nearest to n/255.
    levels = np.arange(np.iinfo(planes.dtype).max + 1) / np.iinfo(planes.dtype).max
    if len(planes) == 1:
        gray = levels.astype(np.float32)[planes[0]][..., None]
        return np.repeat(gray, 3, axis=2) if color else gray
    red_green_blue = planes[2::-1].transpose(1, 2, 0)
    if color:
        return np.asarray(levels.astype(np.float32)[red_green_blue])
    return np.asarray((levels[red_green_blue] @ np.array(_GRAY)).astype(np.float32)[..., None])


def oversample(images: Sequence[np.ndarray], crop_dims: Sequence[int]) -> np.ndarray:
    """Cut ten crops from every picture: four corners and the centre, and the same mirrored: float32 (10 N, h, w, K).

    images: N pictures of one shape (H, W, K). crop_dims: (h, w). The order is top left, top right, bottom left, bottom
    right, centre.
    Raises: ArrayError (a ValueError) where the pictures differ in shape or are smaller than the crop.
    """
    if isinstance(images, np.ndarray) and images.ndim == 3:
        raise ArrayError(f"one picture of shape {images.shape}, not a list of them", fix="give [picture]")
    height, width = (int(d) for d in crop_dims)
    shapes = {np.shape(im) for im in images}
    if len(shapes) != 1 or len(shape := next(iter(shapes))) != 3:
        raise ArrayError(f"pictures of one shape (height, width, channels) are needed, not {sorted(shapes)}")
    if not 0 < height <= shape[0] or not 0 < width <= shape[1]:
        raise ArrayError(f"crops of {height} x {width} do not fit in pictures of {shape[0]} x {shape[1]}")
    bottom, right = shape[0] - height, shape[1] - width
    starts = ((0, 0), (0, right), (bottom, 0), (bottom, right), (bottom // 2, right // 2))
    crops = np.empty((len(images), 10, height, width, shape[2]), np.float32)
    for ten, im in zip(crops, images, strict=True):
        for k, (y, x) in enumerate(starts):
            ten[k] = np.asarray(im)[y : y + height, x : x + width]
        ten[5:] = ten[:5, :, ::-1]
    return crops.reshape(-1, height, width, shape[2])
