"""Multiplications and additions of each net: as published, and as loops over positions and weights would do them."""

from __future__ import annotations

from math import prod

import pytest

from pycaffe_lms.net.program.costs import step_flops

from .nets import ALL, full_size

# Multiply-adds for one picture, in units of the last figure, as the papers give them.
PUBLISHED = {
    "resnet-18": (1.8, 1e9),
    "resnet-34": (3.6, 1e9),
    "resnet-50": (3.8, 1e9),
    "resnet-101": (7.6, 1e9),
    "resnet-152": (11.3, 1e9),
    "vgg-19": (19.6, 1e9),
    "mobilenet-v1": (569, 1e6),
}


def multiply_adds(net, batch: int) -> int:
    steps = net.arrangement.builder.forward(0, len(net.graph.nodes) - 1)
    return sum(step_flops(net.graph, step) for step in steps) // 2 // batch


@pytest.mark.parametrize("folder", PUBLISHED)
def test_published_operations(folder):
    name = f"{folder}/train_val"
    figure, unit = PUBLISHED[folder]
    # ResNet's table leaves out what rounds away; 1% is less than half of its last figure everywhere but below 5
    assert multiply_adds(full_size(name), ALL[name].batch) / unit == pytest.approx(figure, rel=0.02)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.thorough if "1001" in n else ()) for n in ALL if not n.startswith("char_lstm")],
)
def test_every_weight_meets_every_position_once(name):
    net, batch = full_size(name), ALL[name].batch
    total = 0
    for node in net.graph.nodes:
        kind = node.layer.param.type
        if kind == "Attention":  # positions with positions, twice; causal: none behind a block of 64 MiB of scores
            _, steps, width = net.graph.values[node.tops[0]].shape
            options = node.layer.param.attention_param
            rows = max(1, min(steps, (64 << 20) // (4 * options.heads * steps))) if options.causal else steps
            ends = [min(first + rows, steps) for first in range(0, steps, rows)]
            total += 2 * width * sum((end - first) * end for first, end in zip([0, *ends], ends, strict=False))
        if kind not in ("Convolution", "Deconvolution", "InnerProduct", "LinearSoftmaxWithLoss"):
            continue
        weight = net.graph.params[node.params[0]].shape
        where = node.bottoms if kind in ("Deconvolution", "LinearSoftmaxWithLoss") else node.tops
        shape = net.graph.values[where[0]].shape
        axis = node.layer.param.inner_product_param.axis
        positions = prod(shape[2:] if kind.endswith("olution") else shape[1:axis])
        total += positions * prod(weight)
    assert multiply_adds(net, batch) == total
