"""Generate kernels over whole arrays, which move 16 bytes at a time, from what is done to one element.

A block takes 2048 neighbouring elements, a thread two groups of four of them (a `Quad`): it loads all it needs before
it computes. Where an array does not start at a multiple of 16 bytes, and in the last block of an odd size, the same
quads are loaded and stored element by element: the arithmetic, hence every bit of the results, is one piece of code.

Arrays are named in comma-separated lists, "int mask" for one that is not of type T. The text for one element sees the
value of each array by its name, its index `i`, which grows, its place in the quad `lane`, and what `setup` (once per
thread, whose first element is `base`) and `each` (once per quad, whose first element is `first`) define; `after` runs
once per quad at its end, past the array's end too. Values of type T are float in arrays of bfloat16: T in such a text
means C.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from ...arrays import AnyArray
from ...backend.cuda import launch
from .packs import aligned

THREADS = 256
SPAN = 2048  # elements per block

QUADS = """
template <typename E> struct alignas(sizeof(E) < 4 ? 4 * sizeof(E) : 16) Quad { E v[4]; };
// elements first .. first + 3; past the end the last element again
template <typename E> __device__ Quad<E> quad_at(const E* p, long long first, bool whole, long long n) {
  if (whole) return *(const Quad<E>*)(p + first);
  Quad<E> q;
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) q.v[lane] = p[first + lane < n ? first + lane : n - 1];
  return q;
}
template <typename E> __device__ void put_quad(E* p, long long first, bool whole, long long n, const Quad<E>& q) {
  if (whole) {
    *(Quad<E>*)(p + first) = q;
    return;
  }
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane)
    if (first + lane < n) p[first + lane] = q.v[lane];
}
"""


def elementwise(
    name: str,
    body: str,
    *,
    reads: str = "",
    updates: str = "",
    writes: str = "",
    params: str = "",
    setup: str = "",
    each: str = "",
    after: str = "",
    helpers: str = "",
) -> str:
    """Return the source of kernel `name`, which does `body` to every element; see `run`.

    `updates` are read and written. Parameters: the arrays of reads, updates and writes, then `params`.
    """
    read, updated, written = _arrays(reads), _arrays(updates), _arrays(writes)
    values = [f"const {_value(t)} {a} = {a}_q[u].v[lane]; (void){a};" for t, a in read]
    values += [f"{_value(t)} {a} = {a}_q[u].v[lane];" for t, a in updated]
    values += [f"{_value(t)} {a};" if t == "T" else f"{t}& {a} = {a}_q[u].v[lane];" for t, a in written]
    results = " ".join(f"{a}_q[u].v[lane] = {a};" for t, a in (*updated, *written) if t == "T" or (t, a) in updated)
    body, params, setup, each, after, helpers = map(of_values, (body, params, setup, each, after, helpers))
    stores = [f"put_quad({a}_p, first, whole, n, {a}_q[u]);" for _, a in (*updated, *written)]
    quads = [f"Quad<{t}> {a}_q[2];" for t, a in (*read, *updated, *written)]
    return f"""{QUADS}{helpers}
extern "C" __global__ void __launch_bounds__({THREADS}) {name}({_signature(read, (*updated, *written), params)}
                                                               long long aligned, long long n) {{
  const long long base = (long long)blockIdx.x * {SPAN} + 4 * threadIdx.x;
  const bool whole = aligned && ((long long)blockIdx.x + 1) * {SPAN} <= n;
  {setup}
  {" ".join(quads)}
  {_loads((*read, *updated))}
  #pragma unroll
  for (int u = 0; u < 2; ++u) {{
    const long long first = base + {SPAN // 2} * u;
    {each}
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {{
      const long long i = whole || first + lane < n ? first + lane : n - 1;
      (void)i;
      {" ".join(values)}
      {body}
      {results}
    }}
    {" ".join(stores)}
    {after}
  }}
}}
"""


def totals(
    name: str,
    body: str,
    end: str,
    *,
    reads: str,
    params: str = "",
    setup: str = "",
    helpers: str = "",
    kind: str = "double",
) -> str:
    """Return the source of kernel `name`, whose `body` adds to `sum` and `count` (of type `kind`) for every element.

    They are sums of a thread; `end` says what becomes of them. Any number of blocks may run: each takes every so
    many-th span.
    """
    read = _arrays(reads)
    values = " ".join(f"const {_value(t)} {a} = {a}_q[u].v[lane]; (void){a};" for t, a in read)
    body, end, params, setup, helpers = map(of_values, (body, end, params, setup, helpers))
    return f"""{QUADS}{helpers}
extern "C" __global__ void __launch_bounds__({THREADS}) {name}({_signature(read, (), params)}
                                                               long long aligned, long long n) {{
  {kind} sum = 0{", count = 0" if "count" in body + end else ""};
  {setup}
  for (long long start = (long long)blockIdx.x * {SPAN}; start < n; start += (long long)gridDim.x * {SPAN}) {{
    const long long base = start + 4 * threadIdx.x;
    const bool whole = aligned && start + {SPAN} <= n;
    {" ".join(f"Quad<{t}> {a}_q[2];" for t, a in read)}
    {_loads(read)}
    #pragma unroll
    for (int u = 0; u < 2; ++u) {{
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {{
        const long long i = base + {SPAN // 2} * u + lane;
        if (whole || i < n) {{
          {values}
          {body}
        }}
      }}
    }}
  }}
  {end}
}}
"""


def run(source: str, name: str, arrays: Sequence[AnyArray], *scalars: Any, dtype: DTypeLike | None = None) -> None:
    """Queue a kernel of `elementwise`; all arrays are of the size of the last.

    Args:
        scalars: the kernel's other parameters.
        dtype: T; by default the type of the first array.
    """
    n = arrays[-1].size
    if n:
        grid = (n + SPAN - 1) // SPAN
        whole = aligned(*arrays)
        launch(source, name, dtype or arrays[0].dtype, 0, *arrays, *scalars, whole, n, block=THREADS, grid=grid)


def _value(kind: str) -> str:
    """Return the type of one value of an array."""
    return "C" if kind == "T" else kind


def of_values(text: str) -> str:
    """Return text that works on values: with C in place of T."""
    return re.sub(r"\bT\b", "C", text)


def _arrays(names: str) -> list[tuple[str, str]]:
    """Return [(type, name)] of a list such as "x, int mask"."""
    return [tuple(("T " + name).split()[-2:]) for name in names.split(",") if name.strip()]


def _signature(read: Sequence[tuple[str, str]], written: Sequence[tuple[str, str]], params: str) -> str:
    parts = [f"const {t}* {a}_p" for t, a in read] + [f"{t}* {a}_p" for t, a in written]
    return "".join(part + ", " for part in (*parts, *([params] if params else [])))


def _loads(arrays: Sequence[tuple[str, str]]) -> str:
    loads = " ".join(f"{a}_q[u] = quad_at({a}_p, base + {SPAN // 2} * u, whole, n);" for _, a in arrays)
    return f"#pragma unroll\n  for (int u = 0; u < 2; ++u) {{ {loads} }}" if arrays else ""
