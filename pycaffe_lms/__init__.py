"""pycaffe-lms: a Caffe-compatible layer framework with Large Model Support. `import pycaffe_lms as caffe`."""

from .layers.user_layer import UserLayer as Layer
from .net_spec import NetSpec, layers, params, to_proto
from .pycaffe import (
    TEST,
    TRAIN,
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    Net,
    RMSPropSolver,
    SGDSolver,
    get_solver,
    layer_type_list,
    set_device,
    set_mode_cpu,
    set_mode_gpu,
    set_random_seed,
)

__version__ = "0.1.0"

__all__ = [
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Layer",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "get_solver",
    "layer_type_list",
    "layers",
    "params",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_random_seed",
    "to_proto",
]
