"""The model zoo as Python: one short module per family, each with `files()`.

`files()` returns {path under models/: text}. Everything is plain data until gen_models.py writes it.
"""

from . import alexnet, cifar10, digits, googlenet, lenet, resnet, vgg

FAMILIES = (digits, lenet, cifar10, alexnet, vgg, googlenet, resnet)


def all_files() -> dict[str, str]:
    """{path under models/: text} of every generated file."""
    return {path: text for family in FAMILIES for path, text in family.files().items()}
