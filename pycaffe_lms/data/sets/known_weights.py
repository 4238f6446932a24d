"""List public weights by name: file, checksum, and address where its publisher gives one.

Addresses and SHA-1 digits are from the publishers' model pages, or else from download lists of other projects (OpenCV,
MXNet, Open Model Zoo). SHA-256 digits are of the published files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .download import Checksum


@dataclass(frozen=True)
class Weights:
    """Describe a file of weights. file: its published name. url: its publisher's address, "" where none is known."""

    what: str
    file: str
    checksum: Checksum
    url: str = ""


_BVLC = "http://dl.caffe.berkeleyvision.org/"
_VGG = "http://www.robots.ox.ac.uk/~vgg/software/very_deep/caffe/"
_SQUEEZENET = "https://raw.githubusercontent.com/forresti/SqueezeNet/a47b6f13d30985279789d08053d37013d67d131b/"
_MOBILENET = "https://raw.githubusercontent.com/shicai/MobileNet-Caffe/26a8b8c0afb6114a07c1c9e4f550e4e0dd8cced1/"


def _of(what: str, file: str, digits: str, folder: str = "") -> Weights:
    return Weights(what, file, Checksum(digits), folder and folder + file)


WEIGHTS: dict[str, Weights] = {
    "lenet": Weights(
        "LeNet on MNIST, iteration 10,000",
        "lenet_iter_10000.caffemodel",
        Checksum("26860c66fcbf72d7275ac90dd8ec68cefe5b2fcb489881f895954cfb8319c74d"),
    ),
    "cifar10_quick_4000": Weights(
        "CIFAR-10 quick, iteration 4,000",
        "cifar10_quick_iter_4000.caffemodel",
        Checksum("14a5c975eb2e97e8e1d30d65abd7b4955ef64750a8e6bb0ed67e74175e387307"),
    ),
    "cifar10_quick": Weights(
        "CIFAR-10 quick, iteration 5,000",
        "cifar10_quick_iter_5000.caffemodel",
        Checksum("970a5edcfc2a2eb115e63820fe720d8be3f174f313c8935cce04a0b5a7f32252"),
    ),
    "squeezenet_v1.0": _of(
        "SqueezeNet 1.0 on ImageNet",
        "squeezenet_v1.0.caffemodel",
        "9ff8035aada1f9ffa880b35252680d971434b141ec9fbacbe88309f0f9a675ce",
        _SQUEEZENET + "SqueezeNet_v1.0/",
    ),
    "squeezenet_v1.0_decompressed": Weights(
        "the same compressed to 0.5 MB and back; names its layers fire2/conv1x1_1 and on",
        "squeezenet_v1.0_decompressed.caffemodel",
        Checksum("07c25c690e946daad64189eed6cbf95a7c47dd1a08a35cb4cce01c9130eccc52"),
    ),
    "mtcnn_det1": Weights(
        "the first net of MTCNN, which finds faces",
        "det1.caffemodel",
        Checksum("d6085e7f48ba7e6b6f1b58964595f6bce5b97bcc4866751f7b4bdc98f920c096"),
    ),
    "squeezenet_v1.1": _of(
        "SqueezeNet 1.1 on ImageNet",
        "squeezenet_v1.1.caffemodel",
        "72b912ace512e8621f8ff168a7d72af55910d3c7c9445af8dfbff4c2ee960142",
        _SQUEEZENET + "SqueezeNet_v1.1/",
    ),
    "mobilenet_v1": _of(
        "MobileNet on ImageNet",
        "mobilenet.caffemodel",
        "8d6edcd3dbd1356f2f19dd220c362c2ba8f44233a9b6c12ca6d0351cb0c446b6",
        _MOBILENET,
    ),
    "mobilenet_v2": _of(
        "MobileNet v2 on ImageNet",
        "mobilenet_v2.caffemodel",
        "a3124ce7abd258c7f35a2c586576bee8116934fa2a8556e4e528041859dd753f",
        _MOBILENET,
    ),
    "bvlc_alexnet": _of(
        "BVLC's AlexNet on ImageNet", "bvlc_alexnet.caffemodel", "9116a64c0fbe4459d18f4bb6b56d647b63920377", _BVLC
    ),
    "bvlc_reference_caffenet": _of(
        "BVLC's CaffeNet on ImageNet",
        "bvlc_reference_caffenet.caffemodel",
        "4c8d77deb20ea792f84eb5e6d0a11ca0a8660a46",
        _BVLC,
    ),
    "bvlc_googlenet": _of(
        "BVLC's GoogLeNet on ImageNet", "bvlc_googlenet.caffemodel", "405fc5acd08a3bb12de8ee5e23a96bec22f08204", _BVLC
    ),
    "bvlc_reference_rcnn_ilsvrc13": _of(
        "R-CNN on ILSVRC-2013's detection",
        "bvlc_reference_rcnn_ilsvrc13.caffemodel",
        "bdd8abb885819cba5e2fe1eb36235f2319477e64",
        _BVLC,
    ),
    "finetune_flickr_style": _of(
        "CaffeNet fine-tuned on Flickr Style",
        "finetune_flickr_style.caffemodel",
        "b61b5cef7d771b53b0c488e78d35ccadc073e9cf",
        _BVLC,
    ),
    "fcn8s_heavy_pascal": _of(
        "FCN-8s on PASCAL VOC", "fcn8s-heavy-pascal.caffemodel", "c449ea74dd7d83751d1357d6a8c323fcf4038962", _BVLC
    ),
    "vgg_16": _of(
        "VGG-16 on ImageNet", "VGG_ILSVRC_16_layers.caffemodel", "9363e1f6d65f7dba68c4f27a1e62105cdf6c4e24", _VGG
    ),
    "vgg_19": _of(
        "VGG-19 on ImageNet", "VGG_ILSVRC_19_layers.caffemodel", "239785e7862442717d831f682bb824055e51e9ba", _VGG
    ),
    "resnet_50": _of("ResNet-50 on ImageNet", "ResNet-50-model.caffemodel", "b7c79ccc21ad0479cddc0dd78b1d20c4d722908d"),
    "resnet_101": _of(
        "ResNet-101 on ImageNet", "ResNet-101-model.caffemodel", "1dbf5f493926bb9b6b3363b12d5133c0f8b78904"
    ),
    "resnet_152": _of(
        "ResNet-152 on ImageNet", "ResNet-152-model.caffemodel", "251edb93604ac8268c7fd2227a0f15144310e1aa"
    ),
    "densenet_121": _of(
        "DenseNet-121 on ImageNet", "DenseNet_121.caffemodel", "02b520138e8a73c94473b05879978018fefe947b"
    ),
}


def cache_folder() -> Path:
    """Return the folder for downloads: PYCAFFE_LMS_CACHE, else ~/.cache/pycaffe_lms."""
    return Path(os.environ.get("PYCAFFE_LMS_CACHE") or Path.home() / ".cache" / "pycaffe_lms").expanduser()
