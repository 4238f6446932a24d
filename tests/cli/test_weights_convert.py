"""`weights convert`: the same arrays in each form, and back."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.formats.weights.safetensors_file import Tensors
from tests.language.test_families import recorded


def arrays(path):
    return {(w.name, i): b.data for w in read_weights(path) for i, b in enumerate(w.blobs)}


@pytest.mark.parametrize("ending", ["caffemodel", "h5"])
def test_there_and_back(ending, tmp_path):
    first, other, last = (str(tmp_path / name) for name in ("a.safetensors", f"b.{ending}", "c.safetensors"))
    (tmp_path / "a.safetensors").write_bytes(recorded()["vit.file"].tobytes())
    for words in ((first, other), (other, last)):
        assert main(["weights", "convert", *words]) == 0
    begin, middle = arrays(first), arrays(other)
    assert begin.keys() == middle.keys() and ("block2_qkv", 1) in begin
    assert all(np.array_equal(values, middle[key]) for key, values in begin.items())
    one, two = Tensors(first), Tensors(last)
    assert one.keys() == two.keys() and all(np.array_equal(values, two[key]) for key, values in one.items())


def test_what_is_refused(tmp_path, capsys):
    assert main(["weights", "convert", "missing.safetensors", str(tmp_path / "a.h5")]) == 1
    assert "Could not open file missing.safetensors" in capsys.readouterr().err
    assert main(["weights", "convert", "a.h5", "b.bin"]) == 2
    assert "end it in .caffemodel, .h5 or .safetensors" in capsys.readouterr().err
