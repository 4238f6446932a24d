"""Read kernel, stride, pad and dilation of each spatial axis, and find the output's size.

Every spelling that Caffe and its forks accept is read: one value for all axes, one per axis, `_h`/`_w` pairs, `_shape`.
Pooling reads its window with `per_axis` too.
"""

from __future__ import annotations

from google.protobuf.message import Message

from ..ops.geometry import conv_output_size
from ..proto.caffe_pb2 import ConvolutionParameter
from .base import Layer, Shapes

Ints = tuple[int, ...]


def kernel_fields(layer: Layer, conv: ConvolutionParameter, axes: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (kernel, stride, pad, dilation), `axes` values each. Raises LayerParamError."""
    kernel = per_axis(layer, conv, "kernel", axes, None)
    stride, pad = (per_axis(layer, conv, name, axes, n, lone=True) for name, n in (("stride", 1), ("pad", 0)))
    dilation = per_axis(layer, conv, "dilation", axes, 1)
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


def per_axis(layer: Layer, message: Message, field: str, axes: int, default: int | None, *, lone: bool = False) -> Ints:
    """Return "kernel", "stride", "pad" or "dilation" of a window, one value per spatial axis. Raises LayerParamError.

    Args:
        message: convolution_param or pooling_param.
        default: without the field; None: it must be given.
        lone: of the _h/_w pair, one may be given alone; the other is `default`.
    """
    square, shape = "kernel_size" if field == "kernel" else field, f"{field}_shape"
    known, both = message.DESCRIPTOR.fields_by_name, (f"{field}_h", f"{field}_w")
    pair = [name for name in both if name in known and message.HasField(name)]
    shaped = shape in known and message.HasField(shape)
    values = getattr(message, square)
    if isinstance(values, int):  # pooling_param has one value for all axes
        values = (values,) if message.HasField(square) else ()
    spellings = [[square]] * bool(values) + [[shape]] * shaped + [pair] * bool(pair)
    if len(spellings) > 1:
        one, two = (" and ".join(names) for names in spellings[:2])
        raise layer.error(f"has both {one} and {two}", fix=f"keep either {one} or {two}")
    if shaped:
        return shape_field(layer, message, shape, axes)
    if pair:
        if axes != 2:
            raise layer.error(
                f"{' and '.join(pair)} need a bottom with 2 spatial axes, but it has {axes}",
                fix=f"use {square} for all axes, or {shape} with a value for each",
            )
        if len(pair) < 2 and not lone:
            (missing,) = set(both) - set(pair)
            raise layer.error(f"has {pair[0]} but no {missing}", fix=f"add {missing}, or use {square} for both")
        return tuple(getattr(message, name) if name in pair else default or 0 for name in both)
    if not values and axes:
        if default is None:
            raise layer.error("has no kernel size", fix="add kernel_size, for pooling perhaps global_pooling: true")
        return (default,) * axes
    if len(values) not in (1, axes):
        raise layer.error(
            f"{square} is given {len(values)} times, but the bottom has {axes} spatial axes",
            fix=f"give {square} once, or {axes} times",
        )
    return tuple(values) * axes if len(values) == 1 else tuple(values)


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
