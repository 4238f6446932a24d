"""Transform each picture of a data layer: size, noise, crop, mirroring, mean, scale (`transform_param`).

The rules are those of Caffe's DataTransformer, and of SSD's fork, for arrays (C, H, W). Random numbers are
counter-based: those of item k of batch b depend on (seed, b, k) alone (`batch_rng`, `item_rng`), so that a run resumed
at batch b makes the same crops. The distribution is Caffe's; its mt19937 sequence is not reproduced.
Source: BVLC/caffe 9b89154, src/caffe/data_transformer.cpp (behaviour).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import CaffeError, DataError, LayerParamError, Where
from ...proto.caffe_pb2 import TEST, TRAIN, TransformationParameter
from .augment import add_noise, check_fields, resize, resized_size
from .mean import load_mean
from .picture import require_opencv, to_pixels, to_planes
from .random_size import random_size
from .workers import SpareArrays, each, keep_freed_memory

Shape = tuple[int, int, int]
Item = tuple[np.ndarray, Any, Where]
"""Array (C, H, W), label, and the place that errors name."""
ReadItem = tuple[Shape, Any, Where]
"""The same with the array's shape."""


class ItemCrop(NamedTuple):
    """Say where in the resized picture an item was cropped, as fractions of its sides, and whether it was mirrored."""

    crop: tuple[float, float, float, float]
    mirrored: bool


def batch_rng(seed: int, batch: int, stream: int = 0) -> np.random.Generator:
    """Return the generator for one batch. batch, stream (a rank, a layer): from 0; seed: any integer."""
    mask = 2**64 - 1
    key = np.array([seed & mask, stream & mask], np.uint64)
    counter = np.array([0, 0, 0, batch & mask], np.uint64)  # drawing advances the first word
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def item_rng(rng: np.random.Generator, item: int, purpose: int = 0) -> np.random.Generator:
    """Return a generator for one item of the batch that `rng`, a `batch_rng`, is of.

    It depends on the seed, the batch, the item and the purpose alone, not on what `rng` has drawn.
    """
    state: Any = rng.bit_generator.state["state"]
    counter = np.array([0, purpose, item + 1, state["counter"][3]], np.uint64)
    return np.random.Generator(np.random.Philox(key=state["key"], counter=counter))


SEGMENT_CROPS = ("fix_crop", "more_fix_crop", "multi_scale", "scale_ratios", "max_distort", "is_flow")


def refuse_contradictions(transform_param: TransformationParameter, *, source: str) -> None:
    """Raise LayerParamError for fields that contradict each other. source: as `DataTransformer` has it."""
    pairs = (("force_color", "force_gray"), ("mean_file", "mean_value"), ("crop_size", "crop_h"))
    for one, other in pairs:
        if getattr(transform_param, one) and getattr(transform_param, other):
            what = f"transform_param: {one} and {other} are both set"
            raise LayerParamError(what, where=Where(file=source), fix="keep one of them")
    if bool(transform_param.crop_h) != bool(transform_param.crop_w):
        given, missing = ("crop_h", "crop_w") if transform_param.crop_h else ("crop_w", "crop_h")
        what = f"transform_param has {given} but no {missing}"
        raise LayerParamError(what, where=Where(file=source), fix=f"add {missing}, or write crop_size for both")


class DataTransformer:
    """Transform arrays (C, H, W) of values into (value - mean) * scale, resized, with noise, cropped and mirrored.

    phase: TRAIN crops at random, TEST in the centre; mirroring is random in both, as in Caffe.
    source: the database or list, named in errors. mean: what mean_file holds, if it is known.
    spare: memory of batches that are no longer needed, for the next ones.
    Raises: LayerParamError for fields that contradict each other; DataError for a mean file that cannot be read.
    """

    def __init__(
        self, transform_param: TransformationParameter, phase: int, *, source: str, mean: np.ndarray | None = None
    ):
        keep_freed_memory()
        self.spare = SpareArrays()
        self.source = source
        self.train = phase == TRAIN
        assert phase in (TRAIN, TEST), phase
        side: int = transform_param.crop_size
        self.crop = (side or transform_param.crop_h, side or transform_param.crop_w)  # (0, 0): none
        self.resize_param = transform_param.resize_param if transform_param.HasField("resize_param") else None
        self.noise_param = transform_param.noise_param if transform_param.HasField("noise_param") else None
        self.mirror: bool = transform_param.mirror
        self.scale: float = transform_param.scale
        self.force_color: bool = transform_param.force_color
        self.force_gray: bool = transform_param.force_gray
        refuse_contradictions(transform_param, source=source)
        there = {field.name for field, _ in transform_param.ListFields()}
        for field in filter(there.__contains__, SEGMENT_CROPS):
            what = f"transform_param.{field} acts in VideoData with num_segments, modality or name_pattern alone"
            raise LayerParamError(what, where=Where(file=source), fix=f"remove {field}")
        check_fields(transform_param, source=source)
        self._random_size = random_size(transform_param, self.crop, source=source)
        if self._changes:
            require_opencv()
        self.mean_file: str = transform_param.mean_file
        self._file_mean = load_mean(self.mean_file) if self.mean_file and mean is None else mean
        self._mean_values = np.array(transform_param.mean_value, np.float32)
        self._checked: dict[Shape, Shape] = {}

    @property
    def needs_random(self) -> bool:
        """Return whether `transform` draws random numbers."""
        return self.mirror or self._changes or bool(self.train and self.crop[0])

    @property
    def _changes(self) -> bool:
        """Return whether pictures are resized or get noise."""
        return any(change is not None for change in (self.resize_param, self._random_size, self.noise_param))

    def mean_planes(self, channels: int) -> np.ndarray:
        """Return what is subtracted, in float32: (C, H, W) of mean_file, else (channels, 1, 1)."""
        if self._file_mean is not None:
            return self._file_mean.astype(np.float32)
        values = self._mean_values if len(self._mean_values) else np.zeros(1, np.float32)
        return np.broadcast_to(values[:, None, None], (channels, 1, 1))

    @property
    def mean_values(self) -> list[float]:
        """Return mean_value: none, one, or one per channel."""
        return [float(value) for value in self._mean_values]

    def output_shape(self, datum_shape: Shape, *, where: Where | None = None) -> Shape:
        """Return (C, h, w) for an item of shape (C, H, W), resized and cropped.

        where: the record, for errors (default: the source).
        Raises: LayerParamError where crop_size or mean_value do not fit; DataError where mean_file does not.
        """
        known = self._checked.get(datum_shape)
        if known is None:
            known = self._check(self._resized(datum_shape), where or Where(file=self.source))
            if len(self._checked) < 1000:  # a bound, for there may be pictures of very many sizes
                self._checked[datum_shape] = known
        return known

    def check_fits(self, datum_shape: Shape, item_shape: Shape, where: Where, fix: str) -> None:
        """Raise DataError unless an item of shape (C, H, W) comes out in the shape of its batch's items, and what
        `output_shape` raises."""
        found = self.output_shape(datum_shape, where=where)
        if found != item_shape:
            raise DataError(
                f"channels x height x width are {found}, where the batch has {item_shape}", where=where, fix=fix
            )

    def _resized(self, shape: Shape) -> Shape:
        """Return the shape that an item of this shape has before it is cropped; with a random size the least."""
        if self._random_size is not None:
            return (shape[0], *self.crop)
        if self.resize_param is None:
            return shape
        return (shape[0], *resized_size(self.resize_param, *shape[1:]))

    def transform(
        self,
        arrays: Sequence[np.ndarray],
        out: np.ndarray,
        rng: np.random.Generator | None = None,
        places: Sequence[Where] | None = None,
    ) -> list[ItemCrop]:
        """Fill `out`, (N, C, h, w) of float32 or float64, from N arrays (C, H, W), which are not changed.

        rng: `batch_rng` of this batch, needed where `needs_random`.
        places: of the items, for errors.
        Returns: where each item was cropped.
        Raises: as `output_shape`; DataError where an item does not come out in the shape of `out`, or cannot be
        resized or changed.
        """
        assert len(arrays) == len(out), (len(arrays), len(out))
        transform_item = self.item_transform(len(out), rng)
        placements: dict[int, ItemCrop] = {}

        def work(i: int) -> None:
            placements[i] = transform_item(i, arrays[i], out[i], places[i] if places else None)

        each(work, len(out))
        return [placements[i] for i in range(len(out))]

    def item_transform(
        self, count: int, rng: np.random.Generator | None, crops: np.ndarray | None = None
    ) -> Callable[[int, np.ndarray, np.ndarray, Where | None], ItemCrop]:
        """Return a function of (number, array, out, place) that transforms one item of a batch, in any thread.

        Arguments and errors are those of `transform`, which calls it for all items.
        crops: (count, 3) of int32: `out` gets the cropped values alone, and `crops` what `finish_pixels` needs of them.
        """
        # All three numbers of an item are always drawn, so that no setting changes the numbers of the others.
        draws: Sequence[Sequence[int]] = [(0, 0, 0)] * count
        if self.needs_random:
            assert rng is not None, "this transform_param needs random numbers"
            draws = rng.integers(0, 2**32, size=(count, 3), dtype=np.uint32).tolist()

        def transform_item(i: int, array: np.ndarray, out: np.ndarray, place: Where | None) -> ItemCrop:
            if self.output_shape(array.shape) != out.shape:
                raise self._unfit(array.shape, out.shape)
            if rng is not None and self._changes:
                array = self._changed(array, item_rng(rng, i), place)
            return self._item(array, out, draws[i], None if crops is None else crops[i])

        return transform_item

    def _unfit(self, shape: Shape, target: Shape) -> DataError:
        return DataError(
            f"an item of shape {_times(shape)} comes out as {_times(self.output_shape(shape))} in a batch of "
            f"{_times(target)}",
            where=Where(file=self.source),
            fix="set crop_size, use pictures of one size, or set batch_size: 1",
        )

    def _item(self, array: np.ndarray, target: np.ndarray, draws: Sequence[int], crop: np.ndarray | None) -> ItemCrop:
        """Crop and mirror a resized item, subtract the mean and scale; with `crop`, only crop it."""
        (flip, row, column), shape = draws, target.shape
        mean = self._file_mean if self._file_mean is not None else self._mean_values
        height, width = array.shape[1:]
        top, left = (self._offset(room, draw) for room, draw in ((height - shape[1], row), (width - shape[2], column)))
        if self.crop[0]:
            window = np.s_[:, top : top + shape[1], left : left + shape[2]]
            array = array[window]
            if self._file_mean is not None:
                mean = mean[window]
        if self._file_mean is None:
            mean = mean[:, None, None]
        mirrored = bool(self.mirror and flip % 2)
        cropped = ItemCrop((left / width, top / height, (left + shape[2]) / width, (top + shape[1]) / height), mirrored)
        if crop is not None:
            crop[:] = mirrored, top, left
            np.copyto(target, array)
            return cropped
        if mirrored:
            target = target[:, :, ::-1]
        if mean.size:
            np.subtract(array, mean, out=target, dtype=target.dtype, casting="same_kind")
        else:
            np.copyto(target, array, casting="same_kind")
        if self.scale != 1:
            target *= target.dtype.type(self.scale)
        return cropped

    def _changed(self, array: np.ndarray, rng: np.random.Generator, place: Where | None) -> np.ndarray:
        """Return the array resized and with noise."""
        import cv2

        where = place or Where(file=self.source)
        if array.dtype != np.uint8 and self.noise_param is not None:
            raise DataError(
                f"noise_param changes pictures of bytes, not {array.dtype} values",
                where=where,
                fix="store the pictures as bytes, or remove noise_param",
            )
        try:
            image = to_pixels(array)
            if self._random_size is not None:
                image = self._random_size.apply(image, rng)
            if self.resize_param is not None:
                image = resize(image, self.resize_param, rng)
            if self.noise_param is not None:
                image = add_noise(image, self.noise_param, rng)
        except cv2.error as error:
            raise DataError(
                f"OpenCV cannot change a picture of {_times(array.shape)}: {error.err or error}",
                where=where,
                fix="store pictures of 1 or 3 channels, or set force_color: true",
            ) from error
        except CaffeError as error:
            raise error.at(file=where.file) from error.__cause__
        return to_planes(image)

    def _offset(self, room: int, draw: int) -> int:
        return draw % (room + 1) if self.train else room // 2

    def _check(self, shape: Shape, where: Where) -> Shape:
        channels, height, width = shape
        if self._file_mean is not None and self._file_mean.shape != tuple(shape):
            raise DataError(
                f"the mean file {self.mean_file} is for items of {_times(self._file_mean.shape)}, "
                f"this one is {_times(shape)} (channels x height x width)",
                where=where,
                fix="compute the mean of this database, or use transform_param.mean_value",
            )
        if len(self._mean_values) not in (0, 1, channels):
            raise LayerParamError(
                f"{len(self._mean_values)} mean_value for {channels} channels",
                where=where,
                fix=f"give one mean_value, or {channels}",
            )
        if self.crop[0] > height or self.crop[1] > width:
            square = self.crop[0] == self.crop[1]
            said = f"crop_size {self.crop[0]}" if square else f"crop_h {self.crop[0]}, crop_w {self.crop[1]}"
            most = min(height, width) if square else f"{height} and {width}"
            raise LayerParamError(
                f"{said} is larger than an item of {height} x {width} (height x width)",
                where=where,
                fix=f"set {'crop_size' if square else 'crop_h and crop_w'} to {most} or less, or resize the pictures "
                "when converting them",
            )
        return (channels, self.crop[0] or height, self.crop[1] or width)


class _OtherType(Exception):
    """Say that an item is of another type than the batch."""


class CroppedBatch(NamedTuple):
    """Hold a batch of which `finish_pixels` makes the data: cropped pictures of bytes (B, C, h, w), and their crops."""

    data: np.ndarray
    labels: np.ndarray
    crops: np.ndarray


def transformed_items(
    transformer: DataTransformer,
    read: Callable[[int], Item],
    shape: tuple[int, int, int, int],
    rng: np.random.Generator,
    *,
    dtype: np.dtype,
    fix: str,
    crops: np.ndarray | None = None,
) -> tuple[np.ndarray, list[ReadItem], list[ItemCrop]]:
    """Read and transform the items of a batch with several threads; return data (B, C, h, w), items, places.

    Args:
        read: gives item 0 .. B - 1, from any thread.
        shape: (B, C, h, w) of the data; a batch of one item may have another h and w.
        rng: `batch_rng` of this batch.
        dtype: of the data.
        fix: what to do about items of several sizes.
        crops: as `DataTransformer.item_transform` has it; all items must then be of `dtype`.
    Raises: DataError or LayerParamError, with the place of the item; _OtherType with `crops` and an item of another
    type.
    """
    count, item_shape = shape[0], shape[1:]
    only = read(0) if count == 1 else None
    if only is not None:
        item_shape = transformer.output_shape(only[0].shape, where=only[2])
    data = transformer.spare.take((count, *item_shape), dtype)
    transform_item = transformer.item_transform(count, rng, crops)
    done: dict[int, tuple[ReadItem, ItemCrop]] = {}

    def work(i: int) -> None:  # a picture is transformed while it is in the CPU's cache
        array, label, where = read(i) if only is None else only
        if crops is not None and array.dtype != dtype:
            raise _OtherType
        transformer.check_fits(array.shape, item_shape, where, fix)
        done[i] = (array.shape, label, where), transform_item(i, array, data[i], where)

    each(work, count)
    return data, [done[i][0] for i in range(count)], [done[i][1] for i in range(count)]


def transformed_batch(
    transformer: DataTransformer,
    read: Callable[[int], Item],
    shape: tuple[int, int, int, int],
    rng: np.random.Generator,
    *,
    dtype: np.dtype,
    fix: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (data (B, C, h, w), labels (B,)) of a batch. Arguments and errors are those of `transformed_items`."""
    data, items, _ = transformed_items(transformer, read, shape, rng, dtype=dtype, fix=fix)
    return data, np.array([label for _, label, _ in items], dtype)


def cropped_batch(
    transformer: DataTransformer,
    read: Callable[[int], Item],
    shape: tuple[int, int, int, int],
    rng: np.random.Generator,
    *,
    dtype: np.dtype,
    fix: str,
) -> CroppedBatch | None:
    """Return a batch that is to be finished, None where an item is not of bytes. The rest is `transformed_batch`'s."""
    crops = np.empty((shape[0], 3), np.int32)
    try:
        data, items, _ = transformed_items(
            transformer, read, shape, rng, dtype=np.dtype(np.uint8), fix=fix, crops=crops
        )
    except _OtherType:
        return None
    return CroppedBatch(data, np.array([label for _, label, _ in items], dtype), crops)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
