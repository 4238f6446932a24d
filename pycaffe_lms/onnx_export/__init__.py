"""Export a net in phase TEST, with its weights, as an ONNX file.

    caffe.export_onnx(net, "net.onnx")

Read in this order: `sketch.py` (a graph as plain data), `site.py` (what a converter gets, and the table of converters),
the families of converters, `convert.py` (net to sketch), `model.py` (sketch to file; the only one that imports onnx).
"""

from .export import export_onnx

__all__ = ["export_onnx"]
