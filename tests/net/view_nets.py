"""Nets whose Concat and Slice layers copy contiguous ranges, and solvers on them with and without buffer views."""

from __future__ import annotations

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net import arrangement
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver

from ..lms.nets import conv, head, unit
from .nets import layer, relu

CHANNEL = 16 * 16 * 4  # bytes of a channel of the images below


def data(batch: int = 1, labels: int = 1) -> str:
    return f"""
layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
  shape {{ dim: {batch} dim: 3 dim: 16 dim: 16 }} shape {{ dim: {labels} }}
  data_filler {{ type: "gaussian" }} data_filler {{ type: "uniform" min: 0 max: 4.99 }} }} }}
"""


def concat(name, bottoms, text=""):
    return layer(name, "Concat", bottoms, text=f"concat_param {{ {text} }}" if text else "")


def total(name, bottoms):
    return layer(name, "Eltwise", bottoms)


POOL = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
UP = 'convolution_param { num_output: 6 kernel_size: 2 stride: 2 weight_filler { type: "xavier" } }'
# net: (text, layers whose forward still copies, whose backward still does)
NETS = {
    "u-net": (
        data()
        + unit("d0", "data", 4)
        + layer("pool", "Pooling", "d0", text=POOL)
        + unit("d1", "pool", 8)
        + layer("up", "Deconvolution", "d1", text=UP)
        + concat("cat", "d0 up")
        + unit("u0", "cat", 4)
        + head("u0"),
        [],
        [],
    ),
    "first axis": (
        data(2, 4)
        + conv("a", "data", 4)
        + relu("ra", "a")
        + conv("b", "data", 4)
        + concat("cat", "a b", "axis: 0")
        + unit("c", "cat", 4)
        + head("c"),
        [],
        [],
    ),
    "other images between": (
        data(2, 2) + conv("a", "data", 4) + conv("b", "data", 4) + concat("cat", "a b") + head("cat"),
        ["cat"],
        ["cat"],
    ),
    "slice": (
        data()
        + conv("x", "data", 8)
        + layer("cut", "Slice", "x", "y z")
        + relu("ry", "y")
        + conv("b", "y", 4)
        + conv("c", "z", 4)
        + total("s", "b c")
        + head("s"),
        [],
        ["cut"],  # x's gradient would be there as soon as that of one piece
    ),
    "a piece without a gradient": (  # which must become zero
        data()
        + conv("x", "data", 8)
        + layer("cut", "Slice", "x", "y z")
        + conv("b", "y", 4)
        + conv("c", "z", 4).replace('type: "Convolution"', 'type: "Convolution" propagate_down: false')
        + total("s", "b c")
        + head("s"),
        [],
        ["cut"],
    ),
    "nested": (
        data()
        + conv("a", "data", 4)
        + conv("b", "a", 4)
        + concat("ab", "a b")
        + conv("c", "ab", 4)
        + concat("abc", "ab c")
        + conv("d", "abc", 4)
        + concat("all", "abc d")
        + unit("e", "all", 16)
        + head("e"),
        [],
        [],
    ),
    "cut and put together again": (  # where it came from, but a half must be moved to be first
        data() + conv("x", "data", 8) + layer("cut", "Slice", "x", "y z") + concat("zy", "z y") + head("zy"),
        ["zy"],
        ["cut"],
    ),
    "top changed in place": (
        data() + conv("a", "data", 4) + conv("b", "data", 4) + concat("cat", "a b") + relu("r", "cat") + head("cat"),
        [],
        [],
    ),
    "a bottom is read after that": (
        data()
        + conv("a", "data", 4)
        + conv("b", "data", 4)
        + concat("cat", "a b")
        + relu("r", "cat")
        + conv("c", "cat", 4)
        + conv("d", "a", 4)
        + total("s", "c d")
        + head("s"),
        ["cat"],
        [],
    ),
    "a bottom twice": (
        data() + conv("a", "data", 4) + concat("cat", "a a") + head("cat"),
        ["cat"],
        [],
    ),
    "two want the same": (
        data()
        + conv("a", "data", 4)
        + conv("b", "data", 4)
        + concat("ab", "a b")
        + concat("ba", "b a")
        + total("s", "ab ba")
        + head("s"),
        ["ba"],
        [],
    ),
    "a net's input": (
        data() + conv("a", "data", 4) + concat("cat", "a data") + head("cat"),
        ["cat"],
        [],
    ),
    "rows": (  # flattened: of two axes
        data()
        + conv("a", "data", 4)
        + layer("fa", "Flatten", "a")
        + conv("b", "data", 2)
        + layer("fb", "Flatten", "b")
        + concat("cat", "fa fb")
        + head("cat"),
        [],
        [],
    ),
    "begins off a boundary": (  # 300 elements in
        data()
        + layer("a", "InnerProduct", "data", text="inner_product_param { num_output: 300 }")
        + layer("b", "InnerProduct", "data", text="inner_product_param { num_output: 20 }")
        + concat("cat", "a b")
        + head("cat"),
        ["cat"],
        ["cat"],
    ),
    "no gradient at all": (
        data()
        + conv("a", "data", 4)
        + conv("b", "data", 4)
        + concat("cat", "a b")
        + conv("c", "cat", 4).replace('type: "Convolution"', 'type: "Convolution" propagate_down: false')
        + total("s", "a c")
        + head("s"),
        [],
        [],
    ),
}


def solver(text: str, device=None, lms=None, **tuning) -> SGDSolver:
    head = "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' max_iter: 99 random_seed: 7 snapshot_after_train: false"
    parsed = parse_solver(f"{head}\nnet_param {{ name: 'n'\n{text} }}", "n.prototxt")
    tuning = Tuning(**{"channels_last": False, "pack": True} | tuning)
    device = device or SimDevice(64 << 20)
    return SGDSolver(parsed.message, lines=parsed.lines, file="n.prototxt", device=device, lms=lms, tuning=tuning)


def copying(monkeypatch, text: str, *args, **options) -> SGDSolver:
    with monkeypatch.context() as here:
        here.setattr(arrangement, "choose_views", lambda *args, **more: {})
        return solver(text, *args, **options)


def steps_of(net, *types: str) -> dict[str, list[str]]:
    """Layers of these types whose forward or backward an iteration runs."""
    found: dict[str, list[str]] = {"forward": [], "backward": []}
    for step in net.memory.steps("train"):
        way, _, name = step.step.name.partition(":")
        if way in found and net.graph.nodes[net.layer_index(name.split("+")[-1])].layer.type in types:
            found[way].append(name)
    return found


PLACES = {
    "cpu": (lambda: get_device("cpu"), None),
    "sim": (lambda: SimDevice(64 << 20), None),
    "earliest": (lambda: SimDevice(64 << 20, order="earliest"), None),
    "random": (lambda: SimDevice(64 << 20, order="random", seed=3), None),
    "all managed": (lambda: SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=1)),
    "on demand": (lambda: SimDevice(64 << 20, order="random", seed=5), LMSConfig(threshold_kb=1, ahead=0)),
    "auto": (lambda: SimDevice(64 << 20), LMSConfig(auto=True, split=0, split_outputs=0)),
    "gpu": (
        lambda: get_device("cuda"),
        None,
    ),
}
