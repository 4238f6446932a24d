"""`pycaffe-lms generate MODEL -weights FILE -prompt TEXT`: text by a language model."""

from __future__ import annotations

import argparse
import secrets

from ...data.sets.zoo import find_model
from ...errors import UsageError
from ...language.generation import generate
from ...language.vocabulary import Bytes, load_vocabulary
from ...log import only_warnings
from ...proto.caffe_pb2 import TEST
from ...pycaffe.classes import Net
from .. import devices, flags

_COMMON = "weights prompt tokens temperature top_k seed vocabulary gpu backend lms lms_budget"
_ABOUT = """Continue a text with a language model: print the prompt and the tokens that follow.

MODEL is a deploy net with one input (1, T), ids of tokens, and one output (1, T, vocabulary): scores, or probabilities
by a Softmax layer. Its Attention layers must be causal."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("generate", _ABOUT, common=_COMMON)
    p.gpu_may_be_bare = True
    flags.add_word(p, "model", "deploy prototxt of the net, or a model of the zoo")
    p.add_argument(
        "--weights",
        required=True,
        metavar="FILES",
        help="comma list of .caffemodel (.h5) or .safetensors files with its weights",
    )
    p.add_argument("--prompt", default="\n", metavar="TEXT", help="text to go on from (default: a line feed)")
    p.add_argument("--tokens", type=int, default=200, metavar="N", help="how many tokens to add (default: %(default)s)")
    p.add_argument(
        "--temperature",
        type=float,
        default=0.8,
        metavar="T",
        help="how random the text is: 0 takes the likeliest token each time, 1 draws by the net's probabilities "
        "(default: %(default)g)",
    )
    p.add_argument(
        "--top_k", type=int, default=0, metavar="K", help="draw from the K likeliest tokens only; 0: all (default: 0)"
    )
    p.add_argument("--seed", type=int, default=None, metavar="N", help="seed of the draws (default: another each time)")
    p.add_argument(
        "--vocabulary",
        default=None,
        metavar="FILE",
        help="vocabulary.json that `dataset text` wrote (default: bytes)",
    )
    flags.add_device(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Print the prompt and what follows."""
    for name, least in (("tokens", 0), ("temperature", 0), ("top_k", 0), ("seed", 0)):
        value = getattr(args, name)
        if value is not None and not least <= value < float("inf"):
            raise UsageError(f"-{name} {value}", fix="0 or more")
    devices.check_weights(args.weights)
    vocabulary = Bytes() if args.vocabulary is None else load_vocabulary(args.vocabulary)
    prompt = [int(i) for i in vocabulary.encode(args.prompt)]
    if not prompt:
        raise UsageError("-prompt is empty", fix="give at least one token, or leave the flag out")
    lms = flags.lms_config(args)
    with only_warnings():
        net = Net(find_model(args.model, "deploy"), TEST, lms=lms, device=devices.choose(args, lms))
        devices.load_weights(net, args.weights)
    try:
        seed = secrets.randbits(31) if args.seed is None else args.seed
        drawn = generate(net, prompt, args.tokens, temperature=args.temperature, top_k=args.top_k, seed=seed)
        print(vocabulary.decode([*prompt, *drawn]))
    finally:
        net.close()
    return 0
