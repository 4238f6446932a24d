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

Some chips have toolchains that read Caffe's files better than any others. `export_caffe` writes a net in the form that
they take:

<!-- not run: the model is yours -->
```bash
pycaffe-lms export_caffe deploy.prototxt -weights net.caffemodel -for horizon -o net_horizon -check
```

It writes `net_horizon.prototxt` and `net_horizon.caffemodel`. In Python: `pycaffe_lms.caffe_export.export_caffe(net,
"net_horizon", "horizon")`.

* **Folding.** BatchNorm, BN, Scale and Bias with fixed numbers become part of the convolution, deconvolution or
  InnerProduct before them, if no other layer reads its top. Otherwise they stay, if the toolchain takes them. Blobs
  that remain keep their names.
* **Types and fields** get BVLC's spelling: `round_mode` in place of `ceil_mode`, `kernel_size` in place of
  `kernel_shape`. A depthwise type becomes the one that the list has. Fields that only training reads are left out.
* **Refused** is what the toolchain's document does not list or does not allow. One error names all of it, with the line
  of each. Nothing is approximated. If the toolchain runs a layer on the processor beside the chip, that is a warning.
* **Fields that no other Caffe knows** (numbers 7000 to 7199) are not written. `lms_param` and `sync`, which change no
  outputs, are left out with a warning. Others are refused, unless the document names them.
* **The caffemodel** has the name, type, weights and blobs' names of each layer. All other fields are in the prototxt,
  by name, so it does not matter which numbers a fork gave them.
* **`-check`** reads both files again, runs their net beside yours on random inputs, and prints the largest difference
  of each output. In the tests OpenCV 4 gives the same outputs, to rounding.

The lists are those of the documents named below; the toolchains themselves were not run. A newer toolchain may take
more or less.

The columns of the tables: **must be** is checked, and a layer that is not so is refused. A layer that is not as **on
the chip if** says runs on the processor beside the chip. **not checked** is what the document demands too, but a net
does not show. A column without an entry is left out.

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
    lines += [
        *_table(
            [("layer", "name in the document", "must be", "on the chip if", "not checked"), *map(_row, rows.values())]
        ),
        "",
    ]
    if chip.differ:
        lines += ["Where others say something else than the document:", "", *(f"* {what}." for what in chip.differ), ""]
    if chip.same_in_use:
        lines += [f"Left out where it is in place, because it does nothing in use: {', '.join(chip.same_in_use)}.", ""]
    missing = [f"{name} ({why})" for name, why in chip.not_here.items()]
    return [*lines, f"In the document, but never written: {', '.join(missing)}.", ""]


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows, of which the first one is the head, without columns that have a head only."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    head, *body = (f"| {' | '.join(row)} |" for row in zip(*columns, strict=True))
    return [head, "|" + "---|" * len(columns), *body]


def _row(row: ListedLayer) -> tuple[str, ...]:
    refuses, warns = ("; ".join(one.words for one in row.limits if one.warns is kind) for kind in (False, True))
    names = ", ".join((row.type, *row.sources))
    return names, row.listed, refuses, "never" if row.cpu else warns, row.unchecked


def main(argv: list[str] | None = None) -> int:
    """Write docs/chips.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write docs/chips.md from the tables of the export.", argv)


if __name__ == "__main__":
    sys.exit(main())
