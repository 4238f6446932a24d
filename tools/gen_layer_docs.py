"""Write docs/layers.md from the layer classes, caffe.proto and the tests' table of cases.

python tools/gen_layer_docs.py            write it
python tools/gen_layer_docs.py --check    write nothing; exit 1 if it is not current
"""

import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import write_or_check  # noqa: E402

from pycaffe_lms.formats.prototxt.upgrade import V1_TYPES  # noqa: E402
from pycaffe_lms.layers.base import InPlace, Lives, Runs  # noqa: E402
from pycaffe_lms.layers.registry import LAYERS, layer_class  # noqa: E402
from pycaffe_lms.proto.caffe_pb2 import V1LayerParameter  # noqa: E402
from tests.layers.all_cases import device_cases  # noqa: E402
from tests.layers.case_run import Run  # noqa: E402
from tests.layers.fields import MESSAGES, messages_of  # noqa: E402

FILE = ROOT / "docs" / "layers.md"
_HEAD = """# Layer types

These are all layer types that a prototxt can name in `type:`. An entry has

* the formula, and the shapes of bottoms (inputs) and tops (outputs),
* the learned parameters,
* what backward reads: values that Large Model Support must bring back to the device before the layer's backward,
* the fields of the layer's message in the prototxt. An empty default means that there is none.

Shapes are written (N, C, H, W): items of the batch, channels, height, width. `dx` is the gradient of `x`. Unless an
entry says otherwise, a layer runs on the CPU and on CUDA GPUs, in float32 and float64, and tests check its values on
both.

This page is written by `tools/gen_layer_docs.py` from the code; do not edit it.

"""
_FAMILIES = {  # folder of pycaffe_lms/layers -> what its types are for
    "data": "data, inputs, outputs to files",
    "conv": "convolution, products with weights, look-up",
    "activation": "activation, one value at a time; Softmax, Dropout",
    "norm": "normalization, factors and offsets",
    "pooling": "pooling and its inverse",
    "shape": "shapes, joining, cutting, sums over axes",
    "loss": "losses and scores",
    "detection": "object detection",
    "recurrent": "recurrent",
    "python": "your own, in Python",
}
_IN_PLACE = {
    InPlace.SEPARATE: "a top of the bottom's name gets memory of its own",
    InPlace.ALLOWED: "yes; the old value is kept where a gradient needs it",
    InPlace.MUST: "yes, always in the bottom's memory",
    InPlace.REFUSED: "refused",
}
_RUNS = {
    Runs.DEVICE: "CPU and GPU",
    Runs.HOST: "the host; its tops are copied to the GPU",
    Runs.NOWHERE: "nowhere: its tops are their bottom's memory, or are filled from outside",
}


def text() -> str:
    """The whole file."""
    layer_class("ReLU")  # registers every type
    names: dict[type, list[str]] = {}
    for name, cls in sorted(LAYERS.items(), key=lambda item: (item[0] not in V1_TYPES.values(), item[0])):
        names.setdefault(cls, []).append(name)  # Caffe's own name first: Pooling, NdPooling
    in_order = sorted(names.items(), key=lambda item: item[1])
    sections = [_section(cls, types) for cls, types in in_order]
    anchors: dict[type, str] = {}
    for cls, types in in_order:  # of LSTM and Lstm the second heading's anchor is lstm-1
        same = sum(anchor.partition("-")[0] == types[0].lower() for anchor in anchors.values())
        anchors[cls] = types[0].lower() + (f"-{same}" if same else "")
    contents = [f"{len(LAYERS)} types:", "", "| for | types |", "|---|---|"]
    for family, meant in _FAMILIES.items():
        of_family = [(name, cls) for name, cls in sorted(LAYERS.items()) if cls.__module__.split(".")[2] == family]
        contents.append(f"| {meant} | {', '.join(f'[{n}](#{anchors[cls]})' for n, cls in of_family)} |")
    for message in sorted(MESSAGES):
        readers = [name for name, cls in sorted(LAYERS.items()) if message in messages_of(cls)]
        if readers and _home(message) is None:
            sections.append("\n".join([f"## {message}", f"Read by {', '.join(readers)}.\n", *_fields(message)]))
    return _HEAD + "\n".join([*contents, "", *sections])


def _section(cls, types: list[str]) -> str:
    runs = [Run(case) for _, case in device_cases() if case.type in types]
    lines = [f"## {types[0]}"]
    if len(types) > 1:
        lines.append("Also: " + ", ".join(f"`{t}`" for t in types[1:]) + ".\n")
    old = [V1LayerParameter.LayerType.Name(number) for number, name in V1_TYPES.items() if name in types]
    if old:
        lines.append(f"In V1 files: {', '.join(f'`{name}`' for name in old)}.\n")
    lines += ["```", inspect.getdoc(cls), "```", ""]
    own = cls.declares
    lines += [f"- Bottoms: {own.bottoms}; tops: {own.tops}{', as many as bottoms' if own.same_count else ''}."]
    if runs:
        lines += [f"- Learned or running parameters: {_parameters(runs)}.", f"- Backward reads: {_reads(runs)}."]
    if own.no_backward is None:
        lines.append("- No bottom gets a gradient.")
    elif own.no_backward:
        lines.append(f"- Bottoms without a gradient: {_numbers(own.no_backward)}.")
    if own.bottoms.most != 0:
        lines.append(f"- In place: {_IN_PLACE[own.in_place]}.")
    lines.append(f"- Runs on {_RUNS[own.runs_on]}.")
    elsewhere = [m for m in messages_of(cls) if _home(m) not in types]
    if elsewhere:
        places = (f"`{m}` ([fields](#{(_home(m) or m).lower()}))" for m in elsewhere)
        lines.append(f"- Also reads {', '.join(places)}.")
    lines.append("")
    for message in messages_of(cls):
        if message not in elsewhere:
            lines += _fields(message)
    return "\n".join(lines)


def _home(message: str) -> str | None:
    """The type under which a message's fields are listed: of its name, or its one reader; None: at the end."""
    readers = [name for name, cls in sorted(LAYERS.items()) if message in messages_of(cls)]
    own = [name for name in readers if f"{name}Parameter" == MESSAGES[message].name]
    return (own or readers)[0] if own or len({LAYERS[name] for name in readers}) == 1 else None


def _parameters(runs) -> str:
    """Shapes in the case that has most parameters."""
    most = max(runs, key=lambda run: len(run.layer.params))
    if not most.layer.params:
        return "none"
    shapes = ", ".join(str(p.shape) for p in most.layer.params)
    frozen = [i for i, p in enumerate(most.layer.params) if p.lr_mult == 0]
    rest = f"; {_numbers(frozen)} not learned" if frozen else ""
    return f"{shapes} for a bottom of {most.case.shapes[0] if most.case.shapes else 'no shape'}{rest}"


def _reads(runs) -> str:
    """What `backward_needs` says over all cases, in words; what only some cases need is "in some cases"."""
    learning = [run for run in runs if run.learns]
    if not learning:
        return "nothing, it has no backward"
    seen: dict[str, int] = {}
    for run in learning:
        needs = run.layer.backward_needs(list(run.bench.propagate_down), list(run.bench.param_propagate))
        kinds = (("bottom", needs.bottoms), ("top", needs.tops), ("parameter", needs.params))
        found = [f"{kind} {i}" for kind, indices in kinds for i in sorted(indices)]
        saved = (s for s in run.layer.scratches.values() if s.lives is Lives.SAVED)
        for need in found + [f"the saved `{s.name}`" for s in saved]:
            seen[need] = seen.get(need, 0) + 1
    always = [need for need, n in seen.items() if n == len(learning)]
    some = [need for need, n in seen.items() if n < len(learning)]
    parts = [", ".join(always)] if always else []
    parts += [f"depending on the fields and sizes {', '.join(some)}"] if some else []
    return "; ".join(parts) or "gradients alone"


def _numbers(numbers) -> str:
    return ", ".join(str(n) for n in sorted(numbers))


def _fields(message: str) -> list[str]:
    lines = [f"| `{message}` | number | type | default |", "|---|---|---|---|"]
    return [*lines, *_rows(MESSAGES[message], ""), ""]


def _rows(message, outer: str) -> list[str]:
    """The fields of a message, and after each that is a message itself its fields: outer.inner."""
    rows = []
    for field in message.fields:
        kind = _KINDS.get(field.type) or (field.message_type or field.enum_type).name
        shown = f"{'list of ' * _repeated(field)}{kind}"
        rows.append(f"| {outer}{field.name} | {field.number} | {shown} | {_default(field)} |")
        if field.message_type is not None and field.message_type.name not in _COMMON:
            rows += _rows(field.message_type, f"{outer}{field.name}.")
    return rows


_COMMON = ("FillerParameter", "BlobShape")  # of many fields


_KINDS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
}


def _repeated(field) -> bool:
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _default(field) -> str:
    if not field.has_default_value:
        return ""
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name
    if isinstance(field.default_value, bool):
        return str(field.default_value).lower()
    if isinstance(field.default_value, float):
        return f"{field.default_value:.7g}"
    return str(field.default_value)


def main(argv: list[str] | None = None) -> int:
    """Write docs/layers.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write docs/layers.md from the code.", argv)


if __name__ == "__main__":
    sys.exit(main())
