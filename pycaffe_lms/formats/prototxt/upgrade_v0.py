"""Upgrade nets of the first generation (`layers { layer { type: "conv" ... } }`) to the second.

Covers: padding layers folded into the layer they feed, types, and every field that still has a meaning.
Source: BVLC/caffe 9b89154, src/caffe/util/upgrade_proto.cpp (behaviour). A field without a place, which Caffe logs, is
a note here.
"""

from __future__ import annotations

from difflib import get_close_matches

from ...proto.caffe_pb2 import NetParameter, V1LayerParameter
from .upgraded import Note, Upgraded, UpgradeError, as_text, assign, unchanged

_TYPES = {
    "accuracy": "ACCURACY",
    "bnll": "BNLL",
    "concat": "CONCAT",
    "conv": "CONVOLUTION",
    "data": "DATA",
    "dropout": "DROPOUT",
    "euclidean_loss": "EUCLIDEAN_LOSS",
    "flatten": "FLATTEN",
    "hdf5_data": "HDF5_DATA",
    "hdf5_output": "HDF5_OUTPUT",
    "im2col": "IM2COL",
    "images": "IMAGE_DATA",
    "infogain_loss": "INFOGAIN_LOSS",
    "innerproduct": "INNER_PRODUCT",
    "lrn": "LRN",
    "multinomial_logistic_loss": "MULTINOMIAL_LOGISTIC_LOSS",
    "pool": "POOLING",
    "relu": "RELU",
    "sigmoid": "SIGMOID",
    "softmax": "SOFTMAX",
    "softmax_loss": "SOFTMAX_LOSS",
    "split": "SPLIT",
    "tanh": "TANH",
    "window_data": "WINDOW_DATA",
}
_PARAM = {
    "conv": "convolution_param",
    "innerproduct": "inner_product_param",
    "pool": "pooling_param",
    "dropout": "dropout_param",
    "lrn": "lrn_param",
    "concat": "concat_param",
    "data": "data_param",
    "images": "image_data_param",
    "hdf5_data": "hdf5_data_param",
    "window_data": "window_data_param",
    "infogain_loss": "infogain_loss_param",
}
_WEIGHTED = ("conv", "innerproduct")
_WINDOWED = ("conv", "pool")
# V0 field -> (its name today, the V0 layer types that have it)
_FIELDS = {
    "num_output": ("num_output", _WEIGHTED),
    "biasterm": ("bias_term", _WEIGHTED),
    "weight_filler": ("weight_filler", _WEIGHTED),
    "bias_filler": ("bias_filler", _WEIGHTED),
    "pad": ("pad", _WINDOWED),
    "kernelsize": ("kernel_size", _WINDOWED),
    "stride": ("stride", _WINDOWED),
    "group": ("group", ("conv",)),
    "pool": ("pool", ("pool",)),
    "dropout_ratio": ("dropout_ratio", ("dropout",)),
    "local_size": ("local_size", ("lrn",)),
    "alpha": ("alpha", ("lrn",)),
    "beta": ("beta", ("lrn",)),
    "k": ("k", ("lrn",)),
    "source": ("source", ("data", "hdf5_data", "images", "window_data", "infogain_loss")),
    "batchsize": ("batch_size", ("data", "hdf5_data", "images", "window_data")),
    "rand_skip": ("rand_skip", ("data", "images")),
    "shuffle_images": ("shuffle", ("images",)),
    "new_height": ("new_height", ("images",)),
    "new_width": ("new_width", ("images",)),
    "concat_dim": ("concat_dim", ("concat",)),
    "det_fg_threshold": ("fg_threshold", ("window_data",)),
    "det_bg_threshold": ("bg_threshold", ("window_data",)),
    "det_fg_fraction": ("fg_fraction", ("window_data",)),
    "det_context_pad": ("context_pad", ("window_data",)),
    "det_crop_mode": ("crop_mode", ("window_data",)),
}
_TRANSFORM = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}
_NET_FIELDS = ("name", "input", "input_dim", "force_backward")


def upgrade_v0(net: NetParameter) -> Upgraded:
    """Return a net with V1 `layers` from one with V0 layers inside them; any other net is returned as it is.

    Raises: UpgradeError for an unknown type, a value out of range, padding that feeds anything but one convolution or
    pooling bottom, and a mixture of generations.
    """
    if not any(entry.HasField("layer") for entry in net.layers):
        return unchanged(net)
    for index, entry in enumerate(net.layers):
        if not entry.HasField("layer"):
            raise UpgradeError(
                "a layer without `layer { }` in a file of the first generation",
                source=index,
                layer=as_text(entry.name),
                fix="write its settings inside `layers { layer { ... } }`, or bring the whole file to `layer { }`",
            )
    return fold_padding(net).then(_translate)


def fold_padding(net: NetParameter) -> Upgraded:
    """Remove V0 layers of type padding; the convolution or pooling they feed gets their `pad`. Raises: UpgradeError."""
    folded = NetParameter()
    for field, value in net.ListFields():
        if field.name in _NET_FIELDS:
            assign(folded, field.name, value)
    dropped = [field.name for field, _ in net.ListFields() if field.name not in (*_NET_FIELDS, "layers")]
    notes = [Note(f"`{name}` is unknown to the first generation and ignored", field=name) for name in dropped]

    origins: list[int] = []
    producer: dict[str, int] = {}
    used: set[int] = set()
    for index, entry in enumerate(net.layers):
        target = V1LayerParameter()
        if entry.layer.type != "padding":
            target = folded.layers.add()
            target.CopyFrom(entry)
            origins.append(index)
        for position, bottom in enumerate(entry.bottom):
            source = producer.get(bottom)
            if source is None or net.layers[source].layer.type != "padding":
                continue
            padding = net.layers[source]
            _check_padding(padding, entry, source, index)
            target.layer.pad = padding.layer.pad
            target.bottom[position] = as_text(padding.bottom[0])
            used.add(source)
        producer.update((top, index) for top in entry.top)
    for index, entry in enumerate(net.layers):
        if entry.layer.type == "padding" and index not in used:
            notes.append(
                Note(f'padding layer "{as_text(entry.layer.name)}" feeds no layer and is dropped', source=index)
            )
    return Upgraded(folded, tuple(origins), tuple(notes))


def _check_padding(padding: V1LayerParameter, reader: V1LayerParameter, source: int, index: int) -> None:
    name = as_text(reader.layer.name)
    if reader.layer.type not in _WINDOWED or len(reader.bottom) != 1:
        raise UpgradeError(
            f'padding layer "{as_text(padding.layer.name)}" feeds a layer of type "{as_text(reader.layer.type)}"'
            f" with {len(reader.bottom)} bottoms",
            source=index,
            layer=name,
            fix='a padding layer may only feed "conv" and "pool" layers with one bottom',
        )
    if len(padding.bottom) != 1 or len(padding.top) != 1:
        raise UpgradeError(
            f"a padding layer has one bottom and one top, this has {len(padding.bottom)} and {len(padding.top)}",
            source=source,
            layer=as_text(padding.layer.name),
        )


def _translate(net: NetParameter) -> Upgraded:
    new = NetParameter()
    for field, value in net.ListFields():
        if field.name != "layers":
            assign(new, field.name, value)
    notes: list[Note] = []
    for index, entry in enumerate(net.layers):
        try:
            unplaced = _translate_layer(entry, new.layers.add(), index)
        except ValueError as error:
            raise UpgradeError(f"{error}", source=index, layer=as_text(entry.layer.name)) from None
        outer = [f.name for f, _ in entry.ListFields() if f.name not in ("bottom", "top", "layer")]
        layer = f'layer "{as_text(entry.layer.name)}" of type "{as_text(entry.layer.type)}"'
        notes += [Note(f"`{name}` has no meaning in {layer} and is ignored", source=index) for name in unplaced + outer]
    return Upgraded(new, tuple(range(len(net.layers))), tuple(notes))


def _translate_layer(entry: V1LayerParameter, new: V1LayerParameter, index: int) -> list[str]:
    """Fill `new` from `entry`; return the names of V0 fields that have no place in it."""
    old = entry.layer
    new.bottom.extend(map(as_text, entry.bottom))
    new.top.extend(map(as_text, entry.top))
    kind = as_text(old.type)
    if old.HasField("type"):
        if kind not in _TYPES:
            near = get_close_matches(kind, _TYPES, n=1)
            raise UpgradeError(
                f'no layer type "{kind}" in the first generation',
                source=index,
                layer=as_text(old.name),
                fix=f'did you mean "{near[0]}"?' if near else f"use one of {', '.join(_TYPES)}",
            )
        new.type = getattr(V1LayerParameter, _TYPES[kind])
    unplaced = []
    for field, value in old.ListFields():
        name = field.name
        if name == "type":
            continue
        if name in ("name", "blobs", "blobs_lr", "weight_decay"):
            assign(new, name, value)
        elif name in _TRANSFORM:
            assign(new.transform_param, _TRANSFORM[name], value)
        elif name == "hdf5_output_param" and kind == "hdf5_output":
            new.hdf5_output_param.CopyFrom(value)
        elif name in _FIELDS and kind in _FIELDS[name][1]:
            assign(getattr(new, _PARAM[kind]), _FIELDS[name][0], value)
        else:
            unplaced.append(name)
    return unplaced
