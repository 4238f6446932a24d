"""ImageGtData: labels against a loop over positions, cuts whose boxes follow, resuming, wrong lists and fields."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import DataError, LayerParamError

from .cases import Case
from .harness import LayerBench

cv2 = pytest.importorskip("cv2")

DETECTORS = ((16, 12, 4), (28, 24, 8))  # width, height, stride
FIELDS = " ".join(f"field_w: {w} field_h: {h} downsample_rate: {s}" for w, h, s in DETECTORS)
OBJECTS = "output_gt_boxes: true"
MOVED = "do_multiple_scale: true min_scale: 10 max_scale: 40 min_whaspect: 0.5 max_whaspect: 2"
# SOURCE stands for the list that the test writes: pictures of 40 x 60 with bright objects.
HOST_CASES: list[Case] = [
    Case("ImageGtData", f'image_gt_data_param {{ source: "SOURCE" {FIELDS} {fields} }} {more}', (), n_top=tops)
    for fields, more, tops in (
        (f"batch_size: 2 {OBJECTS}", "", 4),
        ("batch_size: 3 crop_width: 48 crop_height: 32 shuffle: true", "transform_param { mirror: true }", 3),
        (
            f"batch_size: 2 resize_width: 80 resize_height: 60 crop_width: 48 crop_height: 56 {OBJECTS} {MOVED} "
            "scale: 0.5 fg_threshold: 0.4 min_gt_width: 5 min_gt_height: 6 fg_img_multiple: 2 "
            "coord_num: 4 cache_images: false",
            "transform_param { mean_value: 7 mirror: true } data_param { prefetch: 1 }",
            4,
        ),
    )
]
BOXES = (  # class, ignored, x1, y1, x2, y2
    [(1, 0, 5, 6, 20, 18), (2, 0, 30, 10, 58, 34), (1, 1, 22, 25, 30, 36)],
    [(2, 0, 8, 8, 13, 35)],
    [],
)
REGIONS = ([(40, 0, 60, 8)], [], [(0, 0, 30, 40)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    text = ""
    for k, (boxes, regions) in enumerate(zip(BOXES, REGIONS, strict=True)):
        picture = np.full((40, 60, 3), 10 * k, np.uint8)
        for kind, _, x1, y1, x2, y2 in boxes:
            picture[y1:y2, x1:x2] = 100 * kind
        assert cv2.imwrite(str(folder / f"{k}.png"), picture)
        text += f"# {k}\n{k}.png\n3\n40\n60\n{len(boxes)}\n" + "".join(" ".join(map(str, b)) + "\n" for b in boxes)
        text += f"{len(regions)}\n" + "".join(" ".join(map(str, r)) + "\n" for r in regions)
    (folder / "list.txt").write_text(text)
    return folder


def make(text, folder, n_top=4, **kwargs):
    text = text.replace('"SOURCE"', f'"{folder}/list.txt" root_folder: "{folder}/"')
    return LayerBench("ImageGtData", text, (), **{"n_top": n_top, "dtype": np.float64, **kwargs})


def _iou(a, b):
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(wide, 0) * max(high, 0)
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common), common


def _labels(boxes, regions, size, threshold):
    """Labels of every detector, position by position; the picture fills the whole of `size`."""
    found, matched, best = [], set(), {}
    for number, (w, h, s) in enumerate(DETECTORS):
        label = np.zeros((6, round(size[0] / s), round(size[1] / s)))
        found.append(label)
        for row, column in np.ndindex(label.shape[1:]):
            x, y = (column + 0.5) * s, (row + 0.5) * s
            box = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
            if sum(_iou(box, r)[1] for r in regions) / (w * h) >= 0.4:
                label[5, row, column] = 1
                continue
            ious = [_iou(box, b[2:])[0] for b in boxes]
            for k, iou in enumerate(ious):
                if iou > best.get(k, (0,))[0]:
                    best[k] = (iou, number)
            if not ious:
                continue
            k = int(np.argmax(ious))
            label[5, row, column] = ious[k]
            if ious[k] > threshold:
                kind, ignored, x1, y1, x2, y2 = boxes[k]
                label[:5, row, column] = [0 if ignored else kind, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
                matched.add(k)
    for k, (kind, ignored, x1, y1, x2, y2) in enumerate(boxes):
        if not ignored and k not in matched and best.get(k, (0,))[0] >= 0.2:
            label, s = found[best[k][1]], DETECTORS[best[k][1]][2]
            row, column = int((y1 + y2) / 2 // s), int((x1 + x2) / 2 // s)
            if label[0, row, column] == 0:
                label[:5, row, column] = [kind, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
    return found


def test_labels_are_the_loop(folder):
    bench = make(HOST_CASES[0].text.replace("batch_size: 2", "batch_size: 3"), folder)
    data, *labels, objects = bench.forward([])
    assert data.shape == (3, 3, 40, 60) and objects.shape == (8, 7, 1, 1)
    for n, (boxes, regions) in enumerate(zip(BOXES, REGIONS, strict=True)):
        expected = _labels(boxes, regions, (40, 60), 0.5)
        for label, wanted in zip(labels, expected, strict=True):
            np.testing.assert_allclose(label[n], wanted, rtol=1e-12, atol=1e-12)
    assert labels[0][0, 0].any() and labels[1][0, 0].any() and labels[0][1, 0].any()
    rows = [(n, *b[2:], *b[:2]) for n, boxes in enumerate(BOXES) for b in boxes]
    assert objects.reshape(8, 7).tolist() == [list(r) for r in rows] + [[0, 1, 1, 2, 2, 1, 1]] * 4
    np.testing.assert_array_equal(data[1, :, 20, 10], [200] * 3)
    bench.layer.close()


@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_batches_resume(case, folder):
    first, second = (make(case.text, folder, case.n_top) for _ in range(2))
    try:
        seen = [first.forward([]) for _ in range(4)]
        second.layer.set_state(first.layer.state() | {"batches": 2, "records": 2 * len(seen[0][0])})
        for batch in seen[2:]:
            assert all(map(np.array_equal, batch, second.forward([])))
        assert len({batch[0].tobytes() for batch in seen}) > 1
    finally:
        first.layer.close(), second.layer.close()


def test_boxes_follow_their_pictures(folder):
    """Inside of an object that lies in the picture the values are its class's, whatever was drawn."""
    bench, checked, sizes = make(HOST_CASES[2].text, folder), 0, set()
    for _ in range(40):
        data, *_, objects = bench.forward([])
        for n, x1, y1, x2, y2, kind, ignored in objects.reshape(-1, 7):
            inside = x1 >= 0 and y1 >= 0 and x2 <= 48 and y2 <= 56 and x2 - x1 > 6 and y2 - y1 > 6
            if not inside or ignored:
                continue
            x, y = (x1 + x2) / 2, (y1 + y2) / 2
            value = data[int(n), :, int(y), int(x)]
            assert np.abs(value - (100 * kind - 7) * 0.5).max() < 1
            corner = data[int(n), 0, math.ceil(y1) + 2, math.ceil(x1) + 2]
            assert abs(corner - value[0]) < 12
            checked += 1
            sizes.add(round(x2 - x1))
    bench.layer.close()
    assert checked > 20 and len(sizes) > 4


def test_pictures_smaller_than_the_crop_lie_in_zeros_that_do_not_count(folder, tmp_path):
    cv2.imwrite(str(tmp_path / "p.png"), np.full((10, 12, 3), 50, np.uint8))
    (tmp_path / "list.txt").write_text("# 0 p.png 3 10 12 0 0\n# 1 " + "p.png 3 32 40 0 0\n")
    bench = make(HOST_CASES[1].text.replace("crop_width: 48 crop_height: 32", ""), tmp_path, 3)
    data, first, _ = bench.forward([])
    assert data.shape == (3, 3, 32, 40) and (data == 50).sum() == 3 * 3 * 120 and (data == 0).sum() == data.size - 1080
    for picture, label in zip(data, first, strict=True):
        top, left = (int(np.flatnonzero((picture[0] == 50).any(axis=a))[0]) for a in (1, 0))
        counts = np.zeros((8, 10), bool)
        row, column = int(top / 4 + 0.5), int(left / 4 + 0.5)
        counts[row : row + 3, column : column + 3] = True
        np.testing.assert_array_equal(label[5], ~counts)
    bench.layer.close()


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "the list of pictures is empty"),
        ("x 0", "'x' where a block begins"),
        ("# 0 0.png 3 40", "a whole number is missing"),
        ("# 0 0.png 3 40 60 1 0 0 1 1 2 2 0", "an object of class 0"),
        ("# 0 absent.png 3 40 60 0 0", "absent.png"),
    ],
)
def test_wrong_lists(text, message, tmp_path):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        bench = make(HOST_CASES[0].text, tmp_path)
        bench.forward([])


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("field_w: 16", "", "has 2 downsample_rate, 1 field_w and 2 field_h"),
        ("batch_size: 2", "batch_size: 2 resize_width: 3", "one of resize_width and resize_height"),
        ("batch_size: 2", "batch_size: 2 crop_width: 61", "larger than 40 x 60"),
        ("batch_size: 2", "batch_size: 2 coord_num: 5", "coord_num is 5"),
        ("output_gt_boxes: true", "", "has 4 tops, for 2 detectors"),
        ("} ", "} transform_param { crop_size: 3 }", "transform_param.crop_size has no effect"),
        ("} ", "} transform_param { mean_value: [1, 2] }", "2 mean_value for 3 colours"),
    ],
)
def test_refused(old, new, message, folder):
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        make((HOST_CASES[0].text + " ").replace(old, new, 1), folder)
