"""The message classes of proto/caffe.proto. BVLC's own caffe_pb2 claims the same names: not both in one process."""

from . import caffe_pb2

__all__ = ["caffe_pb2"]
