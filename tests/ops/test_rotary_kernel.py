"""The kernel of rotary positions, run on the host: its values are the CPU's, however heads and rows are shared out."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops.cpu.half import to_half
from pycaffe_lms.ops.cpu.widened import widened_copy
from pycaffe_lms.ops.cuda.shape import rotary
from pycaffe_lms.ops.records import Rotation

from .emulated import COMPILER, Kernels
from .test_cuda_launches import shown

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

# items, positions, heads, values of a head, those that are turned: (rows per block, blocks over pairs, wide accesses)
SHAPES = {
    "heads of 128": (2, 9, 3, 128, 128),  # the last block has one position
    "an odd width": (3, 5, 5, 15, 10),
    "few pairs": (2, 300, 1, 4, 4),
    "a pair": (5, 1, 7, 2, 2),
    "values that stay": (2, 6, 3, 24, 16),
    "pairs in two blocks": (2, 3, 2, 600, 592),
}


def _run(tmp_path, monkeypatch, dtype, shape, *, interleaved=False, given=False, back=False, in_place=False):
    """Return (the kernel's y, y by the definition in double) as float64, and the launches' sources."""
    n, positions, heads, dim, turned = shape
    rng, sources = np.random.default_rng(5), []
    x = rng.normal(size=(n, positions, heads, dim))
    if dtype == np.uint16:
        values, x = x, np.empty(x.shape, np.uint16)
        to_half(values, x, "bf16", 0)
    x = x.astype(dtype)
    wide = widened_copy(x).astype(np.float64) if dtype == np.uint16 else x.astype(np.float64)
    places = rng.integers(0, 4000, (n, positions)) if given else np.arange(positions)[None].repeat(n, 0)
    at = places.astype(np.float64 if dtype == np.float64 else np.float32) if given else None

    def launch(source, name, kind, threads, *args, block, grid):
        sources.append(source)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))  # a library of a path is loaded once
        folder.mkdir()
        Kernels(folder, kind, {name: source}).run(name, grid, block, *args)

    monkeypatch.setattr(rotary, "launch", launch)
    rotation = Rotation(n * positions, positions, heads, dim, turned, 500.0, interleaved)
    y = x if in_place else np.full_like(x, 0xFF if dtype == np.uint16 else np.nan)
    rotary.rotary_forward(shown(x), shown(y), None if at is None else shown(at), rotation, back)
    expected = wide.copy()
    for i in range(turned // 2):
        one, two = (2 * i, 2 * i + 1) if interleaved else (i, turned // 2 + i)
        angle = places[:, :, None] / 500.0 ** (2 * i / turned) * (-1 if back else 1)
        expected[..., one] = wide[..., one] * np.cos(angle) - wide[..., two] * np.sin(angle)
        expected[..., two] = wide[..., two] * np.cos(angle) + wide[..., one] * np.sin(angle)
    return (widened_copy(y) if dtype == np.uint16 else y).astype(np.float64), expected, sources


ROOM = {np.float32: 1e-6, np.float64: 1e-12, np.uint16: 2**-7}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ROOM, ids=["f32", "f64", "bf16"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_pairs_are_turned(shape, dtype, interleaved, tmp_path, monkeypatch):
    found, expected, _ = _run(tmp_path, monkeypatch, dtype, shape, interleaved=interleaved, back=interleaved)
    np.testing.assert_allclose(found, expected, rtol=ROOM[dtype], atol=4 * ROOM[dtype])


@pytest.mark.parametrize("dtype", ROOM, ids=["f32", "f64", "bf16"])
def test_rows_with_positions_of_their_own_in_place(dtype, tmp_path, monkeypatch):
    for interleaved in (False, True):
        more = {"interleaved": interleaved, "given": True, "in_place": True}
        found, expected, _ = _run(tmp_path, monkeypatch, dtype, (3, 7, 3, 24, 16), **more)
        np.testing.assert_allclose(found, expected, rtol=ROOM[dtype], atol=4 * ROOM[dtype])


@pytest.mark.parametrize("blocks", [1, 3, 1 << 20])
def test_how_many_items_a_block_takes_changes_no_bit(blocks, tmp_path, monkeypatch):
    shape = 5, 3, 3, 32, 32
    expected, *_ = _run(tmp_path, monkeypatch, np.float32, shape)
    monkeypatch.setattr(rotary, "_BLOCKS", blocks)
    np.testing.assert_array_equal(_run(tmp_path, monkeypatch, np.float32, shape)[0], expected)


def test_accesses_are_as_wide_as_sizes_allow(tmp_path, monkeypatch):
    for dtype, shape, elements in (
        (np.uint16, (1, 2, 2, 128, 128), 8),
        (np.float32, (1, 2, 2, 128, 128), 4),
        (np.uint16, (1, 2, 2, 24, 24), 4),
        (np.float32, (1, 2, 2, 15, 10), 1),
    ):
        *_, (source,) = _run(tmp_path, monkeypatch, dtype, shape)
        assert source.startswith(f"#define V {elements}\n")
