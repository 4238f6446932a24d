"""Read mean files (`mean.binaryproto`), and compute them as Caffe's compute_image_mean does.

See also: transformer.py, which subtracts the mean.
"""

from __future__ import annotations

import os

import numpy as np

from ...errors import DataError, WeightsError, Where
from ...formats.atomic import atomic_write
from ...formats.rawfile import parse_message
from ...formats.weights.blobproto import blobproto_to_array, load_c3d_blob
from ...proto.caffe_pb2 import BlobProto, C3DBlob

_FIX = "write it again with compute_image_mean, or use transform_param.mean_value"


def load_mean(path: str | os.PathLike[str], axes: int = 3) -> np.ndarray:
    """Read a mean file: float32 (C, H, W), or of clips, which have 4 axes, (C, L, H, W), C3D's files too.

    Raises: DataError, naming the file, where it is absent, damaged, too large or not the mean of one picture.
    """
    where = Where(file=os.fspath(path))
    proto = parse_message(BlobProto(), path, "a mean file (BlobProto)", DataError)
    try:
        if axes == 4 and not proto.data and not proto.double_data:  # as files of C3D 1.0 look, whose fields differ
            mean = load_c3d_blob(parse_message(C3DBlob(), path, "a mean file (BlobProto)", DataError)).data
        else:
            mean = blobproto_to_array(proto)
    except WeightsError as error:
        raise DataError(f"a damaged mean file: {error.message}", where=where, fix=_FIX) from None
    if mean.ndim == axes + 1 and mean.shape[0] == 1:
        mean = mean[0]
    if mean.ndim != axes or mean.size == 0:
        what = "picture" if axes == 3 else "clip"
        raise DataError(f"a blob of shape {mean.shape} is not the mean of one {what}", where=where, fix=_FIX)
    return mean


class MeanSum:
    """Sum pictures of one shape, exactly for integers; `mean()` divides.

    Caffe adds in float32; the results are the same bits while sums stay below 2^24, that is for 65,793 pictures of
    bytes.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sum: np.ndarray | None = None

    def add(self, pictures: np.ndarray) -> None:
        """Add `pictures` of shape (N, C, H, W), any real type; all calls must agree in (C, H, W).

        Raises: DataError where the shape changes.
        """
        kind, shape = np.int64 if pictures.dtype.kind in "ui" else np.float64, pictures.shape[1:]
        if self._sum is None:
            self._sum = np.zeros(shape, kind)
        elif self._sum.shape != shape:
            raise DataError(
                f"a mean needs pictures of one size: found {shape} after {self._sum.shape}",
                fix="convert the pictures with one size (convert_imageset -resize_height -resize_width)",
            )
        elif kind is np.float64:
            self._sum = self._sum.astype(kind, copy=False)
        for picture in pictures:
            np.add(self._sum, picture, out=self._sum)
        self.count += len(pictures)

    def mean(self) -> np.ndarray:
        """Return the mean, float32 (C, H, W). Raises: DataError where nothing was added."""
        if self._sum is None:
            raise DataError("no picture to take the mean of", fix="give a source that is not empty")
        return self._sum.astype(np.float32) / np.float32(self.count)


def save_mean(path: str | os.PathLike[str], mean: np.ndarray) -> None:
    """Write `mean` (C, H, W) as float32 with the old dimensions 1, C, H, W; the file appears whole or not at all.

    Raises: DataError where the file cannot be written.
    """
    channels, height, width = mean.shape
    proto = BlobProto(num=1, channels=channels, height=height, width=width)
    proto.data.extend(mean.astype(np.float32).ravel().tolist())
    atomic_write(path, proto.SerializeToString(), error=DataError)
