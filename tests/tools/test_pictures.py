"""tools/bench/pictures.py: what it measures is what it says."""

from __future__ import annotations

import json

import pytest

from pycaffe_lms.data.database.datum import decode_datum
from pycaffe_lms.data.database.open import open_database

cv2 = pytest.importorskip("cv2")


def test_databases_of_the_forms(script, tmp_path):
    bench = script("pictures")
    bench.make_pictures(tmp_path, 3)
    for form, (side, encoded) in bench.FORMS.items():
        assert bench.convert(tmp_path, form) > 0
        source = open_database(tmp_path / form, "lmdb")
        records = [value for _, value in source.records()]
        source.close()
        assert [decode_datum(r, source=form)[0].shape for r in records] == [(3, side, side)] * 3
        kept = [(tmp_path / "pictures" / f"{i:06d}.jpg").read_bytes() in r for i, r in enumerate(records)]
        assert kept == [form == "stored"] * 3 and all((b"\xff\xd8" in r) or not encoded for r in records)


@pytest.mark.thorough
def test_training_reads_the_database_or_keeps_its_pictures(script, tmp_path, monkeypatch):
    bench = script("pictures")
    bench.make_pictures(tmp_path, 4)
    bench.convert(tmp_path, "stored")
    for name, value in {"BATCH": 2, "MODEL": "mobilenet-v2", "WARMUP": 1}.items():
        monkeypatch.setattr(bench, name, value)
    made, make = [], bench.make_solver
    monkeypatch.setattr(bench, "make_solver", lambda *words, **more: made.append(make(*words, **more)) or made[-1])
    for stored in (True, False):
        assert bench.train(tmp_path, 4, "tf32", stored, "cpu") > 0
    read, kept = made
    assert [solver.net.layers[0].type for solver in made] == ["Data", "DummyData"]
    assert [solver.iter for solver in made] == [3, 3] and read.net.layers[0].state()["batches"] == 3
    with open_database(tmp_path / "stored", "lmdb") as source:
        expected = [decode_datum(value, source="stored")[1] for _, value in source.records()]
    assert read.net.blobs["label"].data.tolist() == expected[:2], "three batches of two, of four pictures"
    assert kept.net.blobs["data"].data.shape == read.net.blobs["data"].data.shape == (2, 3, 224, 224)


def test_a_small_run(script, tmp_path, monkeypatch, capsys):
    bench = script("pictures")
    monkeypatch.setattr(bench, "measure", lambda folder, what, threads, count: (100.0 * threads + len(what), 0.25, 1.5))
    assert bench.main(["--pictures", "2", "--threads", "1,2", "--json", str(tmp_path / "p.json")]) == 0
    printed = capsys.readouterr().out
    assert "| stored | 106 | 206 |" in printed and "| stored | 0.250, 1.500 | 0.250, 1.500 |" in printed
    assert json.loads((tmp_path / "p.json").read_text())["images_per_s"]["raw"] == {"1": 103.0, "2": 203.0}
