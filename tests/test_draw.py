"""Nets as graphs: labels, colours, nodes and edges; pictures where Graphviz is."""

from __future__ import annotations

import shutil
import sys

import pytest
from google.protobuf import text_format

from pycaffe_lms import draw
from pycaffe_lms.errors import GraphError, LayerParamError, MissingDependency, UsageError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.proto import caffe_pb2

pytestmark = pytest.mark.pure
pydot = pytest.importorskip("pydot")

NET = """
name: "small net"
layer { name: "mnist" type: "Data" top: "data" top: "label" include { phase: TRAIN } data_param { batch_size: 64 } }
layer { name: "mnist" type: "Data" top: "data" top: "label" include { phase: TEST } data_param { batch_size: 100 } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 20 kernel_size: 5 stride: 2 pad: 1 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool1" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "up" type: "Deconvolution" bottom: "pool1" top: "up"
  convolution_param { num_output: 4 kernel_h: 3 kernel_w: 5 stride: 2 stride: 1 } }
layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" exclude { phase: TRAIN } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" include { stage: "fit" } }
"""


@pytest.fixture(scope="module")
def net():
    return parse_net(NET).message


def by_name(net, name):
    return next(layer for layer in net.layer if layer.name == name)


def nodes(graph):
    return {node.get_name().strip('"'): node for node in graph.get_nodes()}


def edges(graph):
    return {
        tuple(end.strip('"') for end in (e.get_source(), e.get_destination())): e.get_label().strip('"')
        for e in graph.get_edges()
    }


# -- labels ------------------------------------------------------------------------------------------------------------
def test_labels(net):
    assert draw.get_layer_label(by_name(net, "relu1"), "LR") == r'"relu1\n(ReLU)"'
    assert draw.get_layer_label(by_name(net, "relu1"), "TB") == '"relu1 (ReLU)"'
    conv = r'"conv1\n(Convolution)\nkernel size: 5\nstride: 2\npad: 1"'
    assert draw.get_layer_label(by_name(net, "conv1"), "LR") == conv
    assert draw.get_layer_label(by_name(net, "pool1"), "BT") == '"pool1 (Pooling AVE) kernel size: 3 stride: 2 pad: 0"'
    up = '"up (Deconvolution) kernel size: 3x5 stride: 2x1 pad: 0"'
    assert draw.get_layer_label(by_name(net, "up"), "TB") == up


def test_learning_rates_on_demand(net):
    assert draw.get_layer_label(by_name(net, "conv1"), "TB", display_lrm=True).endswith('pad: 1 lr mult: 1.0, 2.0"')
    assert draw.get_layer_label(by_name(net, "ip"), "TB", display_lrm=True) == '"ip (InnerProduct) lr mult: 1.0, 1.0"'
    assert draw.get_layer_label(by_name(net, "relu1"), "TB", display_lrm=True) == '"relu1 (ReLU)"'
    frozen = parse_net('layer { name: "f" type: "InnerProduct" param { lr_mult: 0 } param { lr_mult: 0 } }').message
    assert "lr mult" not in draw.get_layer_label(frozen.layer[0], "TB", display_lrm=True)
    with pytest.raises(LayerParamError, match=r'"relu1" \(ReLU\): ReLU layers do not have a learning rate multiplier'):
        draw.get_layer_lr_mult(by_name(net, "relu1"))


def test_one_learning_rate_leaves_the_bias_at_1():
    layer = parse_net('layer { name: "f" type: "Convolution" param { lr_mult: 3 } }').message.layer[0]
    assert draw.get_layer_lr_mult(layer) == (3, 1)
    layer = parse_net('layer { name: "f" type: "Convolution" param {} param {} param {} }').message.layer[0]
    with pytest.raises(LayerParamError, match="3 `param`"):
        draw.get_layer_lr_mult(layer)


def test_edge_labels(net):
    found = [draw.get_edge_label(by_name(net, n)) for n in ("mnist", "conv1", "up", "ip", "relu1")]
    assert found == ["Batch 64", "20", "4", "10", '""']


def test_pooling_names_and_colours():
    assert draw.get_pooling_types_dict() == {0: "MAX", 1: "AVE", 2: "STOCHASTIC", 7176: "AVE_EXC_PAD"}
    types = ("Convolution", "Deconvolution", "Pooling", "InnerProduct", "Softmax")
    colours = [draw.choose_color_by_layertype(t) for t in types]
    assert colours == ["#FF5050", "#FF5050", "#FF9900", "#CC33FF", "#6495ED"]


# -- graphs ------------------------------------------------------------------------------------------------------------
def test_nodes_and_edges(net):
    graph = draw.get_pydot_graph(net, "LR")
    found = nodes(graph)
    assert set(found) == {
        *("mnist_Data", "conv1_Convolution", "relu1_ReLU", "pool1_Pooling", "ip_InnerProduct", "up_Deconvolution"),
        *("acc_Accuracy", "loss_SoftmaxWithLoss"),
        *(f"{b}_blob" for b in ("data", "label", "conv1", "pool1", "ip", "up", "acc", "loss")),
    }
    fills = {name: node.get_fillcolor().strip('"') for name, node in found.items()}
    assert fills["relu1_ReLU"] == "#90EE90" and fills["conv1_Convolution"] == "#FF5050"
    assert fills["loss_SoftmaxWithLoss"] == "#6495ED" and fills["data_blob"] == "#E0E0E0"
    assert found["data_blob"].get_shape().strip('"') == "octagon" and found["ip_blob"].get_label() == '"ip"'
    assert found["ip_InnerProduct"].get_shape().strip('"') == "record"
    wires = edges(graph)
    assert wires["mnist_Data", "data_blob"] == "Batch 100" and wires["data_blob", "conv1_Convolution"] == ""
    assert wires["conv1_Convolution", "conv1_blob"] == "20" and wires["conv1_blob", "relu1_ReLU"] == ""
    assert set(edges(draw.get_pydot_graph(net, "LR", label_edges=False)).values()) == {""}
    assert draw.LAYER_STYLE_DEFAULT["fillcolor"] == "#6495ED"


@pytest.mark.parametrize(("phase", "batch", "accuracy"), [(0, 64, False), (1, 100, True)])
def test_phases(net, phase, batch, accuracy):
    graph = draw.get_pydot_graph(net, "LR", phase=phase)
    assert edges(graph)["mnist_Data", "data_blob"] == f"Batch {batch}"
    assert ("acc_Accuracy" in nodes(graph)) == accuracy
    assert "loss_SoftmaxWithLoss" in nodes(graph)  # its rule says nothing of the phase


def test_include_with_exclude_and_wrong_directions(net):
    both = parse_net('layer { name: "x" type: "ReLU" include { phase: TEST } exclude { phase: TRAIN } }').message
    with pytest.raises(GraphError, match='layer "x".*both include and exclude'):
        draw.get_pydot_graph(both, "LR", phase=1)
    with pytest.raises(UsageError, match="'XY' is none of LR, RL, TB, BT"):
        draw.get_pydot_graph(net, "XY")


def test_old_nets_are_drawn_too():
    net = text_format.Parse(
        'layers { name: "c" type: CONVOLUTION bottom: "data" top: "c" convolution_param { num_output: 7 } }',
        caffe_pb2.NetParameter(),
    )
    assert edges(draw.get_pydot_graph(net, "LR")) == {
        ("data_blob", "c_Convolution"): "",
        ("c_Convolution", "c_blob"): "7",
    }
    assert net.layers and not net.layer


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pydot's parser uses old names of pyparsing
def test_odd_names_survive_a_parser():
    """pydot writes dot text and parses it again: every node and edge is in it."""
    net = parse_net(
        r'layer { name: "a:b \"q\"" type: "Input" top: "x|{y}<z>" }'
        r'layer { name: "1" type: "ReLU" bottom: "x|{y}<z>" top: "b\\c" }'
    ).message
    (again,) = pydot.graph_from_dot_data(draw.draw_net(net, "TB", "raw").decode())
    assert len(again.get_nodes()) == 4 and len(again.get_edges()) == 3
    assert r"a:b \"q\"_Input" in {n.get_name()[1:-1] for n in again.get_nodes()}


# -- files -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ending", ["raw", "dot", "gv"])
def test_text_needs_no_graphviz(net, ending, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    draw.draw_net_to_file(net, tmp_path / f"net.{ending}", rankdir="TB", phase=1)
    text = (tmp_path / f"net.{ending}").read_text()
    assert text.startswith('digraph "small net"') and "rankdir=TB" in text and "mnist_Data -> data_blob" in text


def test_pictures_need_graphviz(net, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match=r"\.png needs Graphviz, whose program `dot` is not on the PATH"):
        draw.draw_net_to_file(net, tmp_path / "net.png")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="has no ending"):
        draw.draw_net_to_file(net, tmp_path / "net")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws(net, tmp_path):
    assert draw.draw_net(net, "LR").startswith(b"\x89PNG")
    draw.draw_net_to_file(net, tmp_path / "net.svg")
    assert "relu1" in (tmp_path / "net.svg").read_text()
    with pytest.raises(UsageError, match='writes no format "jpgg"'):
        draw.draw_net(net, "LR", "jpgg")


def test_pydot_is_optional(net, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(MissingDependency, match=r"drawing nets needs the package pydot(.|\n)*pycaffe-lms\[draw\]"):
        draw.get_pydot_graph(net, "LR")
    assert draw.get_layer_label(net.layer[3], "TB") == '"relu1 (ReLU)"'
