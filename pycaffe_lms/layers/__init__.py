"""Every layer type, by Caffe's catalogue: importing this package registers them."""

# ruff: noqa: I001  (the catalogue's order, not the alphabet's)

# vision
from . import convolution
from . import deconvolution
from . import depthwise
from . import im2col
from . import interp
from . import pooling
from . import roi_pooling
from . import spp
from . import upsample

# normalisation
from . import batch_norm
from . import bn
from . import lrn
from . import mvn
from . import normalize
from . import scale

# neuron
from . import dropout
from . import pointwise
from . import prelu
from . import relu
from . import relu6

# common
from . import inner_product
from . import embed
from . import recurrent
from . import lstm
from . import softmax

# utility
from . import argmax
from . import axpy
from . import concat
from . import crop
from . import eltwise
from . import filter
from . import parameter
from . import permute
from . import prior_box
from . import python
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
from . import smooth_l1_loss
from . import softmax_loss

# data
from . import data
from . import dummy_data
from . import hdf5_data
from . import image_data
from . import input
from . import memory_data
from . import window_data

__all__ = [
    "accuracy",
    "argmax",
    "axpy",
    "batch_norm",
    "bn",
    "concat",
    "convolution",
    "crop",
    "data",
    "deconvolution",
    "depthwise",
    "dropout",
    "dummy_data",
    "eltwise",
    "filter",
    "python",
    "embed",
    "euclidean_loss",
    "hdf5_data",
    "im2col",
    "image_data",
    "inner_product",
    "input",
    "interp",
    "log_loss",
    "lrn",
    "lstm",
    "margin_loss",
    "memory_data",
    "mvn",
    "normalize",
    "parameter",
    "permute",
    "prior_box",
    "pointwise",
    "pooling",
    "prelu",
    "recurrent",
    "reduction",
    "relu",
    "relu6",
    "reshape",
    "roi_pooling",
    "scale",
    "sigmoid_loss",
    "slice",
    "smooth_l1_loss",
    "softmax",
    "softmax_loss",
    "split",
    "spp",
    "tile",
    "upsample",
    "window_data",
]
