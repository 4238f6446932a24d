"""Compile CPU kernels: by Numba at their first call for a data type, then kept on disk.

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

from numba import njit

BLOCK = 2048  # elements that such loops work on at a time

kernel = njit(nogil=True, cache=True, error_model="numpy")
products = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
sums = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
