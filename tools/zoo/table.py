"""models/README.md: every model, its size, the memory that training takes; and the same memory in its own README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pycaffe_lms.errors import human_bytes

from .catalogue import Model
from .figures import Memory, Size, memory, shape_flags, size

MORE = 4  # how many times the prototxt's batch the second row of a model's README has
COMMAND = "python tools/gen_models.py --figures"
HEAD = f"""\
# The model zoo

Every folder has its prototxts and a README: the paper, what accuracy to expect, the data, the memory that training
takes, where public weights are found and under which names. Names of layers and blobs are those of the public weights,
so that they load. The folders come with the package, too: `pycaffe-lms zoo` lists them, `pycaffe-lms zoo get NAME`
writes one, and commands take a model's name for its files.

Training at the batch of `train_val.prototxt`, float32, gradients and SGD's momentum included, is planned for a GPU:

* *without LMS*: device memory of an iteration without Large Model Support;
* *`-lms 1000`*, *`-lms 1`*: the least `-lms_budget` that trains it so, layers whole. A little more makes it faster.

That is what `pycaffe-lms plan` says. The workspace of convolutions is in it as `plan` assumes it unless told otherwise:
what the simulated device wants, at most 512 MB in one convolution, of which one runs at a time. A GPU may want more, up
to its `-workspace`, or less. A solver's test nets have blobs of their own, which come on top. Each model's README says
the same for a batch {MORE} times as large; for any other, ask:

    pycaffe-lms plan models/resnet-50/train_val.prototxt -shape data=256,3,224,224 -lms -lms_budget 16GB -summary

| model | learned values | multiply-adds, forward | batch | without LMS | `-lms 1000` | `-lms 1` |
|---|---:|---:|---:|---:|---:|---:|
"""
TAIL = f"""
The table is made by `{COMMAND}`, the prototxts by `python tools/gen_models.py`, from
`tools/zoo`.
"""
BEGIN, END = f"<!-- Written by {COMMAND}. -->\n", "<!-- Until here. -->\n"
README_HEAD = """
Device memory of training (float32, SGD's momentum included) by `pycaffe-lms plan`; [what is counted](../README.md):

| batch | without LMS | least `-lms_budget` with `-lms 1000` | with `-lms 1` |
|---:|---:|---:|---:|
"""


def count_text(n: int) -> str:
    """A number of operations: 3.86 G, 569 M."""
    for unit, one in (("T", 10**12), ("G", 10**9), ("M", 10**6)):
        if n >= one:
            return f"{n / one:.3g} {unit}" if n < 1000 * one else f"{n / one:.0f} {unit}"
    return f"{n / 1000:.3g} k"


def _cells(m: Memory) -> list[str]:
    return [str(m.batch), *(human_bytes(n) for n in (m.in_core, m.lms, m.lms_1))]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def row(model: Model, s: Size, m: Memory) -> str:
    """A line of the table."""
    name = model.folder if model.file == "train_val" else f"{model.folder}, {model.file}"
    operations = f"{count_text(s.flops // 2)} a {model.item}"
    return _line([f"[{name}]({model.folder}/README.md)", f"{s.learned:,}", operations, *_cells(m)])


def table_text(rows: Sequence[str]) -> str:
    """models/README.md of the lines of its table."""
    return HEAD + "".join(rows) + TAIL


def memory_text(models: Sequence[tuple[Model, Sequence[Memory]]]) -> str:
    """What a folder's README says of memory: its training nets, and each one's memory with several batch sizes."""
    text, commands = README_HEAD, ""
    for model, sizes in models:
        alone = model.file == "train_val"
        for m in sizes:
            batch, *more = _cells(m)
            text += _line([batch if alone else f"{model.file}, {batch}", *more])
        shapes = "".join(f" -shape {flag}" for flag in shape_flags(model.data))
        commands += f"    pycaffe-lms plan models/{model.path}{shapes} -lms 1000 -summary\n"
    return f"{text}\n{commands}\n"


def with_memory(readme: str, text: str, file: str) -> str:
    """A README with `text` between its two marks. Raises ValueError where `file` has none."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"{file} lacks the lines {BEGIN.strip()!r} and {END.strip()!r}, between which its memory stands"
        )
    return before + begin + text + end + after


def figure_files(files: Mapping[str, str], models: Sequence[Model], readmes: Mapping[str, str]) -> dict[str, str]:
    """{path under models/: text} of models/README.md and every model's. files: the prototxts; readmes: what the READMEs
    are now, both by path under models/."""
    rows: list[str] = []
    told: dict[str, list] = {}
    for model in models:
        sizes = tuple(memory(model, files, times) for times in ((1,) if model.deep else (1, MORE)))
        rows.append(row(model, size(model, files), sizes[0]))
        told.setdefault(f"{model.folder}/README.md", []).append((model, sizes))
    made = {path: with_memory(readmes[path], memory_text(memories), path) for path, memories in told.items()}
    return {"README.md": table_text(rows)} | made
