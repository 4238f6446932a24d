"""Convert normalisation."""

from __future__ import annotations

import numpy as np

from .site import ImportSite, converts, product


@converts("BatchNormalization")
def batch_norm(site: ImportSite) -> str:
    """Write BatchNorm and a Scale, as Caffe does, so that both can be trained."""
    if site.attr("training_mode", 0):
        site.refuse("it is in training mode", "export the model after model.eval(), with TrainingMode.PRESERVE")
    if site.attr("spatial", 1) != 1:
        site.refuse("it has statistics for each place", "export it with spatial=1")
    scale, shift, mean, variance = (
        site.const(i, name) for i, name in enumerate(("scale", "bias", "mean", "variance"), 1)
    )
    shape, eps = site.shape(), site.attr("epsilon", 1e-5)
    statistics = [mean, variance, np.ones(1, np.float32)]
    fields = {"eps": eps}
    momentum = site.attr("momentum", 0.9)
    if momentum != 0.999:
        fields["moving_average_fraction"] = momentum
    y = site.layer("BatchNorm", [site.blob()], shape, statistics, batch_norm_param=fields)
    return site.layer(
        "Scale", [y], shape, [scale, shift], sources=site.inputs[1:3], suffix="/scale", scale_param={"bias_term": True}
    )


@converts("LayerNormalization")
def layer_norm(site: ImportSite) -> str:
    shape = site.shape()
    axis = site.axis(site.attr("axis", -1), len(shape))
    arrays = [site.const(i, name) for i, name in ((1, "scale"), (2, "bias")) if site.has(i)]
    fields = {"axis": axis, "eps": site.attr("epsilon", 1e-5)}
    if len(arrays) == 1:
        fields["bias_term"] = False
    params = [np.broadcast_to(a, shape[axis:]) for a in arrays]
    return site.layer("LayerNorm", [site.blob()], shape, params, sources=site.inputs[1:3], layer_norm_param=fields)


@converts("RMSNormalization")
def rms_norm(site: ImportSite) -> str:
    shape = site.shape()
    axis = site.axis(site.attr("axis", -1), len(shape))
    scale = np.broadcast_to(site.const(1, "scale"), shape[axis:])
    fields = {"axis": axis, "eps": site.attr("epsilon", 1e-5)}
    return site.layer("RMSNorm", [site.blob()], shape, [scale], sources=site.inputs[1:2], rms_norm_param=fields)


@converts("InstanceNormalization", "GroupNormalization")
def group_norm(site: ImportSite) -> str:
    """Write LayerNorm without weights over the channels and places of each group, then a Scale."""
    shape = site.shape()
    groups = shape[1] if site.op == "InstanceNormalization" else site.attr("num_groups", 1)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        site.refuse(f"its input has shape {shape}", "export the model with a batch and spatial axes")
    scale, shift = site.const(1, "scale"), site.const(2, "bias")
    if scale.size != shape[1]:
        scale, shift = (np.repeat(v, shape[1] // v.size) for v in (scale, shift))
    x = site.reshape(site.blob(), (shape[0], groups, product(shape[1:]) // groups), suffix="/groups")
    fields = {"axis": 2, "eps": site.attr("epsilon", 1e-5), "affine": False}
    y = site.layer("LayerNorm", [x], site.shape_of(x), layer_norm_param=fields, suffix="/norm")
    y = site.reshape(y, shape, suffix="/shape")
    return site.layer("Scale", [y], shape, [scale, shift], sources=site.inputs[1:3], scale_param={"bias_term": True})
