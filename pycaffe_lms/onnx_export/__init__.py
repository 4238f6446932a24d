"""Export a net in phase TEST, with its weights, as an ONNX file.

    caffe.export_onnx(net, "net.onnx")

Read in this order: `sketch.py` (a graph as plain data), `site.py` (what a converter gets, and the table of converters),
the families of converters, `convert.py` (net to sketch), `model.py` (sketch to file). `quantize.py` makes the
file int8, `check.py` compares it with the net.
"""

from .check import check_onnx
from .export import export_onnx
from .quantize import export_int8

__all__ = ["check_onnx", "export_int8", "export_onnx"]
