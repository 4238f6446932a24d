"""safetensors: bytes written by hand, types of 16 bits, files in parts, and damage."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pycaffe_lms.errors import WeightsError
from pycaffe_lms.formats.weights.safetensors_file import Tensors, is_safetensors, write_safetensors


def raw(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def about(kind, shape, begin, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def test_what_a_file_says(tmp_path):
    path = tmp_path / "a.safetensors"
    header = {
        "__metadata__": {"format": "pt"},
        "whole": about("F32", [2, 1], 0, 8),
        "brain": about("BF16", [2], 8, 12),
        "half": about("F16", [], 12, 14),
        "double": about("F64", [1], 14, 22),
        "mask": about("BOOL", [1], 22, 23),
    }
    data = np.array([1.5, -2], "<f4").tobytes() + bytes.fromhex("803f20c1") + np.array(0.25, "<f2").tobytes()
    path.write_bytes(raw(header, data + np.array([7.0], "<f8").tobytes() + b"\1"))
    found = {name: (values.tolist(), values.dtype.name) for name, values in Tensors(path).items()}
    assert found == {
        "whole": ([[1.5], [-2.0]], "float32"),
        "brain": ([1.0, -10.0], "float32"),
        "half": (0.25, "float32"),
        "double": ([7.0], "float64"),
    }


def test_what_is_written_reads_alike(tmp_path):
    path, rng = tmp_path / "a.safetensors", np.random.default_rng(1)
    arrays = {"a": rng.normal(size=(3, 5)).astype(np.float32).T, "b": rng.normal(size=4), "none": np.ones((0, 3), "f4")}
    write_safetensors(path, arrays)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    assert size % 8 == 0 and json.loads(content[8 : 8 + size])["a"] == about("F32", [5, 3], 0, 60)
    for name, values in Tensors(path).items():
        np.testing.assert_array_equal(values, arrays[name])


def test_parts(tmp_path):
    for k, name in enumerate(("x", "y")):
        write_safetensors(tmp_path / f"m-{k}.safetensors", {name: np.full(2, k, np.float32)})
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "m-0.safetensors", "y": "m-1.safetensors"}}))
    assert is_safetensors(index) and not is_safetensors("a.caffemodel")
    assert {name: values.tolist() for name, values in Tensors(index).items()} == {"x": [0, 0], "y": [1, 1]}
    elsewhere = json.dumps({"weight_map": {"x": f"../{tmp_path.name}/m-0.safetensors"}})
    for text in ("[]", '{"weight_map": 3}', '{"weight_map": {"x": 3}}', elsewhere):
        index.write_text(text)
        with pytest.raises(WeightsError, match="no index"):
            Tensors(index)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        (1 << 60).to_bytes(8, "little") + b"{}",
        raw({"a": about("F32", [2], 0, 8)}, b"1234"),
        raw({"a": about("F32", [3], 0, 8)}, b"12345678"),
        raw({"a": about("F32", [-1], 4, 0)}, b"12345678"),
        raw({"a": {"dtype": "F32"}}, b""),
        raw({"a": 3}, b""),
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"\xff\xff",
    ],
)
def test_damage(content, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="a.safetensors.*no safetensors file"):
        Tensors(path)
