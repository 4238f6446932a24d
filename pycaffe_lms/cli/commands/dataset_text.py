"""`pycaffe-lms dataset text [FILE ..]`: text as files of token ids."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import UsageError
from ...language.dataset import write_tokens
from ...language.tales import tales
from ...language.vocabulary import Bytes, Characters, Vocabulary, load_tokenizer, read_text
from .. import flags

_ABOUT = """Turn a text into numbers, its tokens, for language models.

train.bin and val.bin are for a TokenData layer, vocabulary.json is for `generate`, which turns numbers into text again.

Files of UTF-8 text are joined in the order in which they are given. Without any, 400 short tales are written, about
190 KB, made up by rules and the same on every machine. The end of the text is for validation.

example of a layer:
  layer { name: "data" type: "TokenData" top: "data" top: "label"
          token_data_param { source: "data/tales/train.bin"
                             sequence_length: 128 batch_size: 8 } }"""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("dataset text", _ABOUT)
    p.add_argument("files", nargs="*", metavar="FILE", help="text files to read (default: tales)")
    p.add_argument(
        "--vocabulary",
        choices=("bytes", "characters"),
        default=None,
        help="what a token is: one of 256 bytes (the default), or one of the text's characters",
    )
    p.add_argument(
        "--tokenizer", metavar="FILE", help="tokenizer.json of the `tokenizers` package, in place of -vocabulary"
    )
    p.add_argument("--out", metavar="DIR", help="folder to write to (default: data/ and the first file's name)")
    p.add_argument(
        "--val", type=float, default=0.1, metavar="SHARE", help="share of the text for val.bin (default: %(default)g)"
    )
    p.add_argument("--overwrite", action="store_true", help="replace files that are there")
    return p


def run(args: argparse.Namespace) -> int:
    """Write the files and say what they hold."""
    if not 0 < args.val < 1:
        raise UsageError(f"-val {args.val:g} is no share of the text", fix="a number between 0 and 1, such as 0.1")
    if args.tokenizer is not None and args.vocabulary is not None:
        raise UsageError("-vocabulary and -tokenizer are both given", fix="give one of them")
    text = read_text(args.files) if args.files else tales()
    out = args.out or Path("data") / (Path(args.files[0]).stem if args.files else "tales")
    vocabulary = _vocabulary(args, text)
    made = write_tokens(text, vocabulary, out, val=args.val, overwrite=args.overwrite)
    for path, count in zip((made.train, made.val), made.tokens, strict=True):
        print(f"{path.stem}: {path} ({count:,} tokens, {made.token_type})")
    print(f"vocabulary: {made.vocabulary} ({vocabulary.kind}, {vocabulary.size:,} ids)")
    return 0


def _vocabulary(args: argparse.Namespace, text: str) -> Vocabulary:
    if args.tokenizer is not None:
        return load_tokenizer(args.tokenizer)
    return Characters.of(text) if args.vocabulary == "characters" else Bytes()
