"""Every layer type, by Caffe's catalogue: importing this package registers them."""

# ruff: noqa: I001  (the catalogue's order, not the alphabet's)

# vision
from . import convolution
from . import pooling

# normalisation
from . import batch_norm
from . import lrn
from . import scale

# neuron
from . import dropout
from . import relu

# common
from . import inner_product
from . import softmax

# utility
from . import concat
from . import eltwise
from . import reshape
from . import split

# loss
from . import accuracy
from . import softmax_loss

# data
from . import data
from . import dummy_data
from . import input

__all__ = [
    "accuracy",
    "batch_norm",
    "concat",
    "convolution",
    "data",
    "dropout",
    "dummy_data",
    "eltwise",
    "inner_product",
    "input",
    "lrn",
    "pooling",
    "relu",
    "reshape",
    "scale",
    "softmax",
    "softmax_loss",
    "split",
]
