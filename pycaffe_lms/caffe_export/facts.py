"""Compute the numbers of a layer that documents of toolchains set limits to.

A fact is a list of values, all of which a limit must hold for: a kernel has one per axis. It is empty where the layer
has nothing of the kind. "field NAME.NAME" is a field of the layer's message, with an enum's value as its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from google.protobuf.message import Message

from ..layers.base import Layer, Shape
from ..layers.conv.convolution import ConvolutionLayer
from ..layers.shape.permute import PermuteLayer
from ..proto.caffe_pb2 import LayerParameter
from .chips import Fact

_FIELD = "field "


@dataclass(frozen=True)
class Seen:
    """Hold a layer that is set up, its message as it will be written, and the shapes of its bottoms and tops.

    makers: the types of the layers that compute the bottoms.
    """

    layer: Layer
    message: LayerParameter
    bottoms: Sequence[Shape]
    tops: Sequence[Shape]
    makers: Sequence[str]

    @property
    def first(self) -> Shape:
        """Return the shape of the first bottom; () without any."""
        return tuple(self.bottoms[0]) if self.bottoms else ()

    def window(self, name: str) -> Sequence[int]:
        """Return "kernel", "stride", "pad" or "dilation" per axis; nothing where there is none (global pooling)."""
        return getattr(self.layer, name, None) or ()


def fact(seen: Seen, name: str) -> Sequence[Fact]:
    """Return the values of a fact."""
    if name.startswith(_FIELD):
        return _field(seen.message, name.removeprefix(_FIELD))
    return FACTS[name](seen)


def _field(message: Message, path: str) -> Sequence[Fact]:
    name, _, rest = path.partition(".")
    value = getattr(message, name)
    if rest:
        return _field(value, rest)
    descriptor = message.DESCRIPTOR.fields_by_name[name]
    values = list(value) if hasattr(value, "MergeFrom") else [value]
    if descriptor.enum_type is not None:
        return [descriptor.enum_type.values_by_number[one].name for one in values]
    return values


def _per_axis(one: str, other: str, combine: Callable[[int, int], int]) -> Callable[[Seen], Sequence[Fact]]:
    def of(seen: Seen) -> Sequence[Fact]:
        return [combine(*pair) for pair in zip(seen.window(one), seen.window(other), strict=False)]

    return of


def _channels(shapes: Sequence[Shape]) -> list[Fact]:
    return [shape[1] for shape in shapes if len(shape) > 1]


def _order(seen: Seen) -> Sequence[Fact]:
    """Return the order of all axes, such as "0 2 3 1"."""
    return [" ".join(map(str, seen.layer.axes))] if isinstance(seen.layer, PermuteLayer) else ()


def _group_channels(seen: Seen) -> Sequence[Fact]:
    layer = seen.layer
    if not isinstance(layer, ConvolutionLayer):
        return ()
    return layer.channels // layer.group, layer.num_output // layer.group


def _kernel_elements(seen: Seen) -> Sequence[Fact]:
    layer = seen.layer
    return [layer.channels // layer.group * prod(layer.kernel)] if isinstance(layer, ConvolutionLayer) else ()


def _padded_input(seen: Seen) -> Sequence[Fact]:
    axes = zip(seen.first[2:], seen.window("kernel"), seen.window("pad"), strict=False)
    return [size + 2 * pad - kernel for size, kernel, pad in axes]


def _kernel_columns(seen: Seen) -> Sequence[Fact]:
    """Return kernel height x (width / (16 stride_w), rounded down) x stride_w; global pooling's kernel is the map."""
    size = seen.first[2:]
    kernel, stride = seen.window("kernel") or size, seen.window("stride") or (1, 1)
    if not len(size) == len(kernel) == len(stride) == 2:
        return ()
    return [kernel[0] * (size[1] // (16 * stride[1]) * stride[1])]


def _kernel_rows(seen: Seen) -> Sequence[Fact]:
    kernel, stride = seen.window("kernel"), seen.window("stride")
    return [((kernel[0] - 1) / stride[0] + 1) * seen.first[3]] if len(kernel) == len(stride) == 2 else ()


def _behind_first(name: str) -> Callable[[Seen], Sequence[Fact]]:
    """Return how much more the first axis of a window has than the second."""

    def of(seen: Seen) -> Sequence[Fact]:
        values = seen.window(name)
        return [values[0] - values[1]] if len(values) == 2 else ()

    return of


def _given_axes(seen: Seen) -> Sequence[Fact]:
    """Return `axis` as the message gives it, for layers with a bottom of other than 4 axes."""
    if all(len(shape) == 4 for shape in seen.bottoms):
        return ()
    found: list[Fact] = []
    for _, value in seen.message.ListFields():
        if isinstance(value, Message) and "axis" in value.DESCRIPTOR.fields_by_name and value.HasField("axis"):
            found += _field(value, "axis")
    return found


def _power(seen: Seen) -> Sequence[Fact]:
    return [seen.message.power_param.power == 1]


def _axis(seen: Seen) -> int:
    axis = getattr(seen.layer, "axis", 1)
    return int(axis if axis >= 0 else axis + len(seen.first))


FACTS: Mapping[str, Callable[[Seen], Sequence[Fact]]] = {
    "layer": lambda seen: [seen.message.type],
    "bottoms": lambda seen: [len(seen.bottoms)],
    "tops": lambda seen: [len(seen.tops)],
    "axes": lambda seen: [len(shape) for shape in seen.bottoms],
    "top axes": lambda seen: [len(shape) for shape in seen.tops],
    "batch": lambda seen: seen.first[:1],
    "channels": lambda seen: _channels([*seen.bottoms, *seen.tops]),
    "bottom channels": lambda seen: _channels(seen.bottoms),
    "channels of a group": _group_channels,
    "bottom height": lambda seen: seen.first[2:3],
    "bottom width": lambda seen: seen.first[3:4],
    "bottom height x width": lambda seen: [prod(seen.first[2:4])] if len(seen.first) > 3 else (),
    "kernel": lambda seen: seen.window("kernel"),
    "stride": lambda seen: seen.window("stride"),
    "pad": lambda seen: seen.window("pad"),
    "dilation": lambda seen: seen.window("dilation"),
    "kernel height x columns": _kernel_columns,
    "rows that a kernel takes x width": _kernel_rows,
    "dilated kernel": _per_axis("kernel", "dilation", lambda kernel, dilation: (kernel - 1) * dilation + 1),
    "largest dilation": lambda seen: [max(seen.window("dilation"), default=1)],
    "group": lambda seen: [seen.layer.group] if isinstance(seen.layer, ConvolutionLayer) else (),
    "elements of a kernel": _kernel_elements,
    "kernel less pad": _per_axis("kernel", "pad", lambda kernel, pad: kernel - pad),
    "kernel less 2 pad": _per_axis("kernel", "pad", lambda kernel, pad: kernel - 2 * pad),
    "padded input less kernel": _padded_input,
    "stride modulo dilation": _per_axis("stride", "dilation", lambda stride, dilation: stride % dilation),
    "stride_h less stride_w": _behind_first("stride"),
    "dilation_h less dilation_w": _behind_first("dilation"),
    "dilation that is no power of 2": lambda seen: [d & (d - 1) for d in seen.window("dilation")],
    "axis where a bottom has not 4 axes": _given_axes,
    "canonical axis": lambda seen: [_axis(seen)],
    "axes behind axis": lambda seen: [len(seen.first) - 1 - _axis(seen)],
    "size along axis": lambda seen: seen.first[_axis(seen) : _axis(seen) + 1],
    "even local_size": lambda seen: [seen.message.lrn_param.local_size % 2 == 0],
    "power of 1": _power,
    "smallest coeff": lambda seen: [min(seen.message.eltwise_param.coeff, default=1.0)],
    "min_sizes": lambda seen: [len(seen.message.prior_box_param.min_size)],
    "max_sizes": lambda seen: [len(seen.message.prior_box_param.max_size)],
    "reshape dims": lambda seen: [len(seen.message.reshape_param.shape.dim)],
    "first dim": lambda seen: seen.message.reshape_param.shape.dim[:1],
    "order of axes": _order,
    "top width": lambda seen: seen.tops[0][3:4],
    "layer before": lambda seen: seen.makers,
    "statistics of the batch": lambda seen: [not getattr(seen.layer, "use_global", True)],
}
"""Each fact by the name that the tables in `chips/` give it."""
