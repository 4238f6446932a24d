"""`pycaffe-lms test`: score a model on its TEST net."""

from __future__ import annotations

import argparse
import logging

from ...errors import UsageError
from ...net.net import Net
from ...proto.caffe_pb2 import SolverParameter
from ...solvers.detection_scores import DetectionScores
from ...solvers.display import number, output_elements
from ...solvers.loss_watch import LossWatch
from ...solvers.settings import AP_VERSIONS
from .. import devices, flags, overrides

_log = logging.getLogger(__name__)


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("test", __doc__, common="weights iterations set gpu backend lms lms_budget math")
    flags.add_word(p, "model", "prototxt of the net, whose TEST phase is scored, or a model of the zoo")
    p.add_argument(
        "--weights",
        required=True,
        metavar="FILES",
        help="comma list of .caffemodel (.h5) or .safetensors files with its weights",
    )
    p.add_argument("--iterations", type=int, default=50, metavar="N", help="how many batches are averaged")
    p.add_argument(
        "--ap_version",
        choices=AP_VERSIONS,
        default="Integral",
        help="average precision of outputs of DetectionEvaluate (default: %(default)s)",
    )
    overrides.add_set(p, "the net", "layer.data.data_param.batch_size=10")
    flags.add_state(p)
    flags.add_tuning(p, without=("masks",))
    flags.add_device(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Log every batch's outputs, then their means; of DetectionEvaluate's, mean average precisions alone."""
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
    detection = _detection(net, args.ap_version)
    for i in range(args.iterations):
        net.test_forward()
        loss += net.loss()
        detection.add()
        outputs = [output for output in output_elements(net) if output.name not in detection.names]
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
    for name, value, _ in detection.outputs():
        _log.info("%s = %s", name, number(value))
    net.close()
    return 0


def _detection(net: Net, version: str) -> DetectionScores:
    """Return what scores the outputs that DetectionEvaluate layers make, if any."""
    graph = net.graph
    makers = {name: graph.nodes[graph.values[graph.last[name]].producer].layer.param.type for name in net.outputs}
    names = [name for name in net.outputs if makers[name] == "DetectionEvaluate"]
    return DetectionScores(net, SolverParameter(ap_version=version, show_per_class_result=True), names)
