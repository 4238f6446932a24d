"""Nets of seven images whose layers can run in parts: a plain chain, branches, sums, a way up and across."""

from __future__ import annotations

from collections.abc import Iterator

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver, solver_class

from .nets import conv

_DATA = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 7 dim: 4 dim: 12 dim: 12 } shape { dim: 7 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 3.99 } } }
"""


def _of(name, kind, bottoms, top=None, more=""):
    names = " ".join(f'bottom: "{b}"' for b in bottoms.split())
    return f'layer {{ name: "{name}" type: "{kind}" {names} top: "{top or name}" {more} }}\n'


def _relu(blob):
    return _of(f"relu_{blob}", "ReLU", blob, blob)


def _pool(name, bottom, how="MAX"):
    return _of(name, "Pooling", bottom, more=f"pooling_param {{ pool: {how} kernel_size: 2 stride: 2 }}")


def _fc(name, bottom, outputs):
    fill = 'weight_filler { type: "xavier" }'
    return _of(name, "InnerProduct", bottom, more=f"inner_product_param {{ num_output: {outputs} {fill} }}")


_LOSS = _of("loss", "SoftmaxWithLoss", "fc label")

NETS = {
    "chain": _DATA
    + conv("conv1_1", "data", 8)
    + _relu("conv1_1")
    + conv("conv1_2", "conv1_1", 8)
    + _relu("conv1_2")
    + _pool("pool1", "conv1_2")
    + _of("norm1", "LRN", "pool1", more="lrn_param { local_size: 3 alpha: 0.1 }")
    + conv("conv2", "norm1", 8, 3, "group: 2")
    + _relu("conv2")
    + _pool("pool2", "conv2", "STOCHASTIC")
    + _fc("fc6", "pool2", 16)
    + _relu("fc6")
    + _of("drop6", "Dropout", "fc6", "fc6")
    + _fc("fc", "fc6", 4)
    + _LOSS,
    "branches": _DATA
    + conv("a", "data", 4, 1, "bias_term: false")
    + conv("b", "data", 8, 3)
    + _relu("b")
    + conv("c", "b", 8, 5, "bias_term: false")
    + _of("cat", "Concat", "a b c")
    + _of("bn", "BatchNorm", "cat", "cat")
    + _of("scale", "Scale", "cat", "cat", "scale_param { bias_term: true }")
    + _of("prelu", "PReLU", "cat", "cat")
    + _of("drop", "Dropout", "cat", "drop", "dropout_param { dropout_ratio: 0.3 }")
    + _of("flat", "Flatten", "drop")
    + _fc("fc", "flat", 4)
    + _LOSS,
    "sums": _DATA
    + conv("c1", "data", 8)
    + conv("c2", "c1", 8)
    + _relu("c2")
    + conv("c3", "c2", 8)
    + _of("sum", "Eltwise", "c1 c3")
    + _relu("sum")
    + _of("max", "Eltwise", "sum c2", more="eltwise_param { operation: MAX }")
    + _pool("pool", "max", "AVE")
    + _fc("fc", "pool", 4)
    + _LOSS,
    "up": _DATA
    + conv("down1", "data", 8)
    + _relu("down1")
    + _pool("half", "down1")
    + conv("down2", "half", 8)
    + _relu("down2")
    + _of(
        "up",
        "Deconvolution",
        "down2",
        more='convolution_param { num_output: 8 kernel_size: 2 stride: 2 weight_filler { type: "xavier" } }',
    )
    + _of("cut", "Crop", "down1 up", more="crop_param { axis: 2 }")
    + _of("both", "Concat", "cut up")
    + conv("fc", "both", 4, 1)
    + _of("sig", "Sigmoid", "fc")
    + _of("loss", "EuclideanLoss", "sig data"),
}
SPLIT = tuple(NETS)  # those of this file: others add theirs


def solver(
    net: str, device, lms: LMSConfig | None = None, dtype="float32", tuning: Tuning | None = None, **options
) -> SGDSolver:
    """A solver on one of NETS; `options` are further SolverParameter fields."""
    fields = {
        "base_lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "lr_policy": '"fixed"',
        "max_iter": 100,
        "random_seed": 7,
        "snapshot_after_train": "false",
    } | options
    text = "\n".join(f"{name}: {value}" for name, value in fields.items())
    parsed = parse_solver(f"{text}\nnet_param {{ name: '{net}'\n{NETS[net]} }}\n", f"{net}.prototxt")
    more = {"file": parsed.filename, "lines": parsed.lines, "device": device, "lms": lms, "dtype": dtype}
    return solver_class(parsed.message)(parsed.message, tuning=tuning or Tuning(graph=True), **more)


def managed_in_random_orders(net: str, **split: int) -> Iterator[SGDSolver]:
    """Yield a net's solver under Large Model Support for 12 random orders of the streams, with and without look-ahead
    and rematerialization. split: settings of `LMSConfig`, such as split_slabs=3."""
    for seed in range(12):
        more = {"ahead": (0, 1, None)[seed % 3], "sync": seed % 4} if seed % 5 else {"recompute": True}
        lms = LMSConfig(threshold_kb=1, frac=(0.0, 0.001)[seed % 2], **split, **more)
        yield solver(net, SimDevice(64 << 20, order="random", seed=seed), lms)
