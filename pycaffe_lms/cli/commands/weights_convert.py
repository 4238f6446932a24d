"""`pycaffe-lms weights convert IN OUT`: a file of weights in another form."""

from __future__ import annotations

import argparse
import logging

from ...errors import UsageError, WeightsError
from ...formats.rawfile import check_readable
from ...formats.weights.caffemodel import each_layer, write_weights
from ...formats.weights.hdf5_weights import write_hdf5_weights
from ...formats.weights.safetensors_file import ENDING, write_safetensors
from ...formats.weights.transformer_names import write_named
from ...proto.caffe_pb2 import NetParameter
from .. import flags

_log = logging.getLogger(__name__)

_ABOUT = """Write a file of weights in the form that the ending of OUT says: .caffemodel (binary, at most 2 GiB), .h5 or
.safetensors.

Public transformers come as .safetensors: GPT-2, LLaMA, Qwen2, ViT and nets like them, in the names of the
`transformers` package. IN may also be the index of several, NAME.safetensors.index.json. They become weights of
the nets that pycaffe_lms.language's gpt2, llama and vit write, and such weights are written back. -weights
takes .safetensors, too, without this command."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("weights convert", _ABOUT)
    p.add_argument("source", metavar="IN", help=".caffemodel (.h5) or .safetensors file, or an index of several")
    p.add_argument("target", metavar="OUT", help="file to write; its ending says in which form")
    return p


def run(args: argparse.Namespace) -> int:
    """Read, write, and say how many layers there are."""
    if not args.target.endswith((".caffemodel", ".h5", ENDING)):
        raise UsageError(f"{args.target!r} has no known ending", fix=f"end it in .caffemodel, .h5 or {ENDING}")
    check_readable(args.source, WeightsError)
    layers = [layer for layer in each_layer(args.source) if layer.blobs]
    arrays = [(layer.name, [None if blob is None else blob.data for blob in layer.blobs]) for layer in layers]
    if args.target.endswith(ENDING):
        write_safetensors(args.target, write_named(arrays, args.target))
    elif args.target.endswith(".h5"):
        write_hdf5_weights(args.target, arrays)
    else:
        net = NetParameter()
        for layer in layers:
            if None in layer.blobs:
                fix = "give OUT the ending .h5, which can leave one out"
                raise WeightsError("a parameter is missing", fix=fix).at(file=args.source, layer=layer.name)
            net.layer.add(name=layer.name, type=layer.type)
        blobs = [[(blob.data, None) for blob in layer.blobs if blob is not None] for layer in layers]
        write_weights(args.target, net, blobs)
    _log.info("Wrote %d layers with weights to %s.", len(layers), args.target)
    return 0
