"""`pycaffe-lms weights diff OLD NEW`: what differs between two files of weights."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np

from ...arrays import HostArray
from ...errors import CaffeError
from ...formats.weights.blobproto import LayerWeights, StoredBlob
from ...formats.weights.caffemodel import read_weights
from .. import flags

_ABOUT = """Compare two files of weights, binary or HDF5, layer by layer: layers that one file lacks, shapes, the
largest absolute difference of a blob's values and where it is.

Layers are matched by name; those without weights are left out. Values that are NaN in both files are equal.
Exit code: 0 no difference, 1 differences, 2 a file cannot be read or the words are wrong."""
_HEAD = ("layer", "blob", "shape", "largest difference [where]: OLD, NEW")


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("weights diff", _ABOUT)
    p.add_argument("old", metavar="OLD", help=".caffemodel (.h5) file")
    p.add_argument("new", metavar="NEW", help=".caffemodel (.h5) file, compared with it")
    return p


def run(args: argparse.Namespace) -> int:
    """Print a row per blob; return 1 if something differs."""
    try:
        old, new = (_by_name(read_weights(path)) for path in (args.old, args.new))
    except CaffeError as error:
        error.exit_code = 2  # 1 says that the files differ, as in other programs that compare
        raise
    rows = [(name, *row) for name in old | new for row in _rows(old.get(name), new.get(name))]
    widths = [max(map(len, column)) for column in zip(_HEAD, *(row[:4] for row in rows), strict=True)]
    for row in (_HEAD, *(row[:4] for row in rows)):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    differing = {row[0] for row in rows if row[4]}
    print(f"layers with weights: {len(old | new)}, of which {len(differing)} differ")
    return 1 if differing else 0


def _by_name(layers: Sequence[LayerWeights]) -> dict[str, tuple[StoredBlob | None, ...]]:
    """Return the blobs of each layer that has some; of a name that repeats those of the first, which Caffe loads."""
    found: dict[str, tuple[StoredBlob | None, ...]] = {}
    for layer in layers:
        if layer.blobs:
            found.setdefault(layer.name, layer.blobs)
    return found


def _rows(
    old: tuple[StoredBlob | None, ...] | None, new: tuple[StoredBlob | None, ...] | None
) -> Iterator[tuple[str, str, str, bool]]:
    """Yield (blob, shape, difference, whether they differ) of each blob of a layer."""
    if old is None or new is None:
        yield "all", "", "only in OLD" if new is None else "only in NEW", True
        return
    for k, (a, b) in enumerate(zip_longest(old, new)):
        if a is None or b is None:
            there = a or b
            if there is not None:
                yield str(k), _shape(there), "only in OLD" if b is None else "only in NEW", True
        elif not (a.shape == b.shape or a.fits(b.shape) or b.fits(a.shape)):
            yield str(k), f"{_shape(a)} and {_shape(b)}", "shapes differ", True
        else:
            yield str(k), _shape(b), *_difference(a.data.ravel(), b.data.reshape(-1), b.shape)


def _shape(blob: StoredBlob) -> str:
    return " x ".join(map(str, blob.shape)) or "scalar"


def _difference(a: HostArray, b: HostArray, shape: tuple[int, ...]) -> tuple[str, bool]:
    """Return the largest absolute difference and its index as text, and whether there is one."""
    differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not differ.any():
        return "0", False
    with np.errstate(invalid="ignore"):
        sizes = np.where(differ, np.abs(a.astype(np.float64) - b.astype(np.float64)), 0.0)
    at = int(np.nanargmax(np.where(np.isnan(sizes), np.inf, sizes)))
    index = ", ".join(str(int(i)) for i in np.unravel_index(at, shape)) if shape else ""
    return f"{sizes[at]:.6g} at [{index}]: {a[at]:.6g}, {b[at]:.6g}", True
