"""Turn text into token ids and back: by bytes, by characters, by a tokenizer of the `tokenizers` package.

A vocabulary is kept as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..arrays import HostArray
from ..errors import DataError, MissingDependency, Where
from ..formats.atomic import atomic_write
from ..formats.rawfile import read_bytes

_FORMAT = "pycaffe-lms vocabulary"
_HEAD = 4096  # bytes; a 0 among them is no text
_AT_ONCE = 1 << 20  # characters that a tokenizer gets in one call
_FIX = "write it with `pycaffe-lms dataset text`"


class Vocabulary:
    """Map text to ids from 0 to `size` - 1 and back.

    Attributes:
        kind: bytes, characters or tokenizer.
        size: number of ids.
    """

    kind: str
    size: int

    def encode(self, text: str) -> HostArray:
        """Return the ids (tokens,) of a text, int64. Raises: DataError for text that it has no ids for."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids. Raises: DataError for one that is not below `size`."""
        given = [int(i) for i in ids]
        if wrong := [i for i in given if not 0 <= i < self.size]:
            raise DataError(
                f"token {wrong[0]} is not in the vocabulary of {self.size:,} ids",
                fix="use the vocabulary that the net was trained with",
            )
        return self._text_of(given)

    def _text_of(self, ids: list[int]) -> str:
        raise NotImplementedError

    def _fields(self) -> dict[str, Any]:
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON that `load_vocabulary` reads. Raises: DataError."""
        fields = {"format": _FORMAT, "version": 1, "kind": self.kind, "size": self.size, **self._fields()}
        atomic_write(path, (json.dumps(fields, ensure_ascii=False, indent=1) + "\n").encode(), error=DataError)


class Bytes(Vocabulary):
    """The 256 bytes of UTF-8: any text has ids. Bytes that are no UTF-8 are decoded as U+FFFD."""

    kind, size = "bytes", 256

    def encode(self, text: str) -> HostArray:
        return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8).astype(np.int64)

    def _text_of(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


class Characters(Vocabulary):
    """An id for each of some characters, in the order of the string `characters`."""

    kind = "characters"

    def __init__(self, characters: str):
        self._characters = characters
        self.size = len(characters)
        self._ids = {character: k for k, character in enumerate(characters)}

    @classmethod
    def of(cls, text: str) -> Characters:
        """Return the vocabulary of the characters in a text, sorted."""
        return cls("".join(sorted(set(text))))

    def encode(self, text: str) -> HostArray:
        if unknown := sorted(set(text) - self._ids.keys()):
            raise DataError(
                f"the vocabulary of {self.size} characters lacks {unknown[0]!r}",
                fix="use characters of the text that it was made from, or make a vocabulary of bytes",
            )
        return np.fromiter((self._ids[c] for c in text), np.int64, len(text))

    def _text_of(self, ids: list[int]) -> str:
        return "".join(self._characters[i] for i in ids)

    def _fields(self) -> dict[str, Any]:
        return {"characters": self._characters}


class Tokenizer(Vocabulary):
    """A tokenizer of the `tokenizers` package, from the text of its tokenizer.json; special tokens are not added.

    Raises: DataError for text that it cannot read; MissingDependency without the package.
    """

    kind = "tokenizer"

    def __init__(self, text: str, source: str = "tokenizer"):
        try:
            tokenizers = importlib.import_module("tokenizers")
        except ImportError:
            raise MissingDependency("tokenizers", "text by a tokenizer.json", "'pycaffe-lms[text]'") from None
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the package raises nothing narrower
            raise DataError(
                f"is no tokenizer: {error}", where=Where(file=source), fix="give the tokenizer.json of a model"
            ) from None
        self._text = text
        self.size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str) -> HostArray:
        """As `Vocabulary.encode`; a long text is cut at ends of lines."""
        parts, part, length = [], [], 0
        for line in text.splitlines(keepends=True):
            part.append(line)
            length += len(line)
            if length >= _AT_ONCE:
                parts.append("".join(part))
                part, length = [], 0
        parts.append("".join(part))
        ids = [np.array(self._tokenizer.encode(p, add_special_tokens=False).ids, np.int64) for p in parts]
        return np.concatenate(ids)

    def _text_of(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def _fields(self) -> dict[str, Any]:
        return {"tokenizer": json.loads(self._text)}


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Return the vocabulary of a tokenizer.json. Raises: DataError, MissingDependency."""
    return Tokenizer(_text(path), os.fspath(path))


def load_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """Return the vocabulary in a JSON file of `Vocabulary.save`. Raises: DataError, MissingDependency."""
    where = Where(file=os.fspath(path))
    try:
        fields = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"is no JSON: {error}", where=where, fix=_FIX) from None
    if not isinstance(fields, dict) or (fields.get("format"), fields.get("version")) != (_FORMAT, 1):
        raise DataError("is no vocabulary", where=where, fix=f"{_FIX}; a tokenizer.json goes into that command")
    found = _vocabulary(fields, os.fspath(path))
    if found is None or found.size != fields.get("size"):
        raise DataError("is a damaged vocabulary", where=where, fix=_FIX)
    return found


def _vocabulary(fields: dict[str, Any], path: str) -> Vocabulary | None:
    match fields:
        case {"kind": "bytes"}:
            return Bytes()
        case {"kind": "characters", "characters": str(characters)} if len(set(characters)) == len(characters):
            return Characters(characters)
        case {"kind": "tokenizer", "tokenizer": dict(tokenizer)}:
            return Tokenizer(json.dumps(tokenizer), path)
    return None


def _text(path: str | os.PathLike[str]) -> str:
    content = read_bytes(path, DataError, head=_HEAD)
    if b"\0" in content[:_HEAD]:
        raise DataError("is no text: it has a 0 byte", where=Where(file=os.fspath(path)), fix="give a text in UTF-8")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"is no UTF-8: {error}", where=Where(file=os.fspath(path)), fix="write it again") from None


def read_text(paths: Sequence[str | os.PathLike[str]]) -> str:
    """Return the texts of files, one after the other. Raises: DataError for a file that is empty or no UTF-8."""
    return "".join(_text(path) for path in paths)
