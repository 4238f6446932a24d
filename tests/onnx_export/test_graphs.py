"""Whole graphs: names of blobs, in-place layers, shared parameters, Splits, the batch, types, opsets, states."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

import pycaffe_lms as caffe
from pycaffe_lms.onnx_export.sketch import DEFAULT_OPSET, OPSETS

from .harness import Exported, agree, fill_params, net_of, one_layer

DATA = 'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 5 } } } '


def conv(name: str, bottom: str, top: str, param: str = "", more: str = "num_output: 4 kernel_size: 3 pad: 1") -> str:
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{top}" {param} '
        f"convolution_param {{ {more} weight_filler {{ type: 'gaussian' std: 0.3 }} }} }} "
    )


def layer(name: str, type: str, bottom: str, top: str, more: str = "") -> str:
    bottoms, tops = (" ".join(f'{k}: "{v}"' for v in s.split()) for k, s in (("bottom", bottom), ("top", top)))
    return f'layer {{ name: "{name}" type: "{type}" {bottoms} {tops} {more} }} '


def values(net, seed: int = 0, items: int | None = None) -> dict:
    rng = np.random.default_rng(seed)
    shapes = {name: net.blobs[name].shape for name in net.inputs}
    return {n: rng.normal(size=(items or s[0], *s[1:])).astype(net.dtype) for n, s in shapes.items()}


def exported_and_checked(net, tmp_path, **options) -> Exported:
    fill_params(net)
    exported = Exported(net, tmp_path, **options)
    agree(net, exported, values(net))
    return exported


# -- names ------------------------------------------------------------------------------------------------------------
def test_the_last_version_of_a_blob_has_its_name(tmp_path):
    """Convolution, BatchNorm, ReLU in place: what Caffe shows as "conv" is the ReLU's."""
    text = DATA + conv("c", "data", "conv") + layer("bn", "BatchNorm", "conv", "conv")
    text += layer("r", "ReLU", "conv", "conv") + layer("drop", "Dropout", "conv", "conv")
    exported = exported_and_checked(net_of(text), tmp_path)
    assert exported.ops == ["Conv", "BatchNormalization", "Relu"]  # Dropout in place is nothing
    assert [list(n.output) for n in exported.model.graph.node] == [["conv.c"], ["conv.bn"], ["conv"]]
    assert [n.name for n in exported.model.graph.node] == ["c", "bn", "r"] and exported.outputs == ["conv"]


def test_an_input_keeps_its_name(tmp_path):
    text = DATA + layer("r", "ReLU", "data", "data") + conv("c", "data", "conv")
    exported = exported_and_checked(net_of(text), tmp_path)
    assert [i.name for i in exported.model.graph.input] == ["data"]
    assert [list(n.input)[0] for n in exported.model.graph.node] == ["data", "data.r"]


def test_a_dropout_with_a_top_of_its_own_keeps_both_names(tmp_path):
    text = DATA + layer("d", "Dropout", "data", "dropped") + conv("c", "dropped", "conv")
    exported = exported_and_checked(net_of(text), tmp_path)
    assert exported.ops == ["Identity", "Conv"] and exported.model.graph.node[0].output[0] == "dropped"


def test_splits_that_caffe_inserts_vanish_and_written_ones_stay(tmp_path):
    text = DATA + conv("c", "data", "conv") + layer("r", "ReLU", "conv", "relu")
    text += layer("t", "TanH", "conv", "tanh") + layer("s", "Split", "tanh", "s1 s2")
    exported = exported_and_checked(net_of(text), tmp_path)
    assert exported.ops == ["Conv", "Relu", "Tanh", "Identity", "Identity"]
    assert exported.outputs == ["relu", "s1", "s2"]


def test_layers_with_the_names_of_blobs_or_of_each_other_get_along(tmp_path):
    text = DATA + conv("data/weight", "data", "conv") + conv("data", "conv", "data/const")
    text += layer("data/const", "Power", "data/const", "y", "power_param { scale: 2 shift: 1 }")
    text += layer("data/const", "Sigmoid", "y", "data/weight")
    exported = exported_and_checked(net_of(text), tmp_path)
    names = [n.name for n in exported.model.graph.node]
    assert len(set(names)) == len(names) and exported.outputs == ["data/weight"]


def test_outputs_are_in_the_net_s_order_and_silence_is_not_there(tmp_path):
    text = DATA + layer("s", "Slice", "data", "z y a") + layer("quiet", "Silence", "y", "")
    exported = exported_and_checked(net_of(text), tmp_path)
    assert exported.outputs == ["a", "z"] and exported.ops == ["Split"]


def test_the_header(tmp_path):
    model = exported_and_checked(net_of('name: "mine" ' + DATA + conv("c", "data", "conv")), tmp_path).model
    assert (model.producer_name, model.producer_version) == ("pycaffe-lms", caffe.__version__)
    assert model.graph.name == "mine" and [o.version for o in model.opset_import] == [DEFAULT_OPSET]
    assert model.ir_version == 8  # what came with opset 17


# -- parameters -------------------------------------------------------------------------------------------------------
def test_a_shared_parameter_is_one_constant(tmp_path):
    shared = 'param { name: "w" } param { name: "b" }'
    text = DATA + conv("one", "data", "a", shared) + conv("two", "data", "b", shared)
    ip = 'param { name: "v" } inner_product_param { num_output: 3 bias_term: false } '
    text += layer("ip1", "InnerProduct", "a", "c", ip) + layer("ip2", "InnerProduct", "b", "d", ip)
    exported = exported_and_checked(net_of(text), tmp_path)
    assert {name: a.shape for name, a in exported.constants.items()} == {
        "one/weight": (4, 3, 3, 3),
        "one/bias": (4,),
        "ip1/weight": (3, 120),
    }


def test_a_parameter_shared_in_another_shape(tmp_path):
    shared = 'param { name: "w" share_mode: PERMISSIVE }'
    text = DATA + layer(
        "one", "InnerProduct", "data", "a", shared + "inner_product_param { num_output: 6 bias_term: false axis: 3 }"
    )
    text += layer(
        "two", "InnerProduct", "a", "b", shared + "inner_product_param { num_output: 5 bias_term: false axis: 3 }"
    )
    exported_and_checked(net_of(text), tmp_path)


def test_batch_norm_s_factor_is_folded(tmp_path):
    net = net_of(DATA + layer("bn", "BatchNorm", "data", "y"))
    for blob, numbers in zip(net.params["bn"], ([2, 4, 6], [8, 10, 12], [4]), strict=True):
        blob.data = numbers
    constants = Exported(net, tmp_path).constants
    np.testing.assert_array_equal(constants["bn/running_mean"], np.float32([0.5, 1, 1.5]))
    np.testing.assert_array_equal(constants["bn/running_var"], np.float32([2, 2.5, 3]))


def test_an_untrained_batch_norm(tmp_path):
    net = net_of(DATA + layer("bn", "BatchNorm", "data", "y"))
    exported = Exported(net, tmp_path)
    data = values(net)
    np.testing.assert_allclose(exported.run(**data)["y"], data["data"] / np.sqrt(1e-5), rtol=1e-5)


# -- the batch --------------------------------------------------------------------------------------------------------
BATCHED = {
    "flat": conv("c", "data", "c") + layer("f", "Flatten", "c", "f") + layer("s", "Softmax", "f", "s"),
    "ip": layer("i", "InnerProduct", "data", "i", "inner_product_param { num_output: 4 weight_filler { std: 0.3 } }"),
    "ip3": layer("i", "InnerProduct", "data", "i", "inner_product_param { num_output: 4 axis: 2 }"),
    "reshape": layer("r", "Reshape", "data", "r", "reshape_param { shape { dim: 0 dim: -1 dim: 15 } }"),
    "rows": layer("r", "Reshape", "data", "r", "reshape_param { shape { dim: -1 dim: 30 } }"),
    "items": conv("c", "data", "c", more="num_output: 2 kernel_size: 2 axis: 2"),
    "shuffle": layer("s", "ShuffleChannel", "data", "s", "shuffle_channel_param { group: 3 }"),
    "interp": layer("z", "Interp", "data", "z", "interp_param { zoom_factor: 2 }"),
    "mask": layer("p", "Pooling", "data", "p m", "pooling_param { kernel_size: 2 stride: 2 }")
    + layer("u", "Upsample", "p m", "u", "upsample_param { upsample_h: 6 upsample_w: 5 }"),
    "argmax": layer("a", "ArgMax", "data", "a", "argmax_param { top_k: 3 out_max_val: true }"),
    "power": layer("p", "Power", "data", "p", "power_param { scale: 0 shift: 3 }"),
    "turned": layer("p", "Permute", "data", "p", "permute_param { order: 1 order: 0 }")
    + layer("r", "Reshape", "p", "r", "reshape_param { shape { dim: 6 dim: -1 } }"),
    "mvn": layer("m", "MVN", "data", "m"),
    "crop": layer("p", "Pooling", "data", "p", "pooling_param { kernel_size: 2 }")
    + layer("c", "Crop", "data p", "c", "crop_param { offset: 1 }"),
}


@pytest.mark.parametrize("name", BATCHED)
def test_any_batch(name, tmp_path):
    net = net_of(DATA + BATCHED[name])
    fill_params(net)
    exported = Exported(net, tmp_path, dynamic_batch=True)
    assert exported.shape("data") == ["batch", 3, 6, 5]
    (out,) = net.outputs
    assert exported.shape(out)[0] == ("" if name == "rows" else 6 if name == "turned" else "batch")
    for items in (2, 1, 5):
        net.blobs["data"].reshape(items, 3, 6, 5)
        net.reshape()
        agree(net, exported, values(net, items=items))


def test_a_fixed_batch_is_declared(tmp_path):
    assert Exported(net_of(DATA + conv("c", "data", "c")), tmp_path).shape("data") == [2, 3, 6, 5]


def test_the_shape_that_an_input_has_now_counts(tmp_path):
    net = net_of(DATA + conv("c", "data", "c"))
    net.blobs["data"].reshape(1, 3, 9, 9)
    exported = Exported(net, tmp_path)
    assert exported.shape("data") == [1, 3, 9, 9] and exported.shape("c") == [1, 4, 9, 9]


# -- opsets and types -------------------------------------------------------------------------------------------------
DIVERSE = (
    conv("c", "data", "c")
    + layer("m", "MVN", "c", "m")
    + layer("l", "LRN", "m", "l")
    + layer("n", "Normalize", "l", "n")
    + layer("p", "Pooling", "n", "p", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }")
    + layer("s", "Slice", "p", "s1 s2")
    + layer("f", "Softmax", "s2", "s3")
    + layer("x", "Concat", "s3 s1", "x")
    + layer("z", "Interp", "x", "z", "interp_param { height: 5 width: 8 }")
    + layer("b", "BatchNorm", "z", "z")
    + layer("r", "Reduction", "z", "r", "reduction_param { axis: 2 operation: ASUM }")
    + layer("k", "ArgMax", "r", "k", "argmax_param { top_k: 2 }")
    + layer("u", "Upsample", "p", "u")
)


def onnxruntime_s_newest() -> int:
    """Return the newest opset that the installed onnxruntime supports."""
    minor = int(onnxruntime.__version__.split(".")[1])
    return 21 if minor < 21 else 22 if minor < 23 else 23


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset(opset, tmp_path):
    if opset > min(onnx.defs.onnx_opset_version(), onnxruntime_s_newest()):
        pytest.skip(f"the installed onnx or onnxruntime does not know opset {opset}")
    exported = exported_and_checked(net_of(DATA + DIVERSE), tmp_path, opset=opset)
    assert [o.version for o in exported.model.opset_import] == [opset]
    assert exported.outputs == ["k", "u"]


# ONNX's reference implementation runs LRN over as many channels as there are items
WITHOUT_LRN = DIVERSE.replace(layer("l", "LRN", "m", "l"), layer("l", "TanH", "m", "l"))


@pytest.mark.parametrize("text", [WITHOUT_LRN, BATCHED["mask"], BATCHED["ip3"]], ids=["diverse", "mask", "ip"])
def test_float64(text, tmp_path):
    net = net_of(DATA + text, np.float64)
    fill_params(net)
    exported = Exported(net, tmp_path)
    assert {a.dtype.name for a in exported.constants.values()} <= {"float64", "int64", "float32"}
    agree(net, exported, values(net), tolerance=1e-9)


# -- recurrent layers -------------------------------------------------------------------------------------------------
RECURRENT = (
    'layer { name: "in" type: "Input" top: "x" top: "cont" input_param { shape { dim: 3 dim: 2 dim: 4 } '
    "shape { dim: 3 dim: 2 } } } "
)


@pytest.mark.parametrize(("kind", "states"), [("LSTM", ("h", "c")), ("RNN", ("h",))])
def test_the_state_goes_out_and_in_again(kind, states, tmp_path):
    net = net_of(RECURRENT + layer("rec", kind, "x cont", "y", "recurrent_param { num_output: 5 }"))
    fill_params(net)
    exported = Exported(net, tmp_path)
    ins, outs = ([f"rec.{s}_{way}" for s in states] for way in ("in", "out"))
    assert [i.name for i in exported.model.graph.input] == ["x", "cont", *ins] and exported.outputs == ["y", *outs]
    rng = np.random.default_rng(2)
    carried: dict = {}  # at first nothing: zeros
    for cont in ([[0, 0], [1, 1], [1, 1]], [[1, 1], [1, 0], [1, 1]], [[1, 0], [1, 1], [0, 1]]):
        feed = {"x": rng.normal(size=(3, 2, 4)).astype(np.float32), "cont": np.float32(cont)}
        theirs = exported.run(**feed, **carried)
        for name, array in feed.items():
            net.blobs[name].data = array
        net.forward_range()
        np.testing.assert_allclose(theirs["y"], net.blobs["y"].data, rtol=1e-5, atol=1e-6)
        carried = {i: theirs[o] for i, o in zip(ins, outs, strict=True)}


# -- borders of pooling -----------------------------------------------------------------------------------------------
def _borders():
    rng = np.random.default_rng(11)
    for _ in range(90):
        k, s = (tuple(int(v) for v in rng.integers(1, 5, 2)) for _ in range(2))
        p = tuple(int(rng.integers(0, n)) for n in k)
        size = tuple(int(rng.integers(max(1, n - 2 * q), 10)) for n, q in zip(k, p, strict=True))
        yield k, s, p, size, str(rng.choice(["CEIL", "FLOOR"]))


@pytest.mark.parametrize("method", ["MAX", "AVE"])
def test_windows_at_every_border(method, tmp_path):
    """Kernels, strides (also above the kernel), pads, sizes and rounding, at random: all tops, and places of maxima."""
    for (kh, kw), (sh, sw), (ph, pw), size, rounding in _borders():
        text = (
            f"pooling_param {{ pool: {method} kernel_h: {kh} kernel_w: {kw} stride_h: {sh} stride_w: {sw} "
            f"pad_h: {ph} pad_w: {pw} round_mode: {rounding} }}"
        )
        net = one_layer("Pooling", text, [(1, 2, *size)], n_top=2 if method == "MAX" else 1)
        agree(net, Exported(net, tmp_path), {"b0": np.random.default_rng(1).normal(size=(1, 2, *size))})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_maximum_of_nothing(dtype, tmp_path):
    """The last window begins behind the input: the value is Caffe's initial one, and the place none."""
    net = one_layer("Pooling", "pooling_param { kernel_size: 2 stride: 4 }", [(1, 1, 4, 1)], n_top=2, dtype=dtype)
    found = Exported(net, tmp_path).run(b0=np.arange(4, dtype=dtype).reshape(1, 1, 4, 1))
    assert found["t0"].reshape(-1).tolist() == [1, -float(np.finfo(np.float32).max)]
    assert found["t1"].reshape(-1).tolist() == [1, -1]


def test_ties_give_the_larger_index(tmp_path):
    net = one_layer("ArgMax", "argmax_param { top_k: 3 }", [(1, 6)])
    found = Exported(net, tmp_path).run(b0=np.float32([[2, 5, 5, 1, 5, 2]]))["t0"]
    assert found.reshape(-1).tolist() == [4, 2, 1]


def test_onnx_s_own_shape_inference_agrees(tmp_path):
    exported = exported_and_checked(net_of(DATA + DIVERSE), tmp_path)
    inferred = onnx.shape_inference.infer_shapes(exported.model, strict_mode=True, data_prop=True)
    net = net_of(DATA + DIVERSE)
    known = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in inferred.graph.value_info}
    for name in ("c", "m", "l", "n", "p", "s1", "s2", "x", "r"):
        assert known[name] == list(net.blobs[name].shape), name
