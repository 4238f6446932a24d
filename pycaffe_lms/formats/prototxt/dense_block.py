"""Write DenseBlock, a whole block of DenseNet in one layer, as the layers that it consists of; its weights, too.

Source: Tongcheng/caffe and senlinuc/caffe_ocr, src/caffe/layers/DenseBlock_layer.cu (behaviour; the CPU code normalises
by another variance).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from ...proto.caffe_pb2 import BlobProto, DenseBlockParameter, LayerParameter, NetParameter
from .upgraded import Upgraded, UpgradeError, unchanged

_TYPE = "DenseBlock"
_EPS = 1e-5  # cuDNN's least
_GROUPS = 5  # kinds of blobs of one normalisation and the convolution behind it


def spread_dense_blocks(net: NetParameter) -> Upgraded:
    """Turn a DenseBlock into numTransition times BatchNorm, ReLU, Convolution (3 x 3, growthRate outputs) and Concat.

    use_BC: BatchNorm, ReLU and a convolution (1 x 1, 4 * growthRate outputs) come before. use_dropout: Dropout with
    dropout_amount stands before Concat. Blobs go to the layers that hold them here: running statistics are taken as
    averages where the block's last blob is 0, as training on a GPU leaves it, else as sums with that weight.

    Raises: UpgradeError for a block without transitions, of other than one bottom and top, or with odd blobs.
    """
    if all(layer.type != _TYPE for layer in net.layer):
        return unchanged(net)
    new, origins = NetParameter(), list[int | None]()
    new.CopyFrom(net)
    del new.layer[:]
    for k, old in enumerate(net.layer):
        for made in _layers(old, k) if old.type == _TYPE else [copy.deepcopy(old)]:
            new.layer.append(made)
            origins.append(k)
    return Upgraded(new, tuple(origins))


def _layers(block: LayerParameter, k: int) -> list[LayerParameter]:
    """Return the layers in place of a block, which is layer k."""
    p, blobs = block.denseblock_param, list(block.blobs)
    narrow, number = (_of_blobs(block, k) if blobs else None) or (p.use_BC, p.numTransition)
    if number < 1 or p.growthRate < 1 or len(block.top) != 1 or (len(block.bottom) != 1 and not blobs):
        raise UpgradeError(
            f"has {number} transitions that add {p.growthRate} channels each, {len(block.bottom)} bottom(s) and "
            f"{len(block.top)} top(s)",
            source=k,
            layer=block.name,
            fix="give numTransition and growthRate of at least 1, one bottom and one top",
        )
    made: list[LayerParameter] = []
    merged = block.bottom[0] if block.bottom else ""
    for t in range(number):
        parts = [blobs[i * number + t] for i in range(len(blobs) // number)]
        inside = parts[0:1] + parts[5:6] if narrow else parts[0:1]  # of the two convolutions
        chain: list[LayerParameter] = []
        if narrow:
            chain += _normalised(p, parts[1:5], blobs[-1:], "narrow")
            chain.append(_convolution(p, inside[1:], "narrow", 4 * p.growthRate, 1))
            chain += _normalised(p, parts[6:10], blobs[-1:], "grow")
        else:
            chain += _normalised(p, parts[1:5], blobs[-1:], "grow")
        chain.append(_convolution(p, inside[:1], "grow", p.growthRate, 3))
        if p.use_dropout:
            chain.append(LayerParameter(name="grow/dropout", type="Dropout"))
            chain[-1].dropout_param.dropout_ratio = p.dropout_amount
        below = merged
        for one in chain:
            one.name = f"{block.name}/{t + 1}/{one.name}"
            one.bottom.append(below)
            in_place = one.type in ("ReLU", "Dropout")
            one.top.append(below if in_place else one.name)
            below = one.top[0]
        last = t == number - 1
        joined = LayerParameter(name=block.name if last else f"{block.name}/{t + 1}", type="Concat")
        joined.bottom.extend((merged, below))
        joined.top.append(block.top[0] if last else joined.name)
        made += [*chain, joined]
        merged = joined.top[0]
    for one in made:
        one.include.extend(block.include)
        one.exclude.extend(block.exclude)
        if block.HasField("phase"):
            one.phase = block.phase
    return made


def _normalised(
    p: DenseBlockParameter, blobs: Sequence[BlobProto], factor: Sequence[BlobProto], name: str
) -> list[LayerParameter]:
    """Return BatchNorm and ReLU. blobs: none, or scale, bias, mean and variance; factor: the block's last blob."""
    norm = LayerParameter(name=f"{name}/norm", type="BatchNorm")
    bn = norm.batch_norm_param
    bn.scale_bias, bn.eps, bn.moving_average_fraction = True, _EPS, 1 - p.moving_average_fraction
    bn.scale_filler.CopyFrom(p.BN_Scaler_Filler)
    bn.bias_filler.CopyFrom(p.BN_Bias_Filler)
    if blobs:
        scale, bias, mean, variance = map(_flat, blobs)
        (given,) = (*factor[0].data, *factor[0].double_data)
        weight = BlobProto(double_data=[given or 1])
        weight.shape.dim.append(1)
        norm.blobs.extend((mean, variance, weight, scale, bias))
    return [norm, LayerParameter(name=f"{name}/relu", type="ReLU")]


def _convolution(
    p: DenseBlockParameter, blobs: Sequence[BlobProto], name: str, outputs: int, size: int
) -> LayerParameter:
    made = LayerParameter(name=f"{name}/conv", type="Convolution")
    conv = made.convolution_param
    conv.num_output, conv.bias_term = outputs, False
    conv.kernel_size.append(size)
    if size > 1:
        conv.pad.append(size // 2)
    conv.weight_filler.CopyFrom(p.Filter_Filler)
    made.blobs.extend(blobs)
    return made


def _flat(blob: BlobProto) -> BlobProto:
    """Return a blob (1, C, 1, 1) as (C)."""
    flat = BlobProto()
    flat.CopyFrom(blob)
    for field in ("num", "channels", "height", "width"):
        flat.ClearField(field)
    flat.ClearField("shape")
    flat.shape.dim.append(max(len(blob.data), len(blob.double_data)))
    return flat


def _of_blobs(block: LayerParameter, k: int) -> tuple[bool, int]:
    """Return use_BC and numTransition, which a binary file has under a number of the fork's, by the block's blobs."""
    number, odd = divmod(len(block.blobs) - 1, _GROUPS)
    # Of a bottleneck the middle is the first kernel 1 x 1, (4 * growthRate, C, 1, 1); else a bias, (1, C, 1, 1).
    middle = list(block.blobs[(len(block.blobs) - 1) // 2].shape.dim)
    if not odd and not number % 2 and len(middle) == 4 and middle[0] > 1 and middle[2:] == [1, 1]:
        return True, number // 2
    if odd or number < 1:
        raise UpgradeError(
            f"has {len(block.blobs)} blobs, not 5 or 10 for each transition and one more",
            source=k,
            layer=block.name,
            fix="read a file that Tongcheng's or caffe_ocr's Caffe has written",
        )
    return False, number
