"""Compile CPU kernels: by Numba at their first call for a data type, then kept on disk where a folder can be written.

Numba itself is imported at the first call of a kernel: that takes longer than half of the other imports together.

- `kernel` keeps IEEE arithmetic.
- `products` keeps the order of sums, but may round a product and the sum it goes into once, where the CPU can.
- `sums` also adds a sum's terms in another order (several at a time), which is fixed when the kernel is compiled. Use
  it only for functions that only read arrays: a loop that also writes may run in another form where arrays overlap.

Rules for kernels:

- Helpers live in the file of the kernels that call them, since the disk cache looks at one file.
- A loop whose result may be its input (in place) writes a block into a small array of its own and copies that: where
  arrays of a loop overlap, its vector form is not taken.
- Index one row at a time, `row = a[i]`, then `row[j]`: only such loops become vector instructions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cache, cached_property, partial, update_wrapper
from typing import Any

BLOCK = 2048  # elements that such loops work on at a time
_lock = threading.RLock()
_log = logging.getLogger(__name__)


class Kernel:
    """Compile a function at its first call, and call what was made of it.

    function: of a module; helpers that it calls are kernels of the same module.
    options: of `numba.njit`.
    """

    def __init__(self, function: Callable[..., Any], **options: Any):
        update_wrapper(self, function)
        self._function, self._options = function, options

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function."""
        return self.dispatcher(*args)

    @cached_property
    def dispatcher(self) -> Callable[..., Any]:
        """Return Numba's dispatcher of the function; its module's names mean those of their kernels from now on."""
        from numba import njit

        with _lock:
            names = self._function.__globals__
            for name, value in list(names.items()):
                if isinstance(value, Kernel) and value._function.__globals__ is names:
                    names[name] = value.__dict__.setdefault("dispatcher", value._made(njit))
            return self.__dict__.setdefault("dispatcher", self._made(njit))

    def _made(self, njit: Any) -> Any:
        make = partial(njit, nogil=True, error_model="numpy", **self._options)
        try:
            return make(cache=True)(self._function)
        except RuntimeError as error:  # as Numba says that it may write nowhere
            if "no locator available" not in str(error):
                raise
        _say_that_nothing_is_kept()
        return make()(self._function)


@cache
def _say_that_nothing_is_kept() -> None:
    """Warn, once."""
    _log.warning(
        "compiled CPU kernels cannot be kept: neither the package's folder nor the user's cache may be written; every "
        "run compiles them again. fix: set NUMBA_CACHE_DIR to a folder that may"
    )


kernel = partial(Kernel)
products = partial(Kernel, fastmath={"contract"})
sums = partial(Kernel, fastmath={"reassoc", "nsz", "contract"})
