"""The image nets have as many learned values, and the same outputs, as the published ones."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from pycaffe_lms.net.net import Net

MODELS = Path(__file__).resolve().parents[2] / "models"

PUBLISHED = [  # model, file, learned values, outputs
    ("alexnet", "deploy", 60_965_224, ["prob"]),
    ("alexnet", "train_dummy", 60_965_224, ["loss"]),
    ("vgg-16", "deploy", 138_357_544, ["prob"]),
    ("vgg-16", "train_dummy", 138_357_544, ["loss"]),
    ("googlenet", "deploy", 6_998_552, ["prob"]),
    ("googlenet", "train_dummy", 13_378_280, ["loss1/loss1", "loss2/loss1", "loss3/loss3"]),
]


@pytest.mark.parametrize("model, file, learned, outputs", PUBLISHED, ids=lambda x: str(x) if isinstance(x, str) else "")
def test_learned_values_and_outputs(model, file, learned, outputs):
    net = Net(MODELS / model / f"{file}.prototxt", 0, fill=False)
    assert sum(prod(p.shape) for p in net.graph.learnable) == learned
    assert net.outputs == outputs


def test_googlenet_counts_its_losses_as_published():
    net = Net(MODELS / "googlenet" / "train_dummy.prototxt", 0, fill=False)
    weights = {v.name: v.loss_weight for v in net.graph.values if v.loss_weight}
    assert weights == pytest.approx({"loss1/loss1": 0.3, "loss2/loss1": 0.3, "loss3/loss3": 1.0})


def test_googlenet_modules_join_as_many_channels_as_published():
    net = Net(MODELS / "googlenet" / "deploy.prototxt", 1, fill=False)
    joined = {v.name.removesuffix("/output"): v.shape[1:] for v in net.graph.values if v.name.endswith("/output")}
    assert {name.removeprefix("inception_"): shape for name, shape in joined.items()} == {
        "3a": (256, 28, 28), "3b": (480, 28, 28), "4a": (512, 14, 14), "4b": (512, 14, 14), "4c": (512, 14, 14),
        "4d": (528, 14, 14), "4e": (832, 14, 14), "5a": (832, 7, 7), "5b": (1024, 7, 7),
    }  # fmt: skip
