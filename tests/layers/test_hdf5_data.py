"""HDF5Data and HDF5Output: tops, resuming, wrong parameters, in nets and solvers."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from pycaffe_lms.errors import CaffeError, DataError, LayerParamError, MissingDependency, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net
from tests.data.test_hdf5_batches import write_files
from tests.shared_data import SHARED, needs_shared
from tests.solvers.helpers import PLACES, bits, inner, make

from .cases import Case
from .harness import LayerBench

h5py = pytest.importorskip("h5py")

# SOURCE stands for a list, OUT_SOURCE for a file to write; the tests make both.
HOST_CASES: list[Case] = [
    Case("HDF5Data", f'hdf5_data_param {{ source: "SOURCE" {fields} }} top: "x" top: "y" {more}', ())
    for fields, more in (
        ("batch_size: 1", ""),
        ("batch_size: 4", "data_param { prefetch: 1 }"),
        ("batch_size: 5 shuffle: true", ""),
    )
] + [Case("HDF5Output", 'hdf5_output_param { file_name: "OUT_SOURCE" }', ((3, 2), (3,)), n_top=0)]


@pytest.fixture
def source(tmp_path):
    return write_files(tmp_path)


def bench(text, source="", **kwargs):
    return LayerBench("HDF5Data", text.replace("SOURCE", source), (), **kwargs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES[:3], ids=str)
def test_rows_come_together_and_resume(case, dtype, source):
    first, second = bench(case.text, source, dtype=dtype), bench(case.text, source, dtype=dtype)
    try:
        seen = [first.forward([]) for _ in range(7)]
        for x, y in seen:
            assert x.dtype == y.dtype == dtype and [x.shape, y.shape] == first.top_shapes
            np.testing.assert_array_equal(x, np.broadcast_to(y[:, None, None], x.shape))
        state = first.layer.state()
        assert state == {"batches": 7, "seed": 0, "records": 7 * first.top_shapes[0][0]}
        second.layer.set_state({"batches": 3, "seed": 0})
        for expected in seen[3:]:
            for a, b in zip(second.forward([]), expected, strict=True):
                np.testing.assert_array_equal(a, b)
        assert second.layer.state() == state
    finally:
        first.layer.close()
        second.layer.close()


def test_the_seed_decides_the_order(source):
    subject = bench('top: "y" hdf5_data_param { source: "SOURCE" batch_size: 9 shuffle: true }', source)
    try:
        plain = subject.forward([])[0].tolist()
        subject.layer.set_state({"batches": 0, "seed": 3})
        other = subject.forward([])[0].tolist()
        assert sorted(plain) == sorted(other) == list(range(9)) and plain != other
    finally:
        subject.layer.close()


@pytest.mark.parametrize(
    "text, words",
    [
        ("hdf5_data_param { batch_size: 1 }", "source is not set"),
        ('hdf5_data_param { source: "SOURCE" }', "batch_size is not set"),
        ('hdf5_data_param { source: "SOURCE" batch_size: 1 } transform_param { scale: 2 }', "has a transform_param"),
        ('hdf5_data_param { source: "SOURCE" batch_size: 1 } transform_param { }', "has a transform_param"),
    ],
)
def test_impossible_parameters(text, words, source):
    with pytest.raises(LayerParamError, match=f'layer "l" \\(HDF5Data\\).*{words}') as caught:
        bench(text, source)
    assert caught.value.fix


def test_a_missing_dataset_names_the_layer(source):
    with pytest.raises(DataError, match=r'layer "l" \(HDF5Data\), blob "t0": no dataset "t0"') as caught:
        bench('hdf5_data_param { source: "SOURCE" batch_size: 1 }', source)
    assert "x, y" in caught.value.fix


@pytest.mark.parametrize("case", [HOST_CASES[0], HOST_CASES[3]], ids=["data", "output"])
def test_without_h5py(case, source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    text = case.text.replace("OUT_SOURCE", f"{tmp_path}/out.h5").replace("SOURCE", source)
    with pytest.raises(MissingDependency, match="HDF5.*h5py") as caught:
        LayerBench(case.type, text, case.shapes, n_top=case.n_top)
    assert caught.value.fix == "pip install 'pycaffe-lms[hdf5]'"


# -- in nets ------------------------------------------------------------------------------------------------------
def _net(source, shuffle="true"):
    data = (
        f'layer {{ name: "data" type: "HDF5Data" top: "x" top: "y" '
        f'hdf5_data_param {{ source: "{source}" batch_size: 4 shuffle: {shuffle} }} }}\n'
    )
    return (
        data + inner(outputs=9) + 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }'
    )


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_solver_equals_an_uninterrupted_one(place, source, tmp_path):
    net, prefix = _net(source), f'"{tmp_path}/r"'
    whole, first, second = (make(net, place, snapshot_prefix=prefix, momentum=0.9, random_seed=s) for s in (3, 3, 8))
    try:
        whole.step(7)
        first.step(4)
        first.snapshot()
        second.restore(f"{tmp_path}/r_iter_4.solverstate")
        second.step(3)
        assert bits(second) == bits(whole)
    finally:
        for solver in (whole, first, second):
            solver.close()


def test_random_seed_decides_the_order(source):
    """Caffe shuffles by a generator that random_seed does not set."""
    orders = []
    for seed in (3, 3, 4):
        solver = make(_net(source), random_seed=seed)
        orders.append([])
        for _ in range(2):
            solver.step(1)
            orders[-1] += solver.net.blobs["y"].read_data().tolist()
        solver.close()
    assert orders[0] == orders[1] != orders[2]


OUTPUT = (
    'layer { name: "out" type: "HDF5Output" bottom: "ip" bottom: "y" hdf5_output_param { file_name: "OUT_SOURCE" } }\n'
)


@pytest.mark.parametrize("place", PLACES)
def test_every_forward_adds_its_rows(place, source, tmp_path):
    """In training too, where the layer computes no gradient."""
    path = tmp_path / "out.h5"
    solver = make(_net(source, "false") + "\n" + OUTPUT.replace("OUT_SOURCE", str(path)), place)
    expected = []
    for _ in range(3):
        solver.step(1)
        expected.append([solver.net.blobs[name].read_data().copy() for name in ("y",)])
    solver.net.forward_range()
    scores = solver.net.blobs["ip"].read_data().copy()
    solver.close()
    with h5py.File(path) as file:
        assert set(file) == {"data", "label"}
        data, label = file["data"][()], file["label"][()]
    assert data.shape == (16, 9, 1, 1) and label.shape == (16, 1, 1, 1) and data.dtype == np.float32
    np.testing.assert_array_equal(label.ravel(), np.arange(16) % 9)
    np.testing.assert_array_equal(data[12:, :, 0, 0], scores)
    assert len(np.unique(data[:, 0])) > 9, "weights moved between forwards"


def test_what_was_written_is_read_back(tmp_path):
    rng = np.random.default_rng(0)
    data, label = rng.normal(size=(3, 2, 4, 5)), np.array([[1.0], [2], [3]])
    text = HOST_CASES[3].text.replace("OUT_SOURCE", f"{tmp_path}/out.h5")
    subject = LayerBench("HDF5Output", text, (data.shape, label.shape), n_top=0)
    subject.forward([data, label])
    subject.layer.close()
    (tmp_path / "list").write_text(f"{tmp_path}/out.h5")
    again = bench('top: "data" top: "label" hdf5_data_param { source: "SOURCE" batch_size: 3 }', f"{tmp_path}/list")
    found = again.forward([])
    again.layer.close()
    np.testing.assert_array_equal(found[0], data.astype(np.float32) if found[0].dtype == np.float32 else data)
    assert found[1].shape == (3, 1, 1, 1) and found[1].ravel().tolist() == [1, 2, 3]


def test_force_backward_leaves_it_alone(tmp_path):
    text = f"""
    force_backward: true
    layer {{ name: "in" type: "Input" top: "ip" top: "y"
      input_param {{ shape {{ dim: 2 dim: 3 }} shape {{ dim: 2 }} }} }}
    {OUTPUT.replace("OUT_SOURCE", f"{tmp_path}/out.h5")}"""
    net = Net(parse_net(text).message)
    net.forward_range()
    net.backward_range()
    net.close()
    assert (tmp_path / "out.h5").exists()


@pytest.mark.parametrize(
    "text, shapes, kind, words",
    [
        ("", ((2,), (2,)), LayerParamError, "file_name is not set"),
        ('hdf5_output_param { file_name: "OUT_SOURCE" }', ((2, 3), (3, 1)), ShapeError, "2 items of data but 3 labels"),
        ('hdf5_output_param { file_name: "OUT_SOURCE/none/out" }', ((2,), (2,)), CaffeError, "does not exist"),
    ],
)
def test_impossible_outputs(text, shapes, kind, words, tmp_path):
    with pytest.raises(kind, match=words) as caught:
        LayerBench("HDF5Output", text.replace("OUT_SOURCE", str(tmp_path / "out.h5")), shapes, n_top=0)
    assert caught.value.fix


# -- sentences: integers in, one word each ----------------------------------------------------------------------------
@needs_shared
def test_a_language_model_learns_from_integers(tmp_path):
    """A small version of the captioning example's recurrent model: three tops of integers, padded by -1."""
    folder = SHARED / "material" / "lstm_lm"
    text = (folder / "lstm_language_model.prototxt").read_text().split("\n", 1)[1]  # all but its name
    text = re.sub(r'source: "[^"]*"', f'source: "{tmp_path}/list"', text)
    text = re.sub(r"\b8801\b", "7", re.sub(r"\b1000\b", "16", text)).replace("batch_size: 20", "batch_size: 5")
    text = re.sub(r"0\.08", "0.5", text.replace("loss_weight: 20", "loss_weight: 1"))
    words = (np.arange(50)[:, None] + np.arange(4)) % 6 + 1  # every word follows from the one before
    following = np.where(np.arange(50)[:, None] % 5 == 4, -1, words % 6 + 1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["input_sentence"] = words.astype(np.int32)
        file["target_sentence"] = following.astype(np.int8)
        file["cont_sentence"] = np.broadcast_to(np.arange(50)[:, None] % 5 > 0, words.shape).astype(np.uint8)
    (tmp_path / "list").write_text(f"{tmp_path}/a.h5")
    solver = make(text, base_lr=1, momentum=0.9)
    try:
        net = solver.net
        solver.step(1)
        assert net.blobs["input_sentence"].shape == (5, 4)
        np.testing.assert_array_equal(net.blobs["input_sentence"].read_data(), words[:5])
        np.testing.assert_array_equal(net.blobs["target_sentence"].read_data()[4], -1)
        before = net.loss()
        solver.step(60)
        assert net.loss() < before / 20
    finally:
        solver.close()
