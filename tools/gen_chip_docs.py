"""Write docs/chips.md: which layers the toolchains of chips take from Caffe's files, from the tables of the export.

python tools/gen_chip_docs.py            write it
python tools/gen_chip_docs.py --check    write nothing; exit 1 if it is not current
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import write_or_check  # noqa: E402

from pycaffe_lms.caffe_export.chips import CHIPS, Chip, ListedLayer, chip_of  # noqa: E402

FILE = ROOT / "docs" / "chips.md"
_HEAD = """# Caffe files for chips

The toolchains of some chips read Caffe's files, and no others as well. `export_caffe` writes a net in the form that
they take:

<!-- not run: the model is yours -->
```bash
pycaffe-lms export_caffe deploy.prototxt -weights net.caffemodel -for horizon -o net_horizon -check
```

It writes `net_horizon.prototxt` and `net_horizon.caffemodel`. In Python: `pycaffe_lms.caffe_export.export_caffe(net,
"net_horizon", "horizon")`.

* **Folding.** BatchNorm, BN, Scale and Bias with fixed numbers go into the convolution, deconvolution or product before
  them where they are its only reader. Others stay, if the toolchain takes them. Blobs that remain keep their names.
* **Types and fields** get BVLC's spelling: `ceil_mode` is `round_mode`, `kernel_shape` is `kernel_size`. Depthwise
  types become what the list has. What only training reads is left out.
* **Refused** is what the toolchain's document does not list or does not allow: all of it in one error, each with its
  line. Nothing is approximated. A layer that is beyond the chip but runs on the processor beside it gives a warning.
* **Fields that no other Caffe knows** (numbers 7000 to 7199) are not written. `lms_param` and `sync`, which change no
  outputs, are dropped with a warning. Others are refused, unless the document names them.
* **The caffemodel** holds each layer's name, type, blobs' names and weights. All other fields are in the prototxt, by
  name, so no number of a field can mean something else.
* **`-check`** reads both files again, runs them beside the net on random inputs, and prints the largest difference of
  each output. OpenCV 4 gives the same outputs to rounding in the tests.

The lists are those of the documents named below; the toolchains themselves were not run. A newer toolchain may take
more or less. HiSilicon's NNIE is not here: no public copy of the list in its guide was found.

This page is written by `tools/gen_chip_docs.py` from `pycaffe_lms/caffe_export/chips/`; do not edit it.
"""


def text() -> str:
    """The whole file."""
    return "\n".join([_HEAD, *(line for key in CHIPS for line in _section(key, chip_of(key)))])


def _section(key: str, chip: Chip) -> list[str]:
    rows = {row.type: row for row in chip.rows.values()}
    lines = [f"## {chip.name} (`-for {key}`)", ""]
    lines += [f"{chip.title}; version: {chip.version}; address: `{chip.address}`. {chip.note}", ""]
    lines += [f"Every layer: {'; '.join(one.words for one in chip.every)}.", ""] if chip.every else []
    lines += ["| layer | in the document | refused beyond | elsewhere than on the chip beyond | not checked |"]
    lines += ["|---|---|---|---|---|", *map(_row, rows.values()), ""]
    if chip.same_in_use:
        lines += [f"Left out, in place, since it does nothing in use: {', '.join(chip.same_in_use)}.", ""]
    missing = [f"{name} ({why})" for name, why in chip.not_here.items()]
    return [*lines, f"In the document, but not written: {', '.join(missing)}.", ""]


def _row(row: ListedLayer) -> str:
    refuses, warns = ("; ".join(one.words for one in row.limits if one.warns is kind) for kind in (False, True))
    names = ", ".join((row.type, *row.sources))
    return f"| {names} | {row.listed} | {refuses} | {'always' if row.cpu else warns} | {row.unchecked} |"


def main(argv: list[str] | None = None) -> int:
    """Write docs/chips.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write docs/chips.md from the tables of the export.", argv)


if __name__ == "__main__":
    sys.exit(main())
