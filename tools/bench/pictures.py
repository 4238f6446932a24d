"""Pictures per second: `convert_imageset`, and the Data layer that reads what it wrote, beside Torch where it is there.

python tools/bench/pictures.py --pictures 20000 --threads 4,8,16 --json out.json

The pictures are smooth noise, 256 x 256, saved as JPEG of quality 95. "stored": the files as they are, which have the
size asked for. "encoded": made 224 x 224 and saved as JPEG again. "raw": 256 x 256 values. "resized": 224 x 224 values.
"disk": the bytes of "raw" in one plain file, which no conversion can outrun. "Data layer": batches of 256, decoded,
cropped to 224 and mirrored at random, mean subtracted, in training's order, on the CPU. "torch": the same by a
DataLoader of as many processes, which decodes with OpenCV. Each row is the median of --repeat runs in processes of
their own; the first run of each is not counted, it brings the files into memory. A second table has milliseconds of
CPU a picture: of the process that writes, and of all together.

python tools/bench/pictures.py --threads 8,16 --rows "stored,Data layer,train tf32,memory tf32,train bf16,memory bf16"

"train": ResNet-50 on a GPU with that Data layer, from the database to the update, batch 256; up to 8 processes decode.
"memory": the same net with pictures that are on the device.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
from common import ROOT, dummy_net, make_solver
from google.protobuf import text_format

from pycaffe_lms.backend import get_device
from pycaffe_lms.cli.bench import hardware
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.proto import caffe_pb2

SIDE, CROP, BATCH, MEAN = 256, 224, 256, (104.0, 117.0, 123.0)
MODEL, WARMUP = "resnet-50", 20
FORMS = {"stored": (SIDE, True), "encoded": (CROP, True), "raw": (SIDE, False), "resized": (CROP, False)}


def make_pictures(folder: Path, count: int) -> None:
    """Write the pictures and their list."""
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    distinct = []
    for _ in range(min(count, 64)):
        noise = rng.integers(0, 256, (32, 32, 3), np.uint8)
        pixels = cv2.resize(noise, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        distinct.append(cv2.imencode(".jpg", pixels)[1].tobytes())
    with open(folder / "list.txt", "w") as lines:
        for i in range(count):
            (folder / "pictures" / f"{i:06d}.jpg").write_bytes(distinct[i % len(distinct)])
            lines.write(f"{i:06d}.jpg {i % 1000}\n")


def convert(folder: Path, form: str) -> float:
    """Pictures per second of `convert_imageset`."""
    from pycaffe_lms.data.feed.image_list import ImageList
    from pycaffe_lms.data.sets.imageset import PictureForm, convert_imageset

    side, encoded = FORMS[form]
    images = ImageList(folder / "list.txt")
    shutil.rmtree(folder / form, ignore_errors=True)
    began = time.perf_counter()
    done = convert_imageset(
        f"{folder}/pictures/", images, folder / form, PictureForm(size=(side, side), encoded=encoded)
    )
    return done.written / (time.perf_counter() - began)


def write_disk(folder: Path, count: int) -> float:
    """Pictures per second of a plain file that takes their values, until they are on the disk."""
    values = os.urandom(SIDE * SIDE * 3)
    began = time.perf_counter()
    with open(folder / "plain", "wb", buffering=0) as file:
        for _ in range(count):
            file.write(values)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    os.remove(folder / "plain")
    return count / seconds


def cpu_ms(count: int) -> tuple[float, float]:
    """Milliseconds of CPU a picture, so far: of this process, and of it and those that it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, others = ((each.ru_utime + each.ru_stime) * 1000 / count for each in used)
    return own, own + others


def data_layer(folder: Path) -> str:
    """The layer that reads what "stored" wrote."""
    mean = " ".join(f"mean_value: {value}" for value in MEAN)
    return (
        'layer { name: "data" type: "Data" top: "data" top: "label" '
        f"transform_param {{ mirror: true crop_size: {CROP} {mean} }} "
        f'data_param {{ source: "{folder}/stored" batch_size: {BATCH} backend: LMDB }} }}'
    )


def read_layer(folder: Path, count: int) -> float:
    """Pictures per second of a net that is a Data layer."""
    import pycaffe_lms as caffe

    caffe.set_mode_cpu()
    net = folder / "data.prototxt"
    net.write_text(data_layer(folder))
    reading = caffe.Net(str(net), caffe.TRAIN)
    for _ in range(5):  # more than the batches that wait
        reading.forward()
    batches = max(1, count // BATCH)
    began = time.perf_counter()
    for _ in range(batches):
        reading.forward()
    return batches * BATCH / (time.perf_counter() - began)


def train(folder: Path, count: int, math: str, stored: bool, backend: str = "cuda") -> float:
    """Pictures per second of training. stored: from the database; else with pictures that are there already."""
    net = None
    if stored:
        net = dummy_net(MODEL, BATCH)
        at = next(i for i, layer in enumerate(net.layer) if layer.type == "DummyData")
        net.layer[at].CopyFrom(text_format.Parse(data_layer(folder), caffe_pb2.NetParameter()).layer[0])
    half, iterations = math == "bf16", max(1, count // BATCH)
    solver = make_solver(MODEL, BATCH, LMSConfig(), backend=backend, half=half, net=net)
    solver.step(WARMUP)
    solver.runtime.device.synchronize()
    began = time.perf_counter()
    solver.step(iterations)
    solver.runtime.device.synchronize()
    return iterations * BATCH / (time.perf_counter() - began)


def read_torch(folder: Path, count: int, threads: int) -> float:
    """Pictures per second of Torch's DataLoader."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Pictures(Dataset):
        def __init__(self) -> None:
            self.lines = [line.split() for line in (folder / "list.txt").read_text().splitlines()]

        def __len__(self) -> int:
            return len(self.lines)

        def __getitem__(self, i: int):
            name, label = self.lines[i]
            pixels = cv2.imread(f"{folder}/pictures/{name}")
            top, left = np.random.randint(0, SIDE - CROP + 1, 2)
            pixels = pixels[top : top + CROP, left : left + CROP]
            if np.random.randint(2):
                pixels = pixels[:, ::-1]
            values = np.ascontiguousarray(pixels.transpose(2, 0, 1), np.float32)
            values -= np.array(MEAN, np.float32)[:, None, None]
            return torch.from_numpy(values), int(label)

    cv2.setNumThreads(0)
    loader = DataLoader(Pictures(), BATCH, num_workers=threads, persistent_workers=True, drop_last=True)
    for _ in loader:
        pass
    began = time.perf_counter()
    batches = sum(1 for _ in loader)
    return batches * BATCH / (time.perf_counter() - began)


def measure(folder: Path, what: str, threads: int, count: int) -> tuple[float, float, float]:
    """Run one of the above in a process of its own; return its rate and what `cpu_ms` says at its end."""
    argv = [sys.executable, __file__, "--one", what, "--folder", folder, "--threads", threads, "--pictures", count]
    env = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([str(a) for a in argv], env=env, check=True, capture_output=True, text=True, cwd=ROOT)
    rate, own, together = map(float, done.stdout.splitlines()[-1].split())
    return rate, own, together


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pictures", type=int, default=20000)
    p.add_argument("--threads", default=str(os.cpu_count()), help="numbers of threads, separated by commas")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--rows", default="", help="rows to measure, separated by commas (default: all)")
    p.add_argument("--json", default="", metavar="FILE")
    p.add_argument("--one", help=argparse.SUPPRESS)
    p.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    if args.one:
        count, threads = args.pictures, int(args.threads)
        if args.one in FORMS:
            rate = convert(args.folder, args.one)
        else:
            others = {
                "Data layer": lambda: read_layer(args.folder, count),
                "disk": lambda: write_disk(args.folder, count),
            }
            for math in ("tf32", "bf16"):
                others[f"train {math}"] = functools.partial(train, args.folder, count, math, True)
                others[f"memory {math}"] = functools.partial(train, args.folder, count, math, False)
            others["torch"] = lambda: read_torch(args.folder, count, threads)
            rate = others[args.one]()
        print(rate, *cpu_ms(count))
        return 0
    rows = [*FORMS, "disk", "Data layer"]
    try:
        import torch  # noqa: F401

        rows.append("torch")
    except ImportError:
        print("torch is not installed: no peer")
    if args.rows:
        rows = args.rows.split(",")
    found: dict[str, dict[str, float]] = {row: {} for row in rows}
    cpu: dict[str, dict[str, tuple[float, float]]] = {row: {} for row in rows}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pictures(folder, args.pictures)
        for threads in map(int, args.threads.split(",")):
            for row in rows:
                runs = [measure(folder, row, threads, args.pictures) for _ in range(1 + args.repeat)]
                found[row][str(threads)] = statistics.median(run[0] for run in runs[1:])
                cpu[row][str(threads)] = (
                    statistics.median(r[1] for r in runs[1:]),
                    statistics.median(r[2] for r in runs[1:]),
                )
                rate = found[row][str(threads)]
                print(f"{row}, {threads} threads: {rate:,.0f} images/s", file=sys.stderr, flush=True)
    counts = list(found[rows[0]])
    head = f"\n| | {' | '.join(f'{n} threads' for n in counts)} |\n{'|---' * (1 + len(counts))}|"
    print(f"images/s, {args.pictures} pictures" + head)
    for row, values in found.items():
        print(f"| {row} | {' | '.join(f'{values[n]:,.0f}' for n in counts)} |")
    print("ms of CPU a picture: writer, all" + head)
    for row, pairs in cpu.items():
        print(f"| {row} | {' | '.join('{:.3f}, {:.3f}'.format(*pairs[n]) for n in counts)} |")
    if args.json:
        report = {"versions": hardware.versions(get_device("cpu")), "images_per_s": found, "cpu_ms": cpu}
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
