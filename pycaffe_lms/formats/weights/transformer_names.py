"""What public files of transformers call their arrays, and where these are in our layers: a table for each family.

`{}` stands for a block's number: theirs begin at 0, ours at 1. The nets are those of `language/families.py`.
Source: names in files of huggingface/transformers, models GPT2LMHeadModel, LlamaForCausalLM, ViTForImageClassification.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays import HostArray
from ...errors import WeightsError
from .blobproto import LayerWeights, StoredBlob

_log = logging.getLogger(__name__)


class ArrayRow(NamedTuple):
    """Say where one of their arrays is.

    Attributes:
        theirs: the array's name.
        layer, blob: our layer, and which of its parameters.
        turned: theirs is (inputs, outputs), ours (outputs, inputs).
        part: (k, n): theirs is the k-th of n equal parts of ours, along the first axis.
        ones: leading axes of length 1 that theirs has and ours lacks.
    """

    theirs: str
    layer: str
    blob: int
    turned: bool = False
    part: tuple[int, int] = (0, 1)
    ones: int = 0


class Family(NamedTuple):
    """Describe a family: its rows, what may come before all names, and what tells its files and its nets.

    Attributes:
        prefix: files of a net without its head lack it.
        key: an array that each file has. layers: each net has these.
        unread: arrays that are no weights, a regular expression.
    """

    prefix: str
    key: str
    layers: tuple[str, ...]
    rows: tuple[ArrayRow, ...]
    unread: str = "$^"


def _both(
    theirs: str, layer: str, *, turned: bool = False, part: tuple[int, int] = (0, 1)
) -> tuple[ArrayRow, ArrayRow]:
    """Return the rows of a layer's weight and bias."""
    return ArrayRow(f"{theirs}.weight", layer, 0, turned, part), ArrayRow(f"{theirs}.bias", layer, 1, False, part)


_GPT2 = (
    ArrayRow("transformer.wte.weight", "embed", 0),
    ArrayRow("transformer.wpe.weight", "positions", 0),
    *_both("transformer.h.{}.ln_1", "block{}_norm1"),
    *_both("transformer.h.{}.attn.c_attn", "block{}_qkv", turned=True),
    *_both("transformer.h.{}.attn.c_proj", "block{}_proj", turned=True),
    *_both("transformer.h.{}.ln_2", "block{}_norm2"),
    *_both("transformer.h.{}.mlp.c_fc", "block{}_fc1", turned=True),
    *_both("transformer.h.{}.mlp.c_proj", "block{}_fc2", turned=True),
    *_both("transformer.ln_f", "norm"),
    ArrayRow("lm_head.weight", "scores", 0),
)
_LLAMA = (
    ArrayRow("model.embed_tokens.weight", "embed", 0),
    ArrayRow("model.layers.{}.input_layernorm.weight", "block{}_norm1", 0),
    *_both("model.layers.{}.self_attn.q_proj", "block{}_q"),
    *_both("model.layers.{}.self_attn.k_proj", "block{}_k"),
    *_both("model.layers.{}.self_attn.v_proj", "block{}_v"),
    *_both("model.layers.{}.self_attn.o_proj", "block{}_proj"),
    ArrayRow("model.layers.{}.post_attention_layernorm.weight", "block{}_norm2", 0),
    *_both("model.layers.{}.mlp.gate_proj", "block{}_fc1", part=(0, 2)),
    *_both("model.layers.{}.mlp.up_proj", "block{}_fc1", part=(1, 2)),
    *_both("model.layers.{}.mlp.down_proj", "block{}_fc2"),
    ArrayRow("model.norm.weight", "norm", 0),
    ArrayRow("lm_head.weight", "scores", 0),
)
_VIT = (
    ArrayRow("vit.embeddings.cls_token", "class_token", 0, ones=1),
    ArrayRow("vit.embeddings.position_embeddings", "positions", 0, ones=1),
    *_both("vit.embeddings.patch_embeddings.projection", "patches"),
    *_both("vit.encoder.layer.{}.layernorm_before", "block{}_norm1"),
    *_both("vit.encoder.layer.{}.attention.attention.query", "block{}_qkv", part=(0, 3)),
    *_both("vit.encoder.layer.{}.attention.attention.key", "block{}_qkv", part=(1, 3)),
    *_both("vit.encoder.layer.{}.attention.attention.value", "block{}_qkv", part=(2, 3)),
    *_both("vit.encoder.layer.{}.attention.output.dense", "block{}_proj"),
    *_both("vit.encoder.layer.{}.layernorm_after", "block{}_norm2"),
    *_both("vit.encoder.layer.{}.intermediate.dense", "block{}_fc1"),
    *_both("vit.encoder.layer.{}.output.dense", "block{}_fc2"),
    *_both("vit.layernorm", "norm"),
    *_both("classifier", "scores"),
)
FAMILIES = {
    "gpt2": Family("transformer.", "wte.weight", ("embed", "positions"), _GPT2, r"h\.\d+\.attn\.(masked_)?bias"),
    "llama": Family("model.", "embed_tokens.weight", ("embed", "block1_q"), _LLAMA, r"layers\.\d+\..*inv_freq"),
    "vit": Family("vit.", "embeddings.cls_token", ("class_token", "positions"), _VIT),
}


def read_named(tensors: Mapping[str, HostArray], file: str) -> Iterator[LayerWeights]:
    """Yield the weights of our layers from the arrays of a public file, whose family its names tell.

    Arrays that no row names are logged and left out.
    Raises: WeightsError for names of no family, or where a part of a parameter is missing or does not fit the others.
    """
    family = next((f for f in FAMILIES.values() if f.key in tensors or f.prefix + f.key in tensors), None)
    if family is None:
        raise WeightsError(
            f"its arrays have names of no known family ({', '.join(FAMILIES)}): it has {', '.join(list(tensors)[:3])}",
            fix="give a file of such a net, in the names of transformers",
        ).at(file=file)
    layers: dict[str, dict[int, dict[int, tuple[ArrayRow, str]]]] = {}
    for name in tensors:
        row, layer = _row_of(family, name)
        if row is None:
            if not re.fullmatch(family.unread, name.removeprefix(family.prefix)):
                _log.info("Ignoring array %s, which is not in the table of its family", name)
            continue
        layers.setdefault(layer, {}).setdefault(row.blob, {})[row.part[0]] = row, name
    for layer, blobs in layers.items():
        stored = [_joined(tensors, blobs[i], layer, file) if i in blobs else None for i in range(max(blobs) + 1)]
        yield LayerWeights(layer, "", tuple(stored))


def write_named(layers: Iterable[tuple[str, Sequence[HostArray | None]]], file: str) -> dict[str, HostArray]:
    """Return the arrays of a public file from (layer, its parameters; None: another layer's), the family's net.

    Raises: WeightsError for a net of no family, or a parameter that its table lacks.
    """
    given = [(name, list(arrays)) for name, arrays in layers if len(arrays)]
    names = {name for name, _ in given}
    family = next((f for f in FAMILIES.values() if names.issuperset(f.layers)), None)
    if family is None:
        raise WeightsError(
            f"a net of no family that such files have names for ({', '.join(FAMILIES)})",
            fix="write .caffemodel or .h5; or call its layers as pycaffe_lms.language.families does",
        ).at(file=file)
    found: dict[str, HostArray] = {}
    for layer, arrays in given:
        number = re.fullmatch(r"block(\d+)(_.*)", layer)
        ours = f"block{{}}{number[2]}" if number else layer
        for i, values in enumerate(arrays):
            rows = [row for row in family.rows if (row.layer, row.blob) == (ours, i)]
            if not rows:
                raise WeightsError(
                    "files of this family have no name for it", fix="write .caffemodel or .h5, which take any net"
                ).at(file=file, layer=layer, blob=str(i))
            if values is None:
                continue
            for row in rows:
                k, n = row.part
                part = values[k * len(values) // n : (k + 1) * len(values) // n]
                part = part.T if row.turned else part.reshape((1,) * row.ones + part.shape)
                found[row.theirs.format(int(number[1]) - 1 if number else "")] = part
    return found


def _row_of(family: Family, name: str) -> tuple[ArrayRow | None, str]:
    """Return the row that names an array, with the name of our layer; None: no row does."""
    bare = re.sub(r"\.(\d+)\.", ".{}.", name, count=1)
    number = re.search(r"\.(\d+)\.", name)
    for row in family.rows:
        if row.theirs in (bare, family.prefix + bare):
            return row, row.layer.format(int(number[1]) + 1) if number else row.layer
    return None, ""


def _joined(
    tensors: Mapping[str, HostArray], parts: Mapping[int, tuple[ArrayRow, str]], layer: str, file: str
) -> StoredBlob:
    """Return our parameter, of its parts."""
    (row, first), *_ = parts.values()
    if len(parts) != row.part[1]:
        raise WeightsError(f"it has {first}, but not all {row.part[1]} parts", fix="get the file again").at(
            file=file, layer=layer, blob=str(row.blob)
        )
    arrays = []
    for k in range(row.part[1]):
        values = tensors[parts[k][1]]
        ones = values.shape[: row.ones] == (1,) * row.ones
        values = values.reshape(values.shape[row.ones :]) if ones else values
        arrays.append(values.T if row.turned else values)
    if len({a.shape[1:] for a in arrays}) > 1:
        raise WeightsError(f"parts of shapes {[a.shape for a in arrays]} do not fit each other").at(
            file=file, layer=layer, blob=str(row.blob)
        )
    return StoredBlob(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))
