"""Check that an LMDB file is sound before the LMDB library touches its pages.

The library trusts page numbers and offsets in the file: a truncated file or damaged pages end the process with a bus
error. So the tree is walked within bounds first (without the values on pages of their own).
Covers: LMDB's data format 1 as 64-bit little-endian machines write it, one plain database without duplicate keys.
Damage inside values is found when records are parsed.
Source: LMDB 0.9's documented structures MDB_meta, MDB_db, MDB_page and MDB_node (lmdb.h, mdb.c).
"""

from __future__ import annotations

import mmap
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import DataError, Where

_META = struct.Struct("<IIQQ48sI2HQQQQQQQ")  # at byte 16 of pages 0 and 1
_MAGIC, _FORMAT = 0xBEEFC0DE, 1
_EMPTY = 2**64 - 1
_HEADER = struct.Struct("<QHHHH")  # page number, padding, flags, end of the offsets, start of the nodes
_BRANCH, _LEAF = 1, 2
_BIG_VALUE, _OTHER_DATABASE, _DUPLICATES = 1, 2, 4


@dataclass(frozen=True)
class Meta:
    """Hold the content of one of the two head pages; sizes in bytes, pages counted from 0."""

    page_size: int
    depth: int
    entries: int
    root: int
    last_page: int
    transaction: int


def read_metas(data_file: Path) -> tuple[Meta, ...]:
    """Read the head pages of `data.mdb` that are valid, newest first.

    Raises: DataError where there is none, or the newest counts more pages than the file has.
    """
    size = data_file.stat().st_size
    with open(data_file, "rb") as file:
        first = _parse_meta(file.read(16 + _META.size))
        if first is None:
            raise _damaged(data_file, "it does not begin as an LMDB of data format 1 does", damaged=False)
        file.seek(first.page_size)
        second = _parse_meta(file.read(16 + _META.size))
    metas = sorted((m for m in (first, second) if m), key=lambda m: m.transaction, reverse=True)
    if size < (metas[0].last_page + 1) * metas[0].page_size:
        raise _damaged(
            data_file, f"{metas[0].last_page + 1} pages are expected, {size // metas[0].page_size} are there"
        )
    return tuple(metas)


def check_tree(data_file: Path, transaction: int) -> None:
    """Walk every branch and leaf page that `transaction` (LMDB's number of it) sees, in about 10 microseconds a page.

    Raises: DataError for a page, offset or count that cannot be right, and for named databases and duplicate keys.
    """
    meta = next((m for m in read_metas(data_file) if m.transaction == transaction), None)
    if meta is None:
        raise DataError(
            "the database was written to while it was being opened",
            where=Where(file=str(data_file)),
            fix="wait until the program that writes it has ended",
        )
    if meta.root == _EMPTY:
        return
    with open(data_file, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        found = _Walk(data_file, pages, meta).entries()
    if found != meta.entries:
        raise _damaged(data_file, f"{meta.entries} records are expected, {found} are there")


def _parse_meta(page: bytes) -> Meta | None:
    if len(page) < 16 + _META.size:
        return None
    (magic, version, _, _, free, _, _, depth, *_, entries, root, last_page, transaction) = _META.unpack_from(page, 16)
    (page_size,) = struct.unpack_from("<I", free)  # LMDB keeps it in an unused field of the free list's record
    good_size = 512 <= page_size <= 65536 and page_size & (page_size - 1) == 0
    if magic != _MAGIC or version != _FORMAT or not good_size or last_page > 2**48:
        return None
    return Meta(page_size, depth, entries, root, last_page, transaction)


class _Walk:
    """Walk the tree of one transaction, each page once."""

    def __init__(self, data_file: Path, pages: mmap.mmap, meta: Meta):
        self.file, self.pages, self.meta = data_file, pages, meta
        self.seen: set[int] = set()
        self.end = min(meta.last_page + 1, len(pages) // meta.page_size)

    def entries(self) -> int:
        """Return the number of records under the root, walking level by level."""
        level = [self.meta.root]
        for _ in range(self.meta.depth - 1):
            level = [child for number in level for child in self._branch(number)]
        return sum(self._leaf(number) for number in level)

    def _nodes(self, number: int, kind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the bytes of page `number`, the offsets of its n nodes, and their four 16-bit head fields (n, 4)."""
        size = self.meta.page_size
        if not 2 <= number < self.end or number in self.seen:
            raise _damaged(self.file, f"page {number} is out of place")
        self.seen.add(number)
        own, _, flags, lower, upper = _HEADER.unpack_from(self.pages, number * size)
        if own != number or flags & 0x6F != kind or not 16 <= lower <= upper <= size or lower % 2:
            raise _damaged(self.file, f"page {number} has a damaged head")
        page = np.frombuffer(self.pages[number * size : (number + 1) * size], np.uint8)
        starts = page[16:lower].view("<u2").astype(np.int64)
        if not len(starts) or starts.min() < upper or starts.max() > size - 8 or (starts % 2).any():
            raise _damaged(self.file, f"page {number} has damaged offsets")
        heads = page.view("<u2")[(starts[:, None] >> 1) + np.arange(4)].astype(np.int64)
        return page, starts, heads

    def _branch(self, number: int) -> list[int]:
        page, starts, heads = self._nodes(number, _BRANCH)
        if (starts + 8 + heads[:, 3] > len(page)).any():
            raise _damaged(self.file, f"page {number} has a key that leaves it")
        children: list[int] = (heads[:, 0] | heads[:, 1] << 16 | heads[:, 2] << 32).tolist()
        return children

    def _leaf(self, number: int) -> int:
        page, starts, heads = self._nodes(number, _LEAF)
        if (heads[:, 2] & (_OTHER_DATABASE | _DUPLICATES)).any():
            raise _damaged(
                self.file, "it holds named databases or duplicate keys, Caffe's hold records only", damaged=False
            )
        value_sizes = heads[:, 0] | heads[:, 1] << 16
        big = (heads[:, 2] & _BIG_VALUE).astype(bool)
        values = starts + 8 + heads[:, 3]
        if (values + np.where(big, 8, value_sizes) > len(page)).any():
            raise _damaged(self.file, f"page {number} has a record that leaves it")
        if big.any():  # such a value has pages of its own, of which the first has a head of 16 bytes
            first = page[values[big, None] + np.arange(8)].view("<u8")[:, 0]
            pages = (value_sizes[big] + 16 + len(page) - 1) // len(page)
            if (first < 2).any() or (first > self.end).any() or (first.astype(np.int64) + pages > self.end).any():
                raise _damaged(self.file, f"page {number} has a record that leaves the file")
        return len(starts)


def _damaged(data_file: Path, found: str, *, damaged: bool = True) -> DataError:
    return DataError(
        f"{'a damaged LMDB' if damaged else 'not an LMDB that can be read'}: {found}",
        where=Where(file=str(data_file)),
        fix="copy the database again (both sides must have the same size), or convert it again",
    )


def can_check() -> bool:
    """Return whether this machine's LMDB files have the layout that is checked here (64-bit, little-endian)."""
    return sys.maxsize > 2**32 and sys.byteorder == "little"
