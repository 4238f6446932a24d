"""Nets of the zoo fed with random values, so that they run without their data."""

from __future__ import annotations

from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.proto import caffe_pb2

from .catalogue import Shapes


def fed(text: str, shapes: Shapes, classes: int | None) -> caffe_pb2.NetParameter:
    """The net of a prototxt's text with DummyData instead of its data layers: random values of the given shapes. A
    second top that has no shape is one label per record; blobs called label, input or target hold classes. The label of
    AnnotatedData holds boxes of the first picture."""
    message = parse_net(text).message
    added = []
    for layer in message.layer:
        if layer.bottom or layer.type in ("Parameter", "DummyData"):
            continue
        if layer.type == "AnnotatedData":
            added += boxes(layer, shapes[layer.top[1]], classes)
            del layer.top[1:]
        batch = shapes[layer.top[0]][0]
        made = caffe_pb2.LayerParameter(name=layer.name, type="DummyData", top=layer.top)
        made.include.extend(layer.include)
        for top in layer.top:
            made.dummy_data_param.shape.add(dim=shapes.get(top, (batch,)))
            whole = top not in shapes or top in ("label", "input", "target")
            high = classes - 0.01 if whole and classes else 1  # a label counts as the whole number below it
            made.dummy_data_param.data_filler.add(type="uniform", min=0, max=high)
        layer.CopyFrom(made)
    for layer in reversed(added):
        message.layer.insert(0, layer)
    return message


def boxes(data: caffe_pb2.LayerParameter, shape: tuple[int, ...], classes: int | None) -> list:
    """Layers that make the label (1, 1, M, 8) of AnnotatedData: M boxes of picture 0, classes 1 .. classes - 1."""
    ranges = ((0, 0), (1, (classes or 2) - 0.01), (0, 0), *[(0, 0.5)] * 2, *[(0.5, 1)] * 2, (0, 0))
    made = caffe_pb2.LayerParameter(name=f"{data.name} columns", type="DummyData", include=data.include)
    join = caffe_pb2.LayerParameter(name=f"{data.name} boxes", type="Concat", include=data.include, top=[data.top[1]])
    join.concat_param.axis = 3
    for i, (low, high) in enumerate(ranges):
        made.top.append(f"{data.top[1]} {i}")
        made.dummy_data_param.shape.add(dim=(*shape[:3], 1))
        made.dummy_data_param.data_filler.add(type="uniform", min=low, max=high)
    join.bottom.extend(made.top)
    return [made, join]
