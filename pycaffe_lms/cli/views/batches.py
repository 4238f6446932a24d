"""Read and change the number of items per iteration in a net's message; parse `-sweep`, which tries several."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import UsageError
from ...proto.caffe_pb2 import LayerParameter, NetParameter

MOST = 1 << 24  # items per iteration that are tried
_EXAMPLE = "for example -sweep batch=8..512 (each twice the one before), or -sweep batch=8,16,32"


def parse_sweep(text: str) -> list[int]:
    """Return the batch sizes of "batch=8..512", doubling up to the last, or "batch=8,16,32". Raises UsageError."""
    span = re.fullmatch(r"batch=(\d{1,12})\.\.(\d{1,12})", text)
    if span:
        first, last = int(span[1]), _size(span[2], text)
        if not 0 < first <= last:
            raise UsageError(f"-sweep {text!r} is not a range of batch sizes", fix=_EXAMPLE)
        found = [first]
        while found[-1] * 2 <= last:
            found.append(found[-1] * 2)
        return found
    if not re.fullmatch(r"batch=\d{1,12}(,\d{1,12})*", text):
        raise UsageError(f"-sweep {text!r} is not understood", fix=_EXAMPLE)
    sizes = [_size(n, text) for n in text.removeprefix("batch=").split(",")]
    if min(sizes) < 1:
        raise UsageError(f"-sweep {text!r}: a batch has at least one item", fix=_EXAMPLE)
    return sizes


def _size(digits: str, text: str) -> int:
    if int(digits) > MOST:
        raise UsageError(f"-sweep {text!r}: batches of more than {MOST} items are not tried", fix=_EXAMPLE)
    return int(digits)


def batch_of(message: NetParameter, layers: Sequence[int]) -> int | None:
    """Return the items per iteration; None if the message does not say.

    It is the first dimension of the first top of one of these layers (by index) that has no bottoms, or its
    batch_size.
    """
    return next((size for i in layers for size, _, _ in _places(message.layer[i]) if size), None)


def with_batch(message: NetParameter, layers: Sequence[int], batch: int) -> NetParameter:
    """Return the net with `batch` items per iteration. Raises UsageError if nothing says a batch.

    Changed are the first dimensions and batch_size fields of these layers that equal what `batch_of` returns now.
    """
    old = batch_of(message, layers)
    if old is None:
        raise UsageError("no layer says how many items an iteration has", fix="give a shape, -shape data=32,3,224,224")
    result = NetParameter()
    result.CopyFrom(message)
    for i in layers:
        for size, holder, name in list(_places(result.layer[i])):
            if size == old:
                if isinstance(name, int):
                    holder[name] = batch
                else:
                    setattr(holder, name, batch)
    return result


def _places(layer: LayerParameter) -> Iterator[tuple[int, Any, int | str]]:
    """Yield (value, holder, index or field in the holder) of every batch size in a layer without bottoms."""
    if layer.bottom:
        return
    for field, value in layer.ListFields():
        if field.message_type is None or not field.name.endswith("_param"):  # `param` and the like are repeated
            continue
        if field.name in ("dummy_data_param", "input_param"):
            yield from ((shape.dim[0], shape.dim, 0) for shape in value.shape if shape.dim)
            if field.name == "dummy_data_param":
                yield from ((n, value.num, k) for k, n in enumerate(value.num))  # the old way to write a shape
        elif "batch_size" in field.message_type.fields_by_name:
            yield value.batch_size, value, "batch_size"
