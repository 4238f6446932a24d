"""ImageData: tops, resuming, wrong parameters, pictures of several sizes, real pictures."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, CaffeError, DataError, LayerParamError
from tests.shared_data import SHARED, needs_shared

from .cases import Case
from .harness import LayerBench

cv2 = pytest.importorskip("cv2")

# SOURCE stands for the list that the test writes: six pictures of 8 x 10, all of value 10 * label.
HOST_CASES: list[Case] = [
    Case("ImageData", f'image_data_param {{ source: "SOURCE" {fields} }} {more}', (), n_top=2)
    for fields, more in (
        ("", ""),
        ("batch_size: 4", "data_param { prefetch: 1 }"),
        ("batch_size: 4 shuffle: true rand_skip: 5", ""),
        ("batch_size: 5 is_color: false new_height: 4 new_width: 3", ""),
        ("batch_size: 3 shuffle: true", "transform_param { crop_size: 5 mirror: true mean_value: 2 scale: 0.5 }"),
    )
]


@pytest.fixture
def source(tmp_path):
    return write(tmp_path, [(8, 10)] * 6)


def write(folder, sizes):
    for k, size in enumerate(sizes):
        assert cv2.imwrite(str(folder / f"{k}.png"), np.full((*size, 3), 10 * k, np.uint8))
    (folder / "list.txt").write_text("".join(f"{folder}/{k}.png {k}\n" for k in range(len(sizes))))
    return str(folder / "list.txt")


def make(text, source, **kwargs):
    return LayerBench("ImageData", text.replace("SOURCE", source), (), **{"n_top": 2, **kwargs})


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_pictures_go_with_their_labels_and_resume(case, dtype, source):
    first, second = make(case.text, source, dtype=dtype), make(case.text, source, dtype=dtype)
    try:
        seen = [first.forward([]) for _ in range(5)]
        for data, label in seen:
            assert data.dtype == label.dtype == dtype and data.shape == first.top_shapes[0]
            mean, scale = (2, 0.5) if "mean_value" in case.text else (0, 1)
            np.testing.assert_array_equal(
                data, np.broadcast_to((10 * label[:, None, None, None] - mean) * scale, data.shape)
            )
        state = first.layer.state()
        assert state == {"batches": 5, "seed": 0, "records": 5 * first.top_shapes[1][0]}
        second.layer.set_state({"batches": 2, "seed": 0})
        for data, label in seen[2:]:
            again = second.forward([])
            assert (again[0] == data).all() and (again[1] == label).all()
        assert second.layer.state() == state
    finally:
        first.layer.close()
        second.layer.close()


def test_the_seed_of_a_state_is_taken_over(source):
    text = 'image_data_param { source: "SOURCE" batch_size: 6 shuffle: true }'
    bench = make(text, source)
    try:
        plain = bench.forward([])[1].tolist()
        bench.layer.set_state({"batches": 0, "seed": 9})
        other = bench.forward([])[1].tolist()
        bench.layer.set_state({"batches": 0, "seed": 0})
        assert bench.forward([])[1].tolist() == plain != other and sorted(other) == sorted(plain)
    finally:
        bench.layer.close()


def test_a_batch_of_one_follows_the_picture(tmp_path):
    bench = make('image_data_param { source: "SOURCE" }', write(tmp_path, [(2, 3), (4, 1)]))
    try:
        for shape in ((1, 3, 2, 3), (1, 3, 4, 1), (1, 3, 2, 3)):
            bench.reshape([])
            assert bench.forward([])[0].shape == shape
    finally:
        bench.layer.close()


@pytest.mark.parametrize(
    "fields, words",
    [
        ('source: ""', "source is not set"),
        ("batch_size: 0", "batch_size is 0"),
        ("new_height: 3", "no new_width"),
        ("new_width: 3", "no new_height"),
        ("rand_skip: 7", "rand_skip 7"),
    ],
)
def test_impossible_parameters_name_the_layer(fields, words, source):
    with pytest.raises(LayerParamError) as caught:
        make(
            f'name: "in" image_data_param {{ {"" if "source" in fields else "source: " + repr(source)} {fields} }}',
            source,
        )
    assert words in str(caught.value) and 'layer "in" (ImageData)' in str(caught.value) and caught.value.fix


def test_lists_and_counts_that_cannot_be(source):
    with pytest.raises(DataError, match='layer "l"'):
        make('image_data_param { source: "SOURCE" }', source + ".none")
    for n_top in (1, 3):
        with pytest.raises(BlobCountError):
            make('image_data_param { source: "SOURCE" }', source, n_top=n_top)


def test_an_error_comes_in_its_turn(tmp_path):
    source = write(tmp_path, [(2, 2)] * 3)
    (tmp_path / "1.png").unlink()
    bench = make('image_data_param { source: "SOURCE" }', source)
    try:
        bench.forward([])
        with pytest.raises(CaffeError, match=r"list\.txt:2: .*1\.png"):
            bench.forward([])
    finally:
        bench.layer.close()


@needs_shared
def test_real_pictures(tmp_path):
    (tmp_path / "list").write_text("cat.jpg 0\nfish-bike.jpg 1\ncat_gray.jpg 2\n")
    root = f"{SHARED}/data/images/"
    fields = f'source: "SOURCE" root_folder: "{root}" batch_size: 3 new_height: 60 new_width: 80'
    bench = make(f"image_data_param {{ {fields} }}", str(tmp_path / "list"))
    try:
        data, label = bench.forward([])
    finally:
        bench.layer.close()
    assert data.shape == (3, 3, 60, 80) and label.tolist() == [0, 1, 2]
    picture = cv2.resize(cv2.imread(root + "cat.jpg"), (80, 60))
    np.testing.assert_array_equal(data[0], picture.transpose(2, 0, 1))
    assert (data[2, 0] == data[2, 1]).all() and data.std() > 10
