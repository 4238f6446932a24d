"""Copy many buffers in one launch, by a table on the device (see `copy_table.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...arrays import AnyArray, HostArray
from ...backend.cuda import launch
from ..copy_table import CHUNK, ROW, make_table, table_words

__all__ = ["copy_all", "copy_all_plan"]

THREADS = 256
SOURCE = f"""
extern "C" __global__ void __launch_bounds__({THREADS}) copy_all(const long long* table, long long rows) {{
  const long long place = table[rows * {ROW} + blockIdx.x];
  const long long* row = table + (place >> 32) * {ROW};
  const char* from = (const char*)row[0];
  char* to = (char*)row[1];
  const long long size = row[2], start = (place & 0xffffffffLL) * {CHUNK};
  const long long end = start + {CHUNK} < size ? start + {CHUNK} : size;
  const bool aligned = ((row[0] | row[1]) & 15) == 0;
  const long long whole = aligned ? end / 16 : start / 16;  // up to there in pieces of 16 bytes
  for (long long i = start / 16 + threadIdx.x; i < whole; i += {THREADS}) ((int4*)to)[i] = ((const int4*)from)[i];
  for (long long i = whole * 16 + threadIdx.x; i < end; i += {THREADS}) to[i] = from[i];
}}
"""


@dataclass(frozen=True)
class CudaCopyPlan:
    """Hold the table (int64) that the kernel reads, and its sizes."""

    table: HostArray
    rows: int
    blocks: int


def copy_all_plan(sources: Sequence[AnyArray], targets: Sequence[AnyArray]) -> CudaCopyPlan:
    """Plan copies of each source to its target: arrays of bytes of the device, pairwise of one size."""
    sizes = [a.size for a in sources]
    addresses = ([a.data.ptr for a in arrays] for arrays in (sources, targets))
    return CudaCopyPlan(make_table(*addresses, sizes), len(sizes), table_words(sizes) - ROW * len(sizes))


def copy_all(plan: CudaCopyPlan, table: AnyArray) -> None:
    """Copy all that the plan lists. `table` is the plan's, as an array of the device."""
    launch(SOURCE, "copy_all", "float32", 0, table, plan.rows, block=THREADS, grid=plan.blocks)
