"""Layers with weights have the names and shapes of the public weights, so that those files load.

What is recorded here was computed from the prototxts that came with the weights: the number of layers that have any,
and a digest of their names and shapes. With equal values in both nets, the outputs were equal too.
"""

from __future__ import annotations

import hashlib

import pytest

from .nets import MODELS, deployed, shape_of

RECORDED = {
    "mobilenet-v1": (82, "068a92bb59962ec2"),
    "mobilenet-v2": (160, "bec90f78803f1010"),
    "densenet-121": (363, "c6a0714999aa26d6"),
    "resnet-18": (64, "f37d5c6be32e6b31"),
    "squeezenet-1.0": (26, "e0baa5c3309b49ff"),
    "squeezenet-1.1": (26, "63f52f964a7409d6"),
    "inception-v3": (283, "1a243aac5c7ad0c6"),
    "resnet-50": (160, "effbddaa712cbe3d"),
    "resnet-101": (313, "07058b729bf49d1b"),
    "resnet-152": (466, "7934fa0138a4f070"),
    "cifar10_resnet-20": (64, "1fbe893f531c84b1"),
    "cifar10_resnet-56": (172, "9254e2ffb8df4973"),
}
ALEXNET = {
    "conv1": (96, 3, 11, 11),
    "conv2": (256, 48, 5, 5),
    "conv3": (384, 256, 3, 3),
    "conv4": (384, 192, 3, 3),
    "conv5": (256, 192, 3, 3),
    "fc6": (4096, 9216),
    "fc7": (4096, 4096),
}
C3D = {
    "conv1a": (64, 3, 3, 3, 3),
    "conv2a": (128, 64, 3, 3, 3),
    "conv3a": (256, 128, 3, 3, 3),
    "conv3b": (256, 256, 3, 3, 3),
    "conv4a": (512, 256, 3, 3, 3),
    "conv4b": (512, 512, 3, 3, 3),
    "conv5a": (512, 512, 3, 3, 3),
    "conv5b": (512, 512, 3, 3, 3),
    "fc6-1": (4096, 8192),
    "fc7-1": (4096, 4096),
    "fc8-1": (487, 4096),
}


def lines(folder: str) -> list[str]:
    """`layer shape shape ..` of every layer with parameters."""
    params = deployed(folder).params
    return sorted(f"{name} {' '.join('x'.join(map(str, b.shape)) for b in blobs)}" for name, blobs in params.items())


@pytest.mark.parametrize("folder", RECORDED)
def test_names_and_shapes_of_the_public_weights(folder):
    found = lines(folder)
    assert (len(found), hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]) == RECORDED[folder]


@pytest.mark.parametrize(
    "folder, last",
    [
        ("alexnet", {"fc8": (1000, 4096)}),
        ("caffenet", {"fc8": (1000, 4096)}),
        ("flickr_style", {"fc8_flickr": (20, 4096)}),
        ("rcnn_ilsvrc13", {"fc-rcnn": (200, 4096)}),
    ],
)
def test_alexnet_and_its_kin(folder, last):
    assert {name: blobs[0].shape for name, blobs in deployed(folder).params.items()} == ALEXNET | last


def vgg_names(convolutions: dict[int, int]) -> list[str]:
    return [f"conv{stage}_{i}" for stage, count in convolutions.items() for i in range(1, count + 1)]


@pytest.mark.parametrize("folder, tail", [("vgg-16", ["fc6", "fc7", "fc8"]), ("vgg-19", ["fc6", "fc7", "fc8"])])
def test_vgg(folder, tail):
    many = 3 if folder == "vgg-16" else 4
    assert list(deployed(folder).params) == vgg_names({1: 2, 2: 2, 3: many, 4: many, 5: many}) + tail


def test_fcn_8s_takes_all_but_the_interpolation_from_the_public_weights():
    params = deployed("fcn-8s").params
    names = vgg_names({1: 2, 2: 2, 3: 3, 4: 3, 5: 3}) + ["fc6", "fc7", "score_fr", "score_pool4", "score_pool3"]
    assert {n for n in params if not n.endswith("_bilinear")} == set(names)
    assert params["fc6"][0].shape == (4096, 512, 7, 7) and params["score_pool3"][0].shape == (21, 256, 1, 1)


def test_ssd_300():
    """Layers with weights of the public net and what they predict for each place: default boxes times 4, times 21."""
    params = deployed("ssd-300").params
    base = [*vgg_names({1: 2, 2: 2, 3: 3, 4: 3, 5: 3}), "fc6", "fc7"]
    extra = {f"conv{i}_{j}": shape for i, pair in SSD_EXTRA.items() for j, shape in enumerate(pair, 1)}
    assert list(params)[: len(base) + 8] == base + list(extra)
    assert {name: params[name][0].shape for name in extra} == extra
    assert params["fc6"][0].shape == (1024, 512, 3, 3) and params["fc7"][0].shape == (1024, 1024, 1, 1)
    assert [b.shape for b in params["conv4_3_norm"]] == [(512,)]
    heads = {name: blobs[0].shape for name, blobs in params.items() if "_mbox_" in name}
    assert heads == {
        f"{source}_mbox_{kind}": (boxes * n, channels, 3, 3)
        for source, (channels, boxes, _) in SSD_MAPS.items()
        for kind, n in (("loc", 4), ("conf", 21))
    }
    assert len(params) == len(base) + 8 + 1 + 12


def test_default_boxes_of_ssd_300():
    """8,732 boxes. Of each map the first place's: squares of the paper's scales, then ratios 2, 1/2, 3, 1/3."""
    net = deployed("ssd-300")
    assert shape_of(net, "mbox_priorbox") == (1, 2, 8732 * 4)
    assert sum(boxes * side * side for _, boxes, side in SSD_MAPS.values()) == 8732
    sizes = [30, 60, 111, 162, 213, 264, 315]
    text = (MODELS / "ssd-300" / "deploy.prototxt").read_text()
    for source, small, large in zip(SSD_MAPS, sizes, sizes[1:], strict=False):
        part = text.partition(f'name: "{source}_mbox_priorbox"')[2].partition("\n}\n")[0]
        assert f"min_size: {small}.0\n    max_size: {large}.0\n" in part
        assert part.count("aspect_ratio:") == SSD_MAPS[source][1] // 2 - 1
        assert part.count("variance:") == 4 and "clip: false" in part and "offset: 0.5" in part


# Feature map: channels, default boxes at a place, height and width
SSD_MAPS = {
    "conv4_3_norm": (512, 4, 38),
    "fc7": (1024, 6, 19),
    "conv6_2": (512, 6, 10),
    "conv7_2": (256, 6, 5),
    "conv8_2": (256, 4, 3),
    "conv9_2": (256, 4, 1),
}
SSD_EXTRA = {
    6: ((256, 1024, 1, 1), (512, 256, 3, 3)),
    7: ((128, 512, 1, 1), (256, 128, 3, 3)),
    8: ((128, 256, 1, 1), (256, 128, 3, 3)),
    9: ((128, 256, 1, 1), (256, 128, 3, 3)),
}


def test_c3d():
    assert {name: blobs[0].shape for name, blobs in deployed("c3d").params.items()} == C3D


def test_unet_2d():
    down = {f"conv_d{i}{part}" for i in range(5) for part in ("a-b", "b-c")}
    up = {f"conv_u{i}{part}" for i in range(4) for part in ("b-c", "c-d")}
    between = {"upconv_d4c_u3a", "upconv_u3d_u2a", "upconv_u2d_u1a", "upconv_u1d_u0a", "conv_u0d-score"}
    assert set(deployed("unet-2d").params) == down | up | between
