"""Offers pycaffe's interface: `classes.py` and `net.py` are what users build, `mode.py` the settings of a thread,
`lms.py` Large Model Support. `pycaffe_lms` exports the names too.
"""

from .classes import (
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
from .net import PycaffeNet

__all__ = [
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "AdamWSolver",
    "LionSolver",
    "NesterovSolver",
    "Net",
    "PycaffeNet",
    "RMSPropSolver",
    "SGDSolver",
    "get_solver",
    "layer_type_list",
]
