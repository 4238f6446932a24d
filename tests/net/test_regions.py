"""Which layers form a region for micro-batches, and where a batch is cut."""

from __future__ import annotations

import pytest

from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.passes.regions import boundaries, find_regions

CONV = 'convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } }'


def data(n, *dims):
    shape = " ".join(f"dim: {d}" for d in (n, *dims))
    return (
        f'layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{ shape {{ {shape} }} '
        f"shape {{ dim: {n} }} }} }}\n"
    )


def layer(name, kind, bottoms, tops=None, more=""):
    names = " ".join(f'bottom: "{b}"' for b in bottoms.split()) + " "
    names += " ".join(f'top: "{t}"' for t in (tops or name).split())
    return f'layer {{ name: "{name}" type: "{kind}" {names} {more} }}\n'


def graph_of(text):
    parsed = parse_net(text, "net.prototxt")
    return Net(parsed.message, 0, lines=parsed.lines, fill=False).graph


def named(graph):
    return [(graph.nodes[r.first].name, graph.nodes[r.last].name) for r in find_regions(graph)]


FC = layer("fc", "InnerProduct", "{}", more="inner_product_param {{ num_output: 8 }}")
LOSS = layer("loss", "SoftmaxWithLoss", "fc label")


def test_a_region_ends_where_images_meet():
    """BatchNorm's statistics, a loss, and a change of the first axis."""
    text = (
        data(6, 4, 4, 4) + layer("conv1", "Convolution", "data", more=CONV) + layer("relu1", "ReLU", "conv1", "conv1")
    )
    text += layer("bn", "BatchNorm", "conv1", "conv1") + layer(
        "pool", "Pooling", "conv1", more="pooling_param { kernel_size: 2 stride: 2 }"
    )
    text += layer("conv2", "Convolution", "pool", more=CONV)
    text += layer("six", "Reshape", "conv2", more="reshape_param { shape { dim: 3 dim: 32 } }")
    text += layer("fc", "InnerProduct", "six", more="inner_product_param { num_output: 8 }") + layer(
        "relu", "ReLU", "fc"
    )
    assert named(graph_of(text)) == [("conv1", "relu1"), ("pool", "conv2"), ("fc", "relu")]


def test_a_layer_whose_buffers_are_to_stay_is_left_whole():
    text = data(6, 4, 4, 4) + layer("conv1", "Convolution", "data", more=CONV)
    text += layer("conv2", "Convolution", "conv1", more=CONV + " lms_param { policy: KEEP }")
    text += layer("conv3", "Convolution", "conv2", more=CONV + " lms_param { policy: SWAP }")
    assert named(graph_of(text)) == [("conv1", "conv1"), ("conv3", "conv3")]


def test_branches_and_what_shares_memory():
    """A Split inside a region is in parts; one whose top is read outside breaks it, for its tops are its bottom."""
    branches = data(6, 4, 4, 4) + layer("conv1", "Convolution", "data", more=CONV)
    branches += layer("a", "Convolution", "conv1", more=CONV) + layer("b", "Convolution", "conv1", more=CONV)
    joined = (
        layer("sum", "Eltwise", "a b")
        + layer("fc", "InnerProduct", "sum", more="inner_product_param { num_output: 8 }")
        + LOSS
    )
    assert named(graph_of(branches + joined)) == [("conv1", "fc")]
    outside = layer("bn", "BatchNorm", "conv1") + layer("sum", "Eltwise", "a b bn")
    graph = graph_of(branches + outside)
    assert named(graph) == [("conv1", "conv1"), ("a", "b"), ("sum", "sum")]
    assert graph.nodes[2].layer.type == "Split"


def test_nothing_is_split_where_shapes_may_change_in_the_middle():
    text = data(6, 4, 4, 4) + layer("conv1", "Convolution", "data", more=CONV)
    text += layer("sorted", "Filter", "conv1 label")
    assert find_regions(graph_of(text)) == []


@pytest.mark.parametrize(
    ("items", "dims", "parts", "starts"),
    [
        (7, (4, 4, 4), 3, [0, 2, 4, 7]),
        (7, (4, 4, 4), 99, [0, 1, 2, 3, 4, 5, 6, 7]),
        (9, (3, 5, 5), 2, [0, 4, 9]),  # 75 numbers an image: parts of the data begin at multiples of four images
        (9, (3, 5, 5), 9, [0, 4, 8, 9]),
        (10, (1, 5, 2), 4, [0, 2, 4, 6, 10]),
    ],
)
def test_every_part_of_a_whole_blob_begins_on_16_bytes(items, dims, parts, starts):
    text = (
        data(items, *dims)
        + layer("tanh", "TanH", "data")
        + layer("fc", "InnerProduct", "tanh", more="inner_product_param { num_output: 8 }")
    )
    graph = graph_of(text)
    [region] = find_regions(graph)
    assert boundaries(graph, region, parts) == starts
    row = dims[0] * dims[1] * dims[2]
    assert all(start * row % 4 == 0 for start in starts[:-1])


def test_layers_that_cannot_be_cut_are_left_off_the_end():
    """A top of 5 numbers an image, 4 images: there is no place to cut it, but before it there is."""
    text = data(4, 4, 4, 4) + layer("conv", "Convolution", "data", more=CONV)
    text += layer("fc", "InnerProduct", "conv", more="inner_product_param { num_output: 5 }") + LOSS
    assert named(graph_of(text)) == [("conv", "conv")]


def test_what_is_made_again_is_no_part_of_a_whole():
    """conv1's top is read by conv2 alone, conv3's by the layer behind the run."""
    again = CONV + " lms_param { policy: RECOMPUTE }"
    text = data(6, 4, 4, 4) + layer("conv1", "Convolution", "data", more=again)
    text += layer("conv2", "Convolution", "conv1", more=CONV) + layer("conv3", "Convolution", "conv2", more=again)
    text += (
        layer("bn", "BatchNorm", "conv3")
        + layer("fc", "InnerProduct", "bn", more="inner_product_param { num_output: 8 }")
        + LOSS
    )
    assert named(graph_of(text)) == [("conv1", "conv2"), ("fc", "fc")]
