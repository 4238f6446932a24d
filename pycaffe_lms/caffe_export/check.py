"""Read exported files again, and measure how far their net is from the one that was exported."""

from __future__ import annotations

from ..net import weights
from ..net.net import Net
from ..onnx_export.check import Difference, difference
from ..onnx_export.trial import random_inputs


def check_caffe(net: Net, prototxt: str, caffemodel: str, *, seed: int = 0) -> list[Difference]:
    """Run a net and the files written of it on the same random inputs; return each output's largest difference.

    Raises: PrototxtError, WeightsError where a file cannot be read.
    """
    again = Net(prototxt, net.phase, forward_only=True)
    try:
        weights.copy_from(again, caffemodel, must_match=bool(net.learnable_params))
        for name, values in random_inputs(net, seed).items():
            for one in (net, again):
                one.blobs[name].data = values
        for one in (net, again):
            one.forward_range()
        found = [(name, again.blobs[name].data, net.blobs[name].data) for name in net.outputs]
        return [difference(name, theirs, ours, "random numbers") for name, theirs, ours in found]
    finally:
        again.close()
