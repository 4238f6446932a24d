"""Window files and the warping of windows, against plain loops over the rules."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from pycaffe_lms.data.feed.windows import Crop, WindowBatches, WindowList, placement
from pycaffe_lms.data.transform.transformer import batch_rng
from pycaffe_lms.errors import DataError

cv2 = pytest.importorskip("cv2")

SIZES = ((30, 40), (17, 23), (50, 21))


def write_windows(folder, windows=None):
    """Three random pictures and a window file; `windows`: {picture: [(class, overlap, x1, y1, x2, y2)]}."""
    rng, text = np.random.default_rng(0), ""
    for k, (height, width) in enumerate(SIZES):
        assert cv2.imwrite(f"{folder}/{k}.png", rng.integers(0, 256, (height, width, 3), np.uint8))
        if windows is None:
            lines = [
                (1 + i % 4, (i % 10) / 10, x, y, rng.integers(x, width), rng.integers(y, height))
                for i, (x, y) in enumerate(zip(rng.integers(0, width, 20), rng.integers(0, height, 20), strict=True))
            ]
        else:
            lines = windows.get(k, [])
        text += f"# {k}\n{k}.png\n3\n{height}\n{width}\n{len(lines)}\n"
        text += "".join(" ".join(map(str, line)) + "\n" for line in lines)
    (folder / "windows.txt").write_text(text)
    return WindowList(f"{folder}/windows.txt", 0.5, 0.3, f"{folder}/")


def test_the_split_by_overlap(tmp_path):
    found = write_windows(
        tmp_path,
        {
            0: [(3, 0.5, 1, 2, 3, 4), (2, 0.49, 0, 0, 5, 5), (7, 0.3, 0, 0, 1, 1)],
            2: [(0, 0.29, 5, 6, 7, 8), (9, 0, 1, 1, 2, 2), (4, 1, 0, 0, 20, 49)],
        },
    )
    assert found.foreground.tolist() == [[3, 1, 2, 3, 4, 0], [4, 0, 0, 20, 49, 2]]
    assert found.background.tolist() == [[0, 5, 6, 7, 8, 2], [0, 1, 1, 2, 2, 2]]
    assert found.paths == [f"{tmp_path}/{k}.png" for k in range(3)]
    assert found.sizes == [(3, *size) for size in SIZES]
    # Caffe's reader knows no lines
    text = " ".join((tmp_path / "windows.txt").read_text().split())
    (tmp_path / "windows.txt").write_text(text)
    again = WindowList(tmp_path / "windows.txt", 0.5, 0.3)
    assert (again.foreground == found.foreground).all() and (again.background == found.background).all()


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("", None, "is empty"),
        ("x", 1, "must begin with #"),
        ("# 0 a.png 3 5", 1, "ends inside a block"),
        ("# 0 a.png 3 5 high 0", 1, "a number, a path and four numbers"),
        ("# 0 a.png 1 5 5 0", 1, "1 channels"),
        ("# 0 a.png 3 5 5 -1", 1, "-1 windows"),
        ("# 0 a.png 3 5 5 99999999999999999999", 1, "99999999999999999999 windows"),
        ("# 0\na.png\n3\n5\n5\n2\n1 1 0 0 1 1\n", 7, "not 2 windows of six"),
        ("# 0 a.png 3 5 5 1\n1 1 0 0 1 one", 2, "not 1 windows of six"),
        ("# 0 a.png 3 5 5 1\n1 1 0 0 1 1.5", 2, "not 1 windows of six"),
        ("# 0 a.png 3 5 5 1\n1 nan 0 0 1 1", 2, "not 1 windows of six"),
        ("# 0 a.png 3 5 5 1\n1 1 0 0 1 1e99", 2, "not 1 windows of six"),
        ("# 0 a.png 3 5 5 1\n0 1 0 0 1 1", 2, "class below 1"),
        ("# 0 a.png 3 5 5 1\n1 1 0 0 1 1 1", 2, "must begin with #"),
    ],
)
def test_broken_files(text, line, words, tmp_path):
    (tmp_path / "w").write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        WindowList(tmp_path / "w", 0.5, 0.5)
    assert caught.value.where.file == f"{tmp_path}/w" and caught.value.where.line == line and caught.value.fix
    with pytest.raises(DataError, match="cannot read the window file"):
        WindowList(tmp_path / "none", 0.5, 0.5)


# -- where a window goes --------------------------------------------------------------------------------------------
def c_round(x):
    return math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)


def by_loops(picture, window, crop, flip):
    """Warp one window pixel by pixel, from a picture that is surrounded by black."""
    x1, y1, x2, y2 = window
    out = np.zeros((3, crop.size, crop.size), np.float32)
    pad_x1 = pad_y1 = left = 0
    height = width = crop.size
    if crop.context or crop.square:
        scale = crop.size / (crop.size - 2 * crop.context)
        half_h, half_w = (y2 - y1 + 1) / 2, (x2 - x1 + 1) / 2
        mid_x, mid_y = x1 + half_w, y1 + half_h
        if crop.square:
            half_w = half_h = max(half_w, half_h)
        x1, x2 = c_round(mid_x - half_w * scale), c_round(mid_x + half_w * scale)
        y1, y2 = c_round(mid_y - half_h * scale), c_round(mid_y + half_h * scale)
        scale_x, scale_y = crop.size / (x2 - x1 + 1), crop.size / (y2 - y1 + 1)
        pad_x1, pad_y1 = max(0, -x1), max(0, -y1)
        pad_x2, pad_y2 = max(0, x2 - picture.shape[1] + 1), max(0, y2 - picture.shape[0] + 1)
        x1, y1, x2, y2 = x1 + pad_x1, y1 + pad_y1, x2 - pad_x2, y2 - pad_y2
        width, height = c_round((x2 - x1 + 1) * scale_x), c_round((y2 - y1 + 1) * scale_y)
        pad_x1, pad_x2, pad_y1 = c_round(pad_x1 * scale_x), c_round(pad_x2 * scale_x), c_round(pad_y1 * scale_y)
        left = pad_x2 if flip else pad_x1
        height, width = min(height, crop.size - pad_y1), min(width, crop.size - left)
    warped = cv2.resize(picture[y1 : y2 + 1, x1 : x2 + 1], (width, height), interpolation=cv2.INTER_LINEAR)
    mean = np.broadcast_to(np.asarray(crop.mean, np.float32), out.shape)
    for c in range(3):
        for y in range(height):
            for x in range(width):
                value = np.float32(warped[y, width - 1 - x if flip else x, c])
                at = (c, y + pad_y1, x + left)
                out[at] = (value - mean[at]) * np.float32(crop.scale)
    return out


MEAN = np.random.default_rng(1).normal(100, 30, (3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize("mean", [0.0, MEAN[:, :1, :1], MEAN], ids=["no", "values", "file"])
@pytest.mark.parametrize("square", [False, True], ids=["warp", "square"])
@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("mirror", [False, True])
def test_batches_against_plain_loops(tmp_path, context, square, mirror, mean):
    windows = write_windows(tmp_path)
    crop = Crop(12, context, square, mirror, mean, 0.5)
    subject = WindowBatches(windows, 24, 9, crop, seed=3, cache=square)
    warped = functools.cache(lambda picture, box, flip: by_loops(cv2.imread(windows.paths[picture]), box, crop, flip))
    flips = set()
    for batch in (0, 5):
        data, labels = subject.produce(batch)
        assert data.shape == subject.shape == (24, 3, 12, 12) and data.dtype == labels.dtype == np.float32
        for item in range(24):
            pool = windows.background if item < 15 else windows.foreground
            assert (labels[item] == 0) == (item < 15)
            choices = []
            for label, *box, picture in pool.tolist():
                if label == labels[item]:
                    choices += [(warped(picture, tuple(box), flip), flip) for flip in {False, mirror}]
            fits = {flip for expected, flip in choices if np.array_equal(expected, data[item])}
            assert fits
            flips |= fits
    assert flips == ({False, True} if mirror else {False})


def test_draws_repeat_by_seed_rank_and_batch_alone(tmp_path):
    windows = write_windows(tmp_path)
    first = WindowBatches(windows, 6, 2, Crop(5, mirror=True), seed=1)
    seen = [first.produce(b) for b in range(4)]
    again = WindowBatches(windows, 6, 2, Crop(5, mirror=True), seed=1)
    for b in (3, 0, 2):
        for found, expected in zip(again.produce(b), seen[b], strict=True):
            np.testing.assert_array_equal(found, expected)
    for other in ({"seed": 2}, {"seed": 1, "rank": 1}):
        assert (WindowBatches(windows, 6, 2, Crop(5, mirror=True), **other).produce(0)[0] != seen[0][0]).any()


def test_windows_are_drawn_evenly(tmp_path):
    windows = write_windows(tmp_path, {0: [(k + 1, 0.9, k, 0, k, 0) for k in range(10)], 1: [(0, 0.0, 0, 0, 1, 1)]})
    subject = WindowBatches(windows, 1000, 1000, Crop(1), cache=True)
    counts = np.bincount(np.concatenate([subject.produce(b)[1] for b in range(5)]).astype(int), minlength=11)[1:]
    assert abs(counts - 500).max() < 5 * 450**0.5
    draws = batch_rng(0, 0, 0).integers(0, 2**32, size=(1000, 2), dtype=np.uint32)
    assert subject.produce(0)[1].tolist() == (draws[:, 0] % 10 + 1).tolist()


def test_context_all_outside_and_halves():
    crop = Crop(10, 1)
    at = placement(np.array([1, 0, 0, 7, 7, 0]), (8, 8), crop, False)
    assert (at.x1, at.y1, at.x2, at.y2, at.top, at.left, at.height, at.width) == (0, 0, 7, 7, 1, 1, 7, 7)
    assert placement(np.array([1, 50, 50, 60, 60, 0]), (8, 8), crop, False) is None
    # 21 of 28 columns, and 7 before them: 18 * 21 / 28 and 18 * 7 / 28 round up to 14 and 5, one too many
    at = placement(np.array([1, 5, 4, 7, 23, 0]), (31, 29), Crop(18, 8), False)
    assert (at.x1, at.x2, at.left, at.width) == (0, 20, 5, 13)
    assert placement(np.array([1, 5, 5, 3, 3, 0]), (8, 8), Crop(10), False) is None


def test_what_cannot_be_drawn(tmp_path):
    windows = write_windows(tmp_path, {0: [(1, 1, 0, 0, 3, 3)], 1: [(1, 0, 0, 0, 22, 17)]})
    with pytest.raises(DataError, match=r"1\.png, window 0 0 22 17: the window leaves the picture.* 17 x 23"):
        WindowBatches(windows, 2, 1, Crop(5)).produce(0)
    (tmp_path / "0.png").unlink()
    with pytest.raises(DataError, match=r"windows\.txt: .*0\.png: cannot read the picture"):
        WindowBatches(windows, 2, 2, Crop(5)).produce(0)
    with pytest.raises(DataError, match="cannot read the picture"):
        WindowBatches(windows, 2, 2, Crop(5), cache=True)
    (tmp_path / "0.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"0\.png, window 0 0 3 3.*not a picture"):
        WindowBatches(windows, 2, 2, Crop(5)).produce(0)
    for name, part in (("foreground", {1: [(1, 0, 0, 0, 1, 1)]}), ("background", {1: [(1, 1, 0, 0, 1, 1)]})):
        with pytest.raises(DataError, match=f"windows in a batch are {name}, but the file has none"):
            WindowBatches(write_windows(tmp_path, part), 4, 1, Crop(5))
