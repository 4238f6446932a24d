"""tools/bench/inference.py: its shapes, its table, and a run of small size on the CPU."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def inference(script):
    return script("inference")


def test_the_shape_is_the_models_with_another_batch(inference):
    assert inference.input_shape("lenet", 7) == (7, 1, 28, 28)
    assert inference.input_shape("vgg-16", 1) == (1, 3, 224, 224)


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_a_small_run(inference, backend, tmp_path, capsys):
    path = tmp_path / "r.json"
    flags = ["--backend", backend, "--nets", "lenet", "--batch", "1", "2", "--peers", "--warmup", "3", "--calls", "2"]
    assert inference.main([*flags, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert [(r["net"], r["batch"], r["who"]) for r in found] == [
        ("lenet", b, who) for b in (1, 2) for who in ("ours", "steps", "optimised")
    ]
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "| net | batch | ours ms | steps ms | optimised ms |"
    assert table[2] == f"| lenet | 1 | {found[0]['ms']:.2f} | {found[1]['ms']:.2f} | {found[2]['ms']:.2f} |"


def test_a_net_without_a_twin_is_refused(inference, capsys):
    with pytest.raises(SystemExit):
        inference.main(["--backend", "cpu", "--nets", "lenet", "vgg-16"])
    assert "twin of lenet is not known" in capsys.readouterr().err


def test_one_number_is_missing(inference):
    results = [{"net": "a", "batch": 1, "who": "eager", "ms": 2.0}]
    assert inference.markdown(results, ["ours", "eager"]).splitlines()[2] == "| a | 1 | - | 2.00 |"
