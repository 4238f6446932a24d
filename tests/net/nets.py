"""Prototxt text to messages, graphs and nets, and layers as text."""

from __future__ import annotations

from dataclasses import dataclass

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.build.source import load_source
from pycaffe_lms.net.build.wiring import wire
from pycaffe_lms.pycaffe.classes import PycaffeNet
from pycaffe_lms.solvers import SGDSolver

TRAIN, TEST = 0, 1
FILE = "some.prototxt"


@dataclass(frozen=True)
class Place:
    """Where a net runs. A new device for every net, so that one test's device bytes are its own."""

    name: str

    def device(self):
        return get_device("cpu") if self.name == "cpu" else SimDevice(64 << 20)

    @property
    def lms(self):
        return LMSConfig(threshold_kb=1, ahead=1) if self.name == "lms" else None

    @property
    def manages(self) -> bool:
        return self.name == "lms"


CPU = Place("cpu")


def message(text: str):
    return parse_net(text, FILE).message


def graph(text: str, phase: int = TRAIN):
    parsed = parse_net(text, FILE)
    source = load_source(parsed.message, phase=phase, lines=parsed.lines, file=FILE)
    return wire(source.message, source.lines, file=FILE, dtype="float32")


def make_net(text: str, place: Place = CPU, phase: int = TRAIN, **options) -> PycaffeNet:
    parsed = parse_net(text, FILE)
    options = {"seed": 5, "lms": place.lms, "device": place.device()} | options
    net = PycaffeNet(parsed.message, phase, lines=parsed.lines, file=FILE, **options)
    assert net.runtime.active == any(memory.managed for memory in net.memory.memories.values())
    return net


class _FaceSolver(SGDSolver):
    net_class = PycaffeNet


def make_solver(text: str, place: Place = CPU, *, momentum: float = 0.9, fields: str = "") -> SGDSolver:
    head = f'base_lr: 0.1 momentum: {momentum} lr_policy: "fixed" max_iter: 100 random_seed: 3 {fields}'
    parsed = parse_solver(f"{head}\nnet_param {{ {text} }}", FILE)
    return _FaceSolver(parsed.message, file=parsed.filename, lines=parsed.lines, device=place.device(), lms=place.lms)


# -- layers as text ------------------------------------------------------------------------------------------------
def layer(name: str, type: str, bottoms: str = "", tops: str | None = None, text: str = "") -> str:
    """bottoms and tops: names with spaces between; tops default to the layer's name."""
    lines = [f'bottom: "{b}"' for b in bottoms.split()]
    lines += [f'top: "{t}"' for t in (name if tops is None else tops).split()]
    return f'layer {{ name: "{name}" type: "{type}" {" ".join(lines)} {text} }}\n'


def inputs(**shapes) -> str:
    """One Input layer per blob."""
    return "".join(
        layer(name, "Input", text="input_param { shape { " + " ".join(f"dim: {d}" for d in shape) + " } }")
        for name, shape in shapes.items()
    )


def conv(name: str, bottom: str, outputs: int, text: str = "", inside: str = "") -> str:
    param = f'num_output: {outputs} kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} {inside}'
    return layer(name, "Convolution", bottom, text=f"{text} convolution_param {{ {param} }}")


def ip(name: str, bottom: str, outputs: int, text: str = "", tops: str | None = None) -> str:
    param = f'num_output: {outputs} weight_filler {{ type: "xavier" }} bias_filler {{ type: "uniform" max: 0.1 }}'
    return layer(name, "InnerProduct", bottom, tops, f"{text} inner_product_param {{ {param} }}")


def relu(name: str, bottom: str, top: str | None = None, text: str = "") -> str:
    return layer(name, "ReLU", bottom, top or bottom, text)


def loss(bottom: str, top: str = "loss", name: str = "loss", text: str = "") -> str:
    return layer(name, "SoftmaxWithLoss", f"{bottom} label", top, text)
