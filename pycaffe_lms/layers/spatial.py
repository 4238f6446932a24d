"""Read kernel, stride, pad and dilation of each spatial axis from `convolution_param`, and find the output's size.

Every spelling that Caffe and its forks accept is read: one value for all axes, one per axis, `_h`/`_w` pairs, `_shape`.
Pooling uses `shape_field` too.
"""

from __future__ import annotations

from google.protobuf.message import Message

from ..ops.geometry import conv_output_size
from ..proto.caffe_pb2 import ConvolutionParameter
from .base import Layer, Shapes

Ints = tuple[int, ...]


def kernel_fields(layer: Layer, conv: ConvolutionParameter, axes: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (kernel, stride, pad, dilation), `axes` values each. Raises LayerParamError."""
    kernel = _per_axis(layer, conv, axes, "kernel_size", ("kernel_h", "kernel_w"), None)
    stride = _per_axis(layer, conv, axes, "stride", ("stride_h", "stride_w"), 1)
    pad = _per_axis(layer, conv, axes, "pad", ("pad_h", "pad_w"), 0)
    dilation = _per_axis(layer, conv, axes, "dilation", (), 1)
    for field, values in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        if 0 in values:
            raise layer.error(f"convolution_param.{field} is 0", fix=f"give a {field} of at least 1")
    return kernel, stride, pad, dilation


def conv_output(layer: Layer, spatial: Ints, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Ints:
    """Return the spatial size of a convolution's output. Raises ShapeError where the kernel does not fit bottom 0."""
    out = tuple(conv_output_size(*axis) for axis in zip(spatial, kernel, stride, pad, dilation, strict=True))
    if any(n < 1 for n in out):
        raise layer.shape_error(
            f"has spatial size {spatial}, too small for kernel {kernel}, pad {pad} and dilation {dilation}",
            bottom=0,
            fix="use a smaller kernel or dilation, more pad, or a larger input",
        )
    return out


def _per_axis(
    layer: Layer, conv: ConvolutionParameter, axes: int, field: str, pair: tuple[str, ...], default: int | None
) -> Ints:
    """Return the values of a repeated field, or of its _h/_w pair. default None: the field must be given."""
    values = tuple(getattr(conv, field))
    given = [name for name in pair if conv.HasField(name)]
    shape = f"{field.removesuffix('_size')}_shape"
    if pair and conv.HasField(shape):
        if values or given:
            others = " and ".join(given) or field
            raise layer.error(f"has both {shape} and {others}", fix=f"keep either {shape} or {others}")
        return shape_field(layer, conv, shape, axes)
    if given:
        if values:
            raise layer.error(f"has both {field} and {' and '.join(given)}", fix=f"keep either {field} or {given[0]}")
        if axes != 2:
            raise layer.error(
                f"{' and '.join(given)} need a bottom with 2 spatial axes, but it has {axes}",
                fix=f"give {field} once, or once per spatial axis",
            )
        if default is None and len(given) < 2:
            missing = next(name for name in pair if name not in given)
            raise layer.error(f"has {given[0]} but no {missing}", fix=f"add {missing}, or use {field} for both")
        # as in Caffe, the other one of the pair is 0: no pad, or a stride of 0, which `kernel_fields` refuses
        return tuple(getattr(conv, name) if name in given else default or 0 for name in pair)
    if not values and default is not None:
        return (default,) * axes
    if len(values) == axes:
        return values
    if len(values) == 1:
        return values * axes
    if not values:
        raise layer.error("has no kernel size", fix=f"add convolution_param {{ {field}: ... }}")
    raise layer.error(
        f"{field} is given {len(values)} times, but the bottom has {axes} spatial axes",
        fix=f"give {field} once, or {axes} times",
    )


def shape_field(layer: Layer, message: Message, field: str, axes: int) -> Ints:
    """Return the values of a BlobShape field (of N-D forks), one per spatial axis.

    The field has one per axis, or one for all. Raises LayerParamError."""
    values = tuple(getattr(message, field).dim)
    if any(v < 0 for v in values):
        raise layer.error(f"{field} holds a negative value: {values}", fix=f"give {field} values of at least 0")
    if len(values) not in (1, axes):
        raise layer.error(
            f"{field} has {len(values)} values, but the bottom has {axes} spatial axes",
            fix=f"give {field} one `dim:`, or {axes}",
        )
    return values * axes if len(values) == 1 else values


def check_images(layer: Layer, bottom_shapes: Shapes, what: str) -> None:
    """Raise ShapeError for a bottom of other than 4 axes. what: that which works on 4 axes, such as "pooling"."""
    for i, shape in enumerate(bottom_shapes):
        if len(shape) != 4:
            raise layer.shape_error(
                f"has shape {tuple(shape)}, but {what} works on 4 axes (items, channels, height, width)",
                bottom=i,
                fix="reshape the bottom to 4 axes",
            )
