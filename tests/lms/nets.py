"""Small nets, one per way in which buffers live: chains, residuals in place, branches, grouped convolution, dropout."""

from __future__ import annotations

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver, solver_class

_DATA = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 dim: 12 dim: 12 } shape { dim: 4 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 4.99 } } }
"""
# What _DATA makes on the device, made on the host, as by data layers that read files.
HOST_DATA = """
layer { name: "data" type: "Python" top: "data" top: "label"
  python_param { module: "tests.layers.user_layers" layer: "HostNumbers" } }
"""
_FILL = 'weight_filler { type: "xavier" }'


def conv(name, bottom, outputs, kernel=3, extra=""):
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ '
        f"num_output: {outputs} kernel_size: {kernel} pad: {kernel // 2} {_FILL} {extra} }} }}\n"
    )


def unit(name, bottom, outputs, kernel=3, relu=True, extra=""):
    """Convolution, BatchNorm, Scale and ReLU, in place."""
    text = conv(name, bottom, outputs, kernel, f"bias_term: false {extra}")
    text += f'layer {{ name: "bn_{name}" type: "BatchNorm" bottom: "{name}" top: "{name}" }}\n'
    text += (
        f'layer {{ name: "scale_{name}" type: "Scale" bottom: "{name}" top: "{name}" '
        "scale_param { bias_term: true } }\n"
    )
    if relu:
        text += f'layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'
    return text


def head(bottom):
    return (
        f'layer {{ name: "fc" type: "InnerProduct" bottom: "{bottom}" top: "fc" '
        f"inner_product_param {{ num_output: 5 {_FILL} }} }}\n"
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }\n'
        'layer { name: "accuracy" type: "Accuracy" bottom: "fc" bottom: "label" top: "accuracy" }\n'
    )


def _eltwise(name, a, b):
    return (
        f'layer {{ name: "{name}" type: "Eltwise" bottom: "{a}" bottom: "{b}" top: "{name}" }}\n'
        f'layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'
    )


def _pool(name, bottom, how="MAX", kernel=2):
    return (
        f'layer {{ name: "{name}" type: "Pooling" bottom: "{bottom}" top: "{name}" pooling_param {{ '
        f"pool: {how} kernel_size: {kernel} stride: 2 }} }}\n"
    )


NETS = {
    "chain": _DATA
    + conv("conv1", "data", 6)
    + _pool("pool1", "conv1")
    + 'layer { name: "relu1" type: "ReLU" bottom: "pool1" top: "pool1" }\n'
    + conv("conv2", "pool1", 8)
    + _pool("pool2", "conv2", "AVE", 3)
    + head("pool2"),
    "residual": _DATA
    + unit("c1", "data", 6)
    + unit("c2", "c1", 6, 1)
    + unit("c3", "c2", 6, relu=False)
    + _eltwise("r1", "c1", "c3")
    + unit("c4", "r1", 6)
    + unit("c5", "c4", 6, relu=False)
    + _eltwise("r2", "r1", "c5")
    + _pool("pool", "r2", "AVE", 3)
    + head("pool"),
    "branches": _DATA
    + conv("a", "data", 4, 1)
    + conv("b", "data", 4, 3)
    + 'layer { name: "relu_b" type: "ReLU" bottom: "b" top: "b" relu_param { negative_slope: 0.1 } }\n'
    + conv("c", "b", 4, 5)
    + _pool("p", "data", "MAX", 3)
    + 'layer { name: "cat" type: "Concat" bottom: "a" bottom: "b" bottom: "c" top: "cat" }\n'
    + 'layer { name: "norm" type: "LRN" bottom: "cat" top: "norm" lrn_param { local_size: 3 alpha: 0.1 } }\n'
    + 'layer { name: "flat" type: "Flatten" bottom: "norm" top: "flat" }\n'
    + 'layer { name: "drop" type: "Dropout" bottom: "flat" top: "flat" }\n'
    + 'layer { name: "other" type: "Silence" bottom: "p" }\n'
    + head("flat"),
    "groups": _DATA
    + conv("conv1", "data", 6, 5)
    + 'layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }\n'
    + 'layer { name: "norm1" type: "LRN" bottom: "conv1" top: "norm1" lrn_param { local_size: 3 } }\n'
    + _pool("pool1", "norm1", "MAX", 3)
    + conv("conv2", "pool1", 6, 3, "group: 2")
    + 'layer { name: "reshape" type: "Reshape" bottom: "conv2" top: "reshape" '
    + "reshape_param { shape { dim: 0 dim: -1 } } }\n"
    + 'layer { name: "fc6" type: "InnerProduct" bottom: "reshape" top: "fc6" inner_product_param { num_output: 16 '
    + _FILL
    + " } }\n"
    + 'layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }\n'
    + 'layer { name: "drop6" type: "Dropout" bottom: "fc6" top: "fc6" }\n'
    + 'layer { name: "bias6" type: "Bias" bottom: "fc6" top: "bias6" }\n'
    + head("bias6"),
    "shared": _DATA
    + conv("s1", "data", 3, extra="").replace(
        "convolution_param", 'param { name: "w" } param { name: "b" } convolution_param'
    )
    + 'layer { name: "relu1" type: "ReLU" bottom: "s1" top: "s1" }\n'
    + conv("s2", "s1", 3, extra="").replace(
        "convolution_param", 'param { name: "w" } param { name: "b" } convolution_param'
    )
    + _eltwise("sum", "s1", "s2")
    + head("sum"),
}


def solver_text(net: str, **options) -> str:
    """A solver on one of NETS with a seed; `options` are further SolverParameter fields."""
    fields = {
        "base_lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "lr_policy": '"step"',
        "gamma": 0.5,
        "stepsize": 2,
        "max_iter": 100,
        "random_seed": 7,
        "snapshot_after_train": "false",
    } | options
    text = "\n".join(f"{name}: {value}" for name, value in fields.items())
    return f"{text}\nnet_param {{ name: '{net}'\n{NETS[net]} }}\n"


def make_solver(net: str, device=None, lms: LMSConfig | None = None, *, graph: bool = True, **options) -> SGDSolver:
    parsed = parse_solver(solver_text(net, **options), f"{net}.prototxt")
    more = {"file": parsed.filename, "lines": parsed.lines, "device": device or SimDevice(64 << 20), "lms": lms}
    return solver_class(parsed.message)(parsed.message, tuning=Tuning(graph=graph), **more)


# Every solver type, as options of a solver.
TYPES = [
    {"type": '"SGD"'},
    {"type": '"Nesterov"'},
    {"type": '"AdaGrad"', "momentum": 0},
    {"type": '"RMSProp"', "momentum": 0, "rms_decay": 0.8},
    {"type": '"AdaDelta"', "delta": 1e-3},
    {"type": '"Adam"', "momentum2": 0.9},
]


def type_name(options: dict) -> str:
    """For the ids of tests over TYPES."""
    return options["type"].strip('"')


def train(solver: SGDSolver, iterations: int) -> tuple[list[float], list[bytes]]:
    """(losses, parameters and gradients to the bit) of some iterations; no gradients where `pack` lets them go."""
    losses = []
    for _ in range(iterations):
        solver.step(1)
        losses.append(solver.net.loss())
    blobs, kept = solver.net.learnable_params, not solver.net.tuning.pack or solver.param.snapshot_diff
    return losses, [b.read_data().tobytes() + (b.read_diff().tobytes() if kept else b"") for b in blobs]
