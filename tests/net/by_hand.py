"""Functions that use a net as users do, pass by pass, and return every bit that users see.

Tests run them on the simulated device and on a GPU, with and without recordings.
"""

from __future__ import annotations

import numpy as np

from .nets import conv, inputs, ip, layer, loss, relu

SHAPE = (4, 3, 8, 8)
TEXT = (
    inputs(data=SHAPE, label=(4,))
    + conv("conv", "data", 4)
    + layer("bn", "BatchNorm", "conv")
    + layer("scale", "Scale", "bn", "bn", "scale_param { bias_term: true }")
    + relu("relu", "bn")
    + layer("pool", "Pooling", "bn", text="pooling_param { kernel_size: 2 stride: 2 }")
    + layer("drop", "Dropout", "pool", "pool")
    + ip("ip", "pool", 5)
    + loss("ip")
    + layer("prob", "Softmax", "ip")
)


def _feed(net, i: int, shape=SHAPE) -> None:
    rng = np.random.default_rng(i)
    net.blobs["data"].data[...] = rng.standard_normal(shape, dtype=np.float32)
    net.blobs["label"].data[...] = rng.integers(0, 5, shape[0])


def _seen(net) -> list[bytes]:
    """Every value of every blob and parameter."""
    params = [b for blobs in net.params.values() for b in blobs]
    return [b.data.tobytes() for b in (*net.blobs.values(), *params)]


def pictures(net) -> list:
    """New ones each time."""
    found = []
    for i in range(7):
        _feed(net, i)
        found.append({name: out.tobytes() for name, out in net.forward().items()})
    return [found, _seen(net)]


def training(net) -> list:
    """Forward, backward, and updates by the user on the host."""
    found = []
    for i in range(7):
        _feed(net, i)
        found.append(net.forward()["loss"].tobytes())
        for blobs in net.params.values():
            for b in blobs:
                b.diff[...] = 0
        net.backward()
        for blobs in net.params.values():
            for b in blobs:
                b.data[...] -= np.float32(0.1) * b.diff
    return [found, _seen(net)]


def parts(net) -> list:
    """Forward up to a layer, a change of what it made, forward from there."""
    found = []
    for i in range(6):
        _feed(net, i)
        net.forward(end="pool")
        net.blobs["pool"].data[...] *= 2
        net.forward(start="drop")
        found += _seen(net)
    return found


def chosen_gradients(net) -> list:
    """Backward from a class that the user chose, to the picture."""
    found = []
    for i in range(6):
        _feed(net, i)
        net.forward()
        net.blobs["prob"].diff[...] = 0
        net.blobs["prob"].diff[:, i % 5] = 1
        net.backward(start="prob")
        found.append(net.blobs["data"].diff.tobytes())
    return [found, _seen(net)]


def shapes(net) -> list:
    """Other pictures after a while, and the first ones again."""
    found = []
    for i, n in enumerate((4, 4, 4, 4, 2, 2, 2, 2, 4, 4, 4, 4)):
        net.blobs["data"].reshape(n, *SHAPE[1:])
        net.blobs["label"].reshape(n)
        _feed(net, i, (n, *SHAPE[1:]))
        net.forward()
        found += _seen(net)
    return found


def held_views(net) -> list:
    """Arrays that the user took before show what is computed later, and are written to."""
    net.forward()
    data, prob, weights = net.blobs["data"].data, net.blobs["prob"].data, net.params["conv"][0].data
    found = []
    for i in range(6):
        data[...] = i
        weights *= np.float32(0.9)
        net.forward()
        found.append(net.blobs["prob"].data.tobytes())
        assert prob.tobytes() == found[-1]
    return [found, _seen(net)]


ACTS = (pictures, training, parts, chosen_gradients, shapes, held_views)
