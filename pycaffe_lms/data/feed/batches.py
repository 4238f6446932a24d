"""Make batches of transformed pictures from a database of Datum records, for the Data layer.

Covers: which records make batch b on which rank; decoding, transforming, errors that name the record.
See also: prefetch.py, the thread that asks for batches.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import numpy as np

from ...errors import Where
from ...ops.cpu.threads import thread_count
from ...proto.caffe_pb2 import Datum
from ..database.datum import datum_array, parse_datum, record_place
from ..database.open import open_database
from ..transform.transformer import CroppedBatch, DataTransformer, Item, batch_rng, cropped_batch, transformed_batch
from .cropping import Cropper, CroppingProcesses, processes_for

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
        stride: records of a batch of all ranks together.
        as_bytes: whether batches are `CroppedBatch`, where they can be.

    Args:
        source, backend: as `open_database`.
        dtype: of data and labels, float32 or float64.
        seed: determines, with rank, batch and item, crops and mirroring.
        as_bytes: make batches of bytes, if the first picture is one.
        by_processes: let processes decode and crop these where that pays, not threads.
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
        by_processes: bool = True,
    ):
        self.source = os.fspath(source)
        assert batch_size >= 1, batch_size  # the layer has checked it
        assert 0 <= rank < ranks, (rank, ranks)
        self._batch_size = batch_size
        self._transformer = transformer
        self._dtype = np.dtype(dtype)
        self.as_bytes, self._by_processes = as_bytes, by_processes
        self._seed = seed
        self._rank, self._ranks = (rank, ranks) if transformer.train else (0, 1)
        self._stream = rank
        self._first, self.stride = 0, batch_size * self._ranks
        self._cropping: CroppingProcesses | None = None
        self._database = open_database(source, backend)
        try:
            self._item_shape = self._first_shape()
        except BaseException:
            self._database.close()
            raise

    @property
    def first(self) -> int:
        """Return the record with which batch 0 would begin."""
        return self._first

    @first.setter
    def first(self, first: int) -> None:
        if first != self._first and self._cropping is not None:
            self._cropping.close()  # which read other records ahead
        self._first = first

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
        made = self._cropping.produce(batch, self._dtype) if self.as_bytes and self._cropping is not None else None
        if made is not None:
            return made
        records = list(self._records(batch))

        def read(item: int) -> Item:
            datum, array, where = self._decode(*records[item])
            return array, datum.label, where

        given = self._transformer, read, self.shape
        if self.as_bytes:
            made = cropped_batch(*given, batch_rng(self._seed, batch, self._stream), dtype=self._dtype, fix=_FIX)
        return made or transformed_batch(
            *given, batch_rng(self._seed, batch, self._stream), dtype=self._dtype, fix=_FIX
        )

    def close(self) -> None:
        """Close the database, and end the processes."""
        if self._cropping is not None:
            self._cropping.close()
        self._database.close()

    def _records(self, batch: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of a batch's records."""
        for item in range(self._batch_size):
            yield self._record(batch * self._batch_size + item)

    def _record(self, index: int) -> tuple[bytes, bytes]:
        """Return key and value of this rank's record number `index` since the start."""
        self._database.seek(self._first + index * self._ranks + self._rank)
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
        shape = self._transformer.output_shape(array.shape, where=where)
        may = self.as_bytes and self._by_processes
        processes = processes_for(array, datum.encoded, thread_count()) if may else 0
        if processes:
            whole = (self._batch_size, *shape)
            cropper = Cropper(self.source, self._transformer, whole, self._seed, self._stream, _FIX)
            self._cropping = CroppingProcesses(cropper, self._records, processes)
        return shape
