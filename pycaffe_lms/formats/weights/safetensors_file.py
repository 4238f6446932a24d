"""Read and write safetensors files: named arrays, as most public transformers come.

A file is 8 bytes, the size of what follows, a JSON object {name: {dtype, shape, data_offsets}}, and the arrays' bytes.
A model in several files has an index, NAME.safetensors.index.json, which says which file has which array. The format is
read here, without the `safetensors` package, because that has no bfloat16 for NumPy.
Source: huggingface/safetensors, README.md (format).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays import HostArray
from ...errors import WeightsError, Where
from ..atomic import atomic_file
from ..rawfile import DAMAGED, could_not_open

ENDING, INDEX = ".safetensors", ".safetensors.index.json"
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # of weights; others are left out
_MOST_HEADER = 100_000_000  # bytes, the format's own limit


def is_safetensors(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is called like such a file, or like the index of several."""
    return os.fspath(path).endswith((ENDING, INDEX))


class Tensors(Mapping[str, HostArray]):
    """Map names to arrays of one file or of all files of an index, each read when it is asked for.

    Arrays of 16 bits become float32; float32 and float64 are views of the file. Arrays of other types (masks, counters)
    are left out.
    Raises: WeightsError for a file that is missing or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.file = os.fspath(path)
        self._found: dict[str, tuple[HostArray, str, tuple[int, ...]]] = {}  # bytes, type, shape
        for part in _files(Path(path)):
            self._found |= _arrays(part)

    def __getitem__(self, name: str) -> HostArray:
        content, kind, shape = self._found[name]
        values: HostArray = content.view(_TYPES[kind]).reshape(shape)
        if kind == "BF16":
            return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return values.astype(np.float32) if kind == "F16" else values

    def __iter__(self) -> Any:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def write_safetensors(path: str | os.PathLike[str], arrays: Mapping[str, HostArray]) -> bytes:
    """Write float32 (float64 as such) arrays, whole or not at all, and return the file's SHA-256."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in arrays.items():
        double = array.dtype == np.float64
        size = prod(array.shape) * (8 if double else 4)
        header[name] = {
            "dtype": "F64" if double else "F32",
            "shape": list(array.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at a multiple of 8 bytes
    with atomic_file(path, error=WeightsError) as part:
        part.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            kind = "<f8" if array.dtype == np.float64 else "<f4"
            part.write(np.ascontiguousarray(array, kind).reshape(-1).view(np.uint8).data)
        return part.sha256()


def _files(path: Path) -> list[Path]:
    """Return the files of arrays: the path itself, or those that an index names, which lie beside it."""
    if not path.name.endswith(INDEX):
        return [path]
    try:
        named = dict.fromkeys(json.loads(path.read_bytes())["weight_map"].values())
        elsewhere = next((name for name in named if Path(name).name != name), None)
        if elsewhere is not None:
            raise ValueError(f"{elsewhere!r} is no name of a file beside it")
        return [path.parent / name for name in named]
    except OSError as failure:
        raise could_not_open(path, failure, WeightsError) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsError(
            f"no index of safetensors files: {error!r}", where=Where(file=str(path)), fix=DAMAGED
        ) from None


def _arrays(path: Path) -> dict[str, tuple[HostArray, str, tuple[int, ...]]]:
    """Return the bytes, type and shape of each array of weights of a file."""
    try:
        content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    except OSError as failure:
        raise could_not_open(path, failure, WeightsError) from None
    try:
        size = int.from_bytes(content[:8].tobytes(), "little")
        if len(content) < 8 or size > min(_MOST_HEADER, len(content) - 8):
            raise ValueError(f"a header of {size} bytes in a file of {len(content)}")
        header, data = json.loads(content[8 : 8 + size].tobytes()), content[8 + size :]
        found = {}
        for name, about in header.items():
            if name == "__metadata__" or about["dtype"] not in _TYPES:
                continue
            begin, end = about["data_offsets"]
            shape, kind = tuple(int(n) for n in about["shape"]), about["dtype"]
            wanted = prod(shape) * np.dtype(_TYPES[kind]).itemsize
            if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(data) or end - begin != wanted:
                raise ValueError(f"{name} of shape {shape} at bytes {begin} to {end} of {len(data)}")
            found[name] = (np.asarray(data[begin:end]), kind, shape)
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"no safetensors file: {error}"
        raise WeightsError(message, where=Where(file=str(path)), fix=DAMAGED) from None
