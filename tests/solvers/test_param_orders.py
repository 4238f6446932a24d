"""Tests files of solvers that store weights channels-last: the same bytes as of others, read back by either."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net import weights
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.onnx_export import export_onnx
from tests.net.nets import conv, inputs, make_net
from tests.net.order_nets import NETS, make, make_transposing, train, values

FORMATS = {"BINARYPROTO": "", "HDF5": ".h5"}
kinds = pytest.mark.parametrize("form", FORMATS)


def written(solver, folder, form, monkeypatch) -> list[bytes]:
    """Write a snapshot from within `folder`, so that its names are relative; return the bytes of its two files."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    solver.snapshot()
    stem = f"a_iter_{solver.iter}"
    return [(folder / f"{stem}.{kind}{FORMATS[form]}").read_bytes() for kind in ("caffemodel", "solverstate")]


@kinds
@pytest.mark.parametrize("net", NETS)
def test_a_new_net_writes_what_a_plain_one_does(net, form, tmp_path, monkeypatch):
    options = {"snapshot_prefix": '"a"', "snapshot_format": form, "snapshot_diff": "true"}
    plain = written(make(net, last=False, **options), tmp_path / "plain", form, monkeypatch)
    assert written(make(net, **options), tmp_path / "last", form, monkeypatch) == plain


@kinds
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)], ids=["", "lms"])
def test_so_does_a_trained_one(lms, form, tmp_path, monkeypatch):
    """Compare with channels-first weights that were transposed for the same products."""
    options = {"snapshot_prefix": '"a"', "snapshot_format": form, "snapshot_diff": "true", "type": '"Adam"'}
    found = []
    for name, build in (("last", make), ("first", make_transposing)):
        solver = build("tied", lms=lms, **options)
        solver.step(3)
        found.append(written(solver, tmp_path / name, form, monkeypatch))
    assert found[0] == found[1]


@kinds
@pytest.mark.parametrize("last", [False, True])
def test_a_run_goes_on_in_the_other_order(last, form, tmp_path, monkeypatch):
    options = {"snapshot_prefix": '"a"', "snapshot_format": form}
    builds = (make, make_transposing) if last else (make_transposing, make)
    solver, resumed = (build("deconvolution", **options) for build in builds)
    solver.step(3)
    written(solver, tmp_path / "run", form, monkeypatch)
    resumed.restore(f"a_iter_3.solverstate{FORMATS[form]}")
    assert values(resumed)[: len(solver.net.params)] == values(solver)[: len(solver.net.params)]
    assert train(resumed, 2) == train(solver, 2)


def test_weights_of_a_file(tmp_path):
    """Weights are read by name, into either order, with the values of the file."""
    path = tmp_path / "w.caffemodel"
    plain = make("volumes", last=False, random_seed=8).net
    weights.save(plain, path)
    net = make("volumes").net
    weights.copy_from(net, path)
    stored = {layer.name: layer.blobs for layer in read_weights(path) if layer.blobs}
    assert net.params["c"][0].shape == (4, 2, 3, 3, 3) and net.graph.params[0].channels_last
    for name, blobs in stored.items():
        for blob, mine in zip(blobs, net.params[name], strict=True):
            assert (np.asarray(blob.data).reshape(mine.shape) == mine.read_data()).all()


def test_what_debug_info_shows(caplog):
    """Compare the means of parameters and gradients, layer by layer."""
    lines = []
    with caplog.at_level("INFO"):
        for build in (make, make_transposing):
            caplog.clear()
            build("tied", debug_info="true", display=1).step(2)
            lines.append([m for r in caplog.records if "[Forward]" in (m := r.getMessage()) or "[Backward]" in m])
    assert lines[0] == lines[1] and sum("param blob" in line for line in lines[0]) >= 2 * 6


def test_exported_weights(tmp_path):
    onnx = pytest.importorskip("onnx")
    found = []
    for last in (False, True):
        text = inputs(x=(2, 3, 6, 5)) + conv("c", "x", 4)
        net = make_net(text, phase=1, device=SimDevice(1 << 20), tuning=Tuning(channels_last=last))
        export_onnx(net, tmp_path / f"{last}.onnx")
        found.append((tmp_path / f"{last}.onnx").read_bytes())
        initial = onnx.load(tmp_path / f"{last}.onnx").graph.initializer
        arrays = [onnx.numpy_helper.to_array(i) for i in initial]
        assert any(np.array_equal(a, net.params["c"][0].read_data()) for a in arrays)
    assert found[0] == found[1]
