"""Pictures that a GPU finishes: the bits are those of the CPU, in Data and ImageData, with and without LMS."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.feed import cropping
from pycaffe_lms.formats.weights.blobproto import array_to_blobproto
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.ops.cpu.shape.pixels import finish_pixels
from pycaffe_lms.ops.cuda import elementwise
from pycaffe_lms.ops.cuda.shape import pixels
from tests.ops.emulated import COMPILER, Kernels
from tests.ops.test_cuda_launches import shown
from tests.solvers.helpers import bits, inner, loss, make

PLACES = {
    "sim": lambda: {"device": SimDevice(64 << 20)},
    "sim, all moved": lambda: {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=1, ahead=1)},
    "gpu": lambda: {"device": get_device("cuda")},
    "gpu, all moved": lambda: {"device": get_device("cuda"), "lms": LMSConfig(threshold_kb=1, ahead=1)},
}
GPU = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]
SHAPE = 3, 7, 9


@pytest.fixture(autouse=True)
def small_batches_too(monkeypatch):
    monkeypatch.setattr(cropping, "_LEAST_VALUES", 1)


@pytest.fixture
def pictures():
    return np.random.default_rng(5).integers(0, 256, (10, *SHAPE), np.uint8)


@pytest.fixture
def source(tmp_path, pictures):
    write_lmdb(tmp_path / "db", [(b"%02d" % k, encode_datum(p, k % 5)) for k, p in enumerate(pictures)])
    mean = np.random.default_rng(6).uniform(0, 255, (1, *SHAPE)).astype(np.float32)
    for k, picture in enumerate(pictures):
        cv2.imwrite(str(tmp_path / f"{k}.png"), picture.transpose(1, 2, 0))
    (tmp_path / "list.txt").write_text("".join(f"{k}.png {k % 5}\n" for k in range(10)))
    (tmp_path / "mean.binaryproto").write_bytes(array_to_blobproto(mean).SerializeToString())
    return tmp_path


def net(source, transform, batch=4, kind="Data", more=""):
    reads = f'data_param {{ source: "{source}/db" batch_size: {batch} backend: LMDB }}'
    if kind == "ImageData":
        reads = f'image_data_param {{ source: "{source}/list.txt" batch_size: {batch} root_folder: "{source}/" }}'
    data = f'layer {{ name: "data" type: "{kind}" top: "x" top: "label" {reads} transform_param {{ {transform} }} }}\n'
    return data + more + inner() + loss()


def trained(text, place):
    """Return the pictures of a few batches, and the weights that they trained, to the bit."""
    solver = make(text, place, base_lr=1e-4)
    try:
        solver.net.keep("x")
        seen = []
        for _ in range(6):
            solver.step(1)
            seen.append(solver.net.blobs["x"].read_data().copy())
        return np.array(seen), bits(solver), solver.net.graph.nodes[0].layer.finished_tops()
    finally:
        solver.close()


@pytest.mark.parametrize(
    "transform",
    [
        "",
        "mean_value: 104 mean_value: 117.25 mean_value: 123.3 crop_size: 5 mirror: true scale: 0.017",
        "mean_value: 3.3 mirror: true",
        'mean_file: "MEAN" crop_size: 6 mirror: true',
        'mean_file: "MEAN" scale: 0.3',
        "resize_param { height: 12 width: 11 } crop_size: 8",
    ],
    ids=["plain", "values", "one value", "file, crop", "file", "resized"],
)
@pytest.mark.parametrize("kind", ["Data", "ImageData"])
@pytest.mark.parametrize("device", ["sim", pytest.param("gpu", marks=GPU)])
def test_the_bits_of_the_cpu(source, pictures, transform, kind, device):
    text = net(source, transform.replace("MEAN", f"{source}/mean.binaryproto"), kind=kind)
    expected, _, none = trained(text, "cpu")
    found, weights, finished = trained(text, PLACES[device])
    moved, theirs, _ = trained(text, PLACES[f"{device}, all moved"])
    assert not none and finished == {0}
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(moved, expected)
    assert theirs == weights
    if not transform:
        np.testing.assert_array_equal(found[2], pictures[[8, 9, 0, 1]])


@pytest.mark.parametrize("place", ["sim", "sim, all moved", pytest.param("gpu", marks=GPU)])
def test_records_that_are_not_all_bytes(source, pictures, place):
    """The seventh record has float values: from its batch on the host does all, for that rank and others."""
    records = [(b"%02d" % k, encode_datum(p, k % 5)) for k, p in enumerate(pictures)]
    records[6] = b"06", encode_datum(pictures[6] / np.float32(3), 1)
    write_lmdb(source / "mixed", records)
    text = net(source, "mean_value: 7.7 mirror: true crop_size: 6").replace("/db", "/mixed")
    expected, weights, _ = trained(text, "cpu")
    found, theirs, finished = trained(text, PLACES[place])
    np.testing.assert_array_equal(found, expected)
    assert not finished and ("gpu" in place or theirs == weights)


@pytest.mark.parametrize("device", ["sim", pytest.param("gpu", marks=GPU)])
def test_they_are_made_again_from_their_bytes(source, device):
    """Where Large Model Support drops them, no float value crosses the link."""
    text = net(source, "mirror: true crop_size: 6 scale: 0.01")
    _, expected, _ = trained(text, PLACES[device])
    again = text.replace('type: "Data"', 'type: "Data" lms_param { policy: RECOMPUTE }')
    solver = make(again, PLACES[f"{device}, all moved"], base_lr=1e-4)
    try:
        solver.step(6)
        assert bits(solver) == expected
        for plan in solver.net.memory.plans().values():
            assert [plan.program.steps[s].name for s, again in plan.order if again] == ["finish:data"]
            assert not any(plan.buffers[op.place.buffer].name == "x.data" for op in plan.ops if op.place)
    finally:
        solver.close()


@pytest.mark.parametrize("batch, dtype, least", [(1, "float32", 1), (4, "float64", 1), (4, "float32", 4 * 189 + 1)])
def test_what_the_host_finishes(source, monkeypatch, batch, dtype, least):
    """Pictures whose size may change, values that are not float32, and batches too small to be worth it."""
    monkeypatch.setattr(cropping, "_LEAST_VALUES", least)
    solver = make(net(source, "mirror: true", batch), PLACES["sim"], dtype=dtype)
    try:
        solver.step(2)
        assert not solver.net.graph.nodes[0].layer.finished_tops()
    finally:
        solver.close()


def test_forwards_of_all_data_layers_come_before_the_device(source):
    """So that a CUDA graph takes everything behind them; a layer on the host that reads pictures waits for them."""
    second = net(source, "scale: 2").split("\n")[0].replace('"data"', '"more"').replace('"x"', '"y"')
    second = second.replace('"label"', '"label2"') + "\n"
    python = 'python_param { module: "tests.layers.user_layers" layer: "Tenfold" }'
    reads = f'layer {{ name: "reads" type: "Python" bottom: "y" top: "r" {python} }}\n'
    for more, expected in (
        ("", ["forward:data", "forward:more", "finish:data", "finish:more", "forward:ip"]),
        (reads, ["forward:data", "forward:more", "finish:data", "finish:more", "forward:reads"]),
    ):
        solver = make(net(source, "", more=second + more), PLACES["sim"])
        try:
            steps = [step.step.name for step in solver.net.arrangement.builder.forward(0, 9, fused=True)]
            assert steps[: len(expected)] == expected
        finally:
            solver.close()


@pytest.mark.parametrize("planes", [(3, 7, 9), (3, 1, 1)], ids=["file", "values"])
@pytest.mark.parametrize("scale", [1, 0.3])
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_the_kernel(tmp_path, monkeypatch, planes, scale):
    """Against the formula in plain numbers, and the CPU's operation."""
    rng = np.random.default_rng(8)
    pictures = rng.integers(0, 256, (4, 3, 5, 6), np.uint8)
    mean = rng.uniform(0, 255, planes).astype(np.float32)
    crops = np.array([(0, 2, 3), (1, 0, 0), (1, 1, 2), (0, 0, 1)], np.int32)
    kernels = Kernels(tmp_path, np.float32, {"finish_pixels": pixels._SOURCE})

    def launch(source, name, dtype, threads, *args, block, grid):
        kernels.run(name, grid, block, *args)

    monkeypatch.setattr(elementwise, "launch", launch)
    results = []
    for run in (finish_pixels, pixels.finish_pixels):
        y = np.empty(pictures.shape, np.float32)
        run(pictures, crops, mean, scale, shown(y))
        results.append(y)
    assert results[0].tobytes() == results[1].tobytes()
    for n, c, h, w in np.ndindex(pictures.shape):
        mirrored, top, left = crops[n]
        column = 5 - w if mirrored else w
        subtracted = mean[c, 0, 0] if planes[1:] == (1, 1) else mean[c, top + h, left + column]
        value = (np.float32(pictures[n, c, h, column]) - subtracted) * np.float32(scale)
        assert results[0][n, c, h, w] == value
