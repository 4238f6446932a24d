"""What is fuzzed: every reader of files that others may have written, and small valid files for each."""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from inputs import Change, change_bytes, change_hdf5, change_message, change_text  # noqa: E402

from pycaffe_lms.cli.live import metrics  # noqa: E402
from pycaffe_lms.data.database.datum import decode_datum, encode_datum, encode_picture_datum  # noqa: E402
from pycaffe_lms.data.database.leveldb_source import LevelDBSource  # noqa: E402
from pycaffe_lms.data.database.leveldb_writer import write_leveldb  # noqa: E402
from pycaffe_lms.data.database.lmdb_source import LMDBSource  # noqa: E402
from pycaffe_lms.data.database.lmdb_writer import write_lmdb  # noqa: E402
from pycaffe_lms.data.feed.hdf5_batches import HDF5Batches  # noqa: E402
from pycaffe_lms.data.feed.image_list import ImageList  # noqa: E402
from pycaffe_lms.data.feed.windows import WindowList  # noqa: E402
from pycaffe_lms.data.sets.imagenet import read_synsets  # noqa: E402
from pycaffe_lms.data.sets.raw_files import open_labelled, read_cifar  # noqa: E402
from pycaffe_lms.data.sets.volumes import (
    read_volume,  # noqa: E402
    read_volume_list,  # noqa: E402
)
from pycaffe_lms.data.transform.mean import load_mean, save_mean  # noqa: E402
from pycaffe_lms.data.transform.picture import decode_picture  # noqa: E402
from pycaffe_lms.errors import Where  # noqa: E402
from pycaffe_lms.formats.prototxt.parser import parse_net, read_net, read_net_binary, read_solver  # noqa: E402
from pycaffe_lms.formats.training_log import read_training_log  # noqa: E402
from pycaffe_lms.formats.weights.blobproto import array_to_blobproto  # noqa: E402
from pycaffe_lms.formats.weights.caffemodel import read_weights  # noqa: E402
from pycaffe_lms.formats.weights.hdf5_weights import write_hdf5_weights  # noqa: E402
from pycaffe_lms.formats.weights.safetensors_file import write_safetensors  # noqa: E402
from pycaffe_lms.formats.weights.solverstate import SolverSnapshot, read_solverstate, write_solverstate  # noqa: E402
from pycaffe_lms.lms.cost.machine import find_machine  # noqa: E402
from pycaffe_lms.ops.cuda.cudnn.store import Store  # noqa: E402
from pycaffe_lms.proto.caffe_pb2 import BlobProto, Datum, NetParameter, SolverParameter, SolverState  # noqa: E402
from tests.data.nifti import nifti_bytes  # noqa: E402

Files = dict[str, bytes]


@dataclass(frozen=True)
class Target:
    """One reader. files: valid inputs, each some files by name. read: of the folder where they lie. changes: how one of
    the files is damaged."""

    files: Callable[[], list[Files]]
    read: Callable[[Path], object]
    changes: Sequence[Change]


RNG = np.random.default_rng(0)
NET = """name: "small" input: "data" input_shape { dim: 2 dim: 3 dim: 8 dim: 8 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 1 decay_mult: 1 }
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } engine: CAFFE } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" include { phase: TRAIN stage: "a" } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param { num_output: 5 } }  # five
"""
V1 = """name: "v1" input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 blobs_lr: 2 weight_decay: 1
  convolution_param { num_output: 4 kernel_size: 3 } include { phase: TRAIN } }
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "conv" bottom: "label" }
"""
V0 = """name: "v0" input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { layer { name: "pad" type: "padding" pad: 2 } bottom: "data" top: "pad" }
layers { layer { name: "conv" type: "conv" num_output: 4 kernelsize: 5 stride: 1 weight_filler { type: "gaussian" }
  blobs_lr: 1 blobs_lr: 2 weight_decay: 1 } bottom: "pad" top: "conv" }
layers { layer { name: "pool" type: "pool" pool: MAX kernelsize: 3 stride: 2 } bottom: "conv" top: "pool" }
"""
FORKS = """name: "forks" default_forward_type: FLOAT16 global_grad_scale: 1000.; reduce_buckets: 3, engine: "MKLDNN"
layer { name: "bn" type: "BatchNorm" forward_type: FLOAT backward_math: FLOAT16
  batch_norm_param { scale_bias: true engine: CUDNN eps: 1e-4 } }
layer { name: "c" type: "Convolution" convolution_param { num_output: 2 kernel_size: 1
  cudnn_convolution_algo_seeker: FINDEX } forward_type: FLOAT }
"""
SOLVER = """net: "train.prototxt" test_iter: 10 test_interval: 100 base_lr: 0.01 momentum: 0.9 weight_decay: 5e-4
lr_policy: "multistep" gamma: 0.1 stepvalue: 10 stepvalue: 20 display: 5 max_iter: 30 snapshot: 10
snapshot_prefix: "small" solver_mode: GPU type: "Adam" random_seed: 7
"""
LOG = """I0210 13:39:22.250000 25210 solver.cpp:279] Solving LeNet
I0210 13:39:22.300000 25210 solver.cpp:337] Iteration 0, Testing net (#0)
I0210 13:39:23.250000 25210 solver.cpp:404]     Test net output #0: accuracy = 0.0919
I0210 13:39:23.350000 25210 solver.cpp:218] Iteration 0 (-1.2e-38 iter/s, 1.1s/100 iters), loss = 2.41298
I0210 13:39:23.350000 25210 solver.cpp:237]     Train net output #0: loss = 2.4 (* 1 = 2.4 loss)
I0210 13:39:23.350000 25210 sgd_solver.cpp:105] Iteration 0, lr = 0.01
I0210 13:39:32.250000 25210 solver.cpp:218] Iteration 100 (11.2 iter/s, 8.9s/100 iters), loss = 0.2
I0210 13:40:24.250000 25210 solver.cpp:315] Optimization Done.
"""
INDEX = b'{"metadata": {}, "weight_map": {"wte.weight": "x.safetensors", "h.0.attn.c_proj.weight": "x.safetensors"}}'
GPU = {
    "name": "mine",
    "memory": 1 << 34,
    "memory_rate": 2e12,
    "product_rate": 1e14,
    "link_in": 2.5e10,
    "link_out": 2.5e10,
    "link_both": 4e10,
}


def _written(write: Callable[[Path], object], name: str) -> Files:
    """What `write` makes at a path of this name: one file, or a folder's files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write(path)
        if path.is_file():
            return {name: path.read_bytes()}
        return {
            f"{name}/{p.name}": p.read_bytes()
            for p in sorted(path.iterdir())
            if p.name not in ("LOCK", "lock.mdb", "LOG")
        }


def _weights() -> bytes:
    net = NetParameter(name="small")
    for name, shapes in {"conv": ((4, 3, 3, 3), (4,)), "fc": ((5, 64), (5,))}.items():
        layer = net.layer.add(name=name, type="Convolution")
        for shape in shapes:
            array_to_blobproto(RNG.normal(size=shape).astype(np.float32), into=layer.blobs.add())
    return net.SerializeToString()


def _old_weights() -> bytes:
    net = NetParameter(name="old")
    layer = net.layers.add(name="conv", type=4)
    layer.blobs.add(num=1, channels=2, height=3, width=1, data=range(6))
    return net.SerializeToString()


def _use_weights(path: Path) -> None:
    for layer in read_weights(path):
        for blob in layer.blobs:
            if blob is not None:
                float(blob.data.sum())


def _safetensors(path: Path) -> None:
    """Write two of GPT-2's arrays, by their public names."""
    sizes = {"wte.weight": (5, 4), "h.0.attn.c_proj.weight": (4, 4)}
    write_safetensors(path, {name: RNG.random(size, np.float32) for name, size in sizes.items()})


def _hdf5_weights(path: Path) -> None:
    data = [
        ("conv", [np.ones((4, 3, 3, 3), np.float32), np.zeros(4, np.float32)]),
        ("fc", [np.ones((5, 2), np.float32)]),
    ]
    write_hdf5_weights(path, data)


def _snapshot(path: Path) -> None:
    history = [RNG.normal(size=shape).astype(np.float32) for shape in ((4, 3), (4,), (2, 2, 1, 1))]
    write_solverstate(
        path,
        SolverSnapshot(
            7,
            "small.caffemodel",
            1,
            history,
            {("train", "data", "batch"): 3},
            {("train", "lstm", "h"): history[1]},
            "Adam",
        ),
    )


def _pictures() -> dict[str, bytes]:
    import cv2

    pixels = RNG.integers(0, 256, (9, 7, 3), np.uint8)
    endings = ("png", "jpg", "bmp", "tiff", "webp", "ppm")
    found = {ending: bytes(cv2.imencode(f".{ending}", pixels)[1]) for ending in endings}
    return found | {"pgm": bytes(cv2.imencode(".pgm", pixels[..., 0])[1])}


def _datums() -> list[bytes]:
    floats = Datum(channels=1, height=2, width=2, label=3, float_data=[1, 2, 3, 4])
    return [
        encode_datum(RNG.integers(0, 256, (3, 4, 5), np.uint8), 2),
        floats.SerializeToString(),
        encode_picture_datum(_pictures()["jpg"], 5),
    ]


def _records() -> list[tuple[bytes, bytes]]:
    return [(b"%04d" % k, encode_datum(RNG.integers(0, 256, (3, 8, 8), np.uint8), k)) for k in range(24)]


def _use_database(source) -> None:
    try:
        length = len(source)
        for _ in range(min(length, 30)):
            key, value = source.next()
            decode_datum(value, source="db", key=key)
        if length:
            source.seek(length // 2)
    finally:
        source.close()


def _hdf5_data(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["data"] = RNG.normal(size=(6, 3, 2)).astype(np.float32)
        file["label"] = np.arange(6, dtype=np.float32)


def _use_hdf5_data(folder: Path) -> None:
    folder.joinpath("list.txt").write_text(f"{folder / 'x.h5'}\n")
    batches = HDF5Batches(str(folder / "list.txt"), ["data", "label"], 4)
    if max(int(np.prod(shape, dtype=object)) for shape in batches.shapes) < 1 << 24:
        for k in range(3):
            batches.produce(k)


def _npy(values) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def _idx(axes: tuple[int, ...]) -> bytes:
    return bytes([0, 0, 8, len(axes)]) + struct.pack(f">{len(axes)}I", *axes) + RNG.bytes(int(np.prod(axes)))


def _idx_files() -> list[Files]:
    images, labels = _idx((4, 5, 6)), _idx((4,))
    packed = {"images.gz": gzip.compress(images, mtime=0), "labels.gz": gzip.compress(labels, mtime=0)}
    return [{"images": images, "labels": labels}, packed]


def _use_idx(folder: Path) -> None:
    ending = ".gz" if (folder / "images.gz").exists() else ""
    images, labels = open_labelled(folder / f"images{ending}", folder / f"labels{ending}")
    for _ in zip(images, labels, strict=True):
        pass


def _use_plan(folder: Path) -> None:
    from plan_mutants import read

    read((folder / "x.plan").read_bytes().decode("utf-8", "replace"), "chain", "auto")


def _plan() -> list[Files]:
    from plan_mutants import text_of

    return [{"x.plan": text_of("chain", "auto").encode()}]


def _one(name: str, *contents: str | bytes) -> Callable[[], list[Files]]:
    return lambda: [{name: c.encode() if isinstance(c, str) else c} for c in contents]


TEXT = (change_text, change_text, change_bytes)
METRIC = json.dumps({"kind": "train", "iteration": 1, "outputs": {"loss": 1.5}, "seconds": 0.1}) + "\n"

TARGETS: dict[str, Target] = {
    "net": Target(_one("x.prototxt", NET, V1, V0, FORKS), lambda f: read_net(f / "x.prototxt"), TEXT),
    "net fields": Target(
        _one("x.prototxt", NET, V1, V0), lambda f: read_net(f / "x.prototxt"), (change_message(NetParameter, True),)
    ),
    "net binary": Target(
        lambda: [{"x": parse_net(NET, "x").message.SerializeToString()}, {"x": _old_weights()}],
        lambda f: read_net_binary(f / "x"),
        (change_message(NetParameter), change_bytes),
    ),
    "solver": Target(
        _one("x.prototxt", SOLVER),
        lambda f: read_solver(f / "x.prototxt"),
        (*TEXT, change_message(SolverParameter, True)),
    ),
    "caffemodel": Target(
        lambda: [{"x.caffemodel": _weights()}, {"x.caffemodel": _old_weights()}],
        lambda f: _use_weights(f / "x.caffemodel"),
        (change_bytes, change_message(NetParameter)),
    ),
    "safetensors": Target(
        lambda: [_written(_safetensors, "x.safetensors")],
        lambda f: _use_weights(f / "x.safetensors"),
        (change_bytes,),
    ),
    "safetensors index": Target(
        lambda: [{"x.safetensors.index.json": INDEX} | _written(_safetensors, "x.safetensors")],
        lambda f: _use_weights(f / "x.safetensors.index.json"),
        (change_bytes,),
    ),
    "weights hdf5": Target(
        lambda: [_written(_hdf5_weights, "x.h5")], lambda f: _use_weights(f / "x.h5"), (change_bytes, change_hdf5)
    ),
    "solverstate": Target(
        lambda: [_written(_snapshot, "x.solverstate")],
        lambda f: read_solverstate(f / "x.solverstate"),
        (change_bytes, change_message(SolverState)),
    ),
    "solverstate hdf5": Target(
        lambda: [_written(_snapshot, "x.h5")], lambda f: read_solverstate(f / "x.h5"), (change_bytes, change_hdf5)
    ),
    "mean": Target(
        lambda: [_written(lambda p: save_mean(p, RNG.random((3, 4, 5)).astype(np.float32)), "x.binaryproto")],
        lambda f: load_mean(f / "x.binaryproto"),
        (change_bytes, change_message(BlobProto)),
    ),
    "lmdb": Target(
        lambda: [_written(lambda p: write_lmdb(p, _records()), "db")],
        lambda f: _use_database(LMDBSource(f / "db")),
        (change_bytes,),
    ),
    "leveldb": Target(
        lambda: [_written(lambda p: write_leveldb(p, _records()), "db")],
        lambda f: _use_database(LevelDBSource(f / "db")),
        (change_bytes,),
    ),
    "datum": Target(
        lambda: [{"x": datum} for datum in _datums()],
        lambda f: decode_datum((f / "x").read_bytes(), source="x"),
        (change_bytes, change_message(Datum)),
    ),
    "image": Target(
        lambda: [{"x": picture} for picture in _pictures().values()],
        lambda f: decode_picture((f / "x").read_bytes(), where=Where(file="x")),
        (change_bytes,),
    ),
    "image list": Target(_one("x.txt", "a b.png 1\nc.jpg 22\n\nd/e.png -3\n"), lambda f: ImageList(f / "x.txt"), TEXT),
    "window file": Target(
        _one("x.txt", "# 0\na.png\n3 50 60\n2\n1 0.7 1 2 20 30\n0 0.2 5 5 9 9\n# 1\nb.png\n3\n40 40\n0\n"),
        lambda f: WindowList(f / "x.txt", 0.5, 0.5),
        TEXT,
    ),
    "hdf5 data": Target(lambda: [_written(_hdf5_data, "x.h5")], _use_hdf5_data, (change_bytes, change_hdf5)),
    "npy": Target(
        lambda: [{"x.npy": _npy(RNG.normal(size=(2, 3, 4)))}, {"x.npy": _npy(np.zeros((1, 2, 3, 4), np.uint8))}],
        lambda f: read_volume(f / "x.npy"),
        (change_bytes, change_bytes, change_text),
    ),
    "nifti": Target(
        lambda: [
            {"x.nii": nifti_bytes(np.ones((3, 4, 5), np.float32))},
            {"x.nii": nifti_bytes(np.ones((3, 4, 2), np.int16), slope=2.0, inter=-1.0)},
        ],
        lambda f: read_volume(f / "x.nii", canonical=True),
        (change_bytes,),
    ),
    "nifti gz": Target(
        lambda: [{"x.nii.gz": gzip.compress(nifti_bytes(np.ones((3, 4, 5), np.float32)), mtime=0)}],
        lambda f: read_volume(f / "x.nii.gz"),
        (change_bytes, lambda data, rng: gzip.compress(change_bytes(gzip.decompress(data), rng), mtime=0)),
    ),
    "volume list": Target(
        _one("x.txt", "a.nii b.nii\nc.npy d.npy\n", "a.npy 1\n"), lambda f: read_volume_list(f / "x.txt"), TEXT
    ),
    "plan": Target(_plan, _use_plan, TEXT),
    "training log": Target(_one("x.log", LOG), lambda f: read_training_log(f / "x.log"), TEXT),
    "metrics": Target(_one("x.jsonl", METRIC * 3), lambda f: metrics.read(str(f / "x.jsonl")), TEXT),
    "idx": Target(_idx_files, _use_idx, (change_bytes,)),
    "cifar": Target(
        lambda: [{"x.bin": (bytes([3]) + RNG.bytes(3072)) * 3}],
        lambda f: list(read_cifar(f / "x.bin")),
        (change_bytes,),
    ),
    "synsets": Target(_one("x.txt", "n01440764\nn01443537 goldfish\n"), lambda f: read_synsets(f / "x.txt"), TEXT),
    "gpu file": Target(_one("x.json", json.dumps(GPU)), lambda f: find_machine(str(f / "x.json")), TEXT),
    "cudnn store": Target(
        _one("x.json", json.dumps({"format": 1, "engines": {"a": "b", "c": "d"}})), lambda f: Store(f / "x.json"), TEXT
    ),
}
