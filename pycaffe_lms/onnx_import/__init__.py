"""Read an ONNX model as a net that can be trained here: a prototxt and a .caffemodel.

    caffe.import_onnx("net.onnx", "net.prototxt", "net.caffemodel")

Read in this order: `read.py` (file to a checked graph of static shapes), `site.py` (what a converter gets, and the
table of converters), the families of converters, `convert.py` (graph to net), `load.py` (the public function).
"""

from .load import import_onnx

__all__ = ["import_onnx"]
