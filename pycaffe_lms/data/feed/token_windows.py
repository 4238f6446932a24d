"""Make batches of windows of token ids from a memory-mapped file, for the TokenData layer.

Covers: opening .npy and raw files, which windows make batch b (order, shuffling, ranks), checking ids.
See also: prefetch.py, the thread that asks for batches; language/dataset.py, which writes such files.
"""

from __future__ import annotations

import os
import tokenize

import numpy as np

from ...errors import DataError, Where
from ...formats.rawfile import could_not_open
from ..transform.transformer import batch_rng

_STREAM = 1 << 37  # of random numbers, apart from those of other data layers
_LARGEST = 1 << 24  # float32 represents every integer up to it


def open_tokens(path: str, dtype: np.dtype | type = np.uint16) -> np.ndarray:
    """Map a file of token ids: a read-only array (tokens,) of integers.

    dtype: of a raw file (little-endian); a file that ends in .npy says its own.
    Raises: DataError for a file that cannot be opened, or is no row of integers.
    """
    try:
        found = _npy(path) if path.endswith(".npy") else _raw(path, np.dtype(dtype).newbyteorder("<"))
    except OSError as failure:
        raise could_not_open(path, failure, DataError) from None
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise DataError(
            f"holds {found.dtype} {found.shape}, not a row of token ids",
            where=Where(file=path),
            fix="store integers of shape (tokens,)",
        )
    return found


def _raw(path: str, dtype: np.dtype) -> np.ndarray:
    size = os.stat(path).st_size
    if size % dtype.itemsize:
        raise DataError(
            f"{size} bytes are no whole number of {dtype.name} ids",
            where=Where(file=path),
            fix="set token_data_param.token_type to the type that was written",
        )
    return np.memmap(path, dtype, mode="r") if size else np.empty(0, dtype)


def _npy(path: str) -> np.ndarray:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, TypeError, KeyError, OverflowError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise DataError(
            f"is not a readable .npy file: {error}", where=Where(file=path), fix="write it with numpy.save"
        ) from None


class TokenWindows:
    """Make batch b of windows of a file of token ids, for any b: ids (batch_size, sequence_length) and the ids after.

    Window k is the tokens from k * sequence_length on; the last, shorter one is left out. With `shuffle`, every epoch
    has its own order, and its windows begin at another of the first sequence_length tokens. Window k of the order goes
    to rank k % ranks.

    Attributes:
        first: the window with which batch 0 would begin. stride: windows of a batch of all ranks together.
        records: windows of an epoch.

    Args:
        token_dtype: of a raw file.
        vocab_size: every id of a batch must be below it; 0: not checked.
        dtype: of the batches.
        seed: determines, with the epoch, every order.
    Raises: DataError for a file that cannot be used or is too short.
    """

    def __init__(
        self,
        source: str,
        batch_size: int,
        sequence_length: int,
        *,
        token_dtype: np.dtype | type = np.uint16,
        vocab_size: int = 0,
        shuffle: bool = False,
        dtype: np.dtype | type = np.float32,
        rank: int = 0,
        ranks: int = 1,
        seed: int = 0,
    ):
        self._tokens = open_tokens(source, token_dtype)
        self._size = os.stat(source).st_size
        self._source, self._dtype = source, np.dtype(dtype)
        self._vocab_size, self._shuffle, self._seed = vocab_size, shuffle, seed
        self._rank, self._ranks = rank, ranks
        self.first, self.stride = 0, batch_size * ranks
        self.shape = (batch_size, sequence_length)
        count = len(self._tokens)
        if count <= sequence_length:
            raise DataError(
                f"{count} tokens are too few: a window takes sequence_length + 1 = {sequence_length + 1}",
                where=Where(file=source),
                fix="lower token_data_param.sequence_length, or give a longer text",
            )
        self.records = (count - 1) // sequence_length
        self._shifts = 1
        if shuffle:
            self.records = max(1, (count - sequence_length) // sequence_length)
            self._shifts = min(sequence_length, count - self.records * sequence_length)
        self._order: tuple[int, int, np.ndarray] | None = None  # (epoch, first token, windows in turn)

    def produce(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and the ids that follow each, for batch number `batch`, both of `shape`.

        Raises: DataError for a file that has changed its size, or an id that is no word of the vocabulary.
        """
        if os.stat(self._source).st_size != self._size:  # reading behind the end of a mapped file kills the process
            raise DataError(
                "the file has changed since training began", where=Where(file=self._source), fix="start again"
            )
        count, length = self.shape
        data, label = np.empty(self.shape, self._dtype), np.empty(self.shape, self._dtype)
        for item in range(count):
            place = self.first + (batch * count + item) * self._ranks + self._rank
            start = self._start(*divmod(place, self.records))
            window = self._tokens[start : start + length + 1]
            self._check(window, start)
            data[item], label[item] = window[:-1], window[1:]
        return data, label

    def close(self) -> None:
        """Unmap the file."""
        self._tokens, self._order = np.empty(0, np.uint16), None

    def _start(self, epoch: int, place: int) -> int:
        """Return the first token of window number `place` of an epoch."""
        length = self.shape[1]
        if not self._shuffle:
            return place * length
        if self._order is None or self._order[0] != epoch:
            rng = batch_rng(self._seed, epoch, _STREAM)
            self._order = (epoch, int(rng.integers(self._shifts)), rng.permutation(self.records))
        _, shift, order = self._order
        return shift + int(order[place]) * length

    def _check(self, window: np.ndarray, start: int) -> None:
        limit = self._vocab_size or _LARGEST + 1
        wrong = np.flatnonzero((window < 0) | (window >= limit))
        if wrong.size:
            at = int(wrong[0])
            fix = (
                "set vocab_size and the net's tables to the vocabulary of the file; token_type must be what was written"
                if self._vocab_size
                else "blobs represent whole numbers up to 2^24 only; check token_type"
            )
            raise DataError(
                f"token {start + at} is {int(window[at])}, not an id from 0 to {limit - 1}",
                where=Where(file=self._source),
                fix=fix,
            )
