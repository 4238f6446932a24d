"""Whatever the disk refuses while a file or a database is replaced: the old one is there, or the new one, whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pycaffe_lms.data.database.leveldb_source import LevelDBSource
from pycaffe_lms.data.database.leveldb_writer import write_leveldb
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.errors import CaffeError, DataError
from pycaffe_lms.faults import Faults, in_files
from pycaffe_lms.formats.atomic import atomic_write

OLD = [(b"%03d" % k, b"old" * k) for k in range(5)]
NEW = [(b"%03d" % k, b"new" * k) for k in range(40)]


def records(source) -> list[tuple[bytes, bytes]]:
    with source:
        return list(source.records())


def database(write, source):
    """Replacing a database, and what a path holds."""
    return (
        lambda path, content: write(path, content, commit_every=10, overwrite=True),
        lambda path: records(source(str(path))),
    )


def file_of_bytes(path: Path, content) -> None:
    atomic_write(path, repr(content).encode(), error=DataError)


def file_by_function(path: Path, content) -> None:
    atomic_write(path, lambda part: part.write_text(repr(content)) and None, error=DataError)


def in_a_thread(path: Path, content) -> None:
    """As a background writer does it."""
    found: list[BaseException] = []

    def work() -> None:
        try:
            file_of_bytes(path, content)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if found:
        raise found[0]


def text(path: Path):
    return eval(path.read_text(), {})


KINDS = {
    "bytes": (file_of_bytes, text),
    "function": (file_by_function, text),
    "thread": (in_a_thread, text),
    "LMDB": database(write_lmdb, LMDBSource),
    "LevelDB": database(write_leveldb, LevelDBSource),
}


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_old_one_or_the_new_one(tmp_path, kind, lasting):
    if kind == "LevelDB":
        pytest.importorskip("plyvel")
    write, read = KINDS[kind]
    path, failed = tmp_path / "it", 0
    write(path, OLD)
    with in_files(Faults()) as counted:
        write(path, NEW)
    assert {"write", "fsync", "rename"} == set(counted.counts)
    for what, count in counted.counts.items():
        for n in range(1, count + 1):
            write(path, OLD)
            with in_files(Faults((what, n), lasting=lasting)) as faults, pytest.raises(CaffeError) as caught:
                write(path, NEW)
            if (what, n, lasting) == ("rename", 2, True):
                assert "nor the old one back" in caught.value.message  # see the test below
                path.with_name(next(iter(os.listdir(tmp_path)))).rename(path)
            assert faults.failed == [(what, n)] and "(on purpose)" in caught.value.message and caught.value.fix
            assert caught.value.where.file == str(path)
            now = read(path)
            assert now in (OLD, NEW), f"{what} {n}"
            # only the flush of the folder comes after the new name
            assert now == OLD or (what, n) == ("fsync", counted.counts["fsync"]), f"{what} {n}"
            assert os.listdir(tmp_path) == ["it"], f"{what} {n}"
            failed += 1
    assert failed == sum(counted.counts.values()) >= 4


def test_an_old_database_that_cannot_be_put_back_is_named(tmp_path):
    path = tmp_path / "db"
    write_lmdb(path, OLD)
    with in_files(Faults(("rename", 2), ("rename", 3))), pytest.raises(DataError) as caught:
        write_lmdb(path, NEW, overwrite=True)
    (aside,) = os.listdir(tmp_path)
    assert f"rename {tmp_path / aside} to {path}" in caught.value.fix and "(on purpose)" in caught.value.message
    os.rename(tmp_path / aside, path)
    assert records(LMDBSource(str(path))) == OLD


def test_faults_that_nothing_has():
    for plan in (("writes", 1), ("write", 0)):
        with pytest.raises(ValueError, match=r"kinds are allocation.*numbers start at 1"):
            Faults(plan)
