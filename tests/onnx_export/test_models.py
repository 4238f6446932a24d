"""Whole nets of the model zoo, small: exported and run elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from pycaffe_lms.errors import ExportError
from pycaffe_lms.formats.prototxt.parser import read_net
from pycaffe_lms.net.net import Net
from pycaffe_lms.onnx_export import export_onnx
from tests.models.nets import ALL, MODELS, NARROW, tiny

from .harness import Exported, agree, fill_like_trained

DEPLOYS = (
    "alexnet",
    "squeezenet-1.0",
    "mobilenet-v1",
    "mobilenet-v2",
    "googlenet",
    "resnet-18",
    "densenet-121",
    "inception-v3",
    "unet-2d",
    "unet-3d",
    "fcn-8s",
    "c3d",
    "lenet",
    "cifar10_full",
    "cifar10_resnet-56",
    "mnist_autoencoder",
    "mnist_siamese",
    "char_lstm",
)


def small(folder: str, file: str = "deploy") -> Net:
    """The net for use with the inputs of its smallest training, and few outputs of its largest layers."""
    model = ALL[f"{folder}/{'train_val' if file == 'deploy' else file}"]
    message = read_net(MODELS / folder / f"{file}.prototxt").message
    for layer in message.layer:
        for i, top in enumerate(layer.top if layer.type == "Input" else ()):
            if top in model.tiny:
                layer.input_param.shape[i].dim[:] = model.tiny[top]
        for field in ("convolution_param", "inner_product_param"):
            if layer.name in model.narrow and layer.HasField(field):
                getattr(layer, field).num_output = NARROW
    return Net(message, 1)


def inputs_of(net: Net) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    found = {}
    for name in net.inputs:
        shape = net.blobs[name].shape
        kind = {"cont": rng.integers(0, 2, shape), "input": rng.integers(0, 100, shape)}
        found[name] = kind.get(name, rng.normal(size=shape))
    return found


LONG = ("densenet-121", "inception-v3", "fcn-8s", "unet-2d")


@pytest.mark.parametrize("folder", [pytest.param(f, marks=pytest.mark.thorough if f in LONG else ()) for f in DEPLOYS])
def test_a_net_of_the_zoo(folder, tmp_path):
    net = small(folder)
    fill_like_trained(net)
    exported = Exported(net, tmp_path)
    agree(net, exported, inputs_of(net), tolerance=1e-4)
    for name in net.outputs:
        spread = net.blobs[name].data.std()
        assert np.isfinite(spread) and spread > 1e-6 * np.abs(net.blobs[name].data).max(), name


def test_the_generator_of_pictures(tmp_path):
    net = small("dcgan", "generator")
    fill_like_trained(net)
    exported = Exported(net, tmp_path)
    agree(net, exported, inputs_of(net), tolerance=1e-4)
    assert "ConvTranspose" in exported.ops


def test_any_batch_of_a_whole_net(tmp_path):
    net = small("squeezenet-1.1")
    fill_like_trained(net)
    exported = Exported(net, tmp_path, dynamic_batch=True)
    for items in (1, 3):
        net.blobs["data"].reshape(items, 3, 51, 51)
        net.reshape()
        agree(net, exported, inputs_of(net), tolerance=1e-4)


def test_nets_for_training_name_what_is_in_the_way(tmp_path):
    """Data and losses, all of them."""
    net = Net(tiny(ALL["googlenet/train_val"]), 1)
    with pytest.raises(ExportError) as caught:
        export_onnx(net, tmp_path / "net.onnx")
    ends = [
        n.name for n in net.graph.nodes if n.layer.declares.is_loss or n.layer.param.type in ("Accuracy", "DummyData")
    ]
    assert len(ends) > 5 and all(f'layer "{name}"' in str(caught.value) for name in ends)
