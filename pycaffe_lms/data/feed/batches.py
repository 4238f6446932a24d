"""Make batches of transformed pictures from a database of Datum records, for the Data layer.

Covers: which records make batch b on which rank; decoding, transforming, errors that name the record.
See also: prefetch.py, the thread that asks for batches.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ...errors import Where
from ...proto.caffe_pb2 import Datum
from ..database.datum import datum_array, parse_datum, record_place
from ..database.open import open_database
from ..transform.transformer import CroppedBatch, DataTransformer, Item, batch_rng, cropped_batch, transformed_batch
from .cropping import Cropper, CroppingBatches

_log = logging.getLogger(__name__)

_FIX = (
    "set crop_size, convert the pictures to one size (convert_imageset -resize_height -resize_width, -check_size), or "
    "set batch_size: 1"
)


class DatumBatches(CroppingBatches):
    """Make batch b of a database, for any b: (data, labels).

    Records are numbered in key order, and from the first again after the last. Batch b of B items has the records
    b*B to b*B + B - 1. In TRAIN with `ranks` processes, record k goes to rank k % ranks; in TEST every rank reads all.

    Attributes:
        stride: records of a batch of all ranks together.

    Args:
        source, backend: as `open_database`.
        dtype: of data and labels, float32 or float64.
        seed: determines, with rank, batch and item, crops and mirroring.
        as_bytes: make batches of bytes, if the first picture is one and they are large.
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
        self._seed = seed
        self._rank, self._ranks = (rank, ranks) if transformer.train else (0, 1)
        self._stream = rank
        self.stride = batch_size * self._ranks
        self._database = open_database(source, backend)
        try:
            self._item_shape = self._first_shape(as_bytes, by_processes)
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
        made = self.cropped_by_processes(batch, self._dtype)
        if made is not None:
            return made
        records = list(self._records(batch))
        given = self._transformer, lambda item: self._reads(*records[item]), self.shape
        if self.as_bytes:
            made = cropped_batch(*given, batch_rng(self._seed, batch, self._stream), dtype=self._dtype, fix=_FIX)
        return made or transformed_batch(
            *given, batch_rng(self._seed, batch, self._stream), dtype=self._dtype, fix=_FIX
        )

    def close(self) -> None:
        """Close the database, and end the processes."""
        self.close_processes()
        self._database.close()

    def _records(self, batch: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of a batch's records."""
        for item in range(self._batch_size):
            yield self._record(batch * self._batch_size + item)

    def _record(self, index: int) -> tuple[bytes, bytes]:
        """Return key and value of this rank's record number `index` since the start."""
        self._database.seek(self._first + index * self._ranks + self._rank)
        return self._database.next()

    @property
    def _reads(self) -> Callable[[bytes, bytes], Item]:
        """Return the function of key and value of a record that reads it, in any process."""
        return partial(_read, self.source, self._transformer.force_color, self._transformer.force_gray)

    def _decode(self, key: bytes, record: bytes) -> tuple[Datum, np.ndarray, Where]:
        """Decode the first record."""
        return _decode(self.source, self._transformer.force_color, self._transformer.force_gray, key, record)

    def _first_shape(self, as_bytes: bool, by_processes: bool) -> tuple[int, int, int]:
        self._database.seek(0)
        datum, array, where = self._decode(*self._database.next())
        self._database.seek(0)
        if (self._transformer.force_color or self._transformer.force_gray) and not datum.encoded:
            _log.warning("%s: force_color and force_gray act on encoded pictures only; these are raw", self.source)
        shape = self._transformer.output_shape(array.shape, where=where)
        whole = (self._batch_size, *shape)
        cropper = Cropper(self._reads, self._transformer, whole, self._seed, self._stream, _FIX)
        self.choose(array, datum.encoded, cropper, self._records, as_bytes=as_bytes, by_processes=by_processes)
        return shape


def _decode(source: str, colour: bool, gray: bool, key: bytes, record: bytes) -> tuple[Datum, np.ndarray, Where]:
    """Return a record, its values, and its place for errors. colour, gray: force_color and force_gray."""
    datum = parse_datum(record, source=source, key=key)
    array = datum_array(datum, source=source, key=key, force_color=colour, force_gray=gray)
    return datum, array, record_place(source, key)


def _read(source: str, colour: bool, gray: bool, key: bytes, record: bytes) -> Item:
    """Return (array, label, place) of a record."""
    datum, array, where = _decode(source, colour, gray, key, record)
    return array, datum.label, where
