"""Vocabularies: ids of text and back, their JSON, what cannot be read."""

from __future__ import annotations

import json
import sys

import pytest

from pycaffe_lms.errors import DataError, MissingDependency
from pycaffe_lms.language.vocabulary import Bytes, Characters, load_tokenizer, load_vocabulary

TEXT = "Über den Bach, 小 und groß\n"


def test_bytes_are_those_of_utf8():
    assert Bytes().encode("aé").tolist() == [97, 0xC3, 0xA9]
    assert Bytes().decode(Bytes().encode(TEXT)) == TEXT
    assert Bytes().decode([97, 0xC3]) == "a\ufffd"


def test_characters_are_numbered_in_their_order():
    vocabulary = Characters.of("banana")
    assert vocabulary.size == 3 and vocabulary.encode("nab").tolist() == [2, 0, 1]
    assert vocabulary.decode([1, 0, 2]) == "ban"
    with pytest.raises(DataError, match="vocabulary of 3 characters lacks 'x'") as caught:
        vocabulary.encode("axb")
    assert caught.value.fix


@pytest.mark.parametrize("vocabulary", [Bytes(), Characters.of(TEXT)], ids=["bytes", "characters"])
def test_a_file_keeps_a_vocabulary(vocabulary, tmp_path):
    vocabulary.save(tmp_path / "v.json")
    again = load_vocabulary(tmp_path / "v.json")
    assert (again.kind, again.size) == (vocabulary.kind, vocabulary.size)
    assert again.decode(vocabulary.encode(TEXT)) == TEXT
    assert again.encode(TEXT).tolist() == vocabulary.encode(TEXT).tolist()


@pytest.mark.parametrize("vocabulary", [Bytes(), Characters("ab")], ids=["bytes", "characters"])
def test_an_id_outside_has_no_text(vocabulary):
    with pytest.raises(DataError, match=f"token {vocabulary.size} is not in the vocabulary"):
        vocabulary.decode([0, vocabulary.size])


_GOOD = {"format": "pycaffe-lms vocabulary", "version": 1}


@pytest.mark.parametrize(
    "content, words",
    [
        ("", "the file is empty"),
        (b"\xff\xfe", "no UTF-8"),
        (b"{\0}", "a 0 byte"),
        ("{", "no JSON"),
        ("[" * 100000, "no JSON"),
        ("[1]", "is no vocabulary"),
        ({"kind": "bytes"}, "is no vocabulary"),
        (_GOOD | {"version": 2, "kind": "bytes", "size": 256}, "is no vocabulary"),
        (_GOOD | {"kind": "bytes", "size": 255}, "damaged"),
        (_GOOD | {"kind": "words", "size": 3}, "damaged"),
        (_GOOD | {"kind": "characters", "characters": "aba", "size": 3}, "damaged"),
        (_GOOD | {"kind": "characters", "characters": ["a"], "size": 1}, "damaged"),
        (_GOOD | {"kind": "tokenizer", "tokenizer": "x", "size": 1}, "damaged"),
    ],
)
def test_what_is_no_vocabulary(content, words, tmp_path):
    raw = (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    (tmp_path / "v.json").write_bytes(raw)
    with pytest.raises(DataError, match=words) as caught:
        load_vocabulary(tmp_path / "v.json")
    assert caught.value.fix and "v.json" in str(caught.value)


def test_without_the_tokenizers_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(MissingDependency, match="tokenizers") as caught:
        load_tokenizer(tmp_path / "tokenizer.json")
    assert caught.value.fix == "pip install 'pycaffe-lms[text]'"


def test_a_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: k for k, word in enumerate(("[UNK]", "a", "cat", "sat"))}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    vocabulary = load_tokenizer(tmp_path / "tokenizer.json")
    assert vocabulary.size == 4 and vocabulary.encode("a cat sat there").tolist() == [1, 2, 3, 0]
    vocabulary.save(tmp_path / "v.json")
    assert load_vocabulary(tmp_path / "v.json").decode([1, 2]) == "a cat"
    long = "a cat sat\n" * 120_000  # more than one call
    assert vocabulary.encode(long).tolist() == [1, 2, 3] * 120_000
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="is no tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")
