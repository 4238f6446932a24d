"""ImageSegData, DenseImageData: pictures and labels change alike; fields, errors, resuming."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import DataError, LayerParamError

from .cases import Case
from .harness import LayerBench

cv2 = pytest.importorskip("cv2")

PIXEL = 'image_data_param { source: "SOURCE" label_type: PIXEL'
# SOURCE stands for the list that the test writes: four pictures of 9 x 12, whose blue is the label, and their labels.
HOST_CASES: list[Case] = [
    Case(kind, f'{message} {{ source: "SOURCE" {fields} }} {more}', (), n_top=2)
    for kind, message, fields, more in (
        ("ImageSegData", "image_data_param", "label_type: PIXEL", ""),
        (
            "ImageSegData",
            "image_data_param",
            "label_type: PIXEL batch_size: 3 shuffle: true",
            "transform_param { crop_size: 5 mirror: true }",
        ),
        (
            "ImageSegData",
            "image_data_param",
            "label_type: PIXEL batch_size: 2 rand_skip: 3",
            "transform_param { crop_height: 4 crop_width: 6 }",
        ),
        ("DenseImageData", "dense_image_data_param", "batch_size: 3 mirror: true crop_height: 5 crop_width: 7", ""),
        ("DenseImageData", "dense_image_data_param", "batch_size: 1 shuffle: true is_color: true", ""),
    )
]


def write(folder, sizes=((9, 12),) * 4, labels=None):
    lines = []
    for k, size in enumerate(sizes):
        picture = np.random.default_rng(k).integers(0, 256, (*size, 3), dtype=np.uint8)
        assert cv2.imwrite(f"{folder}/{k}.png", picture) and cv2.imwrite(f"{folder}/{k}l.png", picture[:, :, 0])
        lines.append(f"{k}.png {labels[k] if labels else f'{k}l.png'}\n")
    (folder / "list.txt").write_text("".join(lines))
    return str(folder / "list.txt")


@pytest.fixture
def source(tmp_path):
    return write(tmp_path)


def make(text, source, kind="ImageSegData", **kwargs):
    root = f'source: "{source}" root_folder: "{source[: -len("list.txt")]}"'
    return LayerBench(kind, text.replace('source: "SOURCE"', root), (), **{"n_top": 2, **kwargs})


def forward(*args, **kwargs):
    bench = make(*args, **kwargs)
    try:
        return bench.forward([])
    finally:
        bench.layer.close()


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_labels_go_with_their_pixels_and_resume(case, dtype, source):
    first, second = (make(case.text, source, case.type, dtype=dtype) for _ in range(2))
    try:
        seen = [first.forward([]) for _ in range(5)]
        for data, label in seen:
            assert data.dtype == label.dtype == dtype and data.shape == first.top_shapes[0]
            np.testing.assert_array_equal(data[:, :1], label)
        assert len({label.tobytes() for _, label in seen}) > 1
        second.layer.set_state({"batches": 2, "seed": 0})
        for data, label in seen[2:]:
            again = second.forward([])
            assert (again[0] == data).all() and (again[1] == label).all()
        assert second.layer.state() == first.layer.state()
    finally:
        first.layer.close()
        second.layer.close()


def test_every_crop_and_flip_is_a_part_of_its_picture(source):
    text = f"{PIXEL} batch_size: 4 }} transform_param {{ crop_size: 6 mirror: true }}"
    pictures = [cv2.imread(f"{source[: -len('list.txt')]}{k}.png").transpose(2, 0, 1) for k in range(4)]
    bench, places = make(text, source, phase=0), set()
    try:
        for _ in range(8):
            data, _ = bench.forward([])
            for got, picture in zip(data, pictures, strict=True):
                found = [
                    (top, left, flip)
                    for top in range(4)
                    for left in range(7)
                    for flip in (1, -1)
                    if (picture[:, top : top + 6, left : left + 6][:, :, ::flip] == got).all()
                ]
                assert len(found) == 1
                places.update(found)
    finally:
        bench.layer.close()
    tops, lefts, flips = (set(each) for each in zip(*places, strict=True))
    assert tops == set(range(4)) and len(lefts) >= 6 and flips == {1, -1}


def test_a_test_net_crops_the_centre_and_pads_right_and_below(source):
    text = """image_data_param { source: "SOURCE" label_type: PIXEL ignore_label: 7 }
              transform_param { crop_height: 11 crop_width: 6 mean_value: 1 mean_value: 2 mean_value: 3 scale: 0.5 }"""
    data, label, size = forward(text, source, phase=1, n_top=3)
    picture = cv2.imread(source.replace("list.txt", "0.png")).astype(float)[:, 3:9].transpose(2, 0, 1)
    np.testing.assert_array_equal(data[0, :, :9], (picture - np.array([1, 2, 3.0])[:, None, None]) / 2)
    assert (data[0, :, 9:] == 0).all() and (label[0, 0, 9:] == 7).all()
    np.testing.assert_array_equal(label[0, 0, :9], picture[0])
    assert size.tolist() == [[[[9, 6]]]]


def test_scale_factors_resize_both_and_labels_to_the_nearest(source):
    text = 'image_data_param { source: "SOURCE" label_type: PIXEL } transform_param { scale_factors: 1.5 }'
    data, label = forward(text, source)
    picture = cv2.imread(source.replace("list.txt", "0.png"))
    np.testing.assert_array_equal(data[0], cv2.resize(picture, (18, 13)).transpose(2, 0, 1))
    rows, columns = np.arange(13) * 9 // 13, np.arange(18) * 12 // 18
    np.testing.assert_array_equal(label[0, 0], picture[rows][:, columns, 0])


def test_all_scale_factors_are_drawn(source):
    text = f"{PIXEL} }} transform_param {{ scale_factors: 0.5 scale_factors: 2 }}"
    bench, heights = make(text, source), set()
    try:
        for _ in range(12):
            bench.reshape([])
            data, label = bench.forward([])
            assert label.shape == (1, 1, *data.shape[2:])
            heights.add(data.shape[2])
    finally:
        bench.layer.close()
    assert heights == {4, 18}


def test_one_label_for_a_picture_and_none(tmp_path):
    source = write(tmp_path, labels=[3, 0, 255, 4])
    _, label = forward('image_data_param { source: "SOURCE" batch_size: 4 }', source)
    assert [set(each.ravel().tolist()) for each in label] == [{3}, {0}, {255}, {4}] and label.shape == (4, 1, 9, 12)
    _, label = forward('image_data_param { source: "SOURCE" batch_size: 4 label_type: NONE ignore_label: 9 }', source)
    assert (label == 9).all()


def test_new_size_of_dense_pictures_and_no_mean_of_labels(source):
    text = 'dense_image_data_param { source: "SOURCE" batch_size: 1 new_height: 18 new_width: 24 }'
    text += " transform_param { mean_value: 10 }"
    data, label = forward(text, source, "DenseImageData")
    picture = cv2.imread(source.replace("list.txt", "0.png"))
    np.testing.assert_array_equal(data[0], cv2.resize(picture, (24, 18)).transpose(2, 0, 1).astype(float) - 10)
    np.testing.assert_array_equal(label[0, 0], picture[:, :, 0].repeat(2, 0).repeat(2, 1))


def test_labels_of_a_part_of_the_size(source):
    text = (
        'dense_image_data_param { source: "SOURCE" batch_size: 2 new_height: 9 new_width: 12 label_divide_factor: 3 }'
    )
    data, label = forward(text, source, "DenseImageData")
    picture = cv2.imread(source.replace("list.txt", "1.png"))
    np.testing.assert_array_equal(data[1], picture.transpose(2, 0, 1))
    np.testing.assert_array_equal(label[1, 0], picture[::3, ::3, 0])
    with pytest.raises(DataError, match=r"list\.txt:1: .*9 x 12.*needs 3 x 4"):
        forward(text.replace("new_height: 9 new_width: 12", ""), source, "DenseImageData")
    for fields in (
        "label_divide_factor: 0",
        "label_divide_factor: 9 new_height: 9 new_width: 8",
        "label_divide_factor: 2 crop_height: 2 crop_width: 2",
    ):
        with pytest.raises(LayerParamError, match="label_divide_factor is"):
            make(f'dense_image_data_param {{ source: "SOURCE" batch_size: 1 {fields} }}', source, "DenseImageData")


def test_new_size_gives_labels_that_were_there(source):
    _, label = forward(f"{PIXEL} new_height: 18 new_width: 24 }}", source)
    picture = cv2.imread(source.replace("list.txt", "0.png"))
    np.testing.assert_array_equal(label[0, 0], picture[:, :, 0].repeat(2, 0).repeat(2, 1))


@pytest.mark.parametrize(
    "kind, text, words",
    [
        ("ImageSegData", 'image_data_param { source: "" }', "source is not set"),
        ("ImageSegData", 'image_data_param { source: "SOURCE" new_height: 3 }', "one of new_height"),
        ("ImageSegData", 'image_data_param { source: "SOURCE" ignore_label: 256 }', "ignore_label is 256"),
        ("ImageSegData", 'image_data_param { source: "SOURCE" } transform_param { crop_width: 3 }', "one crop"),
        ("ImageSegData", 'image_data_param { source: "SOURCE" } transform_param { mean_file: "m" }', "mean_file"),
        ("ImageSegData", 'image_data_param { source: "SOURCE" } transform_param { scale_factors: 0 }', "scale_factors"),
        ("ImageSegData", 'image_data_param { source: "SOURCE" } transform_param { noise_param { } }', "noise_param"),
        ("ImageSegData", 'image_data_param { source: "SOURCE" } transform_param { force_gray: true }', "force_gray"),
        ("DenseImageData", 'dense_image_data_param { source: "SOURCE" }', "batch_size is not set"),
        ("DenseImageData", 'dense_image_data_param { source: "SOURCE" batch_size: 1 crop_width: 2 }', "crop_height"),
        (
            "DenseImageData",
            'dense_image_data_param { source: "SOURCE" batch_size: 1 } transform_param { mirror: true }',
            "transform_param.mirror",
        ),
    ],
)
def test_impossible_parameters_name_the_layer(kind, text, words, source):
    with pytest.raises(LayerParamError) as caught:
        make(f'name: "in" {text}', source, kind)
    assert words in str(caught.value) and f'layer "in" ({kind})' in str(caught.value) and caught.value.fix


def test_wrong_lists_and_labels_name_the_line(tmp_path):
    source = write(tmp_path, sizes=((9, 12), (9, 12)))
    pixel = 'image_data_param { source: "SOURCE" label_type: PIXEL batch_size: 2 }'
    with pytest.raises(DataError, match=r"list\.txt:1:.*not a number from 0 to 255"):
        make('image_data_param { source: "SOURCE" }', source)
    assert cv2.imwrite(str(tmp_path / "1l.png"), np.zeros((9, 11), np.uint8))
    with pytest.raises(DataError, match=r"list\.txt:2: .*1l\.png.*9 x 11.*9 x 12"):
        forward(pixel, source)
    (tmp_path / "1l.png").unlink()
    with pytest.raises(DataError, match=r"list\.txt:2: .*1l\.png"):
        forward(pixel, source)
    (tmp_path / "list.txt").write_text("0.png\n")
    with pytest.raises(DataError, match=r"list\.txt:1:.*two words"):
        forward(pixel, source)
    source = write(tmp_path, sizes=((9, 12), (8, 12)))
    with pytest.raises(DataError, match=r"list\.txt:2: .*1\.png.*\(3, 8, 12\)"):
        forward(pixel, source)
    dense = 'dense_image_data_param { source: "SOURCE" batch_size: 1 crop_height: 10 crop_width: 2 }'
    with pytest.raises(DataError, match=r"list\.txt:1: .*0\.png.*10 x 2 is larger"):
        forward(dense, source, "DenseImageData")
