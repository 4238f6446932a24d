"""Small databases and messages for the tests of data/."""

import shutil

import numpy as np
from google.protobuf import text_format

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.transform.transformer import DataTransformer
from pycaffe_lms.proto.caffe_pb2 import TransformationParameter
from tests.shared_data import SHARED


def transformer(text="", phase=0, source="a database"):
    """A DataTransformer from prototxt text; phase 0 TRAIN, 1 TEST."""
    return DataTransformer(text_format.Parse(text, TransformationParameter()), phase, source=source)


def numbered_lmdb(path, count, shape=(1, 2, 3)):
    """An LMDB of `count` pictures, each filled with its number, label 100 + number."""
    records = ((b"%08d" % k, encode_datum(np.full(shape, k % 256, np.uint8), 100 + k)) for k in range(count))
    write_lmdb(path, records)
    return path


def shared_db(name, tmp_path):
    """A copy of a real database, because opening one writes to its folder."""
    target = tmp_path / name
    target.mkdir()
    for file in (SHARED / "data" / "db" / name).iterdir():
        if file.name not in ("lock.mdb", "LOCK"):
            shutil.copyfile(file, target / file.name)
    return target
