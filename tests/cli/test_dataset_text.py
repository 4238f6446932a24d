"""`dataset text`: the ids that it writes, the tales, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.language.tales import tale, tales
from pycaffe_lms.language.vocabulary import load_vocabulary


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tales_become_bytes(here, capsys):
    assert main(["dataset", "text"]) == 0
    out = capsys.readouterr().out
    parts = [np.fromfile(here / f"data/tales/{name}.bin", "<u2") for name in ("train", "val")]
    text = tales()
    assert bytes(np.concatenate(parts).astype(np.uint8)).decode("ascii") == text
    assert len(parts[1]) == round(0.1 * len(text)) and 150_000 < len(text) < 200_000
    assert f"train: data/tales/train.bin ({len(parts[0]):,} tokens, UINT16)" in out and "(bytes, 256 ids)" in out


def test_tales_differ_and_repeat():
    text = tales(200)
    assert text == tales(200) != tales(200, seed=1) and text.startswith(tale(0) + tale(1))
    assert len({*text.split("\n\n")}) == 201  # the last one is empty


def test_files_become_characters(here, capsys):
    (here / "a.txt").write_text("hello " * 3)
    (here / "b.txt").write_text("ÿ\n")
    argv = ["dataset", "text", "a.txt", "b.txt", "-vocabulary", "characters", "-val", "0.25", "-out", "x"]
    assert main(argv) == 0
    vocabulary = load_vocabulary("x/vocabulary.json")
    assert json.loads((here / "x/vocabulary.json").read_text())["characters"] == "\n ehloÿ"
    train, val = (vocabulary.decode(np.fromfile(here / f"x/{name}.bin", "<u2")) for name in ("train", "val"))
    assert train == "hello hello hel" and val == "lo ÿ\n"
    capsys.readouterr()
    assert main(argv) == 1
    assert "is there already" in capsys.readouterr().err
    assert main([*argv, "-overwrite"]) == 0


def test_without_out_the_folder_has_the_files_name(here):
    (here / "book.txt").write_text("word " * 20)
    assert main(["dataset", "text", "book.txt"]) == 0
    assert (here / "data/book/val.bin").exists()


@pytest.mark.parametrize(
    "argv, code, words",
    [
        (["none.txt"], 1, "none.txt"),
        (["-val", "1"], 2, "-val 1 is no share"),
        (["-val", "nan"], 2, "-val nan is no share"),
        (["-vocabulary", "bytes", "-tokenizer", "t.json"], 2, "both given"),
        (["short.txt"], 1, "no tokens for val.bin"),
    ],
)
def test_refusals(here, capsys, argv, code, words):
    (here / "short.txt").write_text("ab")
    assert main(["dataset", "text", *argv]) == code
    assert words in capsys.readouterr().err
    assert not (here / "data").exists()
