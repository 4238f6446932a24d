"""What a model takes: learned values, operations, memory in core, the smallest device for Large Model Support.

Memory is what `pycaffe-lms plan` says without other flags: planned for a GPU, no memory is taken, no data are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from pycaffe_lms.cli.views.plan_nets import Nets
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import DEFAULT, find_machine
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.program.costs import step_flops
from pycaffe_lms.solvers.rules import RULES

from .catalogue import Model, Shapes
from .random_data import fed

TRAIN = 0


@dataclass(frozen=True)
class Size:
    """learned: values that are learned. flops: operations of the products of a forward in training, a multiplication
    and an addition each, per item of the batch."""

    learned: int
    flops: int


@dataclass(frozen=True)
class Memory:
    """Of a training iteration with SGD's momentum, in bytes of device memory. in_core: without LMS. lms, lms_1: the
    least `-lms_budget` of `-lms 1000` and `-lms 1`."""

    batch: int
    in_core: int
    lms: int
    lms_1: int


def size(model: Model, files: Mapping[str, str]) -> Size:
    """files: texts of the prototxts by path under models/."""
    net = Net(fed(files[model.path], model.data, model.classes), TRAIN, fill=False, file=model.path)
    steps = net.arrangement.builder.forward(0, len(net.graph.nodes) - 1)
    return Size(
        learned=sum(prod(p.shape) for p in net.graph.learnable if p.lr_mult != 0),
        flops=sum(step_flops(net.graph, step) for step in steps) // model.batch,
    )


def shape_flags(shapes: Shapes) -> list[str]:
    """Values of `plan`'s -shape."""
    return [f"{top}={','.join(map(str, shape))}" for top, shape in shapes.items()]


def memory(model: Model, files: Mapping[str, str], times: int = 1) -> Memory:
    """At full size, with a batch of so many `times` the prototxt's."""
    parsed = parse_net(files[model.path], model.path)
    shapes = model.batch_times(times)

    def nets(lms: LMSConfig) -> Nets:
        return Nets(
            parsed,
            shape_flags(shapes),
            level=0,
            stages=(),
            rule=RULES["SGD"],
            machine=find_machine(DEFAULT),
            lms=lms,
            workspace=None,
        )

    least = [nets(LMSConfig(threshold_kb=kb)).least().nbytes for kb in (1000, 1)]
    return Memory(times * model.batch, nets(LMSConfig()).in_core().nbytes, *least)
