"""Let commands take a name of the zoo where they take a file, with what the model's data need.

`find_model` of `data/sets/zoo.py` is the one function that turns a name into a path; here are its users' wishes: shapes
instead of data, data that must be there before work begins, a solver that is trained.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..data.database.source import made_by
from ..data.sets.datasets import DATASETS
from ..data.sets.zoo import find_model, model_shapes, zoo_models
from ..errors import DataError
from ..formats.prototxt.parser import Parsed, read_net, read_solver
from ..proto.caffe_pb2 import TEST, TRAIN, NetParameter

_SOURCES = ("data_param", "hdf5_data_param", "image_data_param", "window_data_param", "token_data_param")

_log = logging.getLogger(__name__)


def net_with_shapes(text: str, given: Sequence[str]) -> tuple[str, list[str]]:
    """Return the path of a net, and the shapes of its data: those given (-shape), else a zoo model's own."""
    path = find_model(text)
    return path, list(given) or model_shapes(text, path)


def solver_with_shapes(text: str, given: Sequence[str]) -> tuple[str, list[str]]:
    """Return the path of a solver, and the shapes of its net's data, as `net_with_shapes`."""
    path = find_model(text, "solver")
    if given or path == text:
        return path, list(given)
    net = read_solver(path).message.net
    return path, model_shapes(f"{_model(text)}/{Path(net).stem}", net) if net else []


def net_with_data(text: str, phase: int) -> str:
    """Return the path of a net that will read data in a phase. Raises: DataError where a zoo model's are missing."""
    path = find_model(text)
    if path != text:
        _require_data(_model(text), path, "train_dummy", (phase,))
    return path


def solver_to_train(text: str) -> str:
    """Return the path of a solver that will be trained.

    A model of the zoo is written to models/NAME, where its snapshots go, and data that come with the package are made.
    Raises: DataError where other data are missing.
    """
    path = find_model(text, "solver", here=True)
    if path == text:
        return path
    name = _model(text)
    if name in DATASETS and not DATASETS[name].needs_source:
        try:
            made = DATASETS[name].make(Path("data", name))
        except DataError as error:
            error.fix = f"`pycaffe-lms dataset {name} -overwrite` writes them again"
            raise
        _log.info("Data: %s, which come with the package.", ", ".join(map(str, made.values())))
    if net := read_solver(path).message.net:
        _require_data(name, net, "solver_dummy", (TRAIN, TEST))
    return path


def _model(text: str) -> str:
    """Return the model's name of NAME or NAME/FILE."""
    return text.partition("/")[0]


def _require_data(name: str, path: str, dummy: str, phases: Sequence[int]) -> None:
    """Raise DataError for the first source of a net's data in these phases that is missing, with what makes it.

    dummy: the model's file, if it has it, that runs on random data.
    """
    parsed = read_net(path, judge=False)
    for k, source in _sources(parsed, phases):
        if os.path.exists(source):
            continue
        command = made_by(source)
        fix = f"make it with `{command}`" if command else f"models/{name}/README.md says how to make it"
        if f"{dummy}.prototxt" in zoo_models()[name].files:
            fix += f"; or run it on random data, to measure: {name}/{dummy}"
        where = parsed.where(k)
        raise DataError(f"the data of the model {name} are not here: {source}", where=where, fix=fix)


def _sources(parsed: Parsed[NetParameter], phases: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield (index of a layer, file or folder that it reads) in these phases."""
    for k, layer in enumerate(parsed.message.layer):
        if layer.include and not any(rule.phase in phases for rule in layer.include):
            continue
        for field in _SOURCES:
            if source := getattr(layer, field).source:
                yield k, source
        if layer.transform_param.mean_file:
            yield k, layer.transform_param.mean_file
