"""`weights list` and `weights diff`: against files whose differences are written here by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.data.sets.known_weights import WEIGHTS
from pycaffe_lms.formats.weights.caffemodel import write_weights
from pycaffe_lms.proto.caffe_pb2 import NetParameter


def write(path, **layers):
    net = NetParameter()
    for name in layers:
        net.layer.add(name=name, type="InnerProduct")
    blobs = [[(np.asarray(b, np.float32), None) for b in some] for some in layers.values()]
    write_weights(path, net, blobs)
    return str(path)


@pytest.fixture
def diff(tmp_path, capsys):
    def run(old, new):
        code = main(["weights", "diff", write(tmp_path / "a", **old), write(tmp_path / "b", **new)])
        return code, [line.split(maxsplit=1)[1:] for line in capsys.readouterr().out.splitlines()]

    return run


def said(diff, old, new):
    code, rows = diff({"ip": [old]}, {"ip": [new]})
    return code, rows[1][0]


def test_equal_files_differ_in_nothing(diff):
    blobs = {"ip": [[[1, 2], [3, np.nan]], [0, np.inf]], "relu": []}
    code, rows = diff(blobs, blobs)
    assert code == 0 and rows[-1] == ["with weights: 1, of which 0 differ"]
    assert [row[0].split()[-1] for row in rows[1:-1]] == ["0", "0"]


@pytest.mark.parametrize(
    ("new", "found"),
    [
        ([[1, 2], [3.5, 4]], "0     2 x 2  0.5 at [1, 0]: 3, 3.5"),
        ([[1, -2], [3, 5]], "0     2 x 2  4 at [0, 1]: 2, -2"),
        ([[1, 2], [np.nan, 9]], "0     2 x 2  nan at [1, 0]: 3, nan"),
        ([[1, 2], [np.inf, 4]], "0     2 x 2  inf at [1, 0]: 3, inf"),
    ],
)
def test_the_largest_difference_and_where_it_is(new, found, diff):
    assert said(diff, [[1, 2], [3, 4]], new) == (1, found)


def test_shapes_that_differ(diff):
    assert said(diff, [[1, 2]], [[1], [2]]) == (1, "0     1 x 2 and 2 x 1  shapes differ")


def test_layers_and_blobs_of_one_file_alone(diff):
    code, rows = diff({"a": [[1]], "b": [[1], [2]]}, {"b": [[1]], "c": [[1]]})
    text = [" ".join(row[0].split()) for row in rows[1:]]
    assert text == [
        "all only in OLD",
        "0 1 0",
        "1 1 only in OLD",
        "all only in NEW",
        "with weights: 3, of which 3 differ",
    ]
    assert code == 1


def test_a_file_that_cannot_be_read(tmp_path, capsys):
    assert main(["weights", "diff", write(tmp_path / "a", ip=[[1]]), str(tmp_path / "none")]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_list_names_all_and_what_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYCAFFE_LMS_CACHE", str(tmp_path))
    (tmp_path / WEIGHTS["lenet"].file).touch()
    assert main(["weights", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(WEIGHTS)
    assert "in the cache" in lines[list(WEIGHTS).index("lenet")] and sum("in the cache" in line for line in lines) == 1


@pytest.mark.parametrize(("argv", "words"), [([], "no weights are named"), (["lenett"], "did you mean lenet?")])
def test_names_that_are_not_there(argv, words, capsys):
    assert main(["weights", "get", *argv]) == 2
    assert words in capsys.readouterr().err
