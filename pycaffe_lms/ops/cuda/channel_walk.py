"""Kernels that visit every element of arrays seen as (n, c, s) channel by channel, generated from what is done to one
element, and that may add up sums per channel on the way: one pass over memory for both.

Arrays are named as in `elementwise.py`; those of a value per channel lie in registers. The text that is done to one
element sees all of them by name, and adds to `sum0` and `sum1`. The sums of the parts are left in `work`, (sums, c,
parts); `add_up` finishes them. The order of a sum depends on sizes alone. (`norm_walk.py` says how an array is walked.)
"""

from __future__ import annotations

from .channels import stage_two
from .elementwise import of_values
from .norm_walk import WALK, Walk

_SUMS = """
  __shared__ A shared[SUMS][256][K];
  const int me = threadIdx.x;
  for (int half = 128; half >= across; half >>= 1) {  // a fixed tree over the threads of the same channels
    if (me >= half && me < 2 * half) CHANNELS(k) for (int j = 0; j < SUMS; ++j) shared[j][me][k] = sum[j][k];
    __syncthreads();
    if (me < half) CHANNELS(k) for (int j = 0; j < SUMS; ++j) sum[j][k] += shared[j][me + half][k];
  }
  if (me >= across || w.channel >= c) return;
  CHANNELS(k) for (int j = 0; j < SUMS; ++j) work[(j * c + w.channel + k) * parts + w.part] = sum[j][k];
"""


def walking(
    name: str, body: str, *, reads: str, writes: str = "", channel: str = "", sums: int = 0, back: bool = False
) -> str:
    """The source of kernel `name`, which does `body` to every element; see `run_walk`. `back`: from the last element
    to the first, for a pass that follows another over the same arrays."""
    read, written, each = (_names(text) for text in (reads, writes, channel))
    body = of_values(body)
    constants = "".join(f", const C (&{a}_c)[K]" for a in each)
    pointers = "".join(f", const T* {a}_p" for a in read) + "".join(f", T* {a}_p" for a in written)
    passed = "".join(f", {a}_c" for a in each) + "".join(f", {a}_p" for a in (*read, *written))
    values = [f"const C {a} = {a}_q[u].v[v];" for a in read] + [f"const C {a} = {a}_c[v % K];" for a in each]
    values += [f"C {a};" for a in written] + [f"A& sum{j} = sum[{j}][v % K];" for j in range(sums)]
    results = " ".join(f"{a}_q[u].v[v] = {a};" for a in written)
    load_each = "".join(
        f"C {a}_c[K];\n  CHANNELS(k) {a}_c[k] = w.channel < c ? {a}_all[w.channel + k] : (C)0;\n  " for a in each
    )
    return f"""
#define BYTES 32
#define SUMS {sums}
{WALK}
template <bool full> __device__ void visit(Walk& w, A (&sum)[SUMS ? SUMS : 1][K]{constants}{pointers}) {{
  PLACES(w, count)
  {" ".join(f"Pack {a}_q[DEPTH];" for a in (*read, *written))}
  {" ".join(f"EACH(u) {a}_q[u] = load({a}_p, at[u]);" for a in read)}
  EACH(u) {{
    LANES(v) {{
      {" ".join(values)}
      {body}
      {results}
    }}
    {" ".join(f"store({a}_p, at[u], {a}_q[u]);" for a in written)}
  }}
}}
WALKER {name}({pointers[2:]}{"".join(f", const C* {a}_all" for a in each)}{", C* work" if sums else ""}, SIZES) {{
  Walk w({"true" if back else "false"}, n, c, s, parts, share, across);
  {load_each}A sum[SUMS ? SUMS : 1][K];
  CHANNELS(k) for (int j = 0; j < SUMS; ++j) sum[j][k] = 0;
  while (w.left >= DEPTH) visit<true>(w, sum{passed});
  if (w.left > 0) visit<false>(w, sum{passed});
{_SUMS if sums else ""}}}
"""


def run_walk(source: str, name: str, arrays, channel, n: int, c: int, s: int, work=None) -> int:
    """Queue a kernel of `walking`: its arrays, those of a value per channel and `work`, where it adds up. Returns the
    number of parts of a channel."""
    if n * c * s == 0:
        return 0
    walk = Walk(n, c, s, arrays[0].dtype.itemsize)
    walk.run(source, name, arrays, *channel, *(() if work is None else (work,)))
    return walk.parts


def add_up(work, which: int, out, accumulate: bool, c: int, parts: int, scale: float = 1.0, at: int = 0) -> None:
    """out[at + channel] (+)= scale * the sum number `which` that `run_walk` left in `work`; of no parts 0."""
    stage_two(work, which * c * parts, out, at, scale, accumulate, c, parts)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
