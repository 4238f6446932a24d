"""DetectionData and EvalData: labels against a loop over positions, sizes, orders, boxes that follow, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms import TRAIN, Net
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.data.feed.truth.detection_batches import _ByAspect
from pycaffe_lms.errors import DataError, LayerParamError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import LayerBench

cv2 = pytest.importorskip("cv2")

DETECTORS = ((16, 12, 4), (28, 24, 8))  # width, height, stride
FIELDS = " ".join(f"field_w: {w} field_h: {h} stride: {s}" for w, h, s in DETECTORS)
OBJECTS = "output_gt_boxes: true"
# SOURCE stands for the list that the test writes: pictures of 40 x 60 and 60 x 40 with bright objects.
WHOLE = f"{FIELDS} {OBJECTS} batch_size: 1 pickup_iou_thr: 0.25"
CUT = f"{FIELDS} {OBJECTS} batch_size: 2 short_size: 64 long_size: 96 coord_num: 4"
SCALED = (
    f"{OBJECTS} batch_size: 2 resize_width: 80 resize_height: 60 crop_width: 48 crop_height: 56 multiscale_prob: 0.8 "
    "min_scale: 10 max_scale: 40 min_whaspect: 0.5 max_whaspect: 2 min_gt_width: 5 min_gt_height: 6"
)
RATIOS = (
    f"{OBJECTS} batch_size: 2 resize_ratio: 1.5 crop_short_size: 40 crop_long_size: 56 low_scale_ratio: 0.5 "
    'high_scale_ratio: 2 shuffle: "random_mix_aspect" mix_group_size: 1 cache_images: false scale: 1 template_ratio: 1 '
    "distort_param { brightness_prob: 1 brightness_delta: 3 }"
)
TRANSFORM = "transform_param { mean_value: 7 mirror: true scale: 0.5 }"
TRAINING: list[Case] = [
    Case("DetectionData", f'detection_data_param {{ source: "SOURCE" {fields} }} {more}', (), n_top=tops)
    for fields, more, tops in (
        (f"{WHOLE} fg_threshold: 0.45 ignore_fg_threshold: 0.3", "", 4),
        (f'{CUT} shuffle: "random_aspect" template_ratio: [1, 1.5]', TRANSFORM, 4),
        (SCALED, TRANSFORM, 2),
        (RATIOS, TRANSFORM, 2),
        (f"{WHOLE} anchor_ignore_margin_ratio: 0.5", "", 4),
        (f"{WHOLE} anchor_ignore_iou_thr: 0.6", "", 4),
    )
]
TESTING: list[Case] = [
    Case("EvalData", f'eval_data_param {{ source: "SOURCE" {fields} }} {more}', (), n_top=tops)
    for fields, more, tops in (
        ("batch_size: 1 short_size: 64 long_size: 80 scale: 1", "transform_param { mean_value: 7 scale: 0.5 }", 3),
        ("batch_size: 3 resize_width: 100 resize_height: 70", "", 3),
        ("batch_size: 1", "", 2),
    )
]
HOST_CASES = TRAINING + TESTING
BOXES = (  # class, ignored, difficult, x1, y1, x2, y2
    [(1, 0, 0, 5, 6, 20, 18), (2, 0, 1, 30, 10, 58, 34), (1, 1, 0, 22, 25, 30, 36)],
    [(2, 0, 0, 8, 8, 13, 35)],
    [],
)
REGIONS = ([(38, 0, 60, 12)], [], [(0, 0, 30, 40)])
SIZES = ((40, 60), (60, 40), (40, 60))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    text = ""
    for k, (boxes, regions, size) in enumerate(zip(BOXES, REGIONS, SIZES, strict=True)):
        picture = np.full((*size, 3), 10 * k, np.uint8)
        for kind, _, _, x1, y1, x2, y2 in boxes:
            picture[y1 : y2 + 1, x1 : x2 + 1] = 100 * kind
        assert cv2.imwrite(str(folder / f"{k}.png"), picture)
        text += f"# {k}\n{k}.png\n3\n{size[0]}\n{size[1]}\n{len(boxes)}\n"
        text += "".join(" ".join(map(str, b)) + "\n" for b in boxes) + f"{len(regions)}\n"
        text += "".join(" ".join(map(str, r)) + "\n" for r in regions)
    (folder / "list.txt").write_text(text)
    return folder


def make(case, folder, **kwargs):
    text = case.text.replace('"SOURCE"', f'"{folder}/list.txt" root_folder: "{folder}/"')
    return LayerBench(case.type, text, (), **{"n_top": case.n_top, "dtype": np.float64, **kwargs})


def batches(bench, number):
    """Return the tops of so many forwards, whose shapes change."""
    found = []
    for _ in range(number):
        bench.reshape([])
        found.append(bench.forward([]))
    return found


def _common(a, b):
    if a[0] > b[2] or b[0] > a[2] or a[1] > b[3] or b[1] > a[3]:
        return 0.0
    return (min(a[2], b[2]) - max(a[0], b[0]) + 1) * (min(a[3], b[3]) - max(a[1], b[1]) + 1)


def _area(a):
    return (a[2] - a[0] + 1) * (a[3] - a[1] + 1)


def _labels(p, boxes, regions, size):
    """Labels of every detector, position by position; the picture fills the whole of `size`."""
    found, matched, best = [], set(), {}
    for number, (w, h, s) in enumerate(DETECTORS):
        label = np.zeros((6, int(size[0] / s + 0.5), int(size[1] / s + 0.5)))
        found.append(label)
        for row, column in np.ndindex(label.shape[1:]):
            x, y = (column + 0.5) * s, (row + 0.5) * s
            box = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
            if p.HasField("anchor_ignore_margin_ratio"):
                far = p.anchor_ignore_margin_ratio * w / 2, p.anchor_ignore_margin_ratio * h / 2
                wrong = box[0] < -far[0] or box[1] < -far[1] or box[2] >= size[1] + far[0] or box[3] >= size[0] + far[1]
            else:
                wrong = _common(box, (0, 0, size[1], size[0])) / _area(box) < p.anchor_ignore_iou_thr
            if wrong:
                label[5, row, column] = 1
                continue
            ious = []
            for k, b in enumerate(boxes):
                common = _common(box, b[3:])
                ious.append(common / (_area(box) + _area(b[3:]) - common))
                if ious[-1] > best.get(k, (0,))[0]:
                    best[k] = (ious[-1], number)
            k = int(np.argmax(ious)) if ious else -1
            if ious and ious[k] > p.fg_threshold:
                kind, ignored, _, x1, y1, x2, y2 = boxes[k]
                place = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1 + 1, y2 - y1 + 1
                label[:, row, column] = [0 if ignored else kind, *place, ious[k]]
                matched.add(k)
            elif sum(_common(box, r) for r in regions) / _area(box) >= p.ignore_fg_threshold:
                label[5, row, column] = 1
            elif ious:
                label[5, row, column] = ious[k]
    for k, (kind, ignored, _, x1, y1, x2, y2) in enumerate(boxes):
        if not ignored and k not in matched and best.get(k, (0,))[0] >= p.pickup_iou_thr:
            label, s = found[best[k][1]], DETECTORS[best[k][1]][2]
            row, column = int((y1 + y2) / 2 // s), int((x1 + x2) / 2 // s)
            if label[0, row, column] == 0:
                place = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1 + 1, y2 - y1 + 1
                label[:, row, column] = [kind, *place, best[k][0]]
    return found


@pytest.mark.parametrize("case", [TRAINING[0], TRAINING[4], TRAINING[5]], ids=str)
def test_labels_are_the_loop(case, folder):
    bench = make(case, folder)
    p = bench.layer.param.detection_data_param
    for (data, *labels, objects), boxes, regions, size in zip(batches(bench, 3), BOXES, REGIONS, SIZES, strict=True):
        assert data.shape == (1, 3, *size)
        for label, wanted in zip(labels, _labels(p, boxes, regions, size), strict=True):
            np.testing.assert_allclose(label[0], wanted, rtol=1e-6, atol=1e-12)
        rows = [[0, *b[3:], *b[:3]] for b in boxes]
        assert objects.reshape(8, 8).tolist() == rows + [[-1] * 8] * (8 - len(rows))
        if boxes:
            assert labels[0][0, 0].any() or labels[1][0, 0].any()
    bench.layer.close()


@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_batches_resume(case, folder):
    first, second = (make(case, folder) for _ in range(2))
    try:
        seen = batches(first, 4)
        size = len(seen[0][0])
        second.layer.set_state(first.layer.state() | {"batches": 2, "records": 2 * size})
        for batch, again in zip(seen[2:], batches(second, 2), strict=True):
            assert all(map(np.array_equal, batch, again))
        assert len({batch[0].tobytes() for batch in seen}) > (size < 3 or case.type != "EvalData")
    finally:
        first.layer.close(), second.layer.close()


def test_sizes_follow_the_first_picture(folder):
    """64 x 96 with the long side up for a high picture, times 1 or 1.5; labels in proportion."""
    bench, seen = make(TRAINING[1], folder), set()
    for data, first, second, _ in batches(bench, 16):
        height, width = data.shape[2:]
        seen.add((height, width))
        assert first.shape[2:] == (height // 4, width // 4) and second.shape[2:] == (height // 8, width // 8)
    bench.layer.close()
    assert seen == {(96, 64), (64, 96), (144 // 32 * 32 + 32, 96), (96, 144 // 32 * 32 + 32)}


@pytest.mark.parametrize("case, least", [(TRAINING[2], 20), (TRAINING[3], 10)], ids=["scaled", "ratios"])
def test_boxes_follow_their_pictures(case, least, folder):
    """Inside of an object that lies in the picture the values are its class's, whatever was drawn."""
    bench, checked, sizes = make(case, folder), 0, set()
    noise = 3 if "brightness" in case.text else 0
    for data, objects in batches(bench, 40):
        height, width = data.shape[2:]
        for n, x1, y1, x2, y2, kind, ignored, _ in objects.reshape(-1, 8):
            inside = x1 >= 0 and y1 >= 0 and x2 < width and y2 < height and x2 - x1 > 6 and y2 - y1 > 6
            if n < 0 or not inside or ignored:
                continue
            value = data[int(n), :, int((y1 + y2) / 2), int((x1 + x2) / 2)]
            assert np.abs(value - (100 * kind - 7) * 0.5).max() <= 0.5 + noise / 2
            checked += 1
            sizes.add(round(x2 - x1))
    bench.layer.close()
    assert checked > least and len(sizes) > 4


def test_orders_by_the_shape_of_pictures():
    sizes = [(4, 3)] * 5 + [(3, 4)] * 8
    for group, kinds in ((0, {"hhhhhwwwwwwww", "wwwwwwwwhhhhh"}), (2, {"hhwwhhwwhwwww", "wwhhwwhhwwhww"})):
        order, seen = _ByAspect(sizes, group, seed=1, stream=0), set()
        for epoch in range(12):
            indices = [order.index(13 * epoch + i) for i in range(13)]
            assert sorted(indices) == list(range(13))
            seen.add("".join("h" if i < 5 else "w" for i in indices))
        assert seen == kinds
        assert [order.index(i) for i in range(13)] != [order.index(13 + i) for i in range(13)]


def test_a_picture_without_objects_is_doubled(folder):
    """As in the fork, where both limits of the scale are 2 for it."""
    text = "batch_size: 1 min_scale: 10 max_scale: 20 multiscale_prob: 1 crop_width: 120 crop_height: 80"
    case = Case("DetectionData", f'detection_data_param {{ source: "SOURCE" {text} }}', ())
    bench = make(case, folder)
    (data,) = batches(bench, 3)[2]
    bench.layer.close()
    assert data.shape == (1, 3, 80, 120)  # of 40 x 60 only 1.2 / 2 of each side remains, twice as large: 48 x 72
    assert np.count_nonzero(data == 20) == 3 * 48 * 72 and np.count_nonzero(data) == 3 * 48 * 72


def test_pictures_to_be_tested(folder):
    bench = make(TESTING[0], folder)
    for (data, objects, size), boxes, given in zip(batches(bench, 3), BOXES, SIZES, strict=True):
        # the shorter side 64, the longer one 80 at most; then multiples of 32, halves up: 64 x 96
        height, width = (96 if side == 60 else 64 for side in given)
        assert data.shape == (1, 3, height, width) and size.ravel().tolist() == [height, width]
        rows = objects.reshape(-1, 8)
        wanted = [[0, *b[3:], *b[:3]] for b in boxes]
        for row, own in zip(rows, wanted, strict=False):
            own[1:5] = np.array(own[1:5]) * np.tile([width / given[1], height / given[0]], 2)
            np.testing.assert_allclose(row, own)
            x, y = int((row[1] + row[3]) / 2), int((row[2] + row[4]) / 2)
            assert np.abs(data[0, :, y, x] - (100 * row[5] - 7) * 0.5).max() <= 0.5
        assert (rows[len(wanted) :] == -1).all()
    bench.layer.close()
    bench = make(TESTING[1], folder)
    ((data, objects, size),) = batches(bench, 1)
    bench.layer.close()
    assert data.shape == (3, 3, 64, 96) and size.reshape(3, 2).tolist() == [[64, 96]] * 3
    assert objects.reshape(-1, 8)[:, 0].tolist() == [0, 0, 0, 1, -1, -1, -1, -1]
    assert (data[2] == 20).all()


NET = """
layer { name: "in" type: "DetectionData" top: "x" top: "labels" top: "gt" detection_data_param { source: "SOURCE"
  field_w: 24 field_h: 24 stride: 8 output_gt_boxes: true batch_size: 2 short_size: 64 long_size: 96 } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 4 kernel_size: 3 stride: 8 pad: 1 weight_filler { type: "gaussian" std: 0.001 } } }
layer { name: "cls" type: "Convolution" bottom: "c" top: "cls"
  convolution_param { num_output: 3 kernel_size: 1 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "box" type: "Convolution" bottom: "c" top: "box"
  convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "loss" type: "DetectionGroupLoss" bottom: "cls" bottom: "box" bottom: "labels" top: "loss"
  detection_group_loss_param { cls_num: 3 field_w: 24 field_h: 24 stride: 8 batch_size: 16 } }
layer { name: "s" type: "Silence" bottom: "gt" }
"""


def test_in_a_net(folder):
    """Batches of two shapes, with and without Large Model Support: the same numbers."""
    text, found = NET.replace('"SOURCE"', f'"{folder}/list.txt" root_folder: "{folder}/"'), []
    for options in ({}, {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=0.1)}):
        net = Net(parse_net(text).message, TRAIN, dtype="float64", seed=3, **options)
        found.append([])
        for _ in range(4):
            net.forward()
            net.backward()
            found[-1] += [net.blobs[n].data.copy() for n in ("x", "loss")] + [net.params["c"][0].diff.copy()]
        net.close()
    assert {x.shape for x in found[0][::3]} == {(2, 3, 64, 96), (2, 3, 96, 64)}
    assert all(map(np.array_equal, *found)) and all(values.any() for values in found[0])


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("field_w: 16", "", "has 2 stride, 1 field_w and 2 field_h"),
        ("batch_size: 1", "batch_size: 1 resize_width: 3", "one of resize_width and resize_height"),
        ("batch_size: 1", "batch_size: 1 short_size: 3 long_size: 2", "short_size is above long_size"),
        (
            "batch_size: 1",
            "batch_size: 1 short_size: 3 long_size: 4 resize_ratio: 2",
            "has resize_ratio and short_size",
        ),
        ("batch_size: 1", "batch_size: 2", "sizes of their own"),
        ("batch_size: 1", 'batch_size: 1 shuffle: "x"', 'shuffle is "x"'),
        ("batch_size: 1", "batch_size: 1 coord_num: 5", "coord_num is 5"),
        ("output_gt_boxes: true", "", "has 4 tops, for 2 detectors"),
        ("} ", "} transform_param { crop_size: 3 }", "transform_param.crop_size has no effect"),
    ],
)
def test_refused(old, new, message, folder):
    case = Case("DetectionData", (TRAINING[0].text + " ").replace(old, new, 1), (), 4)
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        make(case, folder)


def test_refused_of_tests(folder):
    case = Case("EvalData", TESTING[2].text.replace("batch_size: 1", "batch_size: 2"), (), 2)
    with pytest.raises(LayerParamError, match="write batch_size: 1"):
        make(case, folder)


def test_a_list_of_another_form_is_refused(tmp_path):
    (tmp_path / "list.txt").write_text("# 0 0.png 3 40 60 1 1 0 5 6 20 18 0")  # no `difficult`
    with pytest.raises(DataError, match=r"list.txt:1.*a whole number is missing"):
        make(TRAINING[0], tmp_path)
