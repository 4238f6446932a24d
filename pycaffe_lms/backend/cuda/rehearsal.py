"""Note which kernels a program launches, without running any of it, so that all can be compiled at once.

Within `rehearsing` the calling thread may run operations on arrays without memory: launches are noted, and products and
cuDNN's graphs left out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

Kernel = tuple[str, str, str]  # source, name of the function, type
_noted: dict[int, dict[Kernel, None]] = {}  # by thread


@contextmanager
def rehearsing() -> Iterator[dict[Kernel, None]]:
    """Within: the kernels that this thread launches, in order, are noted as keys of the dict."""
    thread = threading.get_ident()
    noted = _noted[thread] = {}
    try:
        yield noted
    finally:
        del _noted[thread]


def is_rehearsal() -> bool:
    """Return whether this thread is within `rehearsing`."""
    return bool(_noted) and threading.get_ident() in _noted


def note(source: str, name: str, dtype: str) -> None:
    """Note a kernel."""
    _noted[threading.get_ident()][source, name, dtype] = None
