"""Write docs/onnx.md: how a net is exported to ONNX, with the table of converters.

python tools/gen_onnx_docs.py            write it
python tools/gen_onnx_docs.py --check    write nothing; exit 1 if it is not current
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pycaffe_lms import layers  # noqa: E402, F401
from pycaffe_lms.layers.registry import LAYERS  # noqa: E402
from pycaffe_lms.onnx_export.convert import CONVERTERS  # noqa: E402
from pycaffe_lms.onnx_export.sketch import DEFAULT_OPSET, OPSETS  # noqa: E402

FILE = ROOT / "docs" / "onnx.md"
_FAMILIES = ("data", "vision", "normalisation", "neuron", "common", "utility", "recurrent")
_HEAD = f"""# Export to ONNX

Written by tools/gen_onnx_docs.py; do not edit.

<!-- not run: the model is yours -->
```bash
pip install 'pycaffe-lms[onnx]'
pycaffe-lms export_onnx -model deploy.prototxt -weights net.caffemodel -o net.onnx
```

or, from Python, `caffe.export_onnx(net, "net.onnx")` for a net of phase TEST, on whatever device it is.

* **Values** agree with Caffe's to rounding, at every border of every window: the tests run each converter on every case
  that the tests of its layer have, and whole nets, in onnxruntime. Nothing is approximated: a layer without a faithful
  counterpart is an error, and one error names all such layers.
* **Names.** Blobs keep their names as tensors, layers as nodes. Where layers work in place, the last one makes the blob
  of the name, and earlier versions are `BLOB.LAYER`; an input that a layer overwrites keeps its name, and the new
  version is `BLOB.LAYER`. Weights are `LAYER/weight`, `LAYER/bias` and the like; layers that share one share the
  constant.
* **Shapes** are those that the net has. With `-dynamic_batch` (`dynamic_batch=True`) the first axis of the first input,
  and of every input of as many items, is `batch` and may have any size. A net in which that cannot be is refused, with
  the layers that stand in the way.
* **Inputs and outputs** are the net's, in its order and type (float32; labels and indices too, as in Caffe).
* **Opsets** {OPSETS[0]} to {OPSETS[-1]} can be asked for with `-opset`; {DEFAULT_OPSET} is the default. The file's
  version of ONNX is the oldest that has the opset, so that old runtimes read it.
* **Files.** The model is written whole or not at all. Weights of more than 2 GiB go to a second file beside it,
  `FILE.onnx-DIGEST.data`, and both must stay together.
* **Weights that are missing** from the files of `-weights` are an error: they would be random.

Layers of training (data, losses, Accuracy) are not exported: use the deploy prototxt. In phase TEST, Dropout does
nothing and BatchNorm uses its running statistics.

| layer | ONNX operators | to know |
|---|---|---|
"""


def text() -> str:
    """The whole file."""
    seen, lines = set(), [_HEAD.rstrip("\n")]
    for family in _FAMILIES:
        for converter in CONVERTERS.values():
            if converter.family == family and converter.run not in seen:
                seen.add(converter.run)
                types = ", ".join(name for name, c in CONVERTERS.items() if c.run is converter.run)
                lines.append(f"| {types} | {', '.join(converter.ops) or '-'} | {converter.note} |")
    left_out = ", ".join(sorted(set(LAYERS) - set(CONVERTERS)))
    return "\n".join([*lines, "", f"Without a counterpart, or for training only: {left_out}.", ""])


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Write docs/onnx.md from the table of converters.")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    check, wanted = parser.parse_args(argv).check, text().encode()
    if FILE.is_file() and FILE.read_bytes() == wanted:
        return 0
    if not check:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_bytes(wanted)
    print(f"{'not current' if check else 'written'}: {FILE.name}")
    return int(check)


if __name__ == "__main__":
    sys.exit(main())
