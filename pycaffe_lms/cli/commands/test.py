"""`pycaffe-lms test`: score a model on its TEST net."""

from __future__ import annotations

import argparse
import logging

from ...errors import UsageError
from ...solvers.display import number, output_elements
from ...solvers.loss_watch import LossWatch
from .. import devices, flags, overrides

_log = logging.getLogger(__name__)


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("test", __doc__, common="weights iterations set gpu backend lms lms_budget math")
    flags.add_word(p, "model", "prototxt of the net, whose TEST phase is scored, or a model of the zoo")
    p.add_argument(
        "--weights", required=True, metavar="FILES", help="comma list of .caffemodel (.h5) files with its weights"
    )
    p.add_argument("--iterations", type=int, default=50, metavar="N", help="how many batches are averaged")
    overrides.add_set(p, "the net", "layer.data.data_param.batch_size=10")
    flags.add_state(p)
    flags.add_tuning(p, without=("masks",))
    flags.add_device(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Log every batch's outputs, then their means."""
    if not args.weights.strip(", "):
        raise UsageError("-weights names no file", fix="give the .caffemodel to score")
    if args.iterations < 1:
        raise UsageError(f"-iterations {args.iterations} is not positive", fix="give 1 or more")
    devices.check_weights(args.weights)
    net = devices.build_net(args, 1, forward_only=True)
    devices.load_weights(net, args.weights)
    net.prepare_test()
    if net.inputs:
        _log.warning("Nothing fills the inputs %s: they are zero, and scores mean nothing.", ", ".join(net.inputs))
    _log.info("Running for %d iterations.", args.iterations)
    sums: list[float] = []  # over the batches, of each element of the outputs
    elements: list[tuple[str, float]] = []  # its blob and loss weight
    loss, losses = 0.0, LossWatch(net)
    for i in range(args.iterations):
        net.test_forward()
        loss += net.loss()
        outputs = list(output_elements(net))
        losses.warn_of_batch(outputs, f"batch {i}")
        for k, (name, value, weight) in enumerate(outputs):
            if k == len(sums):
                sums.append(0.0)
                elements.append((name, weight))
            sums[k] += value
            _log.info("Batch %d, %s = %s", i, name, number(value))
    _log.info("Loss: %s", number(loss / args.iterations))
    for (name, weight), total in zip(elements, sums, strict=True):
        mean = total / args.iterations
        text = f" (* {number(weight)} = {number(weight * mean)} loss)" if weight else ""
        _log.info("%s = %s%s", name, number(mean), text)
    net.close()
    return 0
