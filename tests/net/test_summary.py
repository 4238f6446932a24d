"""Summaries of nets: settings in short, operations and parameters by formulas."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

import pycaffe_lms as caffe
from pycaffe_lms.net.inspect.summary import settings, summarize, totals
from pycaffe_lms.proto.caffe_pb2 import LayerParameter, NetParameter

from .nets import conv, inputs, ip, layer, loss, make_net, relu


@pytest.mark.parametrize(
    ("text", "axes", "expected"),
    [
        ("convolution_param { num_output: 64 kernel_size: 7 stride: 2 pad: 3 }", 2, "64 7x7/2+3"),
        ("convolution_param { num_output: 8 kernel_size: 3 }", 3, "8 3x3x3"),
        ("convolution_param { num_output: 8 kernel_size: 3 kernel_size: 5 pad: 1 pad: 2 group: 2 }", 2, "8 3x5+1x2 g2"),
        ("convolution_param { num_output: 8 kernel_h: 1 kernel_w: 7 pad_h: 0 pad_w: 3 }", 2, "8 1x7+0x3"),
        ("convolution_param { num_output: 8 kernel_size: 3 pad: 2 dilation: 2 }", 2, "8 3x3+2 d2"),
        ("pooling_param { pool: AVE kernel_size: 3 stride: 2 }", 2, "AVE 3x3/2"),
        ("pooling_param { pool: MAX global_pooling: true }", 2, "MAX global"),
        (
            "pooling_param { kernel_shape { dim: 2 dim: 3 dim: 4 } stride_shape { dim: 2 dim: 2 dim: 2 } }",
            3,
            "MAX 2x3x4/2",
        ),
        ("inner_product_param { num_output: 10 }", 2, "10"),
        ("eltwise_param { operation: MAX }", 2, "MAX"),
        ("relu_param { negative_slope: 0.1 }", 2, ""),
    ],
)
def test_settings(text, axes, expected):
    assert settings(text_format.Parse(text, LayerParameter()), axes) == expected


def test_a_net():
    text = (
        'name: "tiny"\n'
        + inputs(x=(2, 3, 8, 8), label=(2,))
        + conv("conv", "x", 5)
        + relu("relu", "conv")
        + ip("a", "conv", 6, 'param { name: "w" lr_mult: 2 decay_mult: 0 } param { name: "b" }')
        + ip("b", "conv", 6, 'param { name: "w" } param { name: "b" }')
        + layer("sum", "Eltwise", "a b")
        + loss("sum")
    )
    net = make_net(text)
    found = summarize(net.graph, 4)
    by_name = {x.name: x for x in found}
    assert list(by_name) == ["x", "label", "conv", "relu", "a", "b", "sum", "loss"]  # no Split
    shape = by_name["conv"].tops[0][1]
    outputs = shape[0] * shape[1] * shape[2] * shape[3]
    window = by_name["conv"].params[0].shape[2] * by_name["conv"].params[0].shape[3]
    features = outputs // 2
    assert by_name["conv"].flops == 2 * outputs * 3 * window
    assert by_name["a"].flops == by_name["b"].flops == 2 * 2 * 6 * features
    assert by_name["relu"].flops == 0
    assert by_name["a"].bottoms == by_name["b"].bottoms == (("conv", shape),)  # not the Split's names
    assert [p.owner for p in by_name["a"].params] == [None, None]
    assert [p.owner for p in by_name["b"].params] == ["a", "a"]
    assert [(p.lr_mult, p.decay_mult) for p in by_name["b"].params] == [(2, 0), (1, 1)]
    parameters = 5 * 3 * window + 5 + 6 * features + 6
    assert totals(found)[0] == parameters
    values = 2 * 3 * 64 + 2 + outputs + 12 + 12 + 12 + 1
    assert totals(found)[2] == 4 * (parameters + values)


def test_a_net_shows_its_summary():
    """conv: 2 * 5 * 3 * 9 operations for each of 2 * 36 places, 140 parameters; b uses those of a."""
    text = (
        'name: "tiny"\n'
        + inputs(x=(2, 3, 8, 8))
        + 'layer { name: "<c>" type: "Convolution" bottom: "x" top: "c" '
        + "convolution_param { num_output: 5 kernel_size: 3 } }\n"
        + relu("r", "c")
        + ip("a", "c", 6, 'param { name: "w" } param { name: "b" }')
        + ip("b", "c", 6, 'param { name: "w" } param { name: "b" }')
    )
    net = caffe.Net(text_format.Parse(text, NetParameter()), caffe.TEST)
    summary = net.summary()
    operations, parameters = 2 * 5 * 27 * 72, 5 * 28
    wide, learned = 2 * 2 * 180 * 6, 6 * 181
    assert (summary.flops, summary.parameters) == (operations + 2 * wide, parameters + learned)
    assert summary.nbytes == 4 * (384 + 360 + 12 + 12 + parameters + learned)
    rows = {line.split()[0]: line for line in str(summary).splitlines()}
    assert list(rows)[:3] == ["Net", "layer", "-" * len(rows["layer"])] and repr(summary) == str(summary)
    assert rows["<c>"].split() == [
        "<c>",
        "Convolution",
        "5",
        "3x3",
        "c",
        "(2",
        "5",
        "6",
        "6)",
        "140",
        "0.019",
        "2.0",
        "KiB",
    ]
    assert rows["b"].split()[-5:] == ["of", "a", "0.004", "48", "B"]
    assert rows["total"].split()[:5] == ["total", "5", "layers", "1,226", "0.028"]
    html = summary._repr_html_()
    assert '<td style="text-align:left">&lt;c&gt;</td>' in html and html.count("<tr>") == 1 + 5 + 1
