"""Nets of one or two volumes or images whose layers can run in slabs."""

from __future__ import annotations

from .split_nets import NETS, _of, _pool, _relu

FILL = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.5 max: 0.5 }'


def data(*shape, label=None):
    dims = " ".join(f"dim: {d}" for d in shape)
    labels = " ".join(f"dim: {d}" for d in (label or (shape[0], 1, *shape[2:])))
    return f"""
layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
  shape {{ {dims} }} shape {{ {labels} }}
  data_filler {{ type: "gaussian" }} data_filler {{ type: "uniform" min: 0 max: 2.99 }} }} }}
"""


def conv(name, bottom, outputs, more="kernel_size: 3 pad: 1", kind="Convolution"):
    return _of(name, kind, bottom, more=f"convolution_param {{ num_output: {outputs} {more} {FILL} }}")


def unit(name, bottom, outputs):
    """Convolution, BatchNorm in place, Scale, ReLU."""
    text = conv(name, bottom, outputs, "kernel_size: 3 pad: 1 bias_term: false")
    text += _of(f"bn_{name}", "BatchNorm", name, name)
    return text + _of(f"scale_{name}", "Scale", name, name, "scale_param { bias_term: true }") + _relu(name)


LOSS = _of("loss", "SoftmaxWithLoss", "score label", more="loss_param { ignore_label: 1 }")

SLAB_NETS = {
    "unet": data(1, 2, 13, 12, 8)
    + unit("d0", "data", 4)
    + _pool("p1", "d0")
    + unit("d1", "p1", 6)
    + conv("up0", "d1", 4, "kernel_size: 2 stride: 2", "Deconvolution")
    + _of("cut0", "Crop", "up0 d0", more="crop_param { axis: 2 }")
    + _of("join0", "Concat", "d0 cut0")
    + unit("u0", "join0", 4)
    + conv("score", "u0", 3, "kernel_size: 1")
    + LOSS,
    "images": data(2, 3, 17, 9)
    + conv("c1", "data", 4)
    + _relu("c1")
    + conv("c2", "c1", 4, "kernel_size: 5 pad: 4 dilation: 2 group: 2")
    + _of("sum", "Eltwise", "c1 c2")
    + _of("pr", "PReLU", "sum")
    + _pool("p", "pr", "AVE")
    + conv("u", "p", 3, "kernel_size: 4 stride: 2 pad: 1", "Deconvolution")
    + _of("cut", "Crop", "u data", more="crop_param { axis: 2 offset: 1 }")
    + conv("score", "pr", 3, "kernel_size: 1")
    + _of("both", "Eltwise", "score cut_or_u").replace("cut_or_u", "cut")
    + LOSS.replace("score label", "both label"),
    "dropout": data(2, 2, 11, 6, 8)
    + conv("c1", "data", 4)
    + _of("drop1", "Dropout", "c1", "c1")
    + conv("c2", "c1", 3)
    + _of("drop2", "Dropout", "c2", "drop2", "dropout_param { dropout_ratio: 0.3 }")
    + conv("score", "drop2", 3)
    + LOSS,
}
NETS.update(SLAB_NETS)
