"""`pycaffe-lms extract_features`: what it writes against the blobs of the same net, run by hand."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.data.database.datum import decode_datum, encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.weights import save

TEXT = """name: "features"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "in" batch_size: 3 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A net, its weights in net.caffemodel, its data: ten pictures."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    pictures = rng.integers(0, 256, (10, 2, 6, 6), dtype=np.uint8)
    write_lmdb("in", [(b"%02d" % i, encode_datum(x, i)) for i, x in enumerate(pictures)])
    (tmp_path / "net.prototxt").write_text(TEXT)
    net = Net("net.prototxt", 1, seed=7)
    save(net, "net.caffemodel")
    net.close()
    return tmp_path


def records(path, backend):
    source = open_database(path, backend)
    try:
        return {key: decode_datum(value, source=path)[0] for key, value in source.records()}
    finally:
        source.close()


def expected(batches):
    net = Net("net.prototxt", 1, seed=1)
    from pycaffe_lms.net.weights import copy_from

    copy_from(net, "net.caffemodel")
    found = {"conv": [], "ip": [], "label": []}
    for _ in range(batches):
        net.forward_range()
        for name, values in found.items():
            values.append(net.blobs[name].data.copy())
    net.close()
    return {name: np.concatenate(values) for name, values in found.items()}


@pytest.mark.parametrize(
    ("backend", "more"),
    [("lmdb", ["CPU"]), ("leveldb", ["-backend", "cpu"]), ("lmdb", ["-backend", "sim", "-lms", "1"])],
)
def test_features(folder, capsys, backend, more):
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    argv = ["net.caffemodel", "net.prototxt", "conv,ip,label", "a,b,c", "4", backend, *more]
    assert main(["extract_features", *argv]) == 0
    err = capsys.readouterr().err
    assert "Extracted features of 12 query images for feature blob ip" in err
    assert "Successfully extracted the features!" in err
    wanted = expected(4)
    assert wanted["conv"].any() and wanted["ip"].any()
    for path, name in (("a", "conv"), ("b", "ip"), ("c", "label")):
        found = records(path, backend)
        assert list(found) == [b"%010d" % i for i in range(12)]
        got = np.stack(list(found.values()))
        assert got.shape == (*wanted[name].shape, 1, 1, 1)[:4] and got.dtype == np.float32
        np.testing.assert_array_equal(got.reshape(wanted[name].shape), wanted[name])
    assert records("c", backend)[b"%010d" % 11].item() == 1  # after ten pictures the first comes again


def test_a_bar_counts_items(folder, capsys):
    """Where it is asked for; the log stays Caffe's, without a line of the bar's own."""
    pytest.importorskip("rich")
    argv = ["net.caffemodel", "net.prototxt", "ip", "a", "4", "lmdb", "CPU"]
    assert main(["extract_features", *argv, "-progress", "bar"]) == 0
    err = capsys.readouterr().err
    assert "12/12" in err and "Extracted features of 12 query images" in err and "Processed" not in err
    assert main(["extract_features", *argv, "-progress", "log", "-overwrite"]) == 0
    err = capsys.readouterr().err
    assert "12/12" not in err and err.count("Extracted features of 12 query images") == 1 and "Processed" not in err


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({2: "conv,fc"}, 1, ['no blob "fc"', "conv, ip"]),
        ({2: "conv"}, 2, ["1 blobs and 2 databases"]),
        ({3: "a,a"}, 2, ["twice"]),
        ({3: "a,in"}, 1, ["in: exists already"]),
        ({4: "0"}, 2, ["0 batches"]),
        ({4: "x"}, 2, ["'x'"]),
        ({5: "sqlite"}, 2, ["sqlite"]),
        ({6: "TPU"}, 2, ["TPU"]),
        ({7: "3"}, 2, ["of the CPU"]),
        ({7: "-backend=cpu"}, 2, ["say once"]),
        ({0: "none.caffemodel"}, 1, ["none.caffemodel"]),
    ],
)
def test_what_is_refused_leaves_no_database(folder, capsys, change, code, words):
    argv = ["net.caffemodel", "net.prototxt", "conv,ip", "a,b", "2", "lmdb", "CPU", ""]
    for place, word in change.items():
        argv[place] = word
    before = set(os.listdir())
    assert main(["extract_features", *filter(None, argv)]) == code
    err = capsys.readouterr().err
    assert all(word in err for word in words), err
    assert "fix:" in err and set(os.listdir()) == before


def test_a_net_that_nobody_feeds(folder, capsys):
    (folder / "net.prototxt").write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }'
        'layer { name: "y" type: "ReLU" bottom: "x" top: "y" }'
    )
    assert main(["extract_features", "net.caffemodel", "net.prototxt", "y", "a", "1", "lmdb", "CPU"]) == 1
    assert "nothing fills the inputs x" in capsys.readouterr().err
