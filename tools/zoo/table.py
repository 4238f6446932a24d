"""models/README.md: every model, its size, and the memory that training takes."""

from __future__ import annotations

from pycaffe_lms.errors import human_bytes

from .catalogue import Model
from .figures import Figures, figures

HEAD = """\
# The model zoo

Every folder has its prototxts and a README: the paper, what accuracy to expect, the data, where public weights are
found and under which names. Names of layers and blobs are those of the public weights, so that they load.

Training at the batch of `train_val.prototxt`, float32, gradients and SGD's momentum included:

* *in core*: device memory of an iteration without Large Model Support;
* *`-lms 1000`*, *`-lms 1`*: the smallest device (`-lms_budget`) that trains it so. A little more makes it faster.

What convolutions use as workspace comes on top: on a GPU what cuDNN wants, at most `-workspace` each (512 MB unless
set), of which one is alive at a time. `pycaffe-lms plan` counts the simulated device's workspace instead. In another
batch the memory is nearly proportional; `pycaffe-lms plan` tells:

    pycaffe-lms plan -model models/resnet-50/train_val.prototxt -shape data=256,3,224,224 -lms -lms_budget 16GB -summary

| model | learned values | multiply-adds, forward | batch | in core | `-lms 1000` | `-lms 1` |
|---|---:|---:|---:|---:|---:|---:|
"""
TAIL = """
The table is made by `python tools/gen_models.py --figures`, the prototxts by `python tools/gen_models.py`, from
`tools/zoo`.
"""


def count_text(n: int) -> str:
    """A number of operations: 3.86 G, 569 M."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6)):
        if n >= size:
            return f"{n / size:.3g} {unit}" if n < 1000 * size else f"{n / size:.0f} {unit}"
    return f"{n / 1000:.3g} k"


def row(model: Model, f: Figures) -> str:
    """A line of the table."""
    name = model.folder if model.file == "train_val" else f"{model.folder}, {model.file}"
    cells = [
        f"[{name}]({model.folder}/README.md)",
        f"{f.learned:,}",
        f"{count_text(f.flops // 2)} a {model.item}",
        str(model.batch),
        *(human_bytes(size) for size in (f.in_core, f.lms, f.lms_1)),
    ]
    return f"| {' | '.join(cells)} |\n"


def table_text(files: dict[str, str], models: tuple[Model, ...]) -> str:
    """models/README.md for the prototxts `files`, {path under models/: text}."""
    return HEAD + "".join(row(model, figures(model, files)) for model in models) + TAIL
