"""Transform each picture of a data layer: crop, mirror, subtract the mean, scale (`transform_param`).

The rules are those of Caffe's DataTransformer, for arrays (C, H, W). Random numbers are counter-based: those of item k
of batch b depend on (seed, b, k) alone (`batch_rng`), so that a run resumed at batch b makes the same crops. The
distribution is Caffe's; its mt19937 sequence is not reproduced.
Source: BVLC/caffe 9b89154, src/caffe/data_transformer.cpp (behaviour).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import DataError, LayerParamError, Where
from ...proto.caffe_pb2 import TEST, TRAIN, TransformationParameter
from .mean import load_mean
from .workers import each

Shape = tuple[int, int, int]
Item = tuple[np.ndarray, int, Where]
"""Array (C, H, W), label, and the place that errors name."""


def batch_rng(seed: int, batch: int, stream: int = 0) -> np.random.Generator:
    """Return the generator for one batch. batch, stream (a rank, a layer): from 0; seed: any integer."""
    mask = 2**64 - 1
    key = np.array([seed & mask, stream & mask], np.uint64)
    counter = np.array([0, 0, 0, batch & mask], np.uint64)  # drawing advances the first word
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def refuse_contradictions(transform_param: TransformationParameter, *, source: str) -> None:
    """Raise LayerParamError for fields that contradict each other. source: as `DataTransformer` has it."""
    for one, other in (("force_color", "force_gray"), ("mean_file", "mean_value")):
        if getattr(transform_param, one) and getattr(transform_param, other):
            what = f"transform_param: {one} and {other} are both set"
            raise LayerParamError(what, where=Where(file=source), fix="keep one of them")


class DataTransformer:
    """Transform arrays (C, H, W) of values into (value - mean) * scale, cropped and mirrored.

    phase: TRAIN crops at random, TEST in the centre; mirroring is random in both, as in Caffe.
    source: the database or list, named in errors.
    Raises: LayerParamError for fields that contradict each other; DataError for a mean file that cannot be read.
    """

    def __init__(self, transform_param: TransformationParameter, phase: int, *, source: str):
        self.source = source
        self.train = phase == TRAIN
        assert phase in (TRAIN, TEST), phase
        self.crop_size: int = transform_param.crop_size
        self.mirror: bool = transform_param.mirror
        self.scale: float = transform_param.scale
        self.force_color: bool = transform_param.force_color
        self.force_gray: bool = transform_param.force_gray
        refuse_contradictions(transform_param, source=source)
        self.mean_file: str = transform_param.mean_file
        self._file_mean = load_mean(self.mean_file) if self.mean_file else None
        self._mean_values = np.array(transform_param.mean_value, np.float32)
        self._checked: dict[Shape, Shape] = {}

    @property
    def needs_random(self) -> bool:
        """Return whether `transform` draws random numbers."""
        return self.mirror or bool(self.train and self.crop_size)

    def output_shape(self, datum_shape: Shape, *, where: Where | None = None) -> Shape:
        """Return (C, crop or H, crop or W) for an item of shape (C, H, W).

        where: the record, for errors (default: the source).
        Raises: LayerParamError where crop_size or mean_value do not fit; DataError where mean_file does not.
        """
        known = self._checked.get(datum_shape)
        if known is None:
            known = self._check(datum_shape, where or Where(file=self.source))
            if len(self._checked) < 1000:  # a bound, for there may be pictures of very many sizes
                self._checked[datum_shape] = known
        return known

    def transform(self, arrays: Sequence[np.ndarray], out: np.ndarray, rng: np.random.Generator | None = None) -> None:
        """Fill `out`, (N, C, h, w) of float32 or float64, from N arrays (C, H, W), which are not changed.

        rng: `batch_rng` of this batch, needed where `needs_random`.
        Raises: as `output_shape`; DataError where an item does not come out in the shape of `out`.
        """
        assert len(arrays) == len(out), (len(arrays), len(out))
        # All three numbers of an item are always drawn, so that no setting changes the numbers of the others.
        draws: Sequence[Sequence[int]] = [(0, 0, 0)] * len(out)
        if self.needs_random:
            assert rng is not None, "this transform_param needs random numbers"
            draws = rng.integers(0, 2**32, size=(len(out), 3), dtype=np.uint32).tolist()
        each(lambda i: self._item(arrays[i], out[i], *draws[i]), len(out))

    def _item(self, array: np.ndarray, target: np.ndarray, flip: int, row: int, column: int) -> None:
        shape = self.output_shape(array.shape)
        if shape != target.shape:
            raise DataError(
                f"an item of shape {_times(array.shape)} comes out as {_times(shape)} in a batch of "
                f"{_times(target.shape)}",
                where=Where(file=self.source),
                fix="set crop_size, use pictures of one size, or set batch_size: 1",
            )
        mean = self._file_mean if self._file_mean is not None else self._mean_values
        if self.crop_size:
            top, left = self._offset(array.shape[1], row), self._offset(array.shape[2], column)
            window = np.s_[:, top : top + self.crop_size, left : left + self.crop_size]
            array = array[window]
            if self._file_mean is not None:
                mean = mean[window]
        if self._file_mean is None:
            mean = mean[:, None, None]
        if self.mirror and flip % 2:
            target = target[:, :, ::-1]
        if mean.size:
            np.subtract(array, mean, out=target, dtype=target.dtype, casting="same_kind")
        else:
            np.copyto(target, array, casting="same_kind")
        if self.scale != 1:
            target *= target.dtype.type(self.scale)

    def _offset(self, size: int, draw: int) -> int:
        room = size - self.crop_size
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
        if self.crop_size > min(height, width):
            raise LayerParamError(
                f"crop_size {self.crop_size} is larger than an item of {height} x {width} (height x width)",
                where=where,
                fix=f"set crop_size to {min(height, width)} or less, or resize the pictures when converting them",
            )
        return (channels, self.crop_size or height, self.crop_size or width)


def transformed_batch(
    transformer: DataTransformer,
    read: Callable[[int], Item],
    shape: tuple[int, int, int, int],
    rng: np.random.Generator,
    *,
    dtype: np.dtype,
    fix: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Read the items of a batch with several threads and transform them; return (data (B, C, h, w), labels (B,)).

    Args:
        read: gives item 0 .. B - 1, from any thread.
        shape: (B, C, h, w) of the data; a batch of one item may have another h and w.
        rng: `batch_rng` of this batch.
        dtype: of data and labels.
        fix: what to do about items of several sizes.
    Raises: DataError or LayerParamError, with the place of the item.
    """
    count, item_shape = shape[0], shape[1:]
    items: dict[int, Item] = {}

    def work(i: int) -> None:
        items[i] = read(i)

    each(work, count)
    for i in range(count):
        array, _, where = items[i]
        found = transformer.output_shape(array.shape, where=where)
        if count == 1:
            item_shape = found
        elif found != item_shape:
            raise DataError(
                f"channels x height x width are {found}, where the batch has {item_shape}", where=where, fix=fix
            )
    data = np.empty((count, *item_shape), dtype)
    transformer.transform([items[i][0] for i in range(count)], data, rng)
    return data, np.array([items[i][1] for i in range(count)], dtype)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
