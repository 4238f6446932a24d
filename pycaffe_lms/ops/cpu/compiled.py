"""How CPU kernels are compiled: by Numba at their first call for a data type, then kept on disk.

`kernel` keeps IEEE arithmetic. `products` keeps the order, and rounds a product and the sum it goes into once where the
CPU can. `sums` also lets a sum's terms be added in another order (several at a time), which is fixed when the kernel is
compiled: use it for functions that only read arrays, for a loop that also writes may run in another form where arrays
overlap. Helpers live in the file of the kernels that call them (the disk cache looks at one file). Loops whose result
may be their input (in place) write a block into a small array of their own and copy it: where a loop's arrays overlap
the compiler's vector form is not taken. Index one row at a time, `row = a[i]`, then `row[j]`: only such loops become
vector instructions.
"""

from __future__ import annotations

from numba import njit

BLOCK = 2048  # elements that such loops work on at a time

kernel = njit(nogil=True, cache=True, error_model="numpy")
products = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
sums = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
