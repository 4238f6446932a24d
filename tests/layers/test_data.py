"""Data: tops and fields, both backends, resuming in a solver. Records and errors are in tests/data."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.leveldb_writer import write_leveldb
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.feed.batches import DatumBatches
from pycaffe_lms.errors import BlobCountError, DataError, LayerParamError
from tests.solvers.helpers import PLACES, bits, inner, make

from .cases import Case
from .harness import LayerBench

# SOURCE stands for a folder with the databases lmdb and leveldb, which the test writes: ten pictures of 3 x 5 x 6,
# full of 2 * number, with number as label.
HOST_CASES: list[Case] = [
    Case("Data", f'data_param {{ source: "SOURCE/{fields} }} {more}', (), n_top=n_top)
    for fields, more, n_top in (
        ('leveldb" batch_size: 4', "", 2),
        ('leveldb" batch_size: 3 backend: LEVELDB prefetch: 1', "transform_param { crop_size: 4 mirror: true }", 2),
        ('lmdb" batch_size: 4 backend: LMDB', "transform_param { scale: 0.5 mean_value: 3 }", 2),
        ('lmdb" batch_size: 1 backend: LMDB', "", 1),
    )
]


needs_leveldb = pytest.mark.skipif(find_spec("plyvel") is None, reason="no plyvel")


@pytest.fixture
def source(tmp_path):
    records = [(b"%04d" % k, encode_datum(np.full((3, 5, 6), 2 * k, np.uint8), k)) for k in range(10)]
    write_lmdb(tmp_path / "lmdb", records)
    if find_spec("plyvel"):
        write_leveldb(tmp_path / "leveldb", records)
    return str(tmp_path)


def data(text, source, **kwargs):
    return LayerBench("Data", text.replace("SOURCE", source), (), **{"n_top": 2, **kwargs})


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize(
    "case", [pytest.param(c, id=str(c), marks=needs_leveldb if "leveldb" in c.text else ()) for c in HOST_CASES]
)
def test_records_in_order_and_resuming(case, dtype, source):
    first, second = (data(case.text, source, n_top=case.n_top, dtype=dtype) for _ in range(2))
    try:
        seen = [first.forward([]) for _ in range(6)]
        size, mean, scale = first.top_shapes[0][0], *((3, 0.5) if "mean" in case.text else (0, 1))
        for b, (pictures, *labels) in enumerate(seen):
            numbers = (b * size + np.arange(size)) % 10
            assert pictures.dtype == dtype and pictures.shape == first.top_shapes[0]
            expected = np.broadcast_to((2 * numbers[:, None, None, None] - mean) * scale, pictures.shape)
            np.testing.assert_array_equal(pictures, expected)
            assert len(labels) == case.n_top - 1 and all((label == numbers).all() for label in labels)
        second.layer.set_state({"batches": 2, "seed": 0})
        for expected in seen[2:]:
            for a, b in zip(second.forward([]), expected, strict=True):
                np.testing.assert_array_equal(a, b)
        assert second.layer.state() == first.layer.state() == {"batches": 6, "seed": 0, "records": 6 * size}
    finally:
        first.layer.close()
        second.layer.close()


def test_memory_of_batches_is_used_again(source, monkeypatch):
    """One is read, one waits, and a few may be under way."""
    made, produce = [], DatumBatches.produce
    monkeypatch.setattr(DatumBatches, "produce", lambda self, b: made.append(produce(self, b)) or made[-1])
    subject = data('data_param { source: "SOURCE/lmdb" batch_size: 4 backend: LMDB prefetch: 1 }', source)
    try:
        for b in range(20):
            pictures, labels = subject.forward([])
            numbers = (4 * b + np.arange(4)) % 10
            np.testing.assert_array_equal(pictures[:, 0, 0, 0], 2 * numbers)
            np.testing.assert_array_equal(labels, numbers)
    finally:
        subject.layer.close()
    assert len(made) >= 20 and len({id(pictures) for pictures, _ in made}) <= 4


def test_wrong_fields(source):
    for text, words in (("batch_size: 1", "source is not set"), (f'source: "{source}/lmdb"', "batch_size is not set")):
        with pytest.raises(LayerParamError, match=f'layer "l" \\(Data\\): data_param.{words}') as caught:
            data(f"data_param {{ {text} }}", source)
        assert caught.value.fix
    for n_top in (0, 3):
        with pytest.raises(BlobCountError):
            data(HOST_CASES[0].text, source, n_top=n_top)


@needs_leveldb
def test_the_default_backend_is_leveldb_and_errors_say_so(source):
    with pytest.raises(
        DataError, match='layer "l".*is an LMDB, but the backend is LEVELDB, which Caffe takes'
    ) as caught:
        data('data_param { source: "SOURCE/lmdb" batch_size: 1 }', source)
    assert "backend: LMDB" in caught.value.fix
    with pytest.raises(DataError, match='layer "l".*is a LevelDB, but the backend is LMDB') as caught:
        data('data_param { source: "SOURCE/leveldb" batch_size: 1 backend: LMDB }', source)
    assert "backend: LEVELDB" in caught.value.fix


def test_fields_without_effect_are_named(source, caplog):
    old = 'mean_file: "m" mirror: true crop_size: 2 scale: 3 rand_skip: 4'
    bench = data(f'data_param {{ source: "SOURCE/lmdb" batch_size: 1 backend: LMDB {old} }}', source)
    bench.layer.close()
    assert bench.top_shapes[0] == (1, 3, 5, 6)
    for field in ("mean_file", "mirror", "crop_size", "scale"):
        assert f"data_param.{field} has no effect: write transform_param {{ {field} }}" in caplog.text
    assert "data_param.rand_skip has no effect\n" in caplog.text


@needs_leveldb
@pytest.mark.parametrize("place", PLACES)
def test_training_from_leveldb_resumes(place, source, tmp_path):
    """Train and test net read the same folder at once."""
    net = "".join(
        f'layer {{ name: "data" type: "Data" top: "x" top: "label" include {{ phase: {phase} }} data_param {{ '
        f'source: "{source}/leveldb" batch_size: 3 }} transform_param {{ crop_size: 4 mirror: true scale: 0.1 }} }}\n'
        for phase in ("TRAIN", "TEST")
    )
    net += inner(outputs=10) + 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
    options = {"snapshot_prefix": f'"{tmp_path}/r"', "test_interval": 2, "test_iter": 2, "momentum": 0.9}
    whole, first, second = (make(net, place, random_seed=s, **options) for s in (3, 3, 8))
    try:
        whole.step(7)
        first.step(4)
        first.snapshot()
        second.restore(f"{tmp_path}/r_iter_4.solverstate")
        second.step(3)
        assert bits(second) == bits(whole) and second.test() == whole.test()
    finally:
        for solver in (whole, first, second):
            solver.close()
