"""Convert the pages behind a plan's offsets (`Paging`) to a message of the plan file and back. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ...errors import PlanError, human_bytes
from ...proto import caffe_pb2
from ..layout.paging import Paging

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
MOST_PAGES = 1 << 24  # entries of all addresses of a plan together; a page may lie behind many addresses
_OTHER = "a plan belongs to one kind of device; delete the file, and the next run writes it anew"


def pages_message(paging: Paging) -> caffe_pb2.LMSPlanPages:
    """Return `paging` as a message."""
    made = caffe_pb2.LMSPlanPages(bytes=paging.page, linear=paging.linear, count=paging.count, end=paging.size)
    for offset in sorted(paging.pages):
        made.address.add(offset=offset, pages=" ".join(_ranges(paging.pages[offset])))
    return made


def paging_of(
    message: caffe_pb2.LMSPlanPages, arena_bytes: int, page: int | None, wrong: Callable[..., PlanError]
) -> Paging:
    """Return the pages of a plan file.

    Args:
        arena_bytes: bytes of the plan's arena.
        page: bytes of the device's pages; None: it has none, or `-lms_pages off`.
        wrong: makes the error of (part of the message, index, mistake, fix).

    Raises:
        PlanError: made by `wrong`, of the first mistake.
    """
    if page is None:
        raise wrong(None, 0, "the plan lies in pages, and here are none", f"-lms_pages on, on a GPU; or {_OTHER}")
    if message.bytes != page:
        here = f"the plan lies in pages of {human_bytes(message.bytes)}, this device's have {human_bytes(page)}"
        raise wrong(None, 0, here, _OTHER)
    if message.linear % page or message.linear + message.count * page > arena_bytes:
        what = f"{message.count} pages behind {message.linear} bytes are more than the arena's {arena_bytes}"
        raise wrong(None, 0, what, "see arena_bytes")
    pages: dict[int, tuple[int, ...]] = {}
    left = MOST_PAGES
    for i, address in enumerate(message.address):
        found = _numbers(address.pages, message.count, left)
        if found is None:
            what = f'pages "{address.pages[:60]}" are no numbers below {message.count}, or too many'
            raise wrong("address", i, what, 'write them like "0-2 17 9-12"')
        if address.offset in pages:
            raise wrong("address", i, f"offset {address.offset} is there twice", "delete one")
        pages[address.offset] = found
        left -= len(found)
    return Paging(page, message.linear, message.count, message.end, pages)


def _ranges(pages: Sequence[int]) -> Iterator[str]:
    """Yield runs of consecutive page numbers as "first-last", single ones as "page"."""
    first = last = pages[0]
    for page in (*pages[1:], -1):
        if page == last + 1:
            last = page
            continue
        yield f"{first}-{last}" if last > first else f"{first}"
        first = last = page


def _numbers(text: str, count: int, most: int) -> tuple[int, ...] | None:
    """Return the numbers that `_ranges` wrote; None: malformed, empty, more than `most`, or not below `count`."""
    found: list[int] = []
    for part in text.split():
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < count or len(found) + last - first + 1 > most:
            return None
        found += range(first, last + 1)
    return tuple(found) or None
