"""What a model takes: learned values, operations, memory in core, the smallest device for Large Model Support.

Plans only, of the simulated device: no memory is taken, no data are read. The workspace of convolutions is left out,
for it belongs to the device: a GPU's are of cuDNN's choice within -workspace, the simulated device's are columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from pycaffe_lms.backend import get_device
from pycaffe_lms.formats.prototxt import parse_net
from pycaffe_lms.layers.base import count
from pycaffe_lms.layers.convolution import ConvolutionLayer
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.plan import Plan
from pycaffe_lms.lms.planner import make_plan
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


def fed(text: str, shapes: Shapes, classes: int | None) -> caffe_pb2.NetParameter:
    """The net of a prototxt's text with DummyData instead of its data layers: random values of the given shapes. A
    second top that has no shape is one label per record; blobs called label, input or target hold classes."""
    message = parse_net(text).message
    for layer in message.layer:
        if layer.bottom or layer.type in ("Parameter", "DummyData"):
            continue
        batch = shapes[layer.top[0]][0]
        made = caffe_pb2.LayerParameter(name=layer.name, type="DummyData", top=layer.top)
        made.include.extend(layer.include)
        for top in layer.top:
            made.dummy_data_param.shape.add(dim=shapes.get(top, (batch,)))
            whole = top not in shapes or top in ("label", "input", "target")
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


def planned(message: caffe_pb2.NetParameter, lms: LMSConfig, file: str) -> tuple[Net, Plan]:
    """The training net on a simulated device without end, and the plan of an iteration there."""
    device = get_device("sim", capacity=ENDLESS)
    net = Net(message, TRAIN, device=device, lms=lms, fill=False, tuning=Tuning(pack=True), file=file)
    steps = updates(net)
    return net, net.plan_only(lambda: steps)


def columns(net: Net) -> set[int]:
    """Buffers that are the workspace of convolutions."""
    nodes = (node for node in net.graph.everyone() if isinstance(node.layer, ConvolutionLayer))
    return {node.scratch["work"] for node in nodes if "work" in node.scratch}


def scratch_bytes(net: Net, plan: Plan) -> int:
    """What layers use in turn beside the managed buffers and the workspace of convolutions."""
    ids = {b for b, buffer in net.memory.buffers.items() if buffer.call_scratch} - set(plan.buffers) - columns(net)
    sizes = {b: net.memory.buffers[b].nbytes for b in ids}
    return max(step.device_bytes(sizes) for step in plan.program.steps)


def arena_bytes(net: Net, plan: Plan) -> int:
    """What the managed buffers but the workspace of convolutions need, where nothing is fetched before its time."""
    left_out = columns(net)
    buffers = {b: buffer for b, buffer in plan.buffers.items() if b not in left_out}
    steps = (replace(s, accesses=tuple(a for a in s.accesses if a.buffer in buffers)) for s in plan.program.steps)
    program = replace(plan.program, steps=tuple(steps))
    return make_plan(program, buffers, limit=None, ahead=0).arena_bytes


def smallest(message: caffe_pb2.NetParameter, threshold_kb: int, file: str) -> int:
    """Bytes of the smallest device for a net with a buffer above the threshold."""
    net, plan = planned(message, LMSConfig(threshold_kb=threshold_kb, ahead=0), file)
    return net.runtime.resident_bytes + scratch_bytes(net, plan) + arena_bytes(net, plan)


def figures(model: Model, files: Mapping[str, str]) -> Figures:
    """Of a training iteration at full size. files: texts of the prototxts by path under models/."""
    path = model.path
    message = fed(files[path], model.data, model.classes)
    net, plan = planned(message, LMSConfig(), path)
    steps = net.builder.forward(0, len(net.graph.nodes) - 1)
    return Figures(
        learned=sum(prod(p.shape) for p in net.graph.learnable if p.lr_mult != 0),
        flops=sum(step_flops(net.graph, step) for step in steps) // model.batch,
        in_core=net.runtime.resident_bytes + scratch_bytes(net, plan) + plan.arena_bytes,
        lms=smallest(message, 1000, path),
        lms_1=smallest(message, 1, path),
    )
