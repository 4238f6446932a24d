"""MemoryData: arrays, records and pictures from the program; cycling, refusing, resuming."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum, parse_datum
from pycaffe_lms.errors import BlobCountError, CaffeError, DataError, LayerParamError, UsageError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.pycaffe.classes import PycaffeNet
from tests.solvers.helpers import PLACES, bits, inner, make

from .cases import Case
from .harness import LayerBench

# Of the SOURCE of data, the program, nothing is known before the tests hand it over.
FIELDS = "memory_data_param { batch_size: 2 channels: 3 height: 4 width: 5 }"
HOST_CASES: list[Case] = [
    Case("MemoryData", f'name: "SOURCE" {FIELDS} {more}', (), n_top=2)
    for more in ("", "transform_param { mean_value: 3 mean_value: 5 mean_value: 6 scale: 0.25 }")
]
SHAPE = (3, 4, 5)
RNG = np.random.default_rng(0)


def memory(more="", fields=FIELDS, **kwargs):
    return LayerBench("MemoryData", f"{fields} {more}", (), **{"n_top": 2, **kwargs})


def some(n, shape=SHAPE, dtype=np.float32):
    return RNG.integers(0, 256, (n, *shape)).astype(dtype), np.arange(n).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_arrays_go_round_and_round_untransformed(case, dtype, caplog):
    subject = case.bench(dtype)
    data, labels = some(6)
    subject.layer.set_input_arrays(data, labels)
    assert ("does not transform" in caplog.text) == ("transform_param" in case.text)
    for k in (0, 2, 4, 0, 2):
        top, label = subject.forward([])
        assert top.dtype == label.dtype == dtype
        np.testing.assert_array_equal(top, data[k : k + 2])
        np.testing.assert_array_equal(label, labels[k : k + 2])
    data[4:] = 7  # no copy was made
    assert (subject.forward([])[0] == 7).all()
    subject.layer.set_input_arrays(data[:2], labels[4:].reshape(2, 1, 1, 1))
    assert subject.forward([])[1].tolist() == [4, 5]


def test_forward_without_data():
    with pytest.raises(DataError, match=r'layer "l" \(MemoryData\): has no data') as caught:
        memory().forward([])
    assert "set_input_arrays" in caught.value.fix


@pytest.mark.parametrize(
    "data, labels, words",
    [
        ((3, *SHAPE), (3,), "3 items are not a multiple of batch_size 2"),
        ((0, *SHAPE), (0,), "no items"),
        ((2, 3, 4, 4), (2,), r"shape \(2, 3, 4, 4\)"),
        ((2, 60), (2,), r"shape \(2, 60\)"),
        ((2, *SHAPE), (4,), r"2 items, but labels of shape \(4,\)"),
        ((2, *SHAPE), (2, 2), r"labels of shape \(2, 2\)"),
        ((2, *SHAPE), (), r"labels of shape \(\)"),
    ],
)
def test_arrays_that_do_not_fit(data, labels, words):
    with pytest.raises(DataError, match=words) as caught:
        memory().layer.set_input_arrays(np.zeros(data, np.float32), np.zeros(labels, np.float32))
    assert caught.value.fix and "MemoryData" in str(caught.value)


def test_texts_are_no_data():
    with pytest.raises(DataError, match="not numbers"):
        memory().layer.set_input_arrays(np.full((2, *SHAPE), "x"), np.zeros(2))


def test_added_records_and_pictures_are_transformed():
    text = "transform_param { mean_value: 3 mean_value: 5 mean_value: 6 scale: 0.25 }"
    pictures = some(4, dtype=np.uint8)[0]
    mean = np.array([3, 5, 6])[:, None, None]
    subject = memory(text)
    subject.layer.add_datums([parse_datum(encode_datum(p, 10 + k), source="") for k, p in enumerate(pictures)])
    for k in (0, 2, 0):
        data, label = subject.forward([])
        np.testing.assert_array_equal(data, (pictures[k : k + 2] - mean) * 0.25)
        assert label.tolist() == [10 + k, 11 + k]
    subject.forward([])
    subject.layer.add_images([p.transpose(1, 2, 0) for p in pictures[::-1]], [7, 6, 5, 4])
    data, label = subject.forward([])
    np.testing.assert_array_equal(data, (pictures[:1:-1] - mean) * 0.25)
    assert label.tolist() == [7, 6]


def test_gray_pictures_need_no_channel_axis():
    subject = memory(fields="memory_data_param { batch_size: 1 channels: 1 height: 2 width: 3 }")
    picture = np.arange(6, dtype=np.uint8).reshape(2, 3)
    subject.layer.add_images([picture], [3])
    data, label = subject.forward([])
    assert data.tolist() == [[picture.tolist()]] and label.tolist() == [3]


def test_what_was_added_is_used_before_more_comes():
    bench = memory()
    subject = bench.layer
    pictures = [p.transpose(1, 2, 0) for p in some(4, dtype=np.uint8)[0]]
    subject.add_images(pictures, range(4))
    for left in (4, 2):
        for ask in (
            lambda: subject.add_images(pictures, range(4)),
            lambda: subject.add_datums([]),
            lambda: subject.set_batch_size(4),
        ):
            with pytest.raises(DataError, match=f"{left} have not been used"):
                ask()
        bench.forward([])
    subject.add_images(pictures, range(4))
    subject.set_input_arrays(*some(2))  # arrays replace what waits
    subject.add_images(pictures, range(4))


def test_the_batch_size_can_change():
    bench = memory()
    data, labels = some(6)
    bench.layer.set_input_arrays(data, labels)
    bench.layer.set_batch_size(3)
    bench.reshape([])
    assert bench.top_shapes == [(3, *SHAPE), (3,)]
    assert [bench.forward([])[1].tolist() for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    bench.layer.set_batch_size(4)
    bench.reshape([])
    with pytest.raises(DataError, match="has no data"):
        bench.forward([])
    with pytest.raises(LayerParamError, match="batch_size is 0"):
        bench.layer.set_batch_size(0)


def test_crops_and_mirrors_repeat_by_the_seed_and_the_number_of_additions():
    text, pictures = "transform_param { crop_size: 4 mirror: true }", some(8, (3, 9, 9), np.uint8)[0]
    fields = "memory_data_param { batch_size: 8 channels: 3 height: 4 width: 4 }"
    images = [p.transpose(1, 2, 0) for p in pictures]

    def adding(subject, times):
        seen = []
        for _ in range(times):
            subject.layer.add_images(images, range(8))
            seen.append(subject.forward([])[0])
        return seen

    first, second = memory(text, fields), memory(text, fields)
    seen = adding(first, 3)
    assert (seen[0] != seen[1]).any()
    second.layer.set_state({"position": 0, "draws": 1, "seed": 0})
    np.testing.assert_array_equal(adding(second, 2), seen[1:])
    second.layer.set_state({"position": 0, "draws": 0, "seed": 5})
    assert (adding(second, 1)[0] != seen[0]).any()
    windows = {
        p[:, t : t + 4, c : c + 4][:, :, ::step].tobytes()
        for p in pictures
        for t in range(6)
        for c in range(6)
        for step in (1, -1)
    }
    assert all(item.astype(np.uint8).tobytes() in windows for batch in seen for item in batch)


@pytest.mark.parametrize(
    "work, words",
    [
        (lambda m: m.add_images([np.zeros((4, 5, 3), np.float32)] * 2, [0, 0]), "picture 0 is float32"),
        (lambda m: m.add_images([np.zeros((4, 5, 3), np.uint8)] * 2, [0]), "2 pictures, but 1 labels"),
        (lambda m: m.add_images([np.zeros((4, 5, 3), np.uint8)], [0]), "1 items are not a multiple"),
        (lambda m: m.add_images([np.zeros((4, 6, 3), np.uint8)] * 2, [0, 0]), "3 x 4 x 6"),
        (lambda m: m.add_images([np.zeros((4, 5), np.uint8)] * 2, [0, 0]), "1 x 4 x 5"),
        (lambda m: m.add_datums([]), "no items"),
        (lambda m: m.add_datums([parse_datum(b"", source="")] * 2), 'record "0"'),
    ],
)
def test_additions_that_do_not_fit(work, words):
    with pytest.raises(CaffeError, match=words) as caught:
        work(memory().layer)
    assert caught.value.fix and 'layer "l" (MemoryData)' in str(caught.value)


@pytest.mark.parametrize("field", ["batch_size", "channels", "height", "width"])
def test_missing_fields(field):
    given = " ".join(f"{name}: 2" for name in ("batch_size", "channels", "height", "width") if name != field)
    with pytest.raises(LayerParamError, match=rf"memory_data_param\.{field} must be given"):
        memory(fields=f"memory_data_param {{ {given} }}")


def test_contradictions_and_counts():
    with pytest.raises(LayerParamError, match="both set"):
        memory('transform_param { mean_value: 1 mean_file: "x" }')
    with pytest.raises(BlobCountError):
        memory(n_top=1)


# -- in nets ------------------------------------------------------------------------------------------------------
DATA = f'layer {{ name: "m" type: "MemoryData" top: "x" top: "label" {FIELDS} }}\n'
NET = DATA + inner() + 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'


def test_pycaffe_sets_arrays():
    net = PycaffeNet(parse_net(NET).message)
    assert net.blobs["label"].data.shape == (2,)  # in Caffe (2,), and (2, 1, 1, 1) from the first forward on
    data, labels = some(4)
    net.set_input_arrays(data, labels)
    loss, scores = net.forward()["loss"], net.blobs["ip"].data.astype(np.float64)
    known = np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1)) + scores.max(1) - scores[[0, 1], [0, 1]]
    most = -np.log(np.finfo(np.float32).tiny)
    assert loss == pytest.approx(np.minimum(known, most).mean(), rel=1e-5, abs=1e-5)
    np.testing.assert_array_equal(net.blobs["x"].data, data[:2])
    assert net.blobs["label"].data.shape == (2,)
    net.layers[0].set_batch_size(4)
    net.forward()
    np.testing.assert_array_equal(net.blobs["x"].data, data)
    assert net.blobs["label"].data.shape == (4,)
    net.close()


def test_other_first_layers_take_no_arrays():
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }'
    with pytest.raises(UsageError, match="first layer is a MemoryData"):
        PycaffeNet(parse_net(text).message).set_input_arrays(np.zeros(2), np.zeros(2))


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_solver_equals_an_uninterrupted_one(place, tmp_path):
    prefix, (data, labels) = f'"{tmp_path}/r"', some(10)
    whole, first, second = (make(NET, place, snapshot_prefix=prefix, momentum=0.9, base_lr=1e-4) for _ in range(3))
    for solver in (whole, first, second):
        solver.net.layers[0].set_input_arrays(data, labels % 5)
    whole.step(7)
    first.step(3)
    first.snapshot()
    second.restore(f"{tmp_path}/r_iter_3.solverstate")
    second.step(4)
    assert bits(second) == bits(whole)
    for solver in (whole, first, second):
        solver.close()
