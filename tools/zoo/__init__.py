"""The model zoo as Python: one short module per family, each with `files()` and `MODELS`.

`files()` returns {path under models/: text}. Everything is plain data until gen_models.py writes it.
"""

from . import (
    alexnet,
    autoencoder,
    c3d,
    caffenet,
    char_gpt,
    char_lstm,
    cifar10,
    cifar_resnet,
    dcgan,
    densenet,
    digits,
    fcn,
    googlenet,
    gpt2,
    inception_v3,
    lenet,
    llama,
    mobilenet,
    resnet,
    shapes_ssd,
    siamese,
    squeezenet,
    ssd,
    unet,
    unet3d,
    vgg,
    vit,
)
from .catalogue import Model

FAMILIES = (
    *(digits, lenet, autoencoder, siamese, cifar10, cifar_resnet, shapes_ssd),
    *(alexnet, caffenet, vgg, googlenet, inception_v3, resnet, densenet, squeezenet, mobilenet, vit),
    *(fcn, ssd, unet, unet3d, c3d, dcgan, char_lstm, char_gpt, gpt2, llama),
)


def all_files() -> dict[str, str]:
    """{path under models/: text} of every generated file."""
    return {path: text for family in FAMILIES for path, text in family.files().items()}


def all_models() -> tuple[Model, ...]:
    """Every training net, from the smallest subject to the largest."""
    return tuple(model for family in FAMILIES for model in family.MODELS)
