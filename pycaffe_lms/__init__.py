"""Offers a Caffe-compatible layer framework with Large Model Support: `import pycaffe_lms as caffe`.

Names and behaviour are pycaffe's; `install_as_caffe()` lets `import caffe` mean this package. Beyond pycaffe it has
`LMS` and `set_lms`, `MPI` and `init_mpi`, `set_math`, `net.lms`, `net.keep`, `blob.gpu_data`, `export_onnx`,
`check_onnx`, `import_onnx`, `find_model` (names of the zoo).
`pycaffe/mode.py` tells what threads may do, `blob.py` how long a view of a blob is valid.
"""

from . import search_path as search_path  # before anything else is imported

# isort: split
from . import _caffe, io, proto
from .classifier import Classifier
from .data.sets.zoo import find_model
from .detector import Detector
from .install import install_as_caffe
from .layers.user_layer import UserLayer as Layer
from .net_spec import NetSpec, layers, params, to_proto
from .onnx_export import check_onnx, export_onnx
from .onnx_import import import_onnx
from .parallel.nccl import NCCL
from .pycaffe.classes import (
    TEST,
    TRAIN,
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    AdamWSolver,
    LionSolver,
    NesterovSolver,
    Net,
    RMSPropSolver,
    SGDSolver,
    get_solver,
    layer_type_list,
)
from .pycaffe.lms import LMS
from .pycaffe.mode import (
    has_nccl,
    init_log,
    log,
    set_device,
    set_lms,
    set_math,
    set_mode_cpu,
    set_mode_gpu,
    set_mode_sim,
    set_multiprocess,
    set_random_seed,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from .pycaffe.mpi import MPI, init_mpi
from .pycaffe.timer import Timer
from .version import __version__

__all__ = [
    "_caffe",
    "LMS",
    "MPI",
    "NCCL",
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "AdamWSolver",
    "LionSolver",
    "Classifier",
    "Detector",
    "Layer",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Timer",
    "__version__",
    "check_onnx",
    "export_onnx",
    "find_model",
    "get_solver",
    "has_nccl",
    "import_onnx",
    "init_log",
    "init_mpi",
    "install_as_caffe",
    "io",
    "layer_type_list",
    "layers",
    "log",
    "params",
    "proto",
    "set_device",
    "set_lms",
    "set_math",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_mode_sim",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
    "to_proto",
]
