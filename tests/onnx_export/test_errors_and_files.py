"""What is refused, with all layers to blame; files that are there whole or not at all, large weights beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import get_device
from pycaffe_lms.errors import CaffeError, ExportError, MissingDependency, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.net import Net
from pycaffe_lms.onnx_export import export_onnx

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from pycaffe_lms.onnx_export import model

from .harness import Exported, agree, fill_params, net_of
from .test_graphs import DATA, RECURRENT, conv, layer, values


def refusal(net, tmp_path, kind=ExportError, **options) -> str:
    """The error's text; nothing is written."""
    path = tmp_path / "net.onnx"
    with pytest.raises(kind) as caught:
        export_onnx(net, path, **options)
    assert type(caught.value) is kind and not list(tmp_path.glob("*.onnx*"))
    assert caught.value.fix
    return str(caught.value)


# -- layers -----------------------------------------------------------------------------------------------------------
def test_all_layers_that_cannot_be_exported_are_named_at_once(tmp_path):
    file = tmp_path / "net.prototxt"
    file.write_text(
        "layer { name: 'label' type: 'DummyData' top: 'label' dummy_data_param { shape { dim: 2 } data_filler "
        "{ type: 'uniform' } } }\n"
        + DATA
        + "\n"
        + layer("cols", "LocallyConnected", "data", "cols", "locally_connected_param { num_output: 1 kernel_size: 1 }")
        + "\n"
        + layer("ip", "InnerProduct", "cols", "ip", "inner_product_param { num_output: 2 }")
        + "\n"
        + layer("loss", "SoftmaxWithLoss", "ip label", "loss")
    )
    text = refusal(Net(file, 1), tmp_path)
    assert text.splitlines()[0] == f"{file}: 3 layers cannot become ONNX:"
    assert f'    {file}:1: layer "label" (DummyData): makes random values' in text
    assert f'    {file}:3: layer "cols" (LocallyConnected): has no counterpart in ONNX' in text
    assert f'    {file}:5: layer "loss" (SoftmaxWithLoss): is for training and testing' in text
    assert "  fix: use a constant filler, or an Input layer; cut the net before this layer" in text


def test_one_layer_is_named_in_the_usual_way(tmp_path):
    text = refusal(net_of(DATA + layer("e", "EuclideanLoss", "data data", "e")), tmp_path)
    assert text.startswith('layer "e" (EuclideanLoss): is for training and testing, so the net cannot become ONNX')
    assert "deploy prototxt" in text


def test_layers_that_read_data(tmp_path):
    net = net_of(
        "layer { name: 'm' type: 'MemoryData' top: 'x' top: 'l' memory_data_param { batch_size: 1 channels: 2 "
        "height: 3 width: 3 } } " + layer("s", "Softmax", "x", "s")
    )
    assert 'layer "m" (MemoryData): reads data by itself' in refusal(net, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (layer("d", "Dropout", "data", "d", "phase: TRAIN"), 'layer "d" (Dropout): has phase TRAIN'),
        (
            layer("d", "Dropout", "data", "d", "dropout_param { sample_weights_test: true }"),
            'layer "d" (Dropout): has sample_weights_test, with which it is random',
        ),
        (
            layer("d", "Pooling", "data", "d", "phase: TRAIN pooling_param { pool: STOCHASTIC kernel_size: 2 }"),
            "phase TRAIN",
        ),
        (layer("s", "Silence", "data", ""), "the net has no outputs"),
    ],
)
def test_other_refusals(text, words, tmp_path):
    assert words in refusal(net_of(DATA + text), tmp_path)


def test_pooling_over_more_axes_than_runtimes_know(tmp_path):
    text = (
        "layer { name: 'i' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 1 dim: 2 dim: 2 dim: 2 dim: 2 } } }"
    )
    net = net_of(text + layer("p", "Pooling", "x", "y", "pooling_param { kernel_size: 2 }"))
    assert "pools over 4 axes" in refusal(net, tmp_path)


def test_an_input_without_a_shape(tmp_path):
    net = net_of("layer { name: 'i' type: 'Input' top: 'x' } " + layer("r", "ReLU", "x", "y"))
    assert 'layer "i" (Input): blob "x" has shape (0,), without elements' in refusal(net, tmp_path)


# -- the batch --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DATA + layer("t", "Slice", "data", "a b", "slice_param { axis: 0 }"), "cannot be cut into 2 equal pieces"),
        (
            DATA + layer("r", "Reshape", "data", "r", "reshape_param { shape { dim: 2 dim: 90 } }"),
            "with a batch of 3 instead of 2",
        ),
        (
            DATA
            + layer("p", "Permute", "data", "p", "permute_param { order: 1 order: 0 }")
            + layer("f", "Flatten", "p", "f")
            + layer("b", "Bias", "f", "b", "bias_param { axis: 1 }"),
            "depends on the",
        ),
        (DATA + layer("m", "ArgMax", "data", "m", "argmax_param { axis: 0 }"), "chooses among the items of a batch"),
        (
            DATA + layer("i", "InnerProduct", "data", "i", "inner_product_param { num_output: 2 axis: 0 }"),
            "depends on the",
        ),
        (RECURRENT + layer("l", "LSTM", "x cont", "y", "recurrent_param { num_output: 2 }"), "time as its first axis"),
        (layer("c", "DummyData", "", "c", "dummy_data_param { shape { dim: 2 } }"), "the net has no inputs"),
        (
            DATA + layer("m", "Slice", "data", "a b", "slice_param { axis: 0 slice_point: 1 }"),
            "depends on the batch size",
        ),
    ],
)
def test_a_batch_that_cannot_be_left_open(text, words, tmp_path):
    net = net_of(text)
    with pytest.raises(CaffeError) as caught:
        export_onnx(net, tmp_path / "net.onnx", dynamic_batch=True)
    assert words in str(caught.value) and "dynamic_batch" in caught.value.fix
    assert not list(tmp_path.iterdir())


def test_the_net_is_as_it_was_after_a_refusal(tmp_path):
    net = net_of(DATA + layer("r", "Reshape", "data", "r", "reshape_param { shape { dim: 2 dim: 90 } }"))
    before = [v.shape for v in net.graph.values]
    refusal(net, tmp_path, type(_error_of(net, tmp_path)), dynamic_batch=True)
    assert [v.shape for v in net.graph.values] == before
    agree(net, Exported(net, tmp_path), values(net))


def _error_of(net, tmp_path) -> CaffeError:
    with pytest.raises(CaffeError) as caught:
        export_onnx(net, tmp_path / "net.onnx", dynamic_batch=True)
    return caught.value


# -- arguments --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("opset", [10, 24, 0, -1])
def test_an_unknown_opset(opset, tmp_path):
    assert f"opset {opset} is not one of 11 to 2" in refusal(net_of(DATA), tmp_path, UsageError, opset=opset)


def test_an_opset_that_the_installed_onnx_does_not_know(tmp_path, monkeypatch):
    monkeypatch.setattr("onnx.defs.onnx_opset_version", lambda: 18)
    assert "opset 19 is not one of 11 to 18" in refusal(net_of(DATA), tmp_path, UsageError, opset=19)


def test_a_net_for_training(tmp_path):
    net = net_of(DATA + layer("r", "ReLU", "data", "r"))
    net = Net(net.message, 0)
    assert "caffe.TEST" in refusal(net, tmp_path, UsageError)


def test_without_onnx(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    text = refusal(net_of(DATA), tmp_path, MissingDependency)
    assert "exporting nets to ONNX needs the package onnx" in text and "pip install 'pycaffe-lms[onnx]'" in text


# -- files ------------------------------------------------------------------------------------------------------------
def test_a_folder_that_is_not_there(tmp_path):
    net = net_of(DATA + layer("r", "ReLU", "data", "r"))
    with pytest.raises(ExportError, match="cannot be written") as caught:
        export_onnx(net, tmp_path / "none" / "net.onnx")
    assert str(tmp_path / "none" / "net.onnx") in str(caught.value)


def test_large_weights_lie_beside_the_model(tmp_path, monkeypatch):
    """The limit is lowered for the test; small tensors stay in the model."""
    monkeypatch.setattr(model, "MOST_BYTES", 4096)
    net = net_of(
        DATA + conv("c", "data", "c") + layer("i", "InnerProduct", "c", "i", "inner_product_param { num_output: 30 }")
    )
    fill_params(net)
    path = tmp_path / "out" / "net.onnx"
    path.parent.mkdir()
    files = export_onnx(net, path)
    assert files[0] == str(path) and sorted(map(str, path.parent.iterdir())) == sorted(files) and len(files) == 2
    exported = Exported(net, path.parent)
    agree(net, exported, values(net))
    weight = net.params["i"][0].data.astype("<f4").tobytes()
    assert weight in Path(files[1]).read_bytes() and weight not in path.read_bytes()
    inside = {t.name: bool(t.raw_data) for t in exported.model.graph.initializer}
    assert inside["i/bias"] and path.stat().st_size < 4096


def test_other_weights_never_take_the_place_of_those_of_an_older_model(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "MOST_BYTES", 1000)
    net = net_of(DATA + layer("i", "InnerProduct", "data", "i", "inner_product_param { num_output: 30 }"))
    path = tmp_path / "net.onnx"
    fill_params(net)
    _, first = export_onnx(net, path)
    old = path.read_bytes()
    fill_params(net, seed=6)

    def fails(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model, "_model", fails)
        with pytest.raises(KeyboardInterrupt):
            export_onnx(net, path)
    assert path.read_bytes() == old  # its weights are still in the file that it names
    fill_params(net, seed=5)
    agree(net, _session_of(net, tmp_path), values(net))
    assert export_onnx(net, path)[1] == first


def _session_of(net, folder):
    """The model that is in the folder, without writing it again."""
    found = Exported.__new__(Exported)
    found.open(folder / "net.onnx", np.float32)
    return found


def test_a_model_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    net = net_of(DATA + layer("r", "ReLU", "data", "r"))
    path = tmp_path / "net.onnx"
    path.write_bytes(b"old")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ExportError, match="No space left"):
        export_onnx(net, path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_the_same_net_gives_the_same_bytes(tmp_path):
    net = net_of(DATA + conv("c", "data", "c") + layer("r", "ReLU", "c", "c"))
    one, two = tmp_path / "1.onnx", tmp_path / "2.onnx"
    for path in (one, two):
        export_onnx(net, path)
    assert one.read_bytes() == two.read_bytes()


def test_a_net_on_another_device_gives_the_same_file(tmp_path):
    """A GPU, here a simulated one, under Large Model Support."""
    text = DATA + conv("c", "data", "c") + layer("r", "ReLU", "c", "c") + layer("b", "BatchNorm", "c", "b")
    message = net_of(text).message
    nets = [
        Net(message, 1, seed=1),
        Net(message, 1, seed=1, device=get_device("sim", capacity=1 << 20), lms=LMSConfig(threshold_kb=1)),
    ]
    for i, net in enumerate(nets):
        fill_params(net)
        net.forward_range()
        export_onnx(net, tmp_path / f"{i}.onnx")
    assert (tmp_path / "0.onnx").read_bytes() == (tmp_path / "1.onnx").read_bytes()


def test_from_python_as_its_users_call_it(tmp_path):
    file = tmp_path / "net.prototxt"
    file.write_text(DATA + conv("c", "data", "c"))
    net = caffe.Net(str(file), caffe.TEST)
    assert caffe.export_onnx(net, str(tmp_path / "net.onnx")) == [str(tmp_path / "net.onnx")]
