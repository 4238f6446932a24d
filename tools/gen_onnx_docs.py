"""Write docs/onnx.md: how a net is exported to ONNX, with the table of converters.

python tools/gen_onnx_docs.py            write it
python tools/gen_onnx_docs.py --check    write nothing; exit 1 if it is not current
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import write_or_check  # noqa: E402

from pycaffe_lms import layers  # noqa: E402, F401
from pycaffe_lms.layers.registry import LAYERS  # noqa: E402
from pycaffe_lms.onnx_export.check import TOLERANCES  # noqa: E402
from pycaffe_lms.onnx_export.convert import CONVERTERS  # noqa: E402
from pycaffe_lms.onnx_export.site import Precision  # noqa: E402
from pycaffe_lms.onnx_export.sketch import DEFAULT_OPSET, OPSETS  # noqa: E402

SINGLE = ", ".join(name for name, c in CONVERTERS.items() if c.precision is Precision.SINGLE)
FILE = ROOT / "docs" / "onnx.md"
_FAMILIES = ("data", "vision", "normalisation", "neuron", "common", "utility", "recurrent")
_HEAD = f"""# Export to ONNX

Write a trained net as an ONNX model, which onnxruntime and many other programs run:

<!-- not run: the model is yours -->
```bash
pip install 'pycaffe-lms[onnx]'
pycaffe-lms export_onnx deploy.prototxt -weights net.caffemodel -o net.onnx
```

[Leaving Caffe](leaving_caffe.md) has the command of every Caffe model of OpenCV's lists.

Add `-check` to run [onnxruntime](https://onnxruntime.ai) (`pip install onnxruntime`) beside the net on random
inputs, and `-check_on FILES` to do so on your pictures or `.npy` files too:

<!-- not run: the model is yours -->
```bash
pycaffe-lms export_onnx deploy.prototxt -weights net.caffemodel -o net.onnx -check -check_on cat.jpg,seen.npy
```

```text
net.onnx: net 'FireNet', opset 17, 4.8 MiB of parameters
checked with onnxruntime 1.32.0; largest differences:
  output      absolute  relative  on
  pool_final  3.58e-07  5.13e-07  random numbers
```

For each output the columns say the largest difference of an element, and the same divided by the largest element of
the net's output, both on the input where that quotient was largest. The command exits with 1 if a quotient is above
`-tolerance` (default {TOLERANCES["fp32"]:g}). With `-dynamic_batch` a second batch size runs too. Pictures become
inputs as in `classify`: `-mean_file`, `-raw_scale`, `-input_scale`, `-channel_swap`. A `.npy` file holds what the net
sees. An input of indices, of marks of sequences or of regions gets random indices, marks or regions.

## float16 and int8

`-math fp16` stores weights and computes in float16. Inputs and outputs stay float32, so programs that use the model
need no change. Layers whose numbers are indices, coordinates, exponentials or sums of squares stay float32 too:
{SINGLE}.
Running statistics become a factor and a summand per channel. Parameters above 65504 are refused.

`-int8 list.txt` quantizes the model with onnxruntime's tools. QuantizeLinear and DequantizeLinear stand around every
convolution, every product and the layers between them. The layers named above stay float32. Each line of the list names
a picture, a `.npy` or a `.npz` file; give about a hundred, like those that the net will see. A class number behind the
name is ignored. Weights get 7 bits: with 8 a CPU without VNNI instructions, which adds products in 16 bits, gives
wrong numbers.

<!-- not run: the model is yours -->
```bash
pycaffe-lms export_onnx deploy.prototxt -weights net.caffemodel -o net_fp16.onnx -math fp16 -check
pycaffe-lms export_onnx deploy.prototxt -weights net.caffemodel -o net_int8.onnx -int8 list.txt -check
```

`-check` then allows {TOLERANCES["fp16"]:g} and {TOLERANCES["int8"]:g}. A model in int8 is checked on the first pictures
of its list. Judge such a model by the accuracy on your data: a difference says little about classes.

## In Python

`caffe.export_onnx(net, "net.onnx")` and `caffe.check_onnx(net, "net.onnx")`. `math="fp16"`
is an argument of the former; `pycaffe_lms.onnx_export.export_int8(net, "net.onnx", samples)` takes arrays. The net must
be of phase TEST; it may be on any device.

Export a deploy prototxt. Layers that only training needs (data layers, losses, Accuracy) cannot be exported. As in
every net of phase TEST, Dropout does nothing, and BatchNorm uses its running statistics.

## What you can rely on

* **Values.** The ONNX model gives the same values as the net, up to rounding. Nothing is approximated: if a layer has
  no exact counterpart, the export stops with an error that names all such layers. The tests compare every converter,
  and whole nets, with onnxruntime.
* **Inputs and outputs** are those of the net, in the same order. All of them are float32, labels and indices
  too.
* **Shapes** are fixed to those of the net. With `-dynamic_batch` (in Python `dynamic_batch=True`) the batch size is
  free: the first axis of the first input is called `batch`, and so is that of every input with as many items. If the
  net cannot run with another batch size, the export stops and names the layers that prevent it. The rows
  that Filter chooses and Proposal finds have no fixed number. Layers behind them follow, as in Faster R-CNN; the export
  stops where one would differ with that number.
* **Names.** A tensor has the name of its blob, a node the name of its layer. Several layers in place write one blob:
  the last one's result has the blob's name, and earlier ones are called `BLOB.LAYER`. An input keeps its name even if
  a layer overwrites it; then the result is called `BLOB.LAYER`. Weights are called `LAYER/weight`, `LAYER/bias` and
  so on. A weight that layers share is stored once.
* **Weights.** Every layer must find its weights in the files of `-weights`. If one is missing, the export stops.
* **Files.** The file appears when it is complete. ONNX files hold at most 2 GiB; larger weights go to a second file,
  `FILE.onnx-DIGEST.data`, which must stay in the same folder.
* **Versions.** `-opset` chooses the version of ONNX's operators, from {OPSETS[0]} to {OPSETS[-1]} (default:
  {DEFAULT_OPSET}). The file is marked with the oldest version of ONNX that has this opset, so that older programs
  read it.

This page is written by `tools/gen_onnx_docs.py` from the code; do not edit it.

## Layers

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


def main(argv: list[str] | None = None) -> int:
    """Write docs/onnx.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write docs/onnx.md from the table of converters.", argv)


if __name__ == "__main__":
    sys.exit(main())
