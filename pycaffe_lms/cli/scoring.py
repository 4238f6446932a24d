"""Share between `classify`, `detect` and `export_onnx`: which net, how pictures become its input, where it runs."""

from __future__ import annotations

import argparse
import logging
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.lib.npyio import NpzFile

from ..arrays import HostArray
from ..classifier import input_transformer
from ..data.sets.zoo import find_model
from ..data.transform.mean import load_mean
from ..data.transform.preprocess import Transformer
from ..errors import DataError, UsageError, Where
from ..formats.rawfile import check_readable, could_not_open, read_bytes
from ..io import load_image
from ..log import only_warnings
from ..net.net import Net as BuiltNet
from ..onnx_export.trial import random_inputs
from ..pycaffe.classes import Net
from . import devices, flags

_log = logging.getLogger(__name__)
Given: TypeAlias = dict[str, dict[str, HostArray]]  # file -> input -> its array
_Number = TypeVar("_Number", int, float)
_UNREADABLE = (  # what NumPy raises for damaged files
    *(ValueError, EOFError, SyntaxError, TypeError, OverflowError, tokenize.TokenError),
    *(KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error),
)
ILSVRC = (104.00698793, 116.66876762, 122.67891434)
"""Blue, green and red of the mean picture of ImageNet's ILSVRC-2012 training set, 0 to 255."""


def add_model(p: flags.Parser) -> None:
    """Declare the word MODEL, or -model, or as in Caffe's scripts -model_def."""
    flags.add_word(p, "model", "deploy prototxt of the net, or a model of the zoo", names=("model_def",))


def add_net(p: flags.Parser) -> None:
    """Declare the flags that Caffe's scripts have in common, and those of the device."""
    p.gpu_may_be_bare = True
    p.add_argument(
        "--weights",
        "--pretrained_model",
        dest="pretrained_model",
        required=True,
        metavar="FILE",
        help=".caffemodel with its weights",
    )
    add_pictures(p)
    flags.add_device(p)


def add_pictures(p: flags.Parser) -> None:
    """Declare the flags that say how pictures become the net's input."""
    p.add_argument(
        "--mean_file",
        default=None,
        metavar="FILE",
        help="mean of the training set, .npy (channels, height, width) or .binaryproto, of which the means of "
        "channels are subtracted; '' for none (default: that of ImageNet for nets of 3 channels)",
    )
    p.add_argument(
        "--mean_value",
        default=None,
        metavar="B,G,R",
        help="subtract these means of channels, in place of -mean_file; one number is for all of them",
    )
    p.add_argument("--input_scale", type=float, help="multiply by this after all other steps")
    p.add_argument(
        "--raw_scale",
        type=float,
        default=255.0,
        help="multiply values from 0 to 1 by this before all other steps (default: %(default)g)",
    )
    p.add_argument(
        "--channel_swap",
        default=None,
        metavar="A,B,C",
        help="order of channels; '' for red, green, blue (default for nets of 3 channels: 2,1,0, blue first)",
    )


def deploy_file(args: argparse.Namespace) -> str:
    """Return the path of MODEL, the deploy net of a model where it names one."""
    return find_model(args.model, "deploy")


def options(args: argparse.Namespace) -> dict[str, Any]:
    """Return where the net runs, as keywords of Classifier and Detector. Raises CaffeError for weights, a mean or a
    device that is not there."""
    devices.check_weights(args.pretrained_model)
    if args.mean_value is not None and args.mean_file:
        raise UsageError("-mean_value and -mean_file are both given", fix="give one of them")
    if args.mean_file:
        check_readable(args.mean_file, DataError)
    lms = flags.lms_config(args)
    where: dict[str, Any] = {"lms": lms, "device": devices.choose(args, lms)}
    return where | {"tuning": replace(Net.tuning_by_hand, half=True)} if flags.half(args) else where


def set_input(net: BuiltNet, transformer: Transformer, args: argparse.Namespace) -> int:
    """Set the transformer of the net's first input as the flags say; return the input's channels."""
    name = net.inputs[0]
    channels = net.blobs[name].shape[1]
    color = channels == 3
    swap = args.channel_swap if args.channel_swap is not None else "2,1,0" * color
    if swap:
        order = numbers(swap, "-channel_swap", int)
        if sorted(order) != list(range(channels)):
            raise UsageError(
                f"-channel_swap {swap} is no order of the net's {channels} channels",
                fix="name each from 0 once, or give ''",
            )
        transformer.set_channel_swap(name, order)
    if args.raw_scale is not None:
        transformer.set_raw_scale(name, args.raw_scale)
    if args.input_scale is not None:
        transformer.set_input_scale(name, args.input_scale)
    if args.mean_value is not None:
        means = numbers(args.mean_value, "-mean_value", float)
        if len(means) not in (1, channels):
            raise UsageError(
                f"-mean_value {args.mean_value} has {len(means)} numbers, but the net has {channels} channels",
                fix="give one number, or one for each channel",
            )
        transformer.set_mean(name, np.array(means * (channels // len(means)), np.float32))
    elif args.mean_file:
        transformer.set_mean(name, mean_of_channels(args.mean_file))
    elif args.mean_file is None and color:
        _log.info("Mean: that of ImageNet, %s (blue, green, red).", ", ".join(f"{v:.2f}" for v in ILSVRC))
        transformer.set_mean(name, np.array(ILSVRC))
    return channels


def mean_of_channels(path: str) -> HostArray:
    """Return the (channels,) means of a mean file, .npy or .binaryproto. Raises DataError."""
    if not path.endswith(".npy"):
        return np.asarray(load_mean(path).mean(1).mean(1))
    mean = load_npy(path)
    if mean.ndim not in (1, 3):
        raise DataError(f"a mean of shape {mean.shape}", where=Where(file=path), fix="give (channels, height, width)")
    return mean if mean.ndim == 1 else np.asarray(mean.mean(1).mean(1))


def load_npy(path: str) -> HostArray:
    """Return the numbers in a .npy file. Raises DataError, also if it ends too early."""
    with _numpy_file(path, ".npy", "numpy.save"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise DataError("holds no array of numbers", where=Where(file=path), fix="write it with numpy.save")
    return np.array(array)


def _load_npz(path: str) -> dict[str, HostArray]:
    """Return the arrays of numbers in a .npz file by name. Raises DataError, also if it is damaged."""
    with _numpy_file(path, ".npz", "numpy.savez"), open(path, "rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, NpzFile):
            raise ValueError("it holds one array")
        with archive:
            arrays = dict(archive)
    wrong = [name for name, array in arrays.items() if array.dtype.kind not in "fiub"]
    if wrong:
        what = f"{', '.join(wrong)}: no array of numbers"
        raise DataError(what, where=Where(file=path), fix="write it with numpy.savez")
    return arrays


@contextmanager
def _numpy_file(path: str, ending: str, writer: str) -> Iterator[None]:
    """Turn what NumPy raises for a file that it cannot read into a DataError. writer: what makes such files."""
    try:
        yield
    except OSError as failure:
        raise could_not_open(path, failure, DataError) from None
    except _UNREADABLE as failure:
        raise DataError(
            f"not a readable {ending} file: {failure}", where=Where(file=path), fix=f"write it with {writer}"
        ) from None


def numbers(text: str, flag: str, kind: type[_Number]) -> list[_Number]:
    """Return [256, 256] of "256,256". kind: int or float. Raises UsageError."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise UsageError(f"{flag} {text!r} is not a list of {what}", fix="such as 256,256 or 2,1,0") from None


def read_inputs(net: BuiltNet, files: str, flag: str, args: argparse.Namespace) -> Given:
    """Return {file: {input: its array}} of a comma list of files.

    A .npz file holds arrays named after inputs, a .npy file the first input, with or without the batch axis. Anything
    else is a picture, made into the first input as the flags of `classify` say. One item is repeated over the batch.
    Raises: UsageError for an empty list or a net without inputs; DataError for a file that is missing or does not fit.
    """
    names = [name.strip() for name in files.split(",") if name.strip()]
    if files and not names:
        raise UsageError(f"{flag} names no file", fix="give pictures, .npy or .npz files")
    return {name: read_input(net, name, args) for name in names}


def read_input(net: BuiltNet, path: str, args: argparse.Namespace) -> dict[str, HostArray]:
    """Return {input: its array} of one file: see `read_inputs`."""
    check_readable(path, DataError)
    first = net.inputs[0] if net.inputs else None
    if path.endswith(".npz"):
        arrays = _load_npz(path)
        unknown = sorted(set(arrays) - set(net.inputs))
        if unknown or not arrays:
            what = f"holds {', '.join(unknown)}, but the net has no such input" if unknown else "holds no array"
            fix = f"name the arrays after the net's inputs: {', '.join(net.inputs)}"
            raise DataError(what, where=Where(file=path), fix=fix)
        return {name: _fit(net, name, array, path) for name, array in arrays.items()}
    if first is None:
        raise UsageError(f"{path}: the net has no input for it", fix="give a deploy prototxt with an Input layer")
    if path.endswith(".npy"):
        return {first: _fit(net, first, load_npy(path), path)}
    shape = tuple(net.blobs[first].shape)
    if len(shape) != 4 or shape[1] not in (1, 3):
        raise DataError(
            f'input "{first}" of shape {shape} takes no picture',
            where=Where(file=path),
            fix="give a .npy file with what the net sees",
        )
    transformer = input_transformer(net)
    color = set_input(net, transformer, args) != 1
    return {first: _fit(net, first, transformer.preprocess(first, load_image(path, color)), path)}


def read_list(net: BuiltNet, path: str, args: argparse.Namespace) -> Mapping[str, dict[str, HostArray]]:
    """Return {file: an array for each input} of the files that a list names: a line each, perhaps with a label.

    A file is read whenever it is looked up. Inputs that it does not have get random values.
    Raises: DataError for a list or a file that is missing; UsageError for an empty list.
    """
    lines = read_bytes(path, DataError).decode("utf-8", "replace").splitlines()
    names = [re.sub(r"\s+-?\d+$", "", line.strip()) for line in lines if line.strip()]
    if not names:
        raise UsageError(f"{path} names no file", fix="give a picture, .npy or .npz file a line")
    for name in names:
        check_readable(name, DataError)
    return _Files(net, names, args)


class _Files(Mapping[str, dict[str, HostArray]]):
    """Read files as inputs of a net, each when it is looked up."""

    def __init__(self, net: BuiltNet, names: Sequence[str], args: argparse.Namespace):
        self._net, self._names, self._args = net, dict.fromkeys(names), args

    def __getitem__(self, name: str) -> dict[str, HostArray]:
        with only_warnings():
            return random_inputs(self._net, 0) | read_input(self._net, name, self._args)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _fit(net: BuiltNet, name: str, array: HostArray, path: str) -> HostArray:
    """Return an array in the shape of an input, one item repeated over the batch."""
    shape = tuple(net.blobs[name].shape)
    items = array if array.ndim == len(shape) else array[None]
    if items.shape != shape and (items.shape[1:] != shape[1:] or len(items) != 1):
        raise DataError(
            f'has shape {array.shape}, but input "{name}" is {shape}',
            where=Where(file=path),
            fix="write it with numpy.save, as the net sees it; for pictures with another size give the picture itself",
        )
    return np.ascontiguousarray(np.broadcast_to(items, shape), np.float32)
