"""Import the message classes of proto/caffe.proto. BVLC's caffe_pb2 has the same names: use one of them per process."""

from . import caffe_pb2

__all__ = ["caffe_pb2"]
