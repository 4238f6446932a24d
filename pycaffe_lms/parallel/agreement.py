"""Makes sure, before the first iteration, that ranks on several hosts train the same: versions, flags, net, data."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING

import google.protobuf
import numpy as np

from ..backend import cuda
from ..errors import UsageError
from ..layers.data.data import DataLayer
from ..ops.cuda.cudnn import library as cudnn
from ..version import __version__

if TYPE_CHECKING:
    from ..backend.device import Device
    from ..solvers.base import Solver

Gather = Callable[[bytes], list[bytes]]
"""Returns what every rank gave, in the order of ranks."""
_LONG = 60  # characters; of a longer value ranks compare the hash, and where it differs show the first line that does
_ABSENT = "not there"


class Disagreement(UsageError):
    """Report in what ranks differ; every rank raises the same."""


def agree(gather: Gather, facts: Mapping[str, str]) -> None:
    """Compare facts, name -> value, with those of the other ranks. All ranks call it.

    Raises Disagreement where they differ from rank 0's: a line for each fact and value, with ranks and hosts."""
    mine = {name: value if len(value) <= _LONG and "\n" not in value else _hash(value) for name, value in facts.items()}
    everyone = [json.loads(v) for v in gather(json.dumps([socket.gethostname(), mine]).encode())]
    hosts: list[str] = [host for host, _ in everyone]
    values: list[dict[str, str]] = [found for _, found in everyone]
    lines = []
    for name in dict.fromkeys(name for found in values for name in found):
        said = [found.get(name, _ABSENT) for found in values]
        if len(set(said)) == 1:
            continue
        whole = [v.decode() for v in gather(facts.get(name, _ABSENT).encode())]
        for value in dict.fromkeys(v for v in whole if v != whole[0]):
            ranks = [r for r, v in enumerate(whole) if v == value]
            theirs, first = _shown(value, whole[0])
            lines.append(f"{_named(ranks, hosts)}: {name} is {theirs}, rank 0 on {hosts[0]} has {first}")
    if lines:
        raise Disagreement(
            "\n".join(lines),
            fix="give every rank the same command, files and packages; files belong where all hosts see them",
        )


def _hash(value: str) -> str:
    return f"hash {hashlib.blake2b(value.encode(), digest_size=8).hexdigest()}"


def _shown(value: str, other: str) -> tuple[str, str]:
    """Return two values as an error shows them: of long ones the first line that differs."""
    pairs = list(zip_longest(value.splitlines(keepends=True), other.splitlines(keepends=True), fillvalue=""))
    if len(pairs) < 2:
        return value or "empty", other or "empty"
    number, (mine, theirs) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
    if mine.strip() != theirs.strip():
        mine, theirs = mine.strip(), theirs.strip()
    return f"{mine!r} in line {number + 1}", f"{theirs!r}"


def _named(ranks: list[int], hosts: list[str]) -> str:
    parts = []
    for host in dict.fromkeys(hosts[r] for r in ranks):
        there = [str(r) for r in ranks if hosts[r] == host]
        parts.append(f"rank{'s' if len(there) > 1 else ''} {', '.join(there)} on {host}")
    return ", ".join(parts)


# -- facts -------------------------------------------------------------------------------------------------------------
def versions(device: Device) -> dict[str, str]:
    """Return the device's kind and the versions of what computes on it."""
    found = {
        "the device": device.name,
        "pycaffe-lms": __version__,
        "NumPy": np.__version__,
        "protobuf": google.protobuf.__version__,
    }
    if device.name == "cuda":
        found["CUDA"] = str(cuda.require().cuda.runtime.runtimeGetVersion())
        frontend, _ = cudnn.load()
        found["cuDNN"] = _ABSENT if frontend is None else str(frontend.backend_version())
        found["NCCL"] = str(cuda.nccl().get_version())
    return found


def of_solver(solver: Solver) -> dict[str, str]:
    """Return what the solver's and the train net's texts say, and how many records its data layers read."""
    found = {"the solver": str(solver.param), "the train net": str(solver.net.message)}
    for node in solver.net.graph.nodes:
        records = node.layer.records if isinstance(node.layer, DataLayer) else None
        if records is not None:
            found[f'the data of layer "{node.name}"'] = f"{records} records"
    return found


def of_files(paths: Iterable[str]) -> dict[str, str]:
    """Return a hash of each file's contents."""
    found = {}
    for path in paths:
        with open(path, "rb") as file:
            digest = hashlib.blake2b(digest_size=8)
            while block := file.read(1 << 20):
                digest.update(block)
        found[f"the hash of {path}"] = digest.hexdigest()
    return found
