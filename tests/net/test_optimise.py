"""caffe.Net(..., optimise=True): normalisation is folded, chains run as one, outputs are those of the plain net."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import MissingName, UsageError

CONV = "convolution_param {{ num_output: {n} kernel_size: 3 pad: 1 {more} weight_filler {{ type: 'xavier' }} }}"
START = "layer { name: 'data' type: 'Input' top: 'data' input_param { shape { dim: 2 dim: 4 dim: 6 dim: 5 } } }"


def layer(name, kind, bottom, top, text=""):
    return f"layer {{ name: '{name}' type: '{kind}' bottom: '{bottom}' top: '{top}' {text} }}"


def conv(name, bottom, n=6, more="bias_term: false", kind="Convolution"):
    return layer(name, kind, bottom, name, CONV.format(n=n, more=more))


def product(name, bottom, text=""):
    return layer(name, "InnerProduct", bottom, name, f"inner_product_param {{ num_output: 5 {text} {GAUSS} }}")


GAUSS = "weight_filler { type: 'gaussian' std: 0.3 }"
SCALE = "scale_param { bias_term: true }"
FOLDS = {  # layers after the data; the names of those that are folded away
    "in place": ([conv("c", "data"), layer("b", "BatchNorm", "c", "c"), layer("s", "Scale", "c", "c", SCALE)], "bs"),
    "a blob for each": ([conv("c", "data"), layer("b", "BatchNorm", "c", "x"), layer("s", "Scale", "x", "y")], "bs"),
    "bias and groups": ([conv("c", "data", 8, "group: 2"), layer("b", "BatchNorm", "c", "c")], "b"),
    "depthwise": ([conv("c", "data", 4, kind="DepthwiseConvolution"), layer("b", "BatchNorm", "c", "c")], "b"),
    "deconvolution": (
        [conv("c", "data", 6, "group: 2", kind="Deconvolution"), layer("b", "BatchNorm", "c", "c")],
        "b",
    ),
    "products": ([product("c", "data"), layer("b", "BatchNorm", "c", "c"), layer("s", "Scale", "c", "c", SCALE)], "bs"),
    "transposed": ([product("c", "data", "transpose: true"), layer("s", "Bias", "c", "c")], "s"),
    "NVIDIA": (
        [conv("c", "data"), layer("b", "BatchNorm", "c", "c", "batch_norm_param { scale_bias: true }")],
        "b",
    ),
    "Synopsys": (
        [
            conv("c", "data"),
            layer("b", "BatchNorm", "c", "c", "batch_norm_param { add_eps_before_sqrt: false eps: 0.1 }"),
        ],
        "b",
    ),
    "yjxiong": ([conv("c", "data"), layer("b", "BN", "c", "c", "bn_param { slope_filler { value: 2 } }")], "b"),
    "SegNet": ([conv("c", "data"), layer("b", "BN", "c", "c", "bn_param { bn_mode: INFERENCE }")], "b"),
}
NOT = {
    "read twice": [conv("c", "data"), layer("b", "BatchNorm", "c", "x"), layer("r", "ReLU", "c", "y")],
    "statistics of the batch": [
        conv("c", "data"),
        layer("b", "BatchNorm", "c", "c", "batch_norm_param { use_global_stats: false }"),
    ],
    "shared weights": [
        conv("c", "data").replace("convolution_param", "param { name: 'w' } convolution_param", 1),
        conv("d", "data").replace("convolution_param", "param { name: 'w' } convolution_param", 1),
        layer("b", "BatchNorm", "c", "c"),
    ],
    "other axis": [conv("c", "data"), layer("s", "Scale", "c", "c", "scale_param { axis: 2 num_axes: 1 }")],
    "two bottoms": [
        conv("c", "data"),
        "layer { name: 's' type: 'Scale' bottom: 'c' bottom: 'c' top: 'y' scale_param { axis: 0 } }",
    ],
    "after ReLU": [conv("c", "data"), layer("r", "ReLU", "c", "c"), layer("b", "BatchNorm", "c", "c")],
}


def written(tmp_path, layers, dtype=np.float64):
    """A net's file, its weights' file, random statistics included, and the plain net."""
    caffe.set_random_seed(5)
    path, weights = str(tmp_path / "net.prototxt"), str(tmp_path / "net.caffemodel")
    (tmp_path / "net.prototxt").write_text("\n".join([START, *layers]))
    net = caffe.Net(path, caffe.TEST, dtype=dtype)
    rng = np.random.default_rng(7)
    for name in set(net.params) - {"c", "d"}:
        for blob in net.params[name]:
            blob.data = rng.uniform(0.5, 2, blob.shape)
    net.save(weights)
    return path, weights, net


def pictures(net):
    return np.random.default_rng(1).standard_normal(net.blobs["data"].shape)


@pytest.mark.parametrize("case", FOLDS)
def test_folded_nets_make_the_same(tmp_path, case):
    layers, gone = FOLDS[case]
    path, weights, plain = written(tmp_path, layers)
    net = caffe.Net(path, caffe.TEST, weights=weights, optimise=True, dtype=np.float64)
    assert list(net.layer_dict) == [name for name in plain.layer_dict if name not in gone]
    expected = plain.forward(data=pictures(plain))
    found = net.forward(data=pictures(plain))
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("case", NOT)
def test_what_cannot_be_folded_stays(tmp_path, case):
    path, weights, plain = written(tmp_path, NOT[case])
    net = caffe.Net(path, caffe.TEST, weights=weights, optimise=True, dtype=np.float64)
    assert [n for n in net.layer_dict if "_split" not in n] == [n for n in plain.layer_dict if "_split" not in n]
    expected = plain.forward(data=pictures(plain))
    for name, values in net.forward(data=pictures(plain)).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-11, atol=1e-12)


WHOLE = [
    *FOLDS["in place"][0],
    layer("r", "ReLU", "c", "c"),
    conv("d", "c"),
    layer("e", "BatchNorm", "d", "e"),
    "layer { name: 'sum' type: 'Eltwise' bottom: 'c' bottom: 'e' top: 'sum' }",
    layer("ip", "InnerProduct", "sum", "ip", f"inner_product_param {{ num_output: 3 {GAUSS} }}"),
]


def test_hidden_blobs_have_values_where_they_are_asked_for(tmp_path):
    path, weights, plain = written(tmp_path, WHOLE)
    net = caffe.Net(path, caffe.TEST, weights=weights, optimise=True, dtype=np.float64)
    data = pictures(plain)
    expected = plain.forward(["c", "e"], data=data)
    found = net.forward(["c", "e"], data=data)
    assert set(found) == {"c", "e", "ip"}
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-11, atol=1e-12)
    with pytest.raises(MissingName, match='"d"'):
        net.forward(["d"], data=data)  # folded away
    np.testing.assert_allclose(net.forward(end="sum", data=data)["sum"], plain.forward(end="sum", data=data)["sum"])


@pytest.mark.parametrize("lms", ["off", 0, "auto"])
def test_large_model_support_changes_no_bit(tmp_path, lms):
    path, weights, _ = written(tmp_path, WHOLE, np.float32)

    def outputs(device, lms):
        net = caffe.Net(path, caffe.TEST, weights=weights, optimise=True, device=device, lms=lms)
        return [net.forward(data=pictures(net) * k)["ip"].copy() for k in range(1, 6)]

    for found, expected in zip(outputs(SimDevice(1 << 20), lms), outputs(None, "off"), strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("lms", ["off", "auto"])
@pytest.mark.parametrize("case", [*FOLDS, "whole"])
def test_a_gpu_makes_the_same(tmp_path, case, lms):
    """Five forwards: layer by layer, recorded as a CUDA graph, and replayed."""
    path, weights, plain = written(tmp_path, WHOLE if case == "whole" else FOLDS[case][0])
    device, data = get_device("cuda"), pictures(plain)
    device.set_budget(None)
    net = caffe.Net(path, caffe.TEST, weights=weights, optimise=True, device=device, lms=lms, dtype=np.float64)
    for k in range(1, 6):
        expected = plain.forward(data=data * k)
        for name, values in net.forward(data=data * k).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-10, atol=1e-11)


def test_what_it_needs_is_said(tmp_path):
    path, weights, plain = written(tmp_path, WHOLE)
    with pytest.raises(UsageError, match="optimise=True needs the weights"):
        caffe.Net(path, caffe.TEST, optimise=True)
    with pytest.raises(UsageError, match="optimise=True is for inference"):
        caffe.Net(path, caffe.TRAIN, weights=weights, optimise=True)
    net = caffe.Net(path, caffe.TEST, weights=weights, optimise=True)
    for refused in (net.copy_from, net.load_hdf5):
        with pytest.raises(UsageError, match="are folded into others"):
            refused(weights)
    for one, other in ((net, plain), (plain, net)):
        with pytest.raises(UsageError, match="are folded into others"):
            one.share_with(other)


def test_pictures_of_another_size(tmp_path):
    path, weights, plain = written(tmp_path, WHOLE[:-1])
    net = caffe.Net(path, caffe.TEST, weights=weights, optimise=True, dtype=np.float64)
    for one in (net, plain):
        one.blobs["data"].reshape(1, 4, 9, 8)
    np.testing.assert_allclose(net.forward(data=pictures(net))["sum"], plain.forward(data=pictures(net))["sum"])
