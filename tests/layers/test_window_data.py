"""WindowData: tops, fields, means, resuming, in a solver."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pycaffe_lms.data.transform.mean import save_mean
from pycaffe_lms.errors import BlobCountError, DataError, LayerParamError, MissingDependency
from tests.data.test_window_batches import write_windows
from tests.solvers.helpers import PLACES, bits, inner, make

from .cases import Case
from .harness import LayerBench

cv2 = pytest.importorskip("cv2")

WINDOW = 'source: "SOURCE/windows.txt" root_folder: "SOURCE/" batch_size: 8'
CROP = "transform_param { crop_size: 6 }"
# SOURCE stands for the folder where the test writes pictures and windows.
HOST_CASES: list[Case] = [
    Case("WindowData", f"window_data_param {{ {WINDOW} bg_threshold: 0.3 {fields} }} {more}", (), n_top=2)
    for fields, more in (
        ("", CROP),
        ("fg_fraction: 0.5 context_pad: 1 cache_images: true", CROP + " data_param { prefetch: 1 }"),
        ('crop_mode: "square" scale: 0.5', "transform_param { crop_size: 6 mirror: true mean_value: 3 }"),
    )
]


@pytest.fixture
def source(tmp_path):
    write_windows(tmp_path)
    return str(tmp_path)


def windows(text, source, **kwargs):
    return LayerBench("WindowData", text.replace("SOURCE", source), (), **{"n_top": 2, **kwargs})


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_batches_and_resuming(case, dtype, source):
    first, second = windows(case.text, source, dtype=dtype), windows(case.text, source, dtype=dtype)
    try:
        seen = [first.forward([]) for _ in range(4)]
        for data, label in seen:
            assert data.dtype == label.dtype == dtype and data.shape == (8, 3, 6, 6)
            fg = 4 if "fg_fraction" in case.text else 2
            assert not label[:-fg].any() and (label[-fg:] > 0).all()
        assert len({data.tobytes() for data, _ in seen}) == 4
        second.layer.set_state({"batches": 1, "seed": 0})
        for expected in seen[1:]:
            for a, b in zip(second.forward([]), expected, strict=True):
                np.testing.assert_array_equal(a, b)
        assert second.layer.state() == first.layer.state() == {"batches": 4, "seed": 0}
    finally:
        first.layer.close()
        second.layer.close()


def _one(text, source):
    subject = windows(text, source)
    try:
        return subject.forward([])[0]
    finally:
        subject.layer.close()


def test_mean_and_scale_from_either_message(source, tmp_path):
    def data(fields="", transform="crop_size: 6"):
        return _one(f"window_data_param {{ {WINDOW} {fields} }} transform_param {{ {transform} }}", source)

    plain = data()
    assert plain.max() > 200
    np.testing.assert_array_equal(data("scale: 0.5"), plain * 0.5)
    np.testing.assert_array_equal(data(transform="crop_size: 6 scale: 0.5"), plain * 0.5)
    np.testing.assert_array_equal(data("scale: 0.5", "crop_size: 6 scale: 0.5"), plain * 0.5)
    values = np.array([1, 2, 3])[:, None, None]
    found = data(transform="crop_size: 6 mean_value: 1 mean_value: 2 mean_value: 3")
    np.testing.assert_array_equal(found, plain - values)
    np.testing.assert_array_equal(data(transform="crop_size: 6 mean_value: 4"), plain - 4)
    mean = np.random.default_rng(0).integers(0, 99, (3, 9, 9)).astype(np.float32)
    save_mean(tmp_path / "mean", mean)
    found = data(transform=f'crop_size: 6 mean_file: "{tmp_path}/mean"')
    np.testing.assert_array_equal(found, plain - mean[:, 1:7, 1:7])
    for shape in ((3, 5, 5), (1, 9, 9), (3, 6, 9)):
        save_mean(tmp_path / "mean", np.ones(shape, np.float32))
        with pytest.raises(DataError, match=r'mean: layer "l" \(WindowData\): the mean of shape'):
            data(transform=f'crop_size: 6 mean_file: "{tmp_path}/mean"')


@pytest.mark.parametrize(
    "fields, transform, words",
    [
        ("", "", "has no crop_size"),
        ("context_pad: 3", "crop_size: 6", "context_pad 3 on both sides leaves nothing of crop_size 6"),
        ('crop_mode: "round"', "crop_size: 6", 'no crop_mode "round"'),
        ("fg_fraction: 1.5", "crop_size: 6", "fg_fraction is 1.5"),
        ("scale: 2", "crop_size: 6 scale: 3", "window_data_param.scale is 2 and transform_param.scale 3"),
        ("", "crop_size: 6 force_gray: true", "force_gray has no effect"),
        ("", 'crop_size: 6 mean_value: 1 mean_file: "x"', "both set"),
        ("", "crop_size: 6 mean_value: 1 mean_value: 2", "2 mean_value for 3 channels"),
    ],
)
def test_impossible_fields(fields, transform, words, source):
    with pytest.raises(LayerParamError, match=f'layer "l" \\(WindowData\\): {words}|{words}') as caught:
        windows(f"window_data_param {{ {WINDOW} {fields} }} transform_param {{ {transform} }}", source)
    assert caught.value.fix and caught.value.where.layer == "l"


def test_fields_of_old_nets_are_named(source, caplog):
    old = 'crop_size: 7 mirror: true mean_file: "m"'
    found = _one(f"window_data_param {{ {WINDOW} {old} }} {CROP}", source)
    assert found.shape == (8, 3, 6, 6)
    for field in ("crop_size", "mirror", "mean_file"):
        assert f"window_data_param.{field} has no effect: write transform_param {{ {field} }}" in caplog.text


def test_missing_source_size_and_tops(source):
    for text, words in (("batch_size: 2", "source is not set"), ('source: "x"', "batch_size is not set")):
        with pytest.raises(LayerParamError, match=words):
            windows(f"window_data_param {{ {text} }} {CROP}", source)
    with pytest.raises(BlobCountError):
        windows(HOST_CASES[0].text, source, n_top=1)


def test_without_opencv(source, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependency, match='layer "l"') as caught:
        windows(HOST_CASES[0].text, source)
    assert caught.value.fix == "pip install 'pycaffe-lms[image]'"


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_solver_equals_an_uninterrupted_one(place, source, tmp_path):
    data = HOST_CASES[2].text.replace("SOURCE", source)
    net = f'layer {{ name: "data" type: "WindowData" top: "x" top: "label" {data} }}\n' + inner()
    net += 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
    whole, first, second = (
        make(net, place, snapshot_prefix=f'"{tmp_path}/r"', base_lr=1e-4, random_seed=s) for s in (3, 3, 8)
    )
    try:
        whole.step(5)
        first.step(2)
        first.snapshot()
        second.restore(f"{tmp_path}/r_iter_2.solverstate")
        second.step(3)
        assert bits(second) == bits(whole)
    finally:
        for solver in (whole, first, second):
            solver.close()
