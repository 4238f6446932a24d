"""Every layer type, by Caffe's catalogue: importing this package registers them."""

# ruff: noqa: I001  (the catalogue's order, not the alphabet's)

# vision
from . import convolution
from . import deconvolution
from . import im2col
from . import pooling
from . import spp

# normalisation
from . import batch_norm
from . import lrn
from . import mvn
from . import scale

# neuron
from . import dropout
from . import pointwise
from . import prelu
from . import relu

# common
from . import inner_product
from . import embed
from . import softmax

# utility
from . import argmax
from . import concat
from . import crop
from . import eltwise
from . import parameter
from . import reduction
from . import reshape
from . import slice
from . import split
from . import tile

# loss
from . import accuracy
from . import euclidean_loss
from . import log_loss
from . import margin_loss
from . import sigmoid_loss
from . import softmax_loss

# data
from . import data
from . import dummy_data
from . import image_data
from . import input

__all__ = [
    "accuracy",
    "argmax",
    "batch_norm",
    "concat",
    "convolution",
    "crop",
    "data",
    "deconvolution",
    "dropout",
    "dummy_data",
    "eltwise",
    "embed",
    "euclidean_loss",
    "im2col",
    "image_data",
    "inner_product",
    "input",
    "log_loss",
    "lrn",
    "margin_loss",
    "mvn",
    "parameter",
    "pointwise",
    "pooling",
    "prelu",
    "reduction",
    "relu",
    "reshape",
    "scale",
    "sigmoid_loss",
    "slice",
    "softmax",
    "softmax_loss",
    "split",
    "spp",
    "tile",
]
