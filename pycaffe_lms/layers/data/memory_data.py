"""MemoryData: batches of arrays, records or pictures that the program gives to the layer.

Source: BVLC/caffe, src/caffe/layers/memory_data_layer.cpp, python/caffe/_caffe.cpp (behaviour).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays import HostArray
from ...data.database.datum import datum_array
from ...data.transform.transformer import DataTransformer, batch_rng
from ...errors import CaffeError, DataError
from ...proto import caffe_pb2
from ..base import Declaration, Layer, Pass, Runs, Shapes, exactly
from ..registry import register_layer
from .data import ONLY_ANNOTATED, ONLY_SEGMENTED

_log = logging.getLogger(__name__)
_FIELDS = ("batch_size", "channels", "height", "width")


@register_layer("MemoryData")
class MemoryDataLayer(Layer):
    """Items from `set_input_arrays`, `add_datums` or `add_images`, in order, again and again.

    Top 0: (batch_size, channels, height, width). Top 1: labels, (batch_size); Caffe reshapes them to (batch_size, 1, 1,
    1) at the first forward. transform_param acts on added records and pictures, not on arrays; its random draws depend
    only on the layer's seed and the number of additions before.
    Raises: LayerParamError for a missing field; DataError for data that do not fit, or a forward without data.
    """

    declares = Declaration(bottoms=exactly(0), tops=exactly(2), runs_on=Runs.HOST, no_backward=None)

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.memory_data_param
        missing = [field for field in _FIELDS if getattr(p, field) == 0]
        if missing:
            raise self.error(
                f"memory_data_param.{', '.join(missing)} must be given, and be above 0",
                fix=f"write memory_data_param {{ {' '.join(f'{f}: ...' for f in _FIELDS)} }}",
            )
        self.batch_size: int = p.batch_size
        alone = dict.fromkeys(ONLY_ANNOTATED, "AnnotatedData") | dict.fromkeys(ONLY_SEGMENTED, "ImageSegData")
        for given, _ in self.param.transform_param.ListFields():
            if given.name in alone:
                there = alone[given.name]
                _log.warning("%s: transform_param.%s has no effect: it acts in %s alone", self.where, given.name, there)
        self._item_shape = (p.channels, p.height, p.width)
        self._data: HostArray | None = None
        self._labels: HostArray | None = None
        self._position = self._draws = 0
        self.seed = self.context.seed
        self._waiting = False  # whether forwards have not yet used all added data
        self._transformer = DataTransformer(self.param.transform_param, self.phase, source="added data")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [(self.batch_size, *self._item_shape), (self.batch_size,)]

    def forward(self, io: Pass) -> None:
        if self._data is None or self._labels is None:
            raise self.error(
                "has no data", kind=DataError, fix="call net.set_input_arrays(data, labels), or the layer's add_images"
            )
        start = self._position % len(self._data)
        rows = slice(start, start + self.batch_size)
        np.copyto(io.top[0], self._data[rows], casting="unsafe")
        np.copyto(io.top[1], self._labels[rows], casting="unsafe")
        self._position = rows.stop % len(self._data)
        self._waiting &= self._position != 0

    # -- data from the program --------------------------------------------------------------------------------------
    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Use these arrays, without a copy, in place of the data before. Raises DataError.

        Args:
            data: (n, channels, height, width), n a multiple of batch_size.
            labels: (n) or (n, 1, 1, 1).
        """
        data, labels = np.asarray(data), np.asarray(labels)
        for what, array in (("data", data), ("labels", labels)):
            if array.dtype.kind not in "fiub":
                raise self._unfit(f"the {what} are {array.dtype}, not numbers", "give a float32 array")
        if data.shape[1:] != self._item_shape:
            raise self._unfit(
                f"the data have shape {data.shape}, the layer takes items of {self._item_shape}",
                "give an array (n, channels, height, width), or change memory_data_param",
            )
        if len(labels.shape) == 0 or labels.size != labels.shape[0] or len(labels) != len(data):
            raise self._unfit(
                f"{len(data)} items, but labels of shape {labels.shape}",
                "data and labels must have the same first dimension, labels one value per item",
            )
        self._check_number(len(data))
        if self.param.HasField("transform_param"):
            _log.warning("%s does not transform arrays that are set; add_images and add_datums do", self.name)
        self._take(data, labels.reshape(-1))

    def add_datums(self, datums: Sequence[caffe_pb2.Datum]) -> None:
        """Transform and use Datum messages, raw or encoded, a multiple of batch_size (Caffe's AddDatumVector).

        Raises:
            DataError: forwards have not used all data added before, or the messages do not fit.
            LayerParamError: the crop does not fit.
        """
        self._check_free("add data")
        t, arrays = self._transformer, []
        for i, datum in enumerate(datums):
            with_place = {"source": "added data", "key": str(i)}
            arrays.append(
                self._placed(datum_array, datum, **with_place, force_color=t.force_color, force_gray=t.force_gray)
            )
        self._add(arrays, [datum.label for datum in datums])

    def add_images(self, images: Sequence[np.ndarray], labels: Sequence[int]) -> None:
        """Transform and use pictures in OpenCV's form, a multiple of batch_size (Caffe's AddMatVector).

        force_color and force_gray do not act on them. Raises the errors of `add_datums`.

        Args:
            images: uint8 arrays (H, W) or (H, W, channels).
            labels: one per picture.
        """
        self._check_free("add data")
        arrays = []
        for i, image in enumerate(images):
            image = np.asarray(image)
            if image.dtype != np.uint8 or image.ndim not in (2, 3):
                raise self._unfit(
                    f"picture {i} is {image.dtype} of shape {image.shape}",
                    "give uint8 arrays (height, width, channels)",
                )
            arrays.append(image[None] if image.ndim == 2 else image.transpose(2, 0, 1))
        if len(labels) != len(arrays):
            raise self._unfit(f"{len(arrays)} pictures, but {len(labels)} labels", "give one label per picture")
        self._add(arrays, labels)

    def set_batch_size(self, batch_size: int) -> None:
        """Change the batch size from the next forward on. Data are dropped if their number is not a multiple of it.

        Raises:
            DataError: forwards have not used all data added before.
            LayerParamError: the size is below 1.
        """
        self._check_free("change batch_size")
        if batch_size < 1:
            raise self.error(f"batch_size is {batch_size}", fix="use 1 or more")
        self.batch_size = batch_size
        self._position = 0
        if self._data is not None and len(self._data) % batch_size:
            self._data = self._labels = None

    def _add(self, arrays: list[np.ndarray], labels: Sequence[int]) -> None:
        self._check_number(len(arrays))
        out = np.empty((len(arrays), *self._item_shape), self.dtype)
        rng = batch_rng(self.seed, self._draws) if self._transformer.needs_random else None
        self._placed(self._transformer.transform, arrays, out, rng)
        self._draws += 1
        self._take(out, np.array(labels, self.dtype))
        self._waiting = True

    def _take(self, data: np.ndarray, labels: np.ndarray) -> None:
        self._data, self._labels, self._position, self._waiting = data, labels, 0, False

    def _check_free(self, what: str) -> None:
        if self._waiting:
            n = 0 if self._data is None else len(self._data)
            raise self._unfit(
                f"cannot {what}: of the {n} items added before, {n - self._position} have not been used",
                "run forward until they are",
            )

    def _check_number(self, n: int) -> None:
        if n == 0:
            raise self._unfit("there are no items", "give a multiple of batch_size, at least one batch")
        if n % self.batch_size:
            near = sorted({n - n % self.batch_size, n + -n % self.batch_size} - {0})
            raise self._unfit(
                f"{n} items are not a multiple of batch_size {self.batch_size}",
                f"give {' or '.join(map(str, near))} items, or change batch_size",
            )

    def _placed(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return work(*args, **kwargs)
        except CaffeError as error:
            raise error.at(layer=self.name, type=self.param.type) from None

    def _unfit(self, found: str, fix: str) -> CaffeError:
        return self.error(found, kind=DataError, fix=fix)

    # -- resuming ---------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, int]:
        """Return the position of the next item, the number of additions and the seed.

        The program must give the layer the same data again before it resumes.
        """
        return {"position": self._position, "draws": self._draws, "seed": self.seed}

    def set_state(self, state: dict[str, int]) -> None:
        self._position, self._draws, self.seed = state["position"], state["draws"], state["seed"]
