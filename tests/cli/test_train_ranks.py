"""`train -gpu 0,1`: a process each, here on CPUs and simulated devices, as one process with twice the batch."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from argparse import Namespace

import numpy as np
import pytest

from pycaffe_lms.cli import devices, ranks
from pycaffe_lms.cli.commands.train import build_parser
from pycaffe_lms.cli.flags import parse, tuning
from pycaffe_lms.errors import DeviceError, UsageError
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.parallel.launch import Rank

from .command import caffe, process

NET = """
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "%(source)s" batch_size: %(batch)d
  backend: LMDB } transform_param { scale: 0.0625 } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 20
  weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "relu" }
layer { name: "ip2" type: "InnerProduct" bottom: "relu" top: "ip2" inner_product_param { num_output: 10
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""

IN_PYTHON = NET.replace('"ReLU"', '"Python" python_param { module: "my_relu" layer: "MyReLU" }')
PYTHON_LAYER = """
import os

import numpy as np

import pycaffe_lms as caffe


class MyReLU(caffe.Layer):
    def setup(self, bottom, top):
        with open("processes", "a") as file:
            file.write(f"{os.getpid()}\\n")

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        np.maximum(bottom[0].data, 0, out=top[0].data)

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff * (bottom[0].data > 0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "my_relu.py").write_text(PYTHON_LAYER)
    done = caffe("dataset", "digits", cwd=folder)
    assert done.code == 0, done.stderr
    source = done.out.splitlines()[0].split(": ")[1].split()[0]
    return folder, source


def solver(folder, source, batch, name, more="", net=NET):
    (folder / f"{name}.prototxt").write_text(
        f'net_param {{ {net % {"source": source, "batch": batch}} }} base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 '
        f'max_iter: 12 display: 4 random_seed: 7 snapshot_prefix: "{name}" {more}'
    )
    return f"{name}.prototxt"


def weights(path) -> list[np.ndarray]:
    return [blob.data for layer in read_weights(path) for blob in layer.blobs]


def train(folder, name, *flags):
    done = process("train", "-solver", name, *flags, cwd=folder, path=folder)
    assert done.code == 0, done.stderr
    return done


def test_two_processes_are_as_one_with_twice_the_batch(folder):
    """With a layer in Python, which every rank runs in its own process."""
    folder, source = folder
    train(folder, solver(folder, source, 16, "one", net=IN_PYTHON), "-backend", "cpu")
    found = {}
    for name, flags in {
        "cpu": ("-backend", "cpu"),
        "sim": ("-backend", "sim"),
        "lms": ("-backend", "sim", "-lms", "2", "-lms_budget", "100KB"),
    }.items():
        (folder / "processes").unlink()
        more = "layer_wise_reduce: false" * (name == "cpu")
        done = train(folder, solver(folder, source, 8, name, more, IN_PYTHON), *flags, "-gpu", "0,1")
        assert len(set((folder / "processes").read_text().split())) == 2
        found[name] = weights(folder / f"{name}_iter_12.caffemodel")
        assert len(re.findall(r"Iteration 8 \(", done.stderr)) == 1  # the root alone displays
        assert done.stderr.count("Optimization Done.") == 1
    for a, b, c in zip(*found.values(), strict=True):
        assert np.array_equal(a, b) and np.array_equal(a, c)
    for a, b in zip(found["cpu"], weights(folder / "one_iter_12.caffemodel"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_a_damaged_database_is_told_once_with_all_that_is_known(folder):
    folder, _ = folder
    done = process(
        "train", "-solver", solver(folder, "nowhere", 8, "bad"), "-backend", "cpu", "-gpu", "0,1", cwd=folder
    )
    assert done.code == 1
    assert re.search(r'rank \d of 2 \(cpu \d\) failed: .*layer "data" \(Data\)', done.stderr)
    assert "nowhere" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "everybody"),
    [
        pytest.param(signal.SIGINT, False, marks=pytest.mark.thorough),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.thorough),
        (signal.SIGTERM, True),
    ],
)
def test_a_signal_stops_all_of_them_after_a_snapshot(number, everybody, folder):
    """Whether the parent alone gets it, or every process, as of a cluster's job."""
    folder, source = folder
    prefix = f"long{number}{everybody}"
    more = "snapshot_after_train: false" if number == signal.SIGTERM else ""
    name = solver(folder, source, 8, prefix, more)
    path = folder / name
    path.write_text(path.read_text().replace("max_iter: 12", "max_iter: 1000000"))
    process = subprocess.Popen(
        [sys.executable, "-m", "pycaffe_lms", "train", "-solver", name, "-backend", "sim", "-gpu", "0,1"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    until = time.monotonic() + 100
    for line in process.stderr:
        assert time.monotonic() < until
        if "Iteration 8 " in line:
            if everybody:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            break
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 128 + number, rest
    assert "Optimization stopped early." in rest
    assert len(list(folder.glob(f"{prefix}_iter_*.solverstate"))) == 1


def test_lists_of_gpus():
    def numbers(text, backend=None):
        return devices.gpu_numbers(Namespace(gpu=text, backend=backend))

    assert (numbers(""), numbers("3"), numbers("2,0,1")) == ([], [3], [2, 0, 1])
    for text in ("a", "0,", "0,0", "-1", "0,-1", "all,0", "1.5"):
        with pytest.raises(UsageError, match="-gpu"):
            numbers(text)
    with pytest.raises(UsageError, match="-gpu all"):
        numbers("all", "cpu")


def test_every_gpu_of_the_machine(monkeypatch):
    monkeypatch.setattr(devices.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(devices, "get_device", lambda name: name)
    assert devices.gpu_numbers(Namespace(gpu="all", backend=None)) == [0, 1, 2, 3]


def test_other_commands_use_the_first(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    made = []

    class Device:
        def describe(self):
            return "a GPU"

    monkeypatch.setattr(devices, "get_device", lambda name, index=0: made.append(index) or Device())
    args = Namespace(gpu="2,1", backend=None, workspace=None, math="tf32", cache="")
    for rank in (0, 1):
        devices.choose(args, devices.LMSConfig(), rank=rank)
    assert made == [2, 1]


@pytest.mark.parametrize("graph", ["on", "off", "sums"])
def test_sums_on_gpus_are_recorded_unless_graph_is_off(monkeypatch, graph):
    """What a recorded iteration computes is compared in tests/parallel: there the simulated device records sums too."""
    asked = []

    def joined(solver, place, *, capture, timeout, beats):
        asked.append((place, capture, timeout))
        raise DeviceError("no GPU here")

    monkeypatch.setattr(ranks, "NCCL", joined)
    solver = Namespace(net=Namespace(device=None))
    args = parse(build_parser(), ["s.prototxt", "-graph", graph, "-timeout", "7"])
    with pytest.raises(DeviceError), ranks.joined(solver, Rank(0, 2, b"uid"), args):
        pass
    assert asked == [(b"uid", False if graph == "off" else None, 7.0)]
    assert tuning(args).graph is (graph != "off")
