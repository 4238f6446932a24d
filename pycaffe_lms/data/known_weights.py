"""Public weights by name: what file, with which checksum, from where if its publisher says so.

Addresses and SHA-1 digits are those that the publishers' model pages give; SHA-256 digits are of the published files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pycaffe_lms.data.download import Checksum


@dataclass(frozen=True)
class Weights:
    """file: its published name. url: where its publisher has it, "" where no lasting address is known."""

    what: str
    file: str
    checksum: Checksum
    url: str = ""


_BVLC = "http://dl.caffe.berkeleyvision.org/"

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
    "squeezenet_v1.0": Weights(
        "SqueezeNet 1.0 on ImageNet, decompressed",
        "squeezenet_v1.0_decompressed.caffemodel",
        Checksum("07c25c690e946daad64189eed6cbf95a7c47dd1a08a35cb4cce01c9130eccc52"),
    ),
    "mtcnn_det1": Weights(
        "the first net of MTCNN, which finds faces",
        "det1.caffemodel",
        Checksum("d6085e7f48ba7e6b6f1b58964595f6bce5b97bcc4866751f7b4bdc98f920c096"),
    ),
    "bvlc_alexnet": Weights(
        "BVLC's AlexNet on ImageNet",
        "bvlc_alexnet.caffemodel",
        Checksum("9116a64c0fbe4459d18f4bb6b56d647b63920377"),
        _BVLC + "bvlc_alexnet.caffemodel",
    ),
    "bvlc_reference_caffenet": Weights(
        "BVLC's CaffeNet on ImageNet",
        "bvlc_reference_caffenet.caffemodel",
        Checksum("4c8d77deb20ea792f84eb5e6d0a11ca0a8660a46"),
        _BVLC + "bvlc_reference_caffenet.caffemodel",
    ),
    "bvlc_googlenet": Weights(
        "BVLC's GoogLeNet on ImageNet",
        "bvlc_googlenet.caffemodel",
        Checksum("405fc5acd08a3bb12de8ee5e23a96bec22f08204"),
        _BVLC + "bvlc_googlenet.caffemodel",
    ),
}


def cache_folder() -> Path:
    """PYCAFFE_LMS_CACHE, else ~/.cache/pycaffe_lms."""
    return Path(os.environ.get("PYCAFFE_LMS_CACHE") or Path.home() / ".cache" / "pycaffe_lms").expanduser()
