"""Calls a user's functions before and after every layer: `before_forward`, `after_forward` and their like.

A callback may read and write every blob, so no copy may be in flight and no value discarded. While a net has callbacks,
each layer therefore runs as a program of its own whose values all survive. Results are the same, but there are no fused
chains, no prefetch and no CUDA graphs, and Large Model Support keeps all values on the host.
Source of the behaviour: BVLC/caffe, net.{hpp,cpp}, Net::Callback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..program.programs import Sequenced
from ..program.steps import LayerStep, layer_of

if TYPE_CHECKING:
    from ..net import Net

LayerCallback = Callable[[int], object]


@dataclass
class Callbacks:
    """List the callbacks of a net, each called with the index of a layer, in the order of the list."""

    before_forward: list[LayerCallback] = field(default_factory=list)
    after_forward: list[LayerCallback] = field(default_factory=list)
    before_backward: list[LayerCallback] = field(default_factory=list)
    after_backward: list[LayerCallback] = field(default_factory=list)

    @property
    def around_forward(self) -> bool:
        """Return whether there are callbacks around a forward."""
        return bool(self.before_forward or self.after_forward)

    @property
    def around_backward(self) -> bool:
        """Return whether there are callbacks around a backward."""
        return bool(self.before_backward or self.after_backward)

    def __bool__(self) -> bool:
        return self.around_forward or self.around_backward


def forward_layers(net: Net, start: int, end: int) -> bool:
    """Run the forward of layers start..end with callbacks around each. Returns whether all shapes stayed the same."""
    same = True
    for i in range(start, end + 1):

        def build(key: str, first: int, reshaped: bool, i: int = i) -> Sequenced:
            return net.arrangement.forward(key, first, i)

        for callback in net.callbacks.before_forward:
            callback(i)
        same &= net.run_by_hand(f"forward {i}..{i}", i, i, build)
        for callback in net.callbacks.after_forward:
            callback(i)
    return same


def backward_layers(net: Net, start: int, end: int, steps: Sequence[LayerStep], name: str) -> None:
    """Run backward steps of layers start down to end, with callbacks around every layer, also those without a step."""
    of_layer: dict[int, list[LayerStep]] = {}
    for step in steps:
        of_layer.setdefault(layer_of(net.run_graph, step), []).append(step)
    for i in range(start, end - 1, -1):
        for callback in net.callbacks.before_backward:
            callback(i)
        if i in of_layer:
            net.own_blobs.versions.bring_diffs(i, i)
            net.run_steps(f"{name}, layer {i}", of_layer[i])
            net.own_blobs.versions.show_diffs(i, i)
        for callback in net.callbacks.after_backward:
            callback(i)
