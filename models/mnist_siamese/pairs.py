"""Pairs of digits for the siamese net, from MNIST's LMDBs: pictures with two channels, label 1 where both are alike.

python models/mnist_siamese/pairs.py [--folder data/mnist]

reads mnist_train_lmdb and mnist_test_lmdb and writes mnist_siamese_train_lmdb and mnist_siamese_test_lmdb, as many
pairs as there are digits. Each digit is paired with one that is drawn at random, so about a tenth are alike.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from pycaffe_lms.data.database.datum import decode_datum, encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.database.open import open_database


def digits(path: str) -> list[tuple[np.ndarray, int]]:
    """All pictures (1, 28, 28) of an LMDB and their labels."""
    source = open_database(path, "LMDB")
    records = [source.next() for _ in range(len(source))]
    source.close()
    return [decode_datum(value, source=path, key=key) for key, value in records]


def pairs(path: str, seed: int):
    """(key, value) records: each digit beside one that is drawn at random."""
    known = digits(path)
    for k, other in enumerate(np.random.default_rng(seed).permutation(len(known))):
        (image, label), (image_p, label_p) = known[k], known[other]
        yield b"%08d" % k, encode_datum(np.concatenate([image, image_p]), int(label == label_p))


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("data/mnist"))
    parser.add_argument("--overwrite", action="store_true")
    args = parser.parse_args(argv)
    for seed, part in enumerate(("train", "test")):
        out = args.folder / f"mnist_siamese_{part}_lmdb"
        count = write_lmdb(out, pairs(str(args.folder / f"mnist_{part}_lmdb"), seed), overwrite=args.overwrite)
        print(f"{out}: {count} pairs")


if __name__ == "__main__":
    main()
