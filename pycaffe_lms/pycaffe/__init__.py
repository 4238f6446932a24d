"""The Python interface that pycaffe's users know; `pycaffe_lms` itself exports the names."""

from .classes import (
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
)
from .net import PycaffeNet

__all__ = [
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "NesterovSolver",
    "Net",
    "PycaffeNet",
    "RMSPropSolver",
    "SGDSolver",
    "get_solver",
    "layer_type_list",
]
