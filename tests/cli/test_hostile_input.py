"""Impossible numbers, names and outputs at every command: an exit code of 0, 1 or 2, one message, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pycaffe_lms
from pycaffe_lms.cli.catalogue import COMMANDS
from pycaffe_lms.cli.main import main

from .nets import NET, SOLVER, write

LONG, MANY = "n" * 300, "9" * 20
INPUT = 'layer {{ name: "d" type: "Input" top: "d" input_param {{ shape {{ {} }} }} }}\n'
IMAGE = INPUT.format("dim: 2 dim: 3 dim: 8 dim: 8")
RUN = {
    "train": ["train", "-solver", "solver.prototxt", "-backend", "cpu"],
    "sim": ["train", "-solver", "solver.prototxt", "-backend", "sim", "-lms", "1"],
    "time": ["time", "-model", "net.prototxt", "-backend", "cpu"],
    "test": ["test", "-model", "net.prototxt", "-backend", "cpu", "-weights", "w"],
    "plan": ["plan", "-model", "net.prototxt", "-summary"],
    "summarize": ["summarize", "net.prototxt"],
}


def _layer(kind, more):
    return f'layer {{ name: "c" type: "{kind}" bottom: "d" top: "c" {more} }}\n'


CONV = "convolution_param {{ num_output: 2 kernel_size: {} pad: {} stride: {} }}".format
NETS = {
    "padding of 2^31 - 1": IMAGE + _layer("Convolution", CONV(3, 2**31 - 1, 1)),
    "padding of 2^32 - 1": IMAGE + _layer("Convolution", CONV(3, 2**32 - 1, 1)),
    "a pooling window of 2^31 - 1": IMAGE
    + _layer("Pooling", f"pooling_param {{ kernel_size: {2**31 - 1} pad: {2**31 - 2} }}"),
    "a stride of 2^32 - 1": IMAGE + _layer("Deconvolution", CONV(3, 0, 2**32 - 1)),
    "2^32 - 1 outputs": IMAGE + _layer("InnerProduct", f"inner_product_param {{ num_output: {2**32 - 1} }}"),
    "2^31 - 1 tiles": IMAGE + _layer("Tile", f"tile_param {{ tiles: {2**31 - 1} }}"),
    "a vocabulary of 2^32 - 1": IMAGE
    + _layer("Embed", f"embed_param {{ input_dim: {2**32 - 1} num_output: {2**32 - 1} }}"),
    "a pyramid of 2^40": IMAGE + _layer("SPP", "spp_param { pyramid_height: 40 }"),
    "an axis of 2^32": INPUT.format(f"dim: 1 dim: 1 dim: 1 dim: {2**32}") + _layer("Convolution", CONV(1, 0, 1)),
    "an axis of 2^63 - 1": INPUT.format(f"dim: {2**63 - 1} dim: 2") + _layer("ReLU", ""),
    "an axis of 20 digits": INPUT.format(f"dim: {MANY} dim: 2") + _layer("ReLU", ""),
    "2^93 elements": INPUT.format(f"dim: {2**31 - 1} " * 3) + _layer("ReLU", ""),
    "a name that is no UTF-8": IMAGE.replace('"d"', r'"\377\376"'),
    "a NUL in a name": IMAGE.replace('"d"', r'"d\000e"'),
    "a name of 300 letters": IMAGE.replace('"d"', f'"{LONG}"'),
    "an unknown filler": IMAGE
    + _layer("InnerProduct", 'inner_product_param { num_output: 2 weight_filler { type: "xaver" } }'),
}
FINE = ("a name of 300 letters",)
WORDS = {
    "shape 2^63": ["plan", "-shape", f"data={2**63},1,1,1"],
    "shape of 23 digits": ["summarize", "-shape", "data=99999999999999999999999,1"],
    "shape 2^32": ["summarize", "-shape", f"data={2**32},3,8,8"],
    "iterations": ["time", "-iterations", MANY],
    "test iterations": ["test", "-iterations", MANY],
    "level": ["summarize", "-level", MANY],
    "width": ["summarize", "-max_width", MANY],
    "seed": ["sim", "-sim_seed", MANY],
    "lms": ["sim", "-lms", MANY],
    "budget": ["sim", "-lms_budget", MANY],
    "ahead": ["sim", "-lms_ahead", MANY],
    "exclude": ["sim", "-lms_exclude", MANY],
    "host": ["sim", "-lms_host", MANY],
    "split": ["sim", "-lms_split", MANY],
    "blocks": ["sim", "-lms_split_outputs", "999999999"],
    "slabs": ["sim", "-lms_split_slabs", "999999999"],
    "workspace": ["sim", "-workspace", MANY],
    "gpu": ["train", "-gpu", MANY],
    "sweep": ["plan", "-sweep", f"batch={2**31 - 1}"],
    "sweep of 20 digits": ["plan", "-sweep", f"batch=1..{MANY}"],
    "json": ["plan", "-json", LONG],
    "json on a full disk": ["plan", "-json", "/dev/full"],
    "json NUL": ["plan", "-json", "a\0b"],
    "report in a folder of 300 letters": ["plan", "-report", f"{LONG}/x.html"],
    "weights": ["train", "-weights", LONG],
    "snapshot": ["train", "-snapshot", LONG],
    "profile": ["train", "-profile", LONG],
    "metrics": ["train", "-metrics", LONG],
    "plan file": ["sim", "-lms_plan", LONG],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write(tmp_path, NET)
    write(tmp_path, SOLVER, ("max_iter: 2", "max_iter: 1"), name="solver.prototxt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(argv, capsys) -> tuple[int, str]:
    """The exit code and stderr; an exception that leaves `main` would be a traceback and fails the test."""
    code = main(argv)
    err = capsys.readouterr().err
    assert code in (0, 1, 2) and "Traceback" not in err
    if code:
        assert "error: " in err and "\n  fix: " in err
    return code, err


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("command", ["summarize", "plan", "time", "train"])
def test_nets(folder, capsys, command, name):
    write(folder, NETS[name])
    more = ["-iterations", "1"] if command == "time" else []
    code, err = _run([*RUN[command], *more], capsys)
    assert code == (0 if name in FINE else 1), err
    if code:
        assert "net.prototxt:" in err


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_flags(folder, capsys, words):
    command, *more = words
    _run([*RUN[command], *more], capsys)


NAMES = (LONG, "a\0b", "\udcff\udcfe", "/dev/full", "", ".")
NAMED = [  # of each command a third of the names by default, each name with a third of the commands
    pytest.param(words, name, id=f"{words}-{name!a}", marks=pytest.mark.thorough if (i - j) % 3 else ())
    for i, words in enumerate(c for c in COMMANDS if c not in ("completion", "device_query", "weights"))
    for j, name in enumerate(NAMES)
]


@pytest.mark.parametrize(("words", "name"), NAMED)
def test_names_in_place_of_every_file(folder, capsys, words, name):
    """As the only word, as the value of the first flag of a file, and as the second word."""
    for more in ([name], ["-model", name], ["-solver", name], ["net.prototxt", name]):
        _run([*words.split(), *more], capsys)


@pytest.mark.parametrize("field", ["snapshot_prefix", "net", "train_net", "type", "lr_policy"])
@pytest.mark.parametrize("value", [LONG, r"a\000b", r"\377", f"{LONG}/{LONG}"], ids=ascii)
def test_solvers(folder, capsys, field, value):
    write(folder, f'{SOLVER}snapshot: 1\n{field}: "{value}"\n', name="solver.prototxt")
    code, _ = _run(RUN["train"], capsys)
    assert code == 1


def _shell(folder, line):
    path = os.pathsep.join(filter(None, [str(Path(pycaffe_lms.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    line = line.replace("CAFFE", f"'{sys.executable}' -m pycaffe_lms")
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", ["summarize net.prototxt", "plan -model net.prototxt", "--version", "train --help"])
def test_output_to_a_full_device(folder, words):
    done = _shell(folder, f"CAFFE {words} > /dev/full")
    assert done.returncode == 1 and "No space left on device" in done.stderr and "\n  fix: " in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_reader_that_has_enough(folder):
    lines = "".join(f'layer {{ name: "{i}" type: "ReLU" bottom: "d" top: "{i}" }}\n' for i in range(3000))
    write(folder, IMAGE + lines)
    done = _shell(folder, "CAFFE summarize net.prototxt -wiring | head -n 1; exit ${PIPESTATUS[0]}")
    assert done.returncode in (0, 1) and done.stderr == ""
