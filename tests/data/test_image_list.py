"""Lists of pictures: lines, orders, skipping, resizing, sizes that do not fit, errors that name the place."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pycaffe_lms.data.feed.image_list import ImageBatches, ImageList
from pycaffe_lms.errors import DataError, LayerParamError, MissingDependency

from .helpers import transformer

cv2 = pytest.importorskip("cv2")


def write_list(folder, sizes, name="list.txt"):
    """Picture k, of one value 10 * k in all pixels, with label k; the list's path."""
    lines = []
    for k, size in enumerate(sizes):
        path = folder / f"picture {k}.png"  # a name with a space
        assert cv2.imwrite(str(path), np.full((*size, 3), 10 * k, np.uint8))
        lines.append(f"{path} {k}\n")
    (folder / name).write_text("".join(lines))
    return folder / name


def batches(source, batch_size=2, text="", phase=0, **kwargs):
    return ImageBatches(ImageList(source), batch_size, transformer(text, phase), **kwargs)


def labels(source, count, **kwargs):
    made = batches(source, **kwargs)
    return np.concatenate([made.produce(b)[1] for b in range(count)]).astype(int).tolist()


def test_lines_are_split_at_the_last_space_and_the_root_is_put_before(tmp_path):
    (tmp_path / "l").write_bytes(b"a b.jpg 3\r\n\n  \nc.jpg 7 -2\nd +5")
    images = ImageList(tmp_path / "l", "root/x")
    assert images.paths == ["root/xa b.jpg", "root/xc.jpg 7", "root/xd"]
    assert images.labels.tolist() == [3, -2, 5] and len(images) == 3
    assert str(images.place(1)) == f"{tmp_path / 'l'}:4: root/xc.jpg 7"


@pytest.mark.parametrize(
    "line",
    ["a.jpg", "a.jpg\t3", "a.jpg cat", "a.jpg 1.5", "a.jpg 3 ", " 3", "a 99999999999", "a 1_0"]
    + [f"a {'9' * 5000}", "a 3\x1e"],
)
def test_a_line_without_a_label_is_named(tmp_path, line):
    (tmp_path / "l").write_text(f"ok.jpg 1\n{line}\n")
    with pytest.raises(DataError, match="last space") as caught:
        ImageList(tmp_path / "l")
    assert caught.value.where.file == str(tmp_path / "l") and caught.value.where.line == 2


def test_absent_and_empty_lists_are_errors(tmp_path):
    with pytest.raises(DataError, match="cannot read the list of pictures"):
        ImageList(tmp_path / "none")
    (tmp_path / "l").write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        ImageList(tmp_path / "l")


def test_pictures_come_in_order_round_and_round(tmp_path):
    source = write_list(tmp_path, [(4, 5)] * 3)
    data, label = batches(source).produce(1)
    assert data.shape == (2, 3, 4, 5) and data.dtype == label.dtype == np.float32
    assert label.tolist() == [2, 0] and (data[0] == 20).all() and (data[1] == 0).all()
    assert labels(source, 4) == [0, 1, 2, 0, 1, 2, 0, 1]


def test_shuffling_gives_every_epoch_its_own_order_of_everything(tmp_path):
    source = write_list(tmp_path, [(1, 1)] * 12)
    seen = labels(source, 18, shuffle=True, seed=5)
    epochs = [seen[i : i + 12] for i in (0, 12, 24)]
    assert all(sorted(e) == list(range(12)) for e in epochs)
    assert len({tuple(e) for e in [*epochs, range(12)]}) == 4
    assert labels(source, 18, shuffle=True, seed=5) == seen != labels(source, 18, shuffle=True, seed=6)
    assert labels(source, 18, shuffle=True, seed=5, rank=1) != seen
    late = batches(source, shuffle=True, seed=5)  # any batch first, as after a resume
    for b in (13, 2, 17):
        assert late.produce(b)[1].tolist() == seen[2 * b : 2 * b + 2]


def test_rand_skip_starts_at_a_random_picture_once(tmp_path):
    source = write_list(tmp_path, [(1, 1)] * 5)
    starts = set()
    for seed in range(30):
        seen = labels(source, 5, rand_skip=3, seed=seed)
        assert seen == [(seen[0] + i) % 5 for i in range(10)]
        starts.add(seen[0])
    assert starts == {0, 1, 2}
    skipped = labels(
        source,
        5,
        rand_skip=3,
        seed=next(s for s in range(30) if batches(source, rand_skip=3, seed=s).index(0)),
        shuffle=True,
    )
    assert len(set(skipped)) == 5
    with pytest.raises(LayerParamError, match="rand_skip 6"):
        batches(source, rand_skip=6)


def test_colour_and_gray(tmp_path):
    cv2.imwrite(str(tmp_path / "p.png"), np.full((2, 3, 3), (10, 20, 200), np.uint8))
    (tmp_path / "l").write_text(f"{tmp_path / 'p.png'} 1\n")
    data, _ = batches(tmp_path / "l", 1).produce(0)
    assert data[0, :, 1, 1].tolist() == [10, 20, 200]  # blue, green, red, as given
    gray, _ = batches(tmp_path / "l", 1, is_color=False).produce(0)
    assert gray.shape == (1, 1, 2, 3) and abs(gray - (0.114 * 10 + 0.587 * 20 + 0.299 * 200)).max() <= 1


@pytest.mark.parametrize("is_color", [True, False])
def test_resizing_is_bilinear_with_pixel_centres(tmp_path, is_color):
    cv2.imwrite(str(tmp_path / "p.png"), np.array([[0, 100], [40, 140]], np.uint8))
    (tmp_path / "l").write_text(f"{tmp_path / 'p.png'} 1\n")
    data, _ = batches(tmp_path / "l", 1, is_color=is_color, size=(2, 4)).produce(0)
    assert data.shape == (1, 3 if is_color else 1, 2, 4)
    for plane in data[0]:
        assert plane.tolist() == [[0, 25, 75, 100], [40, 65, 115, 140]]


def test_sizes_may_vary_alone_or_cropped_or_resized(tmp_path):
    source = write_list(tmp_path, [(4, 5), (6, 3)])
    alone = batches(source, 1)
    assert alone.shape == (1, 3, 4, 5)
    assert [alone.produce(b)[0].shape for b in (0, 1)] == [(1, 3, 4, 5), (1, 3, 6, 3)]
    assert batches(source, 2, "crop_size: 3").produce(0)[0].shape == (2, 3, 3, 3)
    assert batches(source, 2, size=(7, 2)).produce(0)[0].shape == (2, 3, 7, 2)
    with pytest.raises(DataError, match="new_height") as caught:
        batches(source, 2).produce(0)
    assert f"{source}:2: {tmp_path / 'picture 1.png'}" in str(caught.value)


def test_crops_and_mirrors_follow_the_seed_and_the_batch(tmp_path):
    rng = np.random.default_rng(1)
    cv2.imwrite(str(tmp_path / "p.png"), rng.integers(0, 255, (9, 9, 3), np.uint8))
    (tmp_path / "l").write_text(f"{tmp_path / 'p.png'} 1\n" * 3)
    text = "crop_size: 4 mirror: true scale: 0.5"
    first, second = batches(tmp_path / "l", 2, text, seed=4), batches(tmp_path / "l", 2, text, seed=4)
    assert (first.produce(3)[0] == second.produce(3)[0]).all()
    assert (first.produce(3)[0] != first.produce(4)[0]).any()


def test_unreadable_pictures_are_named(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    for name, words in (("none.jpg", "cannot read the picture"), ("bad.jpg", "not a picture")):
        (tmp_path / "l").write_text(f"\n{name} 1\n")
        with pytest.raises(DataError, match=words) as caught:
            ImageBatches(ImageList(tmp_path / "l", f"{tmp_path}/"), 1, transformer())
        assert f"{tmp_path / 'l'}:2: {tmp_path / name}" in str(caught.value) and caught.value.fix


def test_a_crop_larger_than_a_picture_names_it(tmp_path):
    source = write_list(tmp_path, [(4, 5), (2, 9)])
    with pytest.raises(LayerParamError, match="crop_size 3") as caught:
        batches(source, 2, "crop_size: 3").produce(0)
    assert f"{source}:2: " in str(caught.value)


def test_without_opencv_the_package_is_named(tmp_path, monkeypatch):
    source = write_list(tmp_path, [(1, 1)])
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependency, match="opencv"):
        batches(source, 1)
