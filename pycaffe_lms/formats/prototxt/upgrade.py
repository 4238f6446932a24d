"""Upgrade nets and solvers of every generation to the current one; pure functions, message to message.

Covers: V0 and V1 layers, data settings that moved to transform_param, `input` fields, BatchNorm's ParamSpecs,
Intel's `bn_stats_batch_size`, crop_height, offsets of crops, Transpose, `solver_type`. Arguments are not changed; a
message that needs no upgrade is returned itself.
Source: BVLC/caffe 9b89154, src/caffe/util/upgrade_proto.cpp (behaviour and order of the steps).
See also: upgrade_v0.py; upgraded.py, which traces layers back to the lines of the file.
"""

from __future__ import annotations

import copy
from operator import attrgetter

from ...errors import SolverError
from ...proto.caffe_pb2 import LayerParameter, NetParameter, SolverParameter, V1LayerParameter
from .crops import AUTOMATIC, place_crops
from .dense_block import spread_dense_blocks
from .synopsys import spread_layers, spread_paddings
from .upgrade_v0 import upgrade_v0
from .upgraded import Note, Upgraded, UpgradeError, as_text, assign, unchanged

_V1 = V1LayerParameter
V1_TYPES = {
    _V1.NONE: "",
    _V1.ABSVAL: "AbsVal",
    _V1.ACCURACY: "Accuracy",
    _V1.ARGMAX: "ArgMax",
    _V1.BNLL: "BNLL",
    _V1.CONCAT: "Concat",
    _V1.CONTRASTIVE_LOSS: "ContrastiveLoss",
    _V1.CONVOLUTION: "Convolution",
    _V1.DATA: "Data",
    _V1.DECONVOLUTION: "Deconvolution",
    _V1.DROPOUT: "Dropout",
    _V1.DUMMY_DATA: "DummyData",
    _V1.EUCLIDEAN_LOSS: "EuclideanLoss",
    _V1.ELTWISE: "Eltwise",
    _V1.EXP: "Exp",
    _V1.FLATTEN: "Flatten",
    _V1.HDF5_DATA: "HDF5Data",
    _V1.HDF5_OUTPUT: "HDF5Output",
    _V1.HINGE_LOSS: "HingeLoss",
    _V1.IM2COL: "Im2col",
    _V1.IMAGE_DATA: "ImageData",
    _V1.INFOGAIN_LOSS: "InfogainLoss",
    _V1.INNER_PRODUCT: "InnerProduct",
    _V1.LRN: "LRN",
    _V1.MEMORY_DATA: "MemoryData",
    _V1.MULTINOMIAL_LOGISTIC_LOSS: "MultinomialLogisticLoss",
    _V1.MVN: "MVN",
    _V1.POOLING: "Pooling",
    _V1.POWER: "Power",
    _V1.RELU: "ReLU",
    _V1.SIGMOID: "Sigmoid",
    _V1.SIGMOID_CROSS_ENTROPY_LOSS: "SigmoidCrossEntropyLoss",
    _V1.SILENCE: "Silence",
    _V1.SOFTMAX: "Softmax",
    _V1.SOFTMAX_LOSS: "SoftmaxWithLoss",
    _V1.SPLIT: "Split",
    _V1.SLICE: "Slice",
    _V1.TANH: "TanH",
    _V1.WINDOW_DATA: "WindowData",
    _V1.THRESHOLD: "Threshold",
    _V1.VIDEO_DATA: "VideoData",
    _V1.CROP: AUTOMATIC,
    _V1.MULTI_STAGE_MEANFIELD: "MultiStageMeanfield",
}
_SOLVER_TYPES = {
    SolverParameter.SGD: "SGD",
    SolverParameter.NESTEROV: "Nesterov",
    SolverParameter.ADAGRAD: "AdaGrad",
    SolverParameter.RMSPROP: "RMSProp",
    SolverParameter.ADADELTA: "AdaDelta",
    SolverParameter.ADAM: "Adam",
}
_DATA_PARAM = {
    _V1.DATA: "data_param",
    _V1.IMAGE_DATA: "image_data_param",
    _V1.WINDOW_DATA: "window_data_param",
    _V1.VIDEO_DATA: "video_data_param",
}
_CROP_SIDES = attrgetter("transform_param.crop_height", "transform_param.crop_width")
_TYPE = attrgetter("type")
_PICTURES = ("Data", "ImageData", "MemoryData")
_MOVED = ("scale", "mean_file", "crop_size", "mirror")
# field of ParamSpec -> the V1 list for it
_PARAM_SPEC = {"name": "param", "share_mode": "blob_share_mode", "lr_mult": "blobs_lr", "decay_mult": "weight_decay"}


def upgrade_net(net: NetParameter) -> Upgraded:
    """Apply all steps in Caffe's order. Origins index the file's `layers`, or `layer` where it has no `layers`.

    Raises: UpgradeError for a net with both `layer` and `layers`, or one that a step cannot translate.
    """
    if net.layers and net.layer:
        raise UpgradeError(
            f"both `layer` ({len(net.layer)}) and `layers` ({len(net.layers)}) in one net",
            field="layers",
            fix='write every layer in the current form, `layer { type: "Convolution" ... }`',
        )
    result = unchanged(net)
    for step in (
        upgrade_v0,
        move_data_transform,
        upgrade_v1,
        upgrade_input,
        freeze_batch_norm,
        spread_stats_batch_size,
        move_crop_sides,
        spread_paddings,
        spread_dense_blocks,
        spread_layers,
        turn_transposes,
        place_crops,
    ):
        result = result.then(step)
    return result


def move_data_transform(net: NetParameter) -> Upgraded:
    """Move scale, mean_file, crop_size and mirror of V1 data layers to transform_param; V2 layers stay."""

    def moves(entry: V1LayerParameter) -> list[str]:
        param = getattr(entry, _DATA_PARAM[entry.type]) if entry.type in _DATA_PARAM else None
        return [name for name in _MOVED if param is not None and param.HasField(name)]

    if not any(map(moves, net.layers)):
        return unchanged(net)
    new = copy.deepcopy(net)
    for entry in new.layers:
        for name in moves(entry):
            param = getattr(entry, _DATA_PARAM[entry.type])
            setattr(entry.transform_param, name, as_text(getattr(param, name)))
            param.ClearField(name)
    return Upgraded(new, tuple(range(len(new.layers))))


def upgrade_v1(net: NetParameter) -> Upgraded:
    """Turn `layers` into `layer`: types by name, ParamSpecs from the four lists; other fields keep their names."""
    if not net.layers:
        return unchanged(net)
    new = NetParameter()
    for field, value in net.ListFields():
        if field.name != "layers":
            assign(new, field.name, value)
    for old in net.layers:
        _upgrade_v1_layer(old, new.layer.add())
    return Upgraded(new, tuple(range(len(new.layer))))


def _upgrade_v1_layer(old: V1LayerParameter, new: LayerParameter) -> None:
    special = {"type", *_PARAM_SPEC.values()}
    for field, value in old.ListFields():
        if field.name not in special:
            assign(new, field.name, value)
    if old.HasField("type"):
        new.type = V1_TYPES[old.type]
    for attribute, source in _PARAM_SPEC.items():
        for index, value in enumerate(getattr(old, source)):
            while len(new.param) <= index:
                new.param.add()
            setattr(new.param[index], attribute, as_text(value))


def upgrade_input(net: NetParameter) -> Upgraded:
    """Turn `input` with input_shape or input_dim into one Input layer, first in the net; the old fields go.

    Raises: UpgradeError where there are fewer shapes than inputs.
    """
    if not net.input:
        return unchanged(net)
    new = NetParameter()
    for field, value in net.ListFields():
        if field.name not in ("input", "input_shape", "input_dim", "layer"):
            assign(new, field.name, value)
    notes: tuple[Note, ...] = ()
    origins: tuple[int | None, ...] = tuple(range(len(net.layer)))
    count = len(net.input)
    if net.input_shape or net.input_dim:
        given, unit = (len(net.input_shape), "input_shape") if net.input_shape else (len(net.input_dim), "input_dim")
        wanted = count if net.input_shape else 4 * count
        if given < wanted:
            raise UpgradeError(
                f"{count} `input` need {wanted} `{unit}`, there are {given}",
                field="input",
                fix="write " + ("one input_shape { dim: ... }" if net.input_shape else "four input_dim") + " per input",
            )
        if given > wanted:
            notes = (Note(f"{given} `{unit}` for {count} `input`: only the first {wanted} count", field=unit),)
        layer = new.layer.add(name="input", type="Input")
        layer.top.extend(map(as_text, net.input))
        for index in range(count):
            if net.input_shape:
                layer.input_param.shape.add().CopyFrom(net.input_shape[index])
            else:
                layer.input_param.shape.add(dim=net.input_dim[4 * index : 4 * index + 4])
        origins = (None, *origins)
    else:
        notes = (Note("`input` without input_shape or input_dim is ignored", field="input"),)
    new.layer.MergeFrom(net.layer)
    return Upgraded(new, origins, notes)


def freeze_batch_norm(net: NetParameter) -> Upgraded:
    """Set rates and decays of BatchNorm layers with exactly three ParamSpecs to 0: statistics are not learned."""
    if not any(layer.type == "BatchNorm" and len(layer.param) == 3 for layer in net.layer):
        return unchanged(net)
    new = copy.deepcopy(net)
    for layer in new.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            for spec in layer.param:
                spec.lr_mult = spec.decay_mult = 0
    return Upgraded(new, tuple(range(len(new.layer))))


def spread_stats_batch_size(net: NetParameter) -> Upgraded:
    """Move a net's bn_stats_batch_size into its BatchNorm layers, whose own stats_batch_size it replaces (Intel)."""
    if not net.HasField("bn_stats_batch_size"):
        return unchanged(net)
    new = copy.deepcopy(net)
    new.ClearField("bn_stats_batch_size")
    for layer in new.layer:
        if layer.type == "BatchNorm":
            layer.batch_norm_param.stats_batch_size = net.bn_stats_batch_size
    return Upgraded(new, tuple(range(len(new.layer))))


def move_crop_sides(net: NetParameter) -> Upgraded:
    """Turn crop_height and crop_width of layers that read pictures into crop_h and crop_w (Cysu's Caffe).

    A side that is not given is crop_size.
    """

    if not any(map(any, map(_CROP_SIDES, net.layer))):
        return unchanged(net)
    new = copy.deepcopy(net)
    for layer in new.layer:
        p = layer.transform_param
        if layer.type in _PICTURES and (p.crop_height or p.crop_width):
            p.crop_h, p.crop_w = p.crop_height or p.crop_size, p.crop_width or p.crop_size
            for field in ("crop_height", "crop_width", "crop_size"):
                p.ClearField(field)
    return Upgraded(new, tuple(range(len(new.layer))))


def turn_transposes(net: NetParameter) -> Upgraded:
    """Turn Transpose into Permute (CTPN, caffe_ocr: caffe/src/caffe/layers/transpose_layer.cpp).

    Raises: UpgradeError where transpose_param.dim does not name every axis once.
    """
    if "Transpose" not in map(_TYPE, net.layer):
        return unchanged(net)
    new = copy.deepcopy(net)
    for k, layer in enumerate(new.layer):
        if layer.type == "Transpose":
            order = list(layer.transpose_param.dim)
            if sorted(order) != list(range(len(order))) or not order:
                raise UpgradeError(
                    f"has transpose_param.dim {order}, which does not name every axis once",
                    source=k,
                    layer=layer.name,
                    fix="write dim: [1, 0] and alike",
                )
            layer.type = "Permute"
            layer.permute_param.order.extend(order)
            layer.ClearField("transpose_param")
    return Upgraded(new, tuple(range(len(new.layer))))


def upgrade_solver(solver: SolverParameter) -> SolverParameter:
    """Turn `solver_type: ADAM` into `type: "Adam"`. Raises: SolverError where both are set."""
    if not solver.HasField("solver_type"):
        return solver
    name = _SOLVER_TYPES[solver.solver_type]
    if solver.HasField("type"):
        raise SolverError(
            f'both `solver_type: {SolverParameter.SolverType.Name(solver.solver_type)}` and `type: "{solver.type}"`',
            fix=f'keep `type: "{name}"` and delete solver_type',
        )
    new = copy.deepcopy(solver)
    new.ClearField("solver_type")
    new.type = name
    return new
