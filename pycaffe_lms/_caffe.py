"""Offers the names of pycaffe's extension module, for code that uses `caffe._caffe.Blob` and the like."""

from .blob import Blob
from .layers.user_layer import UserLayer as Layer
from .parallel.nccl import NCCL
from .proto.caffe_pb2 import LayerParameter, SolverParameter
from .pycaffe.classes import (
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
from .pycaffe.mode import (
    has_nccl,
    init_log,
    log,
    set_device,
    set_mode_cpu,
    set_mode_gpu,
    set_multiprocess,
    set_random_seed,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from .pycaffe.timer import Timer
from .solvers.base import Solver
from .vectors import BlobVec, BoolVec, DtypeVec, IntVec, LayerVec, NetVec, RawBlobVec, StringVec

__all__ = [
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "AdamWSolver",
    "LionSolver",
    "NCCL",
    "NesterovSolver",
    "RMSPropSolver",
    "Blob",
    "BlobVec",
    "BoolVec",
    "DtypeVec",
    "IntVec",
    "Layer",
    "LayerParameter",
    "LayerVec",
    "Net",
    "NetVec",
    "RawBlobVec",
    "SGDSolver",
    "Solver",
    "SolverParameter",
    "StringVec",
    "Timer",
    "get_solver",
    "has_nccl",
    "init_log",
    "layer_type_list",
    "log",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
]
