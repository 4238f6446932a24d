"""Make batches of transformed pictures from a text list of files, for the ImageData layer.

Covers: reading the list, which pictures make batch b (order, shuffling, skipping), decoding, resizing, errors that name
the line and the picture.
See also: prefetch.py, the thread that asks for batches.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...errors import DataError, LayerParamError, Where
from ...formats.rawfile import open_text
from ..transform.picture import decode_picture, read_picture, resize_picture
from ..transform.transformer import CroppedBatch, DataTransformer, Item, batch_rng, cropped_batch, transformed_batch
from .cropping import Cropper, CroppingBatches

# Streams of random numbers beside those of the batches (whose stream is the rank, a small number).
_SHUFFLE_STREAM = 1 << 32
_SKIP_STREAM = 1 << 33

_FIX = "set new_height and new_width, or transform_param.crop_size, or batch_size: 1"
_LABEL = re.compile(r"[ \t\v\f]*([+-]?[0-9]{1,20})[ \t\v\f]*")


class ImageList:
    """Read the lines `path label` of a text file, split at the last space; blank lines are skipped.

    root_folder: put before every path unchanged (it has to end in a slash to be a folder).
    Raises: DataError for a file that cannot be read or lists nothing, or a line without a label, naming it.
    """

    columns: ClassVar[str] = "path label"  # of a line
    _label_dtype: ClassVar[Any] = np.int32

    def __init__(self, source: str | os.PathLike[str], root_folder: str = ""):
        self.source = os.fspath(source)
        self.paths: list[str] = []
        labels: list[Any] = []
        lines = []
        fix = "check the list's path; a relative one starts at the working directory"
        with open_text(self.source, "the list of pictures", fix) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    path, label = self._split(line.rstrip("\r\n"), number)
                    self.paths.append(root_folder + path)
                    labels.append(label)
                    lines.append(number)
        if not lines:
            raise DataError(
                "the list of pictures is empty",
                where=Where(file=self.source),
                fix=f"give one line `{self.columns}` each",
            )
        self.labels = np.array(labels, self._label_dtype)
        self._lines = np.array(lines, np.int64)

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, index: int) -> Where:
        """Return list, line and path of picture number `index`, for errors."""
        return Where(file=f"{self.line(index)}: {self.paths[index]}")

    def line(self, index: int) -> str:
        """Return list and line of picture number `index`, for errors."""
        return f"{self.source}:{self._lines[index]}"

    def _split(self, line: str, number: int) -> tuple[str, Any]:
        path, space, label = line.rpartition(" ")
        number_there = _LABEL.fullmatch(label)
        value = int(number_there[1]) if number_there else 2**31
        if not space or not path or not -(2**31) <= value < 2**31:
            raise DataError(
                f"{line!r} is not a path, one space and a whole number",
                where=Where(file=self.source, line=number),
                fix="write `path label`; the label is what follows the last space",
            )
        return path, value


class ListOrder:
    """Say which of n listed items is number `position` since the start: in order, or each epoch in one of its own.

    rand_skip: above 0, start at a random item among the first `rand_skip`. stream: the rank, whose order is its own.
    """

    def __init__(self, n: int, *, shuffle: bool, rand_skip: int, seed: int, stream: int):
        self._n, self._shuffle, self._seed, self._stream = n, shuffle, seed, stream
        self._order: tuple[int, np.ndarray] | None = None  # (epoch, indices) used last
        self._skip = int(batch_rng(seed, 0, _SKIP_STREAM + stream).integers(2**32)) % rand_skip if rand_skip else 0

    def index(self, position: int) -> int:
        """Return the index in the list of item number `position` since the start."""
        epoch, place = divmod(position + self._skip, self._n)
        if not self._shuffle:
            return place
        if self._order is None or self._order[0] != epoch:
            # An epoch's order depends on its number alone, so that a resumed run need not draw those before.
            rng = batch_rng(self._seed, epoch, _SHUFFLE_STREAM + self._stream)
            self._order = (epoch, rng.permutation(self._n))  # a Fisher-Yates shuffle
        return int(self._order[1][place])


class ImageBatches(CroppingBatches):
    """Make batch b of an ImageList, for any b: (data, labels).

    Pictures are numbered in the list's order, and from the first again after the last; with `shuffle`, every epoch has
    its own order.

    Attributes:
        stride: pictures of a batch.

    Args:
        transformer: applied after decoding and resizing.
        is_color: 3 channels (blue, green, red), else 1.
        size: (height, width) to resize to, bilinearly; None leaves pictures as they are.
        rand_skip: above 0, start at a random picture among the first `rand_skip`.
        seed: determines, with rank, epoch, batch and item, order, start, crops and mirroring.
        as_bytes: make batches of bytes, if they are large.
        by_processes: let processes read and crop these where that pays, not threads.
    Raises: DataError where the first picture cannot be read; LayerParamError for a rand_skip beyond the list.
    """

    def __init__(
        self,
        images: ImageList,
        batch_size: int,
        transformer: DataTransformer,
        *,
        is_color: bool = True,
        size: tuple[int, int] | None = None,
        shuffle: bool = False,
        rand_skip: int = 0,
        dtype: np.dtype | type = np.float32,
        rank: int = 0,
        seed: int = 0,
        as_bytes: bool = False,
        by_processes: bool = True,
    ):
        assert batch_size >= 1, batch_size  # the layer has checked it
        if rand_skip > len(images):
            raise LayerParamError(
                f"rand_skip {rand_skip} can skip more than the {len(images)} pictures listed",
                where=Where(file=images.source),
                fix=f"set image_data_param.rand_skip to {len(images)} or less",
            )
        self._images = images
        self._batch_size = batch_size
        self._transformer = transformer
        self._is_color = is_color
        self._size = size
        self._dtype = np.dtype(dtype)
        self._stream = rank
        self.stride = batch_size
        self._seed = seed
        self.index = ListOrder(len(images), shuffle=shuffle, rand_skip=rand_skip, seed=seed, stream=rank).index
        array, _, where = self._read(self.index(0))
        self._item_shape = transformer.output_shape(array.shape, where=where)
        read = partial(read_listed, self._is_color, self._size)
        cropper = Cropper(read, transformer, self.shape, seed, self._stream, _FIX)
        self.choose(array, True, cropper, self._items, as_bytes=as_bytes, by_processes=by_processes)

    @property
    def records(self) -> int:
        """Return how many pictures there are."""
        return len(self._images)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return (B, C, h, w) of the first batch; with a batch_size of 1, h and w may change later."""
        return (self._batch_size, *self._item_shape)

    def produce(self, batch: int) -> tuple[np.ndarray, np.ndarray] | CroppedBatch:
        """Return (data (B, C, h, w), labels (B,)), or a `CroppedBatch`, in any order.

        Raises: DataError or LayerParamError, naming the list, the line and the picture.
        """
        made = self.cropped_by_processes(batch, self._dtype)
        if made is not None:
            return made
        indices = self._indices(batch)
        rng = batch_rng(self._seed, batch, self._stream)
        given = self._transformer, lambda item: self._read(indices[item]), self.shape, rng
        if self.as_bytes:
            made = cropped_batch(*given, dtype=self._dtype, fix=_FIX)
            assert made is not None, "a picture's file is read as bytes"
            return made
        return transformed_batch(*given, dtype=self._dtype, fix=_FIX)

    def close(self) -> None:
        """End the processes; no file is open between pictures."""
        self.close_processes()

    def _indices(self, batch: int) -> list[int]:
        """Return the indices in the list of a batch's pictures."""
        start = self._first + batch * self._batch_size
        return [self.index(start + item) for item in range(self._batch_size)]

    def _items(self, batch: int) -> list[tuple[str, Any, Where]]:
        """Return path, label and place of a batch's pictures."""
        return [self._listed(index) for index in self._indices(batch)]

    def _listed(self, index: int) -> tuple[str, Any, Where]:
        return self._images.paths[index], self._images.labels[index], self._images.place(index)

    def _read(self, index: int) -> Item:
        """Read picture number `index` of the list: (array (C, H, W), label, place for errors)."""
        return read_listed(self._is_color, self._size, *self._listed(index))


def read_listed(is_color: bool, size: tuple[int, int] | None, path: str, label: Any, where: Where) -> Item:
    """Return (array (C, H, W), label, place) of a picture's file. size: (height, width) to resize it to."""
    fix = "correct the line, or root_folder, which is put before the path unchanged"
    data = read_picture(path, where=where, fix=fix)
    try:
        array = decode_picture(data, where=where, force_color=is_color, force_gray=not is_color)
    except DataError as error:
        error.fix = "replace the picture, or remove its line from the list"
        raise
    if size is not None and array.shape[1:] != size:
        array = resize_picture(array, size)
    return array, label, where
