"""Data: batches of a database of Datum records, read and transformed ahead by a thread.

Source: BVLC/caffe, data_layer.cpp, base_data_layer.cpp (behaviour).
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from ...data.feed.batches import DatumBatches
from ...data.feed.prefetch import Prefetcher
from ...data.transform.transformer import DataTransformer
from ...errors import CaffeError
from ..base import Declaration, Layer, Pass, Runs, Shape, Shapes, between, exactly
from ..registry import register_layer

_log = logging.getLogger(__name__)
_OLD_FIELDS = ("scale", "mean_file", "crop_size", "mirror")  # moved to transform_param by the upgrade of old nets only


@register_layer("Data")
class DataLayer(Layer):
    """Records of data_param.source in key order, over and over.

    Top 0: (batch_size, channels, height, width) after transform_param. Top 1 (optional): labels, (batch_size).
    Record k of a TRAIN net goes to rank k % solver_count. Random crops and mirrors depend only on the layer's seed and
    the batch's number, so a resumed run sees what an uninterrupted one sees. data_param.prefetch batches wait.
    Raises: DataError for an absent or damaged database (with the key), LayerParamError without batch_size.
    """

    declares = Declaration(bottoms=exactly(0), tops=between(1, 2), runs_on=Runs.HOST, no_backward=None)

    _shape: Shape
    _batches: Any = None  # makes batch k; None: not opened
    _prefetcher: Prefetcher
    _next: Any = None  # a batch that was read for its shape, but not yet used

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.data_param
        if not p.source:
            raise self.error("data_param.source is not set", fix="name the database folder")
        if p.batch_size == 0:
            raise self.error("data_param.batch_size is not set", fix="set batch_size to 1 or more")
        self._passed_over("data_param", *_OLD_FIELDS, "rand_skip", "force_encoded_color")
        self._start()

    def _passed_over(self, message: str, *fields: str) -> None:
        """Say which of these fields are given although nothing reads them, as in Caffe."""
        for field in fields:
            if getattr(self.param, message).HasField(field):
                fix = f": write transform_param {{ {field} }}" if field in _OLD_FIELDS else ""
                _log.warning("%s: %s.%s has no effect%s", self.where, message, field, fix)

    def _start(self) -> None:
        self._seed = self.context.seed
        self._next = None
        self._batches = None
        try:
            self._open()
        except CaffeError as error:
            error.at(layer=self.name, type=self.param.type)
            raise

    def _open(self) -> None:
        p = self.param.data_param
        transformer = DataTransformer(self.param.transform_param, self.phase, source=p.source)
        batches = DatumBatches(
            p.source,
            p.backend,
            p.batch_size,
            transformer,
            dtype=self.dtype,
            rank=self.context.solver_rank,
            ranks=self.context.solver_count,
            seed=self._seed,
        )
        self._shape = batches.shape
        self._prefetch(batches)

    def _prefetch(self, batches: Any) -> None:
        """Make these batches from now on: the last line of `_open`."""
        depth = max(1, self.param.data_param.prefetch)
        self._batches, self._prefetcher = batches, Prefetcher(batches.produce, depth, ahead=self.context.reads_ahead)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        """The shape of the next batch (only a batch of one may change from record to record)."""
        if self._shape[0] == 1 and self._next is None:
            self._next = self._prefetcher.next()
            self._shape = self._next[0].shape
        return [self._shape, (self._shape[0],)][: len(self.param.top)]

    def forward(self, io: Pass) -> None:
        batch = self._prefetcher.next() if self._next is None else self._next
        self._next = None
        for top, values in zip(io.top, batch, strict=False):
            np.copyto(top, values)

    def state(self) -> dict[str, int]:
        """batches: how many were used. seed: of the random transforms."""
        return {"batches": self._prefetcher.position - (self._next is not None), "seed": self._seed}

    def set_state(self, state: dict[str, int]) -> None:
        self._next = None
        if state.get("seed", self._seed) != self._seed:
            self.close()
            self._seed = state["seed"]
            self._open()
        self._prefetcher.seek(state["batches"])

    def close(self) -> None:
        if self._batches is not None:
            self._prefetcher.close()
            self._batches.close()
