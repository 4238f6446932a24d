"""Begin a classifier of pictures: databases of a folder per class, a net for pictures of that size, a solver.

`split` divides the pictures, `write_data` writes lists, databases, labels and the mean, `net_text` and `solver_text`
write prototxts that fit them. `cli/commands/init.py` is the command.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format

from ..data.feed.image_list import ImageList
from ..data.sets.conversion import Progress, shuffled
from ..data.sets.database_mean import channel_means, database_mean
from ..data.sets.imagenet import Line, find_classes, list_pictures, write_lines
from ..data.sets.imageset import PictureForm, make_imageset
from ..data.transform.mean import save_mean
from ..errors import DataError, Where
from ..net_spec import NetSpec, assign_proto
from ..net_spec import layers as L
from ..net_spec import params as P
from ..proto.caffe_pb2 import NetParameter, SolverParameter

INPUT_SCALE = 1 / 64
"""Of values 0 to 255 less their mean: about -2 to 2."""
_LAST_SIDE = 4  # pixels of the smallest planes that the net makes before it takes their mean
_CHANNELS = (32, 64, 128, 256)
_TRAIN_BATCH, _TEST_BATCH, _GOOD_TEST_BATCH = 32, 64, 16
_EPOCHS, _LEAST_ITERATIONS = 30, 300


@dataclass(frozen=True)
class StarterData:
    """Describe the databases that were written.

    Attributes:
        classes: names in the order of their labels.
        train, test: pictures in the databases. skipped: those that could not be read.
        shape: (channels, height, width) of a picture.
        means: of each channel of the training pictures, 0 to 255.
    """

    classes: tuple[str, ...]
    train: int
    test: int
    skipped: int
    shape: tuple[int, int, int]
    means: tuple[float, ...]


def split(folder: str | os.PathLike[str], share: float, seed: int) -> tuple[list[str], dict[str, list[Line]]]:
    """Divide the pictures of a folder per class: (classes, {"train": lines, "test": lines}).

    Of each class `share` of its pictures, at least one, are for testing; `seed` settles which. A few go back to
    training where else no batch size divided their number.
    Raises: DataError for fewer than two classes, or a class with fewer than two pictures.
    """
    where = Where(file=os.fspath(folder))
    classes = find_classes(folder)
    fix = f"lay pictures out as {os.path.join(os.fspath(folder), 'CLASS', 'NAME.jpg')}, at least two of a class"
    if len(classes) < 2:
        raise DataError(f"folders of classes: {len(classes)}; there must be two or more", where=where, fix=fix)
    if set(classes) <= {"train", "val", "test", "valid", "validation"}:
        fix = f"give {os.path.join(os.fspath(folder), 'train')}, or use `pycaffe-lms dataset imagenet`"
        raise DataError(f"the folders {', '.join(classes)} are no classes", where=where, fix=fix)
    lines = list_pictures(folder, classes)
    parts: dict[str, list[Line]] = {"train": [], "test": []}
    for label, name in enumerate(classes):
        mine = [line for line in lines if line[1] == label]
        if len(mine) < 2:
            raise DataError(f'pictures of the class "{name}": {len(mine)}', where=where, fix=fix)
        order = shuffled(len(mine), seed + label)
        count = min(max(1, round(share * len(mine))), len(mine) - 1)
        chosen = set(order[:count].tolist())
        for k, line in enumerate(mine):
            parts["test" if k in chosen else "train"].append(line)
    while len(parts["test"]) > _TEST_BATCH and test_batch(len(parts["test"])) < _GOOD_TEST_BATCH:
        labels = [label for _, label in parts["test"]]
        largest = int(np.bincount(labels).argmax())
        parts["train"].append(parts["test"].pop(labels.index(largest)))
    return classes, parts


def test_batch(count: int) -> int:
    """Return the largest batch, up to 64, that divides the number of test pictures: a test sees each exactly once."""
    return max(size for size in range(1, min(count, _TEST_BATCH) + 1) if count % size == 0)


def write_data(
    folder: str | os.PathLike[str],
    out: Path,
    form: PictureForm,
    *,
    share: float,
    seed: int,
    overwrite: bool,
    progress: Progress | None,
) -> StarterData:
    """Write labels.txt, train.txt, test.txt, train_lmdb, test_lmdb and mean.binaryproto into `out`.

    What is there and whole stays. form: with a size.
    Raises: DataError as `split`, and for files that are there and differ (unless `overwrite`).
    """
    classes, parts = split(folder, share, seed)
    out.mkdir(parents=True, exist_ok=True)
    write_lines(out / "labels.txt", classes, overwrite=overwrite)
    for part, lines in parts.items():
        write_lines(out / f"{part}.txt", [f"{path} {label}" for path, label in lines], overwrite=overwrite)
    done = {
        part: make_imageset(
            f"{os.fspath(folder)}{os.sep}",
            ImageList(out / f"{part}.txt"),
            out / f"{part}_lmdb",
            form,
            order=shuffled(len(lines), seed),
            overwrite=overwrite,
            progress=progress,
        )
        for part, lines in parts.items()
    }
    mean, _ = database_mean(out / "train_lmdb")
    save_mean(out / "mean.binaryproto", mean)
    channels, height, width = mean.shape
    return StarterData(
        tuple(classes),
        done["train"].written,
        done["test"].written,
        sum(d.skipped for d in done.values()),
        (channels, height, width),
        tuple(channel_means(mean)),
    )


def net_text(name: str, out: Path, data: StarterData, *, deploy: bool) -> str:
    """Return the prototxt of the net: for training, with its data, or `deploy`, from a picture to probabilities.

    Blocks of convolution, batch normalization, ReLU and pooling halve the picture until planes are about 4 x 4; their
    means are the features that one inner product turns into scores.
    """
    n = NetSpec()
    if deploy:
        n.data = L.Input(shape={"dim": [1, *data.shape]})
    else:
        _data_layers(n, out, data)
    top = n.data
    stages = max(1, int(np.log2(max(2, min(data.shape[1:]) / _LAST_SIDE))))
    for k in range(1, stages + 1):
        channels = _CHANNELS[min(k, len(_CHANNELS)) - 1]
        n[f"conv{k}"] = L.Convolution(
            top, num_output=channels, kernel_size=3, pad=1, bias_term=False, weight_filler={"type": "msra"}
        )
        # statistics for testing follow the weights within some tens of iterations, for trainings are short here
        n[f"bn{k}"] = L.BatchNorm(n[f"conv{k}"], moving_average_fraction=0.95, in_place=True)
        n[f"scale{k}"] = L.Scale(n[f"bn{k}"], bias_term=True, in_place=True)
        n[f"relu{k}"] = L.ReLU(n[f"scale{k}"], in_place=True)
        n[f"pool{k}"] = top = L.Pooling(n[f"relu{k}"], pool=P.Pooling.MAX, kernel_size=2, stride=2)
    n.features = L.Pooling(top, pool=P.Pooling.AVE, global_pooling=True)
    n.drop = L.Dropout(n.features, dropout_ratio=0.2, in_place=True)
    n.scores = L.InnerProduct(n.drop, num_output=len(data.classes), weight_filler={"type": "xavier"})
    if deploy:
        n.prob = L.Softmax(n.scores)
    else:
        n.accuracy = L.Accuracy(n.scores, n.label, include={"phase": "TEST"})
        n.loss = L.SoftmaxWithLoss(n.scores, n.label)
    net: NetParameter = n.to_proto()
    net.name = name
    return f"# Written by pycaffe-lms init: yours to change.\n{text_format.MessageToString(net)}"


def _data_layers(n: NetSpec, out: Path, data: StarterData) -> None:
    """Add the data layers of both phases, which subtract the channels' means; pictures are mirrored in training."""
    transform: dict[str, Any] = {"scale": INPUT_SCALE, "mean_value": [round(mean, 4) for mean in data.means]}

    def layer(phase: str, batch: int, transform: dict[str, Any], **more: Any) -> Any:
        database = (out / f"{phase.lower()}_lmdb").as_posix()
        source: dict[str, Any] = {"source": database, "batch_size": batch, "backend": P.Data.LMDB}
        return L.Data(name="data", include={"phase": phase}, transform_param=transform, **source, **more)

    n.data, n.label = layer("TRAIN", min(_TRAIN_BATCH, data.train), transform | {"mirror": True}, ntop=2)
    n["data of TEST"] = layer("TEST", test_batch(data.test), transform, ntop=0, top=["data", "label"])


def iterations(data: StarterData) -> int:
    """Return how long the solver trains: 30 times through the pictures, at least 300, a multiple of 10."""
    wanted = max(_LEAST_ITERATIONS, _EPOCHS * data.train // min(_TRAIN_BATCH, data.train))
    return -(-wanted // 10) * 10


def solver_text(name: str, out: Path, data: StarterData, seed: int) -> str:
    """Return the prototxt of the solver: the rate falls to zero, ten tests, a snapshot in the middle and at the end."""
    tenth = iterations(data) // 10
    batch = test_batch(data.test)
    fields: dict[str, Any] = {
        "net": (out / "train_val.prototxt").as_posix(),
        "test_iter": data.test // batch,
        "test_interval": tenth,
        "base_lr": 0.05,
        "lr_policy": "poly",
        "power": 1.0,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "display": max(1, tenth // 2),
        "max_iter": iterations(data),
        "snapshot": 5 * tenth,
        "snapshot_prefix": (out / name).as_posix(),
        "random_seed": seed,
    }
    text = "# Written by pycaffe-lms init: yours to change.\n"
    text += f"# {data.test // batch} test batches of {batch} are the {data.test} test pictures.\n"
    for field, value in fields.items():  # one message each, to keep this order
        message = SolverParameter()
        assign_proto(message, field, value)
        text += text_format.MessageToString(message)
    return text
