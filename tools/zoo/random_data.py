"""Nets of the zoo fed with random values, so that they run without their data."""

from __future__ import annotations

from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.proto import caffe_pb2

from .catalogue import Shapes


def fed(text: str, shapes: Shapes, classes: int | None) -> caffe_pb2.NetParameter:
    """The net of a prototxt's text with DummyData instead of its data layers: random values of the given shapes. A
    second top that has no shape is one label per record; blobs called label, input or target hold classes."""
    message = parse_net(text).message
    for layer in message.layer:
        if layer.bottom or layer.type in ("Parameter", "DummyData"):
            continue
        batch = shapes[layer.top[0]][0]
        made = caffe_pb2.LayerParameter(name=layer.name, type="DummyData", top=layer.top)
        made.include.extend(layer.include)
        for top in layer.top:
            made.dummy_data_param.shape.add(dim=shapes.get(top, (batch,)))
            whole = top not in shapes or top in ("label", "input", "target")
            high = classes - 0.01 if whole and classes else 1  # a label counts as the whole number below it
            made.dummy_data_param.data_filler.add(type="uniform", min=0, max=high)
        layer.CopyFrom(made)
    return message
