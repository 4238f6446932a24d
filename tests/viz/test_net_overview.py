"""Overviews of nets: which layers are one box, what the arrows are, which boxes are a block, what boxes say."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycaffe_lms.formats.prototxt.parser import parse_net, read_net
from pycaffe_lms.viz.net_overview import boxes_of, described, overview

pytestmark = pytest.mark.pure
MODELS = Path(__file__).parents[2] / "models"

NET = """
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } data_param { batch_size: 64 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST } data_param { batch_size: 100 } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "bn1" }
layer { name: "scale1" type: "Scale" bottom: "bn1" top: "bn1" }
layer { name: "relu1" type: "ReLU" bottom: "bn1" top: "bn1" }
layer { name: "b/left" type: "Convolution" bottom: "bn1" top: "b/left"
  convolution_param { num_output: 4 kernel_size: 1 } }
layer { name: "b/right" type: "Pooling" bottom: "bn1" top: "b/right" pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "b/relu" type: "ReLU" bottom: "b/left" top: "b/relu" }
layer { name: "b/out" type: "Concat" bottom: "b/left" bottom: "b/right" bottom: "b/relu" top: "b/out" }
layer { name: "halves" type: "Slice" bottom: "b/out" top: "upper" top: "lower" }
layer { name: "ip" type: "InnerProduct" bottom: "upper" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" include { phase: TEST } }
"""


def _boxes(text=NET):
    return {box.name: box for box in boxes_of(list(parse_net(text).message.layer))}


def test_chains_are_one_box():
    found = _boxes()
    chains = {name: [layer.name for layer in box.layers] for name, box in found.items()}
    assert list(chains) == ["data", "conv1", "b/left", "b/right", "b/relu", "b/out", "halves", "ip", "loss", "acc"]
    assert chains["data"] == ["data", "data"]  # of two phases
    assert chains["conv1"] == ["conv1", "bn1", "scale1", "relu1"]  # bn1 alone reads conv1
    assert chains["b/left"] == ["b/left"] and chains["b/relu"] == ["b/relu"]  # the Concat reads b/left too
    assert chains["ip"] == ["ip", "drop"]


def test_arrows_and_labels():
    found = _boxes()
    names = list(found)
    arrows = {name: [(names[i], blob) for i, blob in box.bottoms] for name, box in found.items()}
    assert arrows["conv1"] == [("data", "")] and arrows["b/left"] == arrows["b/right"] == [("conv1", "")]
    assert arrows["b/out"] == [("b/left", ""), ("b/right", ""), ("b/relu", "")]
    assert arrows["ip"] == [("halves", "upper")]  # which of several tops
    assert arrows["loss"] == [("ip", "")] and found["loss"].reads == ["label"]  # no arrow across the whole picture


def test_a_blob_that_nothing_makes_is_an_input():
    found = _boxes('layer { name: "c" type: "ReLU" bottom: "x" top: "y" }')
    assert [(b.name, b.layers[0].type) for b in found.values()] == [("c", "ReLU"), ("x", "Input")]
    assert found["c"].bottoms == [(1, "")]


def test_layers_of_two_phases_that_make_one_blob():
    text = """layer { name: "a" type: "Data" top: "x" include { phase: TRAIN } }
    layer { name: "b" type: "Data" top: "x" include { phase: TEST } }
    layer { name: "r" type: "ReLU" bottom: "x" top: "x" }
    layer { name: "s" type: "Sigmoid" bottom: "x" top: "y" }"""
    found = _boxes(text)
    assert found["r"].bottoms == [(0, ""), (1, "")] and found["s"].bottoms == [(2, "")]


@pytest.mark.parametrize(
    ("model", "count", "block", "inside"),
    [
        (
            "googlenet",
            12,
            "inception_3a",
            ["1x1", "3x3_reduce", "3x3", "5x5_reduce", "5x5", "pool", "pool_proj", "output"],
        ),
        ("cifar10_resnet-1001", 0, "group0_block0", ["conv0", "conv1", "conv2", "proj", "sum"]),
        ("resnet-50", 16, "res2a", ["branch1", "branch2a", "branch2b", "branch2c", "res2a"]),
    ],
)
def test_blocks_of_known_nets(model, count, block, inside):
    pydot = pytest.importorskip("pydot")
    net = read_net(str(MODELS / model / "train_val.prototxt")).message
    graph = overview(net, net.layer, "TB")
    clusters = {c.get_label(): c for c in graph.get_subgraphs() if isinstance(c, pydot.Subgraph)}
    frames = [box.block for box in boxes_of(net.layer)]
    assert len({frame for frame in frames if frame.startswith(("inception", "loss", "res"))}) == count
    titles = [n.get_label().split("<B>")[1].split("</B>")[0] for n in clusters[f"<<B>{block}</B>>"].get_nodes()]
    assert titles == inside
    assert sum(len(box.layers) for box in boxes_of(net.layer)) == len(net.layer)


def test_a_net_named_alike_throughout_is_not_framed():
    text = "".join(f'layer {{ name: "conv_{i}" type: "Convolution" bottom: "b{i}" top: "b{i + 1}" }}' for i in range(9))
    assert {box.block for box in _boxes(text).values()} == {""}


def test_what_boxes_say():
    def of(text):
        return described(parse_net(f"layer {{ {text} }}").message.layer[0])

    conv = 'name: "c" type: "Convolution" convolution_param { num_output: 8 '
    assert of(conv + "kernel_size: 3 }") == "Convolution 3x3, 8 outputs"
    assert of(conv + "kernel_h: 1 kernel_w: 7 stride: 2 group: 4 }") == "Convolution 1x7, 8 outputs, 4 groups, stride 2"
    assert of(conv + "kernel_size: [3, 3, 5] dilation: 2 }") == "Convolution 3x3x5, 8 outputs, dilation 2"
    assert of('type: "Pooling" pooling_param { pool: AVE global_pooling: true }') == "ave pooling, global"
    assert of('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }') == "max pooling 3x3, stride 2"
    assert of('type: "Eltwise"') == "Eltwise sum" and of('type: "Dropout"') == "Dropout 0.5"
    assert of('type: "InnerProduct" inner_product_param { num_output: 10 }') == "InnerProduct, 10 outputs"
    assert of('type: "Softmax"') == "Softmax"


def test_the_graph_and_odd_names():
    pytest.importorskip("pydot")
    text = NET.replace("b/", "<&>/").replace("halves", "h\x01")
    graph = overview(parse_net(text).message, parse_net(text).message.layer, "LR", display_lrm=True)
    assert graph.get_rankdir() == "LR" and len(graph.get_edges()) == 11
    dot = graph.to_string()
    assert "<B>&lt;&amp;&gt;</B>" in dot and "<B>h\N{REPLACEMENT CHARACTER}</B>" in dot
    assert "BatchNorm \N{MIDDLE DOT} Scale \N{MIDDLE DOT} ReLU" in dot and "reads label" in dot
    assert "Data, batch 64 (TRAIN)<BR/>Data, batch 100 (TEST)" in dot
    fills = {node.get_fillcolor() for node in graph.get_nodes() if node.get_name().startswith("box")}
    assert len(fills) == 4  # convolution, product, losses, others; those in the block are not counted
