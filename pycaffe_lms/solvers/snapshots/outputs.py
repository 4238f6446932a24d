"""The outputs of a net as a solver tells them: one element at a time, numbers as C++ prints them."""

from __future__ import annotations

from collections.abc import Iterator

from ...net.net import Net
from ..events import Output


def output_elements(net: Net) -> Iterator[Output]:
    """Every element of every output blob."""
    for name in net.outputs:
        blob = net.blobs[name]
        weight = net.graph.values[net.graph.last[name]].loss_weight
        for value in blob.read_data().reshape(-1).tolist():
            yield Output(name, value, weight)


def number(value: float) -> str:
    """As C++ streams print it: six significant digits."""
    return f"{value:.6g}"


def with_loss(name: str, value: float, weight: float) -> str:
    """An output's value, and what it adds to the loss."""
    text = f"{name} = {number(value)}"
    return text + (f" (* {number(weight)} = {number(weight * value)} loss)" if weight else "")
