"""What a model takes: learned values, operations, memory in core, the smallest device for Large Model Support.

Plans only, on the simulated device: no memory is taken, no data are read. Convolutions on a GPU may want more
workspace than the simulated device's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from pycaffe_lms.backend import get_device
from pycaffe_lms.formats.prototxt import read_net
from pycaffe_lms.layers.base import count
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.schedule import Access, Mode, Step
from pycaffe_lms.net.flops import step_flops
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.programs import HostedStep
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.proto import caffe_pb2

from .catalogue import Model, Shapes

TRAIN, TEST = 0, 1
ENDLESS = 1 << 46


@dataclass(frozen=True)
class Figures:
    """learned: values that are learned. flops: operations of the products of a forward in training, a multiplication
    and an addition each, per item of the batch. in_core: bytes of device memory of a training iteration without LMS.
    lms, lms_1: of the smallest device on which `-lms 1000` and `-lms 1` train it."""

    learned: int
    flops: int
    in_core: int
    lms: int
    lms_1: int


def fed(path: Path, shapes: Shapes, classes: int | None) -> caffe_pb2.NetParameter:
    """The net of a prototxt with DummyData instead of its data layers: random values of the given shapes; a second top
    that has no shape is one label per record, and blobs called label or target hold classes."""
    message = read_net(path).message
    for layer in message.layer:
        if layer.bottom or layer.type in ("Parameter", "DummyData"):
            continue
        batch = shapes[layer.top[0]][0]
        made = caffe_pb2.LayerParameter(name=layer.name, type="DummyData", top=layer.top)
        made.include.extend(layer.include)
        for top in layer.top:
            made.dummy_data_param.shape.add(dim=shapes.get(top, (batch,)))
            whole = top not in shapes or top in ("label", "input", "target", "real")
            high = classes - 0.01 if whole and classes else 1  # a label counts as the whole number below it
            made.dummy_data_param.data_filler.add(type="uniform", min=0, max=high)
        layer.CopyFrom(made)
    return message


def updates(net: Net) -> list[HostedStep]:
    """The update steps of SGD with momentum, for planning: nobody runs them."""
    steps = []
    for p in net.graph.learnable:
        if p.lr_mult != 0:
            name = net.graph.nodes[p.node].name
            history = net.memory.add(f"{name}.param{p.position}.history", count(p.shape) * net.dtype.itemsize)
            accesses = tuple(Access(b, Mode.UPDATE) for b in (p.data, p.diff, history))
            steps.append(HostedStep(Step(f"update:{name}", accesses), lambda: None))
    return steps


def planned(message: caffe_pb2.NetParameter, lms: LMSConfig, file: str) -> tuple[Net, int]:
    """The training net on a simulated device without end, and the device memory that an iteration takes there."""
    device = get_device("sim", capacity=ENDLESS)
    net = Net(message, TRAIN, device=device, lms=lms, fill=False, tuning=Tuning(pack=True), file=file)
    plan = net.plan_only(updates(net))
    return net, net.runtime.resident_bytes + net.runtime.workspace_bytes + (plan.arena_bytes if plan else 0)


def smallest(message: caffe_pb2.NetParameter, threshold_kb: int, file: str) -> int:
    """Bytes of the smallest device: nothing is fetched before it is needed, nothing stays for later."""
    return planned(message, LMSConfig(threshold_kb=threshold_kb, ahead=0), file)[1]


def figures(model: Model, models: Path) -> Figures:
    """Of a training iteration at full size. Raises OutOfDeviceMemory never: the device has no end."""
    path = models / model.path
    message = fed(path, model.data, model.classes)
    net, in_core = planned(message, LMSConfig(), str(path))
    steps = net.builder.forward(0, len(net.graph.nodes) - 1)
    return Figures(
        learned=sum(prod(p.shape) for p in net.graph.learnable if p.lr_mult != 0),
        flops=sum(step_flops(net.graph, step) for step in steps) // model.batch,
        in_core=in_core,
        lms=smallest(message, 1000, str(path)),
        lms_1=smallest(message, 1, str(path)),
    )
