"""Run the kernels of `elementwise.py` over arrays seen as (outer, channels, inner) with values per channel.

Four elements of a quad lie in neighbouring channels (inner 1), or in one: one division for the quad. Where neither size
is a multiple of four, every element finds its own channel.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...arrays import AnyArray
from ..records import Grid
from .elementwise import elementwise, run
from .packs import aligned
from .source import DIVIDE, divider

_SIZES = "long long dim, long long d_magic, long long d_shift, "
_INNER = "long long inner, long long i_magic, long long i_shift, "
_AT = """
  const long long row = quotient(@, inner, i_magic, i_shift), c = row - quotient(row, dim, d_magic, d_shift) * dim;
"""


def per_channel(name: str, body: str, *, channel: str, reads: str, writes: str) -> dict[str, str]:
    """Return the sources of kernel `name`, which does `body` to every element, one for each kind of sizes.

    The arrays named in `channel` hold a value of each channel, which the body sees by that name.
    """
    names = [n.strip() for n in channel.split(",")]
    pointers = "".join(f"const T* {n}_p, " for n in names)
    quads = "".join(f"const Quad<T> {n}_q = quad_at({n}_p, c, of_channels, dim);\n" for n in names)
    lanes = "".join(f"const T {n} = {n}_q.v[lane];\n" for n in names)
    values = "".join(f"const T {n} = {n}_p[c];\n" for n in names)
    same = {"reads": reads, "writes": writes, "helpers": DIVIDE}
    return {
        "columns": elementwise(
            name,
            lanes + body,
            params=pointers + _SIZES + "long long of_channels",
            each=f"const long long c = first < n ? first - quotient(first, dim, d_magic, d_shift) * dim : 0;\n{quads}",
            **same,
        ),
        "planes": elementwise(
            name,
            body,
            params=pointers + _INNER + _SIZES.rstrip(", "),
            each=_AT.replace("@", "first < n ? first : 0") + values,
            **same,
        ),
        "any": elementwise(
            name, _AT.replace("@", "i") + values + body, params=pointers + _INNER + _SIZES.rstrip(", "), **same
        ),
    }


def run_per_channel(
    sources: dict[str, str], name: str, arrays: Sequence[AnyArray], channel: Sequence[AnyArray], grid: Grid
) -> None:
    """Queue a kernel of `per_channel` with its arrays and those of a value per channel."""
    n, (_, dim, inner) = arrays[-1].size, grid
    if inner == 1 and dim % 4 == 0:
        run(sources["columns"], name, arrays, *channel, *divider(dim, n), aligned(*channel))
    else:
        kind = "planes" if inner % 4 == 0 else "any"
        run(sources[kind], name, arrays, *channel, *divider(inner, n), *divider(dim, n))
