"""The zoo's catalogue as tests see it: every training net at full size and at one that a small machine can run."""

from __future__ import annotations

import sys
from functools import cache
from math import prod
from pathlib import Path

import pytest

from pycaffe_lms.net.net import Net

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
if str(ROOT / "tools") not in sys.path:
    sys.path.append(str(ROOT / "tools"))

from zoo import all_models  # noqa: E402
from zoo.catalogue import Model  # noqa: E402
from zoo.figures import memory, size  # noqa: E402, F401
from zoo.random_data import fed  # noqa: E402
from zoo.table import BEGIN, END, HEAD, MORE, TAIL, count_text, memory_text, row, with_memory  # noqa: E402, F401

TRAIN, TEST = 0, 1
NARROW = 16
ALL = {f"{model.folder}/{model.file}": model for model in all_models()}
_DEEP = (
    "cifar10_resnet-1001/",
    "resnet-101/",
    "resnet-152/",
    "llama-1.3b/",
    "vit-l-16/",
)  # more of the blocks of others
SOME = [pytest.param(n, marks=pytest.mark.thorough if n.startswith(_DEEP) else ()) for n in ALL]


def tiny(model: Model):
    """The training net fed with random values at its smallest size, its largest layers with few outputs."""
    text = model.small() if model.small else (MODELS / model.path).read_text()
    message = fed(text, model.tiny, model.classes)
    narrowed = set(model.narrow)
    for layer in message.layer:
        for field in ("convolution_param", "inner_product_param"):
            if layer.name in narrowed and layer.HasField(field):
                getattr(layer, field).num_output = NARROW
                narrowed.discard(layer.name)
    assert not narrowed, f"{model.path} has no such layers"
    return message


@cache
def full_size(name: str) -> Net:
    """The training net at full size, without values: names and shapes only."""
    model = ALL[name]
    return Net(fed((MODELS / model.path).read_text(), model.data, model.classes), TRAIN, fill=False)


@cache
def deployed(folder: str, file: str = "deploy") -> Net:
    """A net for use, without values."""
    return Net(MODELS / folder / f"{file}.prototxt", TEST, fill=False)


def learned(net: Net, *, but: str | None = None) -> int:
    """How many values it learns, those of layers of type `but` left out."""
    nodes, params = net.graph.nodes, net.graph.learnable
    return sum(prod(p.shape) for p in params if p.lr_mult != 0 and nodes[p.node].layer.param.type != but)


def shape_of(net: Net, blob: str) -> tuple[int, ...]:
    return net.graph.values[net.graph.last[blob]].shape
