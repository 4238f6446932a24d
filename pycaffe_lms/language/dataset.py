"""Make files of token ids from text, for the TokenData layer: train.bin, val.bin, vocabulary.json."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import DataError, Where
from ..formats.atomic import atomic_write
from .vocabulary import Vocabulary


class TextFiles(NamedTuple):
    """Describe what was written: paths, numbers of tokens, the type of ids as token_data_param.token_type has it."""

    train: Path
    val: Path
    vocabulary: Path
    tokens: tuple[int, int]
    token_type: str


def write_tokens(
    text: str,
    vocabulary: Vocabulary,
    out_dir: str | os.PathLike[str],
    *,
    val: float = 0.1,
    overwrite: bool = False,
) -> TextFiles:
    """Write the ids of a text: its last `val` (0 to 1) of characters as val.bin, all before as train.bin.

    Ids are little-endian uint16, or uint32 for a vocabulary of more than 65,536. vocabulary.json is written last, so
    that a killed run leaves none.
    Raises: DataError for files that are there (unless `overwrite`) or cannot be written, or a part without tokens.
    """
    out = Path(out_dir)
    paths = [out / name for name in ("train.bin", "val.bin", "vocabulary.json")]
    for path in paths:
        if path.exists() and not overwrite:
            raise DataError("is there already", where=Where(file=str(path)), fix="add -overwrite, or another -out")
    token_type = "UINT16" if vocabulary.size <= 1 << 16 else "UINT32"
    cut = len(text) - round(len(text) * val)
    parts = [vocabulary.encode(part) for part in (text[:cut], text[cut:])]
    for path, ids in zip(paths, parts, strict=False):
        if not len(ids):
            raise DataError(
                f"the text of {len(text)} characters leaves no tokens for {path.name}", fix="give a longer text"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise DataError(
            f"cannot be made: {failure.strerror}", where=Where(file=str(out)), fix="give another -out"
        ) from None
    paths[2].unlink(missing_ok=True)
    for path, ids in zip(paths, parts, strict=False):
        atomic_write(path, ids.astype(np.dtype(token_type.lower()).newbyteorder("<")).tobytes(), error=DataError)
    vocabulary.save(paths[2])
    return TextFiles(paths[0], paths[1], paths[2], (len(parts[0]), len(parts[1])), token_type)
