"""A net for testing that fits only under other conditions than the train net's: it is not refused, and its numbers are
those of a run with plenty of memory."""

from __future__ import annotations

import numpy as np
import pytest

from .command import caffe

HEIGHT = 16


def data(batch, phase=""):
    """Input values, drawn with the seed of the net."""
    include = f"include {{ phase: {phase} }}" if phase else ""
    filler = 'data_filler { type: "gaussian" }'
    return (
        f'layer {{ name: "data" type: "DummyData" top: "data" top: "label" {include} dummy_data_param {{ '
        f"shape {{ dim: {batch} dim: 4 dim: {HEIGHT} dim: {HEIGHT} }} shape {{ dim: {batch} dim: 3 }} {filler} }} }}\n"
    )


BODY = "".join(
    f'layer {{ name: "c{k}" type: "Convolution" bottom: "{bottom}" top: "c{k}" '
    'convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }\n'
    for k, bottom in enumerate(["data", "c0", "c1", "c2", "c3", "c4"])
)
BODY += 'layer { name: "ip" type: "InnerProduct" bottom: "c5" top: "ip" inner_product_param { num_output: 3 } }\n'
LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }\n'
PLANE = 4 * HEIGHT * HEIGHT * 4  # bytes of one item of data and of each convolution


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "one.prototxt").write_text(data(64) + BODY + LOSS)
    (tmp_path / "two.prototxt").write_text(data(64, "TRAIN") + data(512, "TEST") + BODY + LOSS)
    (tmp_path / "solver.prototxt").write_text(
        'net: "two.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 3 random_seed: 7 display: 1\n'
        'test_iter: 1 test_interval: 2 snapshot_prefix: "s"'
    )
    return tmp_path


def test_what_fits_without_lms_is_tested_with_every_threshold(folder):
    """Under -lms 1000 all seven planes have memory of their own; without it the same memory serves them in turn."""
    assert 7 * 64 * PLANE > 1200 << 10 > 4 * 64 * PLANE
    solver = (folder / "solver.prototxt").read_text().replace("two", "one").replace("test_iter: 1 test_interval: 2", "")
    (folder / "solver.prototxt").write_text(solver)
    assert caffe("train", "solver.prototxt", "-backend", "sim", cwd=folder).code == 0
    how = ("test", "one.prototxt", "-weights", "s_iter_3.caffemodel", "-iterations", "1", "-backend", "sim")
    for flags in ((), ("-lms", "1000"), ("-lms", "100"), ("-lms", "auto")):
        done = caffe(*how, "-lms_budget", "1200KB", *flags, cwd=folder)
        assert done.code == 0, done.stderr
    done = caffe(*how, "-lms_budget", "400KB", "-lms", "1000", cwd=folder)
    assert done.code == 1 and "needs" in done.stderr and "400.0 KiB are there" in done.stderr


def test_automatic_mode_leaves_no_data_on_the_device_that_take_a_test_nets_memory(folder):
    """Two planes of 512 items must be there at once, and leave no room for the third, the data."""
    assert 3 * 512 * PLANE > 5 << 20 > 2 * 512 * PLANE
    logs, weights = [], []
    for flags in (("-lms_budget", "1GB"), ("-lms", "auto", "-lms_budget", "5MB")):
        done = caffe("train", "solver.prototxt", "-backend", "sim", *flags, cwd=folder)
        assert done.code == 0, done.stderr
        logs.append([line for line in done.log if "output #" in line])
        weights.append((folder / "s_iter_3.caffemodel").read_bytes())
    assert len(logs[0]) == 5 and logs[0] == logs[1]
    assert np.array_equal(*(np.frombuffer(w, np.uint8) for w in weights))


@pytest.mark.parametrize(
    "action",
    [pytest.param("train solver.prototxt", marks=pytest.mark.thorough), "time one.prototxt -iterations 1"],
)
def test_what_is_trained_in_parts_can_be_timed_in_parts(folder, action):
    """Two planes of 64 items need 512 KiB, more than the budget: no layer fits whole."""
    assert 2 * 64 * PLANE > 400 << 10
    solver = (folder / "solver.prototxt").read_text().replace("two", "one").replace("test_iter: 1 test_interval: 2", "")
    (folder / "solver.prototxt").write_text(solver)
    how = (*action.split(), "-backend", "sim", "-lms_budget", "400KB", "-lms", "auto")
    assert caffe(*how, "-lms_split", "off", cwd=folder).code == 1
    done = caffe(*how, "-lms_split", "auto", cwd=folder)
    assert done.code == 0, done.stderr
    assert any(line.startswith('layers "c0"') and " parts of " in line for line in done.log)
