"""Nets as Caffe files for chips: the same outputs, in the words of the document, or one error that names everything."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

from pycaffe_lms.caffe_export import CHIPS, check_caffe, export_caffe
from pycaffe_lms.caffe_export.fields import OURS, ours_in
from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import ExportError, UsageError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net
from pycaffe_lms.proto.caffe_pb2 import NetParameter

TEST = 1
DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 dim: 9 dim: 9 } } }\n'


def layer(name: str, type: str, bottom: str, top: str, more: str = "") -> str:
    bottoms = " ".join(f'bottom: "{one}"' for one in bottom.split())
    return f'layer {{ name: "{name}" type: "{type}" {bottoms} top: "{top}" {more} }}\n'


def conv(name: str, bottom: str, top: str, more: str = "kernel_size: 3 pad: 1", n: int = 6) -> str:
    return layer(name, "Convolution", bottom, top, f"convolution_param {{ num_output: {n} {more} }}")


BODY = (
    DATA
    + conv("c", "data", "c", "kernel_size: 3 pad: 1 bias_term: false")
    + layer("bn", "BatchNorm", "c", "c")
    + layer("s", "Scale", "c", "c", "scale_param { bias_term: true } lms_param { policy: KEEP }")
    + layer("r", "ReLU", "c", "c", "lms_param { policy: SWAP }")
    + layer("d", "DepthwiseConvolution", "c", "d", "convolution_param { num_output: 6 kernel_size: 3 }")
    + layer("p", "Pooling", "d", "p", "pooling_param { kernel_shape { dim: 3 dim: 3 } stride: 2 ceil_mode: false }")
    + conv("e", "p", "e", "kernel_size: 1")
    + layer("sum", "Eltwise", "p e", "sum", "eltwise_param { stable_prod_grad: false }")
    + layer("bn2", "BatchNorm", "sum", "bn2")
    + layer("drop", "Dropout", "bn2", "bn2")
    + layer("i", "InnerProduct", "bn2", "i", 'inner_product_param { num_output: 5 } param { name: "w" lr_mult: 2 }')
)


def net_of(text: str, seed: int = 5) -> Net:
    """A net whose lines are those of `text`, with random parameters."""
    parsed = parse_net(text, "net.prototxt")
    net = Net(parsed.message, TEST)
    for node, k in zip((n for n in net.graph.nodes if n.message.type != "Split"), range(99), strict=False):
        node.line = parsed.lines.layer(k)
    rng = np.random.default_rng(seed)
    for blob in net.learnable_params:
        blob.data = rng.uniform(0.25, 1.25, size=blob.shape)
    return net


def written(files) -> NetParameter:
    with open(files[0]) as file:
        return text_format.Parse(file.read(), NetParameter())


@pytest.mark.parametrize("chip", CHIPS)
def test_outputs_are_those_of_the_net(chip, tmp_path, caplog):
    net = net_of(BODY)
    files = export_caffe(net, tmp_path / "out", chip)
    (found,) = check_caffe(net, *files)
    assert found.output == "i" and found.relative < 1e-5
    message = written(files)
    types = [one.type for one in message.layer]
    assert types.count("BatchNorm") == 1 and "Scale" not in types  # that behind the sum has nothing to go into
    assert ("Dropout" in types) == (chip in ("rknn", "horizon"))
    assert ("ConvolutionDepthwise" in types) == (chip == "rknn")
    by_name = {one.name: one for one in message.layer}
    assert by_name["d"].convolution_param.group == (1 if chip == "rknn" else 6)
    assert not by_name["p"].pooling_param.HasField("round_mode")  # all windows are whole
    assert by_name["p"].pooling_param.kernel_size == 3
    assert by_name["sum"].eltwise_param.HasField("stable_prod_grad") == (chip in ("rknn", "horizon"))
    assert not any(one.param or one.blobs or one.HasField("phase") for one in message.layer)
    assert not list(ours_in(message))
    assert 'layer "r" (ReLU): lms_param is left out' in caplog.text


def test_the_caffemodel_has_no_fields_beyond_the_weights(tmp_path):
    _, weights = export_caffe(net_of(BODY), tmp_path / "out", "horizon")
    with open(weights, "rb") as file:
        message = NetParameter.FromString(file.read())
    fields = {field.name for one in message.layer for field, _ in one.ListFields()}
    assert fields == {"name", "type", "bottom", "top", "blobs"}
    assert not list(ours_in(message)) and 7000 in OURS


def test_values_after_folding_by_formula(tmp_path):
    """BatchNorm and Scale behind a 1 x 1 convolution, in float64: w' = w s / sqrt(v + eps), b' = (b - m) s / .. + t."""
    text = DATA + conv("c", "data", "c", "kernel_size: 1", 2) + layer("bn", "BatchNorm", "c", "c")
    net = net_of(text + layer("s", "Scale", "c", "c", "scale_param { bias_term: true }"))
    w, b, mean, var, count, s, t = (np.asarray(blob.data, np.float64) for blob in net.learnable_params)
    _, weights = export_caffe(net, tmp_path / "out", "ascend")
    with open(weights, "rb") as file:
        stored = NetParameter.FromString(file.read()).layer[1].blobs
    factor = s / np.sqrt(var / count + 1e-5)
    np.testing.assert_allclose(stored[0].data, (w * factor[:, None, None, None]).ravel(), rtol=1e-6)
    np.testing.assert_allclose(stored[1].data, (b - mean / count) * factor + t, rtol=1e-6)


REFUSED = [
    # chip, layers behind data, what the error says
    ("ascend", layer("x", "Swish", "data", "x"), 'the list of ATC has no layer type "Swish"'),
    ("ascend", conv("x", "data", "x", "kernel_size: 1 stride: 64"), "stride is 64, and ATC takes 1 to 63"),
    (
        "ascend",
        layer("x", "Deconvolution", "data", "x", "convolution_param { num_output: 4 kernel_size: 2 group: 2 }"),
        "group is 2, and ATC takes 1",
    ),
    ("ascend", layer("x", "Eltwise", "data data data data data", "x"), "bottoms is 5, and ATC takes 2 to 4"),
    (
        "ascend",
        layer("x", "InnerProduct", "data", "x", "inner_product_param { num_output: 2 transpose: true }"),
        "inner_product_param.transpose is true, and ATC takes false",
    ),
    (
        "ascend",
        layer("x", "Power", "data", "x", "power_param { scale: 2 }"),
        "ATC takes power_param.power only so: other than 1",
    ),
    (
        "ascend",
        layer("x", "Normalize", "data", "x", "norm_param { across_spatial: false eps: 1e-6 }"),
        "norm_param.across_spatial is false, and ATC takes true",
    ),
    (
        "ascend",
        layer("x", "LRN", "data", "x", "lrn_param { local_size: 17 norm_region: WITHIN_CHANNEL }"),
        "local_size is 17, and ATC takes 15 or less",
    ),
    (
        "ascend",
        layer("x", "Pooling", "data", "x", "pooling_param { kernel_size: 2 pool: STOCHASTIC }"),
        "pool is STOCHASTIC, and ATC takes MAX or AVE",
    ),
    (
        "ascend",
        layer("x", "Softmax", "data", "x", "softmax_param { axis: 2 }"),
        "bottom width is 9, and ATC takes 1 or",
    ),
    ("rknn", layer("x", "ELU", "data", "x"), 'the list of RKNN-Toolkit2 has no layer type "ELU"'),
    (
        "rknn",
        layer("x", "ConvolutionDepthwise", "data", "x", "convolution_param { num_output: 4 kernel_size: 9 pad: 4 }"),
        "kernel is 9, and RKNN-Toolkit2 takes 1 to 8",
    ),
    (
        "horizon",
        layer("x", "Eltwise", "data data", "x", "eltwise_param { operation: MAX }"),
        "operation is MAX, and the OpenExplorer toolchain of RDK X3 takes SUM or PROD",
    ),
    ("horizon", layer("x", "Flatten", "data", "x", "flatten_param { end_axis: 2 }"), "end_axis is 2"),
]


@pytest.mark.parametrize(("chip", "text", "said"), REFUSED, ids=lambda v: v[:60] if isinstance(v, str) else "")
def test_what_is_refused(chip, text, said, tmp_path):
    with pytest.raises(ExportError) as caught:
        export_caffe(net_of(DATA + text), tmp_path / "out", chip)
    assert said in str(caught.value) and caught.value.where.layer == "x" and caught.value.where.line == 2
    assert caught.value.fix and not list(tmp_path.iterdir())


def test_one_error_names_everything_with_its_line(tmp_path):
    text = DATA + layer("a", "Swish", "data", "a") + conv("b", "a", "b", "kernel_size: 1 stride: 70")
    text += layer("g", "GELU", "b", "g", "gelu_param { }")
    with pytest.raises(ExportError) as caught:
        export_caffe(net_of(text), tmp_path / "out", "ascend")
    said = str(caught.value)
    assert "3 things that ATC does not take:" in said
    for line, name in ((2, "a"), (3, "b"), (4, "g")):
        assert f'line {line}: layer "{name}"' in said
    assert "HiLens User Guide" in caught.value.fix


def test_fields_that_no_other_caffe_knows(tmp_path):
    """Those that the document names are written, by name; others are refused."""
    text = DATA + layer("x", "Interp", "data", "x", "interp_param { height: 12 width: 14 }")
    files = export_caffe(net_of(text), tmp_path / "out", "ascend")
    assert written(files).layer[1].interp_param.height == 12
    pool = layer("p", "Pooling", "data", "p", 'top: "m" pooling_param { kernel_size: 2 stride: 2 }')
    ups = layer("x", "Upsample", "p m", "x", "upsample_param { %s }")
    files = export_caffe(net_of(DATA + pool + ups % ""), tmp_path / "out", "ascend")
    assert written(files).layer[2].upsample_param.HasField("scale")
    with pytest.raises(ExportError, match="no other Caffe knows its upsample_param.pad_out_h"):
        export_caffe(net_of(DATA + pool + ups % "scale: 2 pad_out_h: true"), tmp_path / "x", "ascend")


def test_what_the_chip_leaves_to_the_processor_is_a_warning(tmp_path, caplog):
    files = export_caffe(net_of(DATA + conv("x", "data", "x", "kernel_size: 8")), tmp_path / "out", "horizon")
    assert "kernel is 8, and the OpenExplorer toolchain of RDK X3 takes 1 to 7" in caplog.text
    assert written(files).layer[1].type == "Convolution"


def test_what_the_chip_never_runs_is_a_warning(tmp_path, caplog):
    files = export_caffe(net_of(DATA + layer("x", "ELU", "data", "x")), tmp_path / "out", "horizon")
    assert 'line 2: layer "x" (ELU): the layer runs on the processor, not on the chip' in caplog.text
    assert written(files).layer[1].type == "ELU"


def test_round_mode_that_matters(tmp_path):
    """It is written where the document lists it, and refused where the toolchain is of Caffe 1.0, which lacks it."""
    net = net_of(
        DATA + layer("x", "Pooling", "data", "x", "pooling_param { kernel_size: 2 stride: 2 ceil_mode: false }")
    )
    files = export_caffe(net, tmp_path / "out", "ascend")
    assert written(files).layer[1].pooling_param.round_mode == 1 and check_caffe(net, *files)[0].absolute == 0
    with pytest.raises(ExportError, match="round_mode is FLOOR, and .* takes CEIL"):
        export_caffe(net, tmp_path / "out", "horizon")


def test_dropout_that_does_something_is_refused(tmp_path):
    text = DATA + layer("x", "Dropout", "data", "data", "dropout_param { scale_train: false }")
    with pytest.raises(ExportError, match="Dropout"):
        export_caffe(net_of(text), tmp_path / "out", "ascend")


def test_wrong_words(tmp_path):
    with pytest.raises(UsageError, match="'tpu' is not one of ascend, rknn, horizon, nnie"):
        export_caffe(net_of(DATA), tmp_path / "out", "tpu")
    with pytest.raises(UsageError, match="phase TRAIN"):
        export_caffe(Net(parse_net(DATA).message, 0), tmp_path / "out", "rknn")


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(BODY)
    from pycaffe_lms.net import weights

    weights.save(net_of(BODY), "net.caffemodel")
    argv = ["export_caffe", "net.prototxt", "-weights", "net.caffemodel", "-for", "rknn", "-o"]
    assert main([*argv, "out", "-check"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("out.prototxt, out.caffemodel: net '' for rknn") and said[-1].split()[0] == "i"
    assert main([*argv, "net"]) == 2 and "would replace the net itself" in capsys.readouterr().err


@pytest.mark.parametrize("chip", CHIPS)
def test_opencv_4_gives_the_same_outputs(chip, tmp_path):
    cv2 = pytest.importorskip("cv2")
    if int(cv2.__version__.split(".")[0]) > 4:
        pytest.skip("OpenCV 5 reads no Caffe files; run with opencv-python<5")
    net = net_of(
        BODY.replace("DepthwiseConvolution", "Convolution").replace(
            "num_output: 6 kernel_size: 3 }", "num_output: 6 kernel_size: 3 group: 6 }"
        )
    )
    theirs = cv2.dnn.readNetFromCaffe(*export_caffe(net, tmp_path / "out", chip))
    values = np.random.default_rng(0).normal(size=(1, 4, 9, 9)).astype(np.float32)
    theirs.setInput(values)
    net.blobs["data"].data = values
    net.forward_range()
    np.testing.assert_allclose(theirs.forward().reshape(net.blobs["i"].shape), net.blobs["i"].data, rtol=1e-4)
