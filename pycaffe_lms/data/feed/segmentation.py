"""Make batches of pictures and, for each pixel, its label, for the ImageSegData and DenseImageData layers.

Covers: lists of pictures and their labels; what changes both alike: size, scale, padding, crop, mirroring.
See also: image_list.py, which chooses the pictures of a batch.
Source: xmyqsh/deeplab-v2 (DeepLab), src/caffe/data_transformer.cpp; alexgkendall/caffe-segnet (SegNet),
src/caffe/layers/dense_image_data_layer.cpp (behaviour).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...errors import DataError, Where
from ..transform.augment import per_channel
from ..transform.picture import decode_picture, read_picture, resize_picture
from ..transform.transformer import batch_rng, item_rng
from ..transform.workers import each
from .image_list import ImageBatches, ImageList

_SIZES = "crop, set new_height and new_width, or set batch_size: 1"
_REPLACE = "replace the picture, or remove its line from the list"


class LabelledPictures(ImageList):
    """Read the lines `picture labels` of a text file, two words each; blank lines are skipped.

    labels: of each line the second word. Raises: as ImageList.
    """

    columns = "picture labels"
    _label_dtype: ClassVar[Any] = object
    words = 2

    def _split(self, line: str, number: int) -> tuple[str, Any]:
        found = line.split()
        if len(found) < self.words:
            raise DataError(
                f"{line!r} is not {'two words' if self.words == 2 else 'a word'}",
                where=Where(file=self.source, line=number),
                fix=f"write `{self.columns}`; paths must not have spaces",
            )
        return found[0], found[1] if self.words == 2 else ""


class Pictures(LabelledPictures):
    """Read the first word of each line of a text file: a picture without labels."""

    columns = "picture"
    words = 1


class NumberedPictures(LabelledPictures):
    """Read the lines `picture label` of a text file, where the label is a number from 0 to 255 for every pixel."""

    columns = "picture label"

    def _split(self, line: str, number: int) -> tuple[str, Any]:
        path, word = super()._split(line, number)
        if not (word.isascii() and word.isdigit() and int(word) < 256):
            raise DataError(
                f"the label {word!r} is not a number from 0 to 255",
                where=Where(file=self.source, line=number),
                fix="write one, or set label_type: PIXEL where the list names pictures of labels",
            )
        return path, int(word)


class PairChange(NamedTuple):
    """Say how a picture and its labels change, in this order.

    scales: one of them, at random, multiplies both sides; none: 1.
    crop: (height, width), (0, 0) for none. pad: the label of pixels added right and below where the picture is smaller
    than the crop; None: that is an error. random: crop at random, else in the centre.
    mirror: flip left and right at random.
    """

    scales: tuple[float, ...] = ()
    crop: tuple[int, int] = (0, 0)
    pad: int | None = None
    random: bool = True
    mirror: bool = False


class SegmentationBatches(ImageBatches):
    """Make batch b of a list of pictures with labels, for any b: (data, labels, sizes).

    Args:
        change: of picture and labels; the transformer, which must not crop or mirror, then subtracts the mean of the
            picture's values and scales them.
        root_folder: put before paths of pictures of labels unchanged.
        divide: sides of pictures by those of their labels, rounded down; not with a crop or scales.
        fill: the label of all pixels of a picture whose line has none.
        others: the arguments of ImageBatches; size: labels take the nearest pixel's.
    Raises: as ImageBatches.
    """

    def __init__(
        self,
        images: LabelledPictures,
        *args: Any,
        change: PairChange,
        root_folder: str = "",
        fill: int = 255,
        divide: int = 1,
        **kwargs: Any,
    ):
        self._change, self._root, self._fill, self._divide = change, root_folder, fill, divide
        super().__init__(images, *args, **kwargs)
        picture, _, _ = self._pair(self.index(0))
        if any(change.crop):
            self._item_shape = (picture.shape[0], *change.crop)

    def produce(self, batch: int) -> Any:
        """Return (data (B, C, h, w), labels (B, 1, h, w), sizes (B, 1, 1, 2)) of batch number `batch`, in any order.

        sizes: height and width of each picture before scale and crop, but at most h and w.
        Raises: DataError or LayerParamError, naming the list, the line and the picture.
        """
        rng = batch_rng(self._seed, batch, self._stream)
        count = self._batch_size
        indices = [self.index(self.first + batch * count + item) for item in range(count)]
        found: dict[int, tuple[np.ndarray, np.ndarray, tuple[int, ...]]] = {}

        def work(item: int) -> None:
            picture, labels, where = self._pair(indices[item])
            found[item] = (*self._changed(picture, labels, item_rng(rng, item), where), picture.shape[1:])

        each(work, count)
        shape = found[0][0].shape if count == 1 else self._item_shape
        for item in range(count):
            if found[item][0].shape != shape:
                raise DataError(
                    f"channels x height x width are {found[item][0].shape}, where the batch has {shape}",
                    where=self._images.place(indices[item]),
                    fix=_SIZES,
                )
            self._transformer.output_shape(shape, where=self._images.place(indices[item]))
        data = np.empty((count, *shape), self._dtype)
        self._transformer.transform([found[item][0] for item in range(count)], data)
        labels = np.stack([found[item][1] for item in range(count)]).astype(self._dtype)
        sizes = np.minimum([found[item][2] for item in range(count)], shape[1:]).astype(self._dtype)
        return data, labels, sizes.reshape(count, 1, 1, 2)

    def _pair(self, index: int) -> tuple[np.ndarray, np.ndarray, Where]:
        """Read picture number `index` of the list, resized: (picture (C, H, W), labels (1, H, W), place)."""
        picture, label, where = self._read(index)
        shape = (1, picture.shape[1] // self._divide, picture.shape[2] // self._divide)
        if not isinstance(label, str) or not label:
            return picture, np.full(shape, self._fill if label == "" else label, np.uint8), where
        place = Where(file=self._images.line(index) + f": {self._root}{label}")
        fix = "correct the line, or root_folder, which is put before the path unchanged"
        content = read_picture(self._root + label, where=place, fix=fix)
        try:
            labels = decode_picture(content, where=place, force_gray=True)
        except DataError as error:
            error.fix = _REPLACE
            raise
        if self._size is not None:
            labels = resize_picture(labels, shape[1:], nearest=True)
        if labels.shape != shape:
            raise DataError(
                f"the labels are {labels.shape[1]} x {labels.shape[2]}, but the picture "
                f"{self._images.paths[index]} needs {shape[1]} x {shape[2]} (height x width)",
                where=place,
                fix="give one label for each pixel",
            )
        return picture, labels, where

    def _changed(
        self, picture: np.ndarray, labels: np.ndarray, rng: np.random.Generator, where: Where
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a picture and its labels scaled, padded, cropped and mirrored alike."""
        change = self._change
        # All four numbers are always drawn, so that no setting changes the numbers of the others.
        scale, flip, row, column = rng.integers(0, 2**32, size=4, dtype=np.uint32).tolist()
        if change.scales:
            factor = np.float32(change.scales[scale % len(change.scales)])
            size = (int(np.float32(labels.shape[1]) * factor), int(np.float32(labels.shape[2]) * factor))
            if not all(size):
                raise DataError(
                    f"nothing is left of {labels.shape[1]} x {labels.shape[2]} pixels times {factor:g}",
                    where=where,
                    fix="correct scale_factors or replace the picture",
                )
            picture, labels = resize_picture(picture, size), resize_picture(labels, size, nearest=True)
        if any(change.crop):
            if change.pad is not None:
                picture, labels = self._padded(picture, labels, change.pad)
            rooms = [labels.shape[1 + i] - change.crop[i] for i in (0, 1)]
            if min(rooms) < 0:
                raise DataError(
                    f"the crop of {change.crop[0]} x {change.crop[1]} is larger than the picture of "
                    f"{labels.shape[1]} x {labels.shape[2]} (height x width)",
                    where=where,
                    fix="lower crop_height and crop_width, or set new_height and new_width",
                )
            top, left = (
                draw % (room + 1) if change.random else room // 2
                for draw, room in zip((row, column), rooms, strict=True)
            )
            window = np.s_[:, top : top + change.crop[0], left : left + change.crop[1]]
            picture, labels = picture[window], labels[window]
        if change.mirror and flip % 2:
            picture, labels = picture[:, :, ::-1], labels[:, :, ::-1]
        return picture, labels

    def _padded(self, picture: np.ndarray, labels: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
        """Return picture and labels with pixels of the mean and this label added right and below, up to the crop."""
        height, width = labels.shape[1:]
        size = (max(height, self._change.crop[0]), max(width, self._change.crop[1]))
        if size == (height, width):
            return picture, labels
        canvas = np.empty((len(picture), *size), np.float32)
        fill = per_channel(self._transformer.mean_values, len(picture), "mean_value")
        canvas[...] = np.array(fill, np.float32)[:, None, None]
        canvas[:, :height, :width] = picture
        around = np.full((1, *size), label, np.uint8)
        around[:, :height, :width] = labels
        return canvas, around
