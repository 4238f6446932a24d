"""Fold normalisation with fixed statistics into the layer before it: a net of fewer layers, for inference.

BatchNorm with running statistics, Scale and Bias multiply each channel by a factor and add a shift. Where such a layer
is the only reader of a Convolution, Deconvolution or InnerProduct, its numbers go into that layer's weights and bias.
They are computed in float64 and rounded once; outputs equal those of the unfolded net to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ..arrays import HostArray
from ..formats.types import SPLIT
from ..formats.weights.blobproto import array_to_blobproto
from ..layers.base import Layer
from ..layers.conv.convolution import ConvolutionLayer
from ..layers.conv.deconvolution import DeconvolutionLayer
from ..layers.conv.inner_product import InnerProductLayer
from ..layers.norm.batch_norm import BatchNormLayer, BNLayer
from ..layers.norm.scale import BiasLayer, ScaleLayer
from ..proto.caffe_pb2 import NetParameter
from .build.graph import Graph, Node
from .net import Net

ChannelAffine: TypeAlias = tuple[HostArray, HostArray]  # factor and shift of each channel, float64


def fold_norms(net: Net) -> NetParameter:
    """Return a net of phase TEST without the normalisation that can be folded, its parameters as blobs of the layers.

    A blob between a layer and the last normalisation that is folded into it is not in the result. All others keep their
    names.
    """
    graph, splits, readers = net.graph, net.split_names(), net.graph.readers()
    chains = {node.index: chain for node in graph.nodes if (chain := _chain(graph, node, readers))}
    gone = {node.index for chain in chains.values() for node in chain}
    found = copy.deepcopy(net.message)
    del found.layer[:]
    for node in graph.nodes:
        if node.message.type == SPLIT or node.index in gone:
            continue
        layer = found.layer.add()
        layer.CopyFrom(node.message)
        layer.bottom[:] = [splits.get(name, name) for name in layer.bottom]
        arrays = [np.asarray(blob.data) for blob in node.layer.blobs]
        if node.index in chains:
            chain = chains[node.index]
            layer.top[0] = chain[-1].message.top[0]
            is_product = isinstance(node.layer, InnerProductLayer)
            (layer.inner_product_param if is_product else layer.convolution_param).bias_term = True
            arrays = _with_affine(node.layer, arrays, [_affine(one.layer) for one in chain])
        del layer.blobs[:]
        for array in arrays:
            array_to_blobproto(array, into=layer.blobs.add())
    return found


def _chain(graph: Graph, node: Node, readers: Mapping[int, Sequence[int]]) -> list[Node]:
    """Return the layers, in order, that can be folded into this one; none where it is no layer to fold into."""
    if not _takes_affine(graph, node):
        return []
    chain: list[Node] = []
    end = node
    while len(following := readers.get(end.tops[0], ())) == 1 and not graph.values[end.tops[0]].loss_weight:
        end = graph.nodes[following[0]]
        if not _is_affine(end):
            break
        chain.append(end)
    return chain


def _takes_affine(graph: Graph, node: Node) -> bool:
    """Tell whether a factor and a shift of each channel (axis 1) of a layer's top can go into its own parameters."""
    layer, owners = node.layer, [graph.params[p].owner for p in node.params]
    if len(node.tops) != 1 or any(sum(p.owner == owner for p in graph.params) > 1 for owner in owners):
        return False
    return isinstance(layer, (InnerProductLayer, ConvolutionLayer)) and layer.axis == 1


def _is_affine(node: Node) -> bool:
    """Tell whether a layer multiplies each channel (axis 1) by a fixed factor and adds a fixed shift."""
    layer = node.layer
    if len(node.bottoms) != 1 or len(node.tops) != 1:
        return False
    if isinstance(layer, (ScaleLayer, BiasLayer)):
        return layer.learned and layer.axis == 1 and len(layer.shape) == 1
    if isinstance(layer, BNLayer):
        return layer.affine or layer.use_global
    return isinstance(layer, BatchNormLayer) and layer.use_global


def _affine(layer: Layer) -> ChannelAffine:
    """Return the factors and shifts of a layer of which `_is_affine` holds."""
    blobs = [np.asarray(blob.data, np.float64).reshape(-1) for blob in layer.blobs]
    zeros = np.zeros_like(blobs[0])
    if isinstance(layer, BiasLayer):
        return zeros + 1, blobs[0]
    if isinstance(layer, ScaleLayer):
        return blobs[0], blobs[1] if layer.bias else zeros
    if isinstance(layer, BNLayer):
        learned = (blobs[0], blobs[1])
        return learned if layer.affine else _joined(_normalising(blobs[2], blobs[3], layer.eps), learned)
    assert isinstance(layer, BatchNormLayer)
    count = blobs[2][0]
    mean, var = (blob / count if count else zeros for blob in blobs[:2])
    plain = _normalising(mean, var, layer.eps, layer.outside)
    return _joined(plain, (blobs[3], blobs[4])) if layer.scaled else plain


def _normalising(mean: HostArray, var: HostArray, eps: float, outside: bool = False) -> ChannelAffine:
    factor = 1 / (np.sqrt(var) + eps if outside else np.sqrt(var + eps))
    return factor, -mean * factor


def _joined(first: ChannelAffine, second: ChannelAffine) -> ChannelAffine:
    """Return the factors and shifts of two layers, one after the other."""
    return first[0] * second[0], first[1] * second[0] + second[1]


def _with_affine(layer: Layer, arrays: Sequence[HostArray], chain: Sequence[ChannelAffine]) -> list[HostArray]:
    """Return a layer's weights and bias with the factors and shifts of `chain`, in the type of the weights."""
    factor, shift = chain[0]
    for one in chain[1:]:
        factor, shift = _joined((factor, shift), one)
    weights = np.asarray(arrays[0], np.float64)
    if isinstance(layer, DeconvolutionLayer):  # (channels, outputs of a group, ...)
        groups = weights.reshape(layer.group, -1, *weights.shape[1:])
        each = factor.reshape(layer.group, 1, -1, *(1,) * (weights.ndim - 2))
        weights = (groups * each).reshape(weights.shape)
    elif isinstance(layer, InnerProductLayer) and layer.transpose:
        weights = weights * factor
    else:
        weights = weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))
    bias = shift if len(arrays) < 2 else np.asarray(arrays[1], np.float64) * factor + shift
    return [one.astype(arrays[0].dtype) for one in (weights, bias)]
