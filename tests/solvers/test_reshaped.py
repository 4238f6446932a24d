"""Tests that a net whose batches change their shape keeps training, with its momentum."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb

from .helpers import INPUT, PLACES, inner, loss, make, values
from .test_sgd import RATE, Reference

MORE = {"plain": {}, "clipped": {"clip_gradients": 0.4}, "shown": {"debug_info": "true", "display": 1}}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("more", MORE)
def test_batches_of_every_size(more, place, tmp_path):
    """Compare with NumPy in float64. A snapshot between a reshape and the next iteration holds the history too."""
    options = {"momentum": 0.9, "weight_decay": 0.1, "base_lr": RATE, "snapshot_prefix": f'"{tmp_path}/r"'}
    solver = make(INPUT + inner() + loss(), place, **options, **MORE[more])
    clip = MORE[more].get("clip_gradients", -1)
    reference = Reference(values(solver), momentum=0.9, decay=0.1, clip=clip)
    random = np.random.RandomState(0)
    for size in (4, 9, 2, 4, 700):
        x, label = random.randn(size, 3).astype(np.float32), random.randint(0, 5, size)
        solver.net.blobs["x"].reshape(size, 3)
        solver.net.blobs["label"].reshape(size)
        solver.net.blobs["x"].data, solver.net.blobs["label"].data = x, label
        for history, h in zip(solver.history_blobs(), reference.h, strict=True):
            np.testing.assert_allclose(history.read_data(), h, rtol=2e-5, atol=1e-6)
        solver.snapshot()
        solver.step(1)
        reference.step([(x, label)])
        for blob, w in zip(solver.net.params["ip"], reference.w, strict=True):
            np.testing.assert_allclose(blob.read_data(), w, rtol=2e-5, atol=1e-6)
    assert clip < 0 or max(reference.norms) > clip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("iter_size", [1, 2])
def test_pictures_of_every_size_one_at_a_time(iter_size, place, tmp_path):
    """Every batch of one has the shape of its record, within an iteration too: fully convolutional nets train so."""
    random, sizes = np.random.RandomState(0), [(8, 8), (5, 9), (12, 6), (8, 8), (20, 20)]
    pictures = [random.randint(0, 256, (3, *size), dtype=np.uint8) for size in sizes]
    write_lmdb(tmp_path / "db", [(b"%04d" % k, encode_datum(p, k)) for k, p in enumerate(pictures)])
    net = (
        f'layer {{ name: "data" type: "Data" top: "x" top: "label" transform_param {{ scale: 0.01 }} '
        f'data_param {{ source: "{tmp_path}/db" batch_size: 1 backend: LMDB }} }}\n'
        'layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" param { lr_mult: 0 } convolution_param { '
        'num_output: 4 kernel_size: 3 bias_term: false weight_filler { type: "xavier" } } }\n'
        'layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE '
        "global_pooling: true } }\n"
    )
    solver = make(net + inner(bottom="pool") + loss(), place, momentum=0.9, iter_size=iter_size, base_lr=RATE)
    reference = Reference(values(solver), momentum=0.9, iter_size=iter_size)
    (kernel,) = values(solver, "conv")
    for k in range(0, 6 * iter_size, iter_size):
        solver.step(1)
        batch = [i % 5 for i in range(k, k + iter_size)]
        reference.step([(_features(pictures[i] * np.float32(0.01), kernel), np.array([i])) for i in batch])
        assert solver.net.blobs["x"].shape == (1, *pictures[batch[-1]].shape)
    for blob, w in zip(solver.net.params["ip"], reference.w, strict=True):
        np.testing.assert_allclose(blob.read_data(), w, rtol=1e-4, atol=1e-5)
    solver.close()


def _features(picture, kernel) -> np.ndarray:
    """Return the mean of a convolution over all positions: the kernel times the mean patch."""
    h, w = picture.shape[1] - 2, picture.shape[2] - 2
    patch = np.array([[picture[:, i : i + h, j : j + w].mean((1, 2)) for j in range(3)] for i in range(3)])
    return np.einsum("ijc,ocij->o", patch.astype(np.float64), kernel.astype(np.float64))[None]
