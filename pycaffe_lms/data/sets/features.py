"""Write blobs of a net, batch after batch, as databases of Datums with Caffe's keys, in threads beside the net.

See also: cli/commands/extract_features.py, which runs the net.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from ...errors import ShapeError
from ..database.datum import encode_datum
from ..database.whole_folder import Record
from .conversion import write_database

_BATCHES_AHEAD = 4


def feature_shape(shape: tuple[int, ...], blob: str) -> tuple[int, int, int, int]:
    """Return (number, channels, height, width) of a blob; missing axes are 1. Raises: ShapeError for over 4 axes."""
    if len(shape) > 4:
        raise ShapeError(
            f"{len(shape)} axes, {shape}; a Datum has channels, height and width",
            fix="extract a blob of at most 4 axes, for example behind a Flatten or Reshape layer",
        ).at(blob=blob)
    number, channels, height, width = (*shape, 1, 1, 1, 1)[:4]
    return number, channels, height, width


class FeatureWriter:
    """Write a database of features while the net computes more.

    It is a context manager: leaving it completes the database; an error in the block removes it.
    blob: named in errors. backend, overwrite: as `write_database`.
    """

    def __init__(self, path: str | os.PathLike[str], blob: str, *, backend: str = "lmdb", overwrite: bool = False):
        self.path, self.blob = os.fspath(path), blob
        self.count = 0
        self._queue: queue.Queue[np.ndarray | None | _Stop] = queue.Queue(_BATCHES_AHEAD)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write, args=(backend, overwrite), name=f"writer of {blob}")

    def __enter__(self) -> FeatureWriter:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._hand_over(None if kind is None else _Stop())
        self._thread.join()
        if kind is None and self._failure is not None:
            raise self._failure

    def add(self, features: np.ndarray) -> None:
        """Add a batch of the blob; its first axis counts items. Raises: ShapeError, or the error that ended writing."""
        shape = feature_shape(features.shape, self.blob)
        self._hand_over(np.array(features, np.float32).reshape(shape))
        self.count += shape[0]
        if self._failure is not None:
            raise self._failure

    def _hand_over(self, item: np.ndarray | None | _Stop) -> None:
        while self._thread.is_alive():  # after a failure it takes no more items
            with suppress(queue.Full):
                self._queue.put(item, timeout=0.2)
                return

    def _write(self, backend: str, overwrite: bool) -> None:
        try:
            write_database(self.path, self._records(), backend=backend, overwrite=overwrite)
        except _Stop:
            pass
        except BaseException as failure:  # `add` or `__exit__` raises it
            self._failure = failure

    def _records(self) -> Iterator[Record]:
        index = 0
        while (batch := self._queue.get()) is not None:
            if isinstance(batch, _Stop):
                raise batch
            for item in batch:
                yield b"%010d" % index, encode_datum(item, None)
                index += 1


class _Stop(Exception):
    """Signal that the net failed, so that no database must stay."""
