"""Make batches of transformed pictures from a database of Datum records, for the Data layer.

Covers: which records make batch b on which rank; decoding, transforming, errors that name the record.
See also: prefetch.py, the thread that asks for batches.
"""

from __future__ import annotations

import logging
import os

import numpy as np

from ...errors import Where
from ...proto.caffe_pb2 import Datum
from ..database.datum import datum_array, parse_datum, record_place
from ..database.open import open_database
from ..transform.transformer import CroppedBatch, DataTransformer, Item, batch_rng, cropped_batch, transformed_batch

_log = logging.getLogger(__name__)

_FIX = (
    "set crop_size, convert the pictures to one size (convert_imageset -resize_height -resize_width, -check_size), or "
    "set batch_size: 1"
)


class DatumBatches:
    """Make batch b of a database, for any b: (data, labels).

    Records are numbered in key order, and from the first again after the last. Batch b of B items has the records
    b*B to b*B + B - 1. In TRAIN with `ranks` processes, record k goes to rank k % ranks; in TEST every rank reads all.

    Attributes:
        first: the record with which batch 0 would begin. stride: records of a batch of all ranks together.
        as_bytes: whether batches are `CroppedBatch`, where they can be.

    Args:
        source, backend: as `open_database`.
        dtype: of data and labels, float32 or float64.
        seed: determines, with rank, batch and item, crops and mirroring.
        as_bytes: make batches of bytes, if the first picture is one.
    Raises: DataError where the database or its first record cannot be read.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        backend: str | int,
        batch_size: int,
        transformer: DataTransformer,
        *,
        dtype: np.dtype | type = np.float32,
        rank: int = 0,
        ranks: int = 1,
        seed: int = 0,
        as_bytes: bool = False,
    ):
        self.source = os.fspath(source)
        assert batch_size >= 1, batch_size  # the layer has checked it
        assert 0 <= rank < ranks, (rank, ranks)
        self._batch_size = batch_size
        self._transformer = transformer
        self._dtype = np.dtype(dtype)
        self.as_bytes = as_bytes
        self._seed = seed
        self._rank, self._ranks = (rank, ranks) if transformer.train else (0, 1)
        self._stream = rank
        self.first, self.stride = 0, batch_size * self._ranks
        self._database = open_database(source, backend)
        try:
            self._item_shape = self._first_shape()
        except BaseException:
            self._database.close()
            raise

    @property
    def records(self) -> int | None:
        """Return how many records there are; None: not counted yet."""
        return self._database.known_length

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return (B, C, h, w) of the data, from the first record; with a batch_size of 1, h and w may change later."""
        return (self._batch_size, *self._item_shape)

    def produce(self, batch: int) -> tuple[np.ndarray, np.ndarray] | CroppedBatch:
        """Return (data (B, C, h, w), labels (B,)), or a `CroppedBatch`; in order is fastest, any order works.

        Raises: DataError or LayerParamError, naming the database and the record's key.
        """
        records = [self._record(batch * self._batch_size + item) for item in range(self._batch_size)]

        def read(item: int) -> Item:
            datum, array, where = self._decode(*records[item])
            return array, datum.label, where

        made: CroppedBatch | None = None
        given = self._transformer, read, self.shape
        if self.as_bytes:
            made = cropped_batch(*given, batch_rng(self._seed, batch, self._stream), dtype=self._dtype, fix=_FIX)
        return made or transformed_batch(
            *given, batch_rng(self._seed, batch, self._stream), dtype=self._dtype, fix=_FIX
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _record(self, index: int) -> tuple[bytes, bytes]:
        """Return key and value of this rank's record number `index` since the start."""
        self._database.seek(self.first + index * self._ranks + self._rank)
        return self._database.next()

    def _decode(self, key: bytes, record: bytes) -> tuple[Datum, np.ndarray, Where]:
        datum = parse_datum(record, source=self.source, key=key)
        colour, gray = self._transformer.force_color, self._transformer.force_gray
        array = datum_array(datum, source=self.source, key=key, force_color=colour, force_gray=gray)
        return datum, array, record_place(self.source, key)

    def _first_shape(self) -> tuple[int, int, int]:
        self._database.seek(0)
        datum, array, where = self._decode(*self._database.next())
        self._database.seek(0)
        if (self._transformer.force_color or self._transformer.force_gray) and not datum.encoded:
            _log.warning("%s: force_color and force_gray act on encoded pictures only; these are raw", self.source)
        self.as_bytes = self.as_bytes and array.dtype == np.uint8
        return self._transformer.output_shape(array.shape, where=where)
