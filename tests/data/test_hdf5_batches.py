"""HDF5Batches: which rows in which order, against a plain list; files that do not fit; the writer."""

from __future__ import annotations

import gc
import os
from contextlib import closing

import numpy as np
import pytest

from pycaffe_lms.data.feed.hdf5_batches import HDF5Batches
from pycaffe_lms.data.feed.hdf5_writer import HDF5Writer
from pycaffe_lms.data.feed.prefetch import Prefetcher
from pycaffe_lms.errors import DataError
from tests.shared_data import SHARED, needs_shared

h5py = pytest.importorskip("h5py")

LENGTHS = (3, 0, 4, 2)
TOTAL = sum(LENGTHS)


def write_files(folder, lengths=LENGTHS):
    """Files a0.h5, a1.h5, ..; row number n overall has x full of n (float) and y n (uint8). Returns the list's path."""
    start, names = 0, []
    for k, rows in enumerate(lengths):
        names.append(f"{folder}/a{k}.h5")
        numbers = np.arange(start, start + rows)
        with h5py.File(names[-1], "w") as file:
            file["x"] = np.broadcast_to(numbers[:, None, None], (rows, 2, 3)).astype(np.float64)
            file["y"] = numbers.astype(np.uint8)
        start += rows
    (folder / "list.txt").write_text(" \n".join(names) + "\n")
    return str(folder / "list.txt")


@pytest.fixture
def source(tmp_path):
    return write_files(tmp_path)


def numbers(subject, batches):
    """Row numbers of each batch, after checking that both datasets agree."""
    found = []
    for b in batches:
        x, y = subject.produce(b)
        assert x.shape[1:] == (2, 3) and x.dtype == y.dtype == np.float32
        np.testing.assert_array_equal(x, np.broadcast_to(y[:, None, None], x.shape))
        found.append(y.astype(int).tolist())
    return found


@pytest.mark.parametrize("size", [1, 2, 4, 20])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_rows_in_order_over_files_and_epochs(source, size, ranks):
    for rank in range(ranks):
        with_rank = HDF5Batches(source, ["x", "y"], size, rank=rank, ranks=ranks)
        plain = [k % TOTAL for k in range(6 * size * ranks) if k % ranks == rank]
        assert numbers(with_rank, range(6)) == [plain[b * size : (b + 1) * size] for b in range(6)]
        assert numbers(with_rank, [4, 1]) == [plain[b * size : (b + 1) * size] for b in (4, 1)]
        assert len(with_rank) == TOTAL and with_rank.shapes == [(size, 2, 3), (size,)]


def test_shuffled_epochs(source):
    """Every epoch has each row once, a file's rows together, in other orders; they repeat by the seed."""
    subject = HDF5Batches(source, ["x", "y"], TOTAL, shuffle=True, seed=4)
    epochs = [e for (e,) in ([numbers(subject, [b])[0]] for b in range(40))]
    starts = np.cumsum((0, *LENGTHS))
    file_of = np.repeat(range(len(LENGTHS)), LENGTHS)
    for epoch in epochs:
        assert sorted(epoch) == list(range(TOTAL))
        files = file_of[epoch]
        assert (np.diff(files) != 0).sum() == 2, "rows of a file stay together"
    assert {tuple(dict.fromkeys(file_of[e].tolist())) for e in epochs} == {
        (a, b, c) for a in (0, 2, 3) for b in (0, 2, 3) for c in (0, 2, 3) if len({a, b, c}) == 3
    }
    assert len({tuple(k for k in e if starts[2] <= k < starts[3]) for e in epochs}) > 10
    again = HDF5Batches(source, ["x", "y"], TOTAL, shuffle=True, seed=4)
    assert numbers(again, [7, 3, 39]) == [epochs[7], epochs[3], epochs[39]]
    other = HDF5Batches(source, ["x", "y"], TOTAL, shuffle=True, seed=5)
    assert numbers(other, range(3)) != epochs[:3]


def test_files_of_one_length_have_orders_of_their_own(tmp_path):
    subject = HDF5Batches(write_files(tmp_path, (20, 20)), ["x", "y"], 40, shuffle=True)
    (epoch,) = numbers(subject, [0])
    first, second = (np.array(epoch[k : k + 20]) % 20 for k in (0, 20))
    assert (first != second).any()


@pytest.mark.parametrize("size, ranks", [(4, 1), (2, 3), (7, 2)])
def test_shuffled_batches_are_cut_from_the_shuffled_epochs(source, size, ranks):
    whole = HDF5Batches(source, ["x", "y"], TOTAL, shuffle=True, seed=1)
    stream = [k for epoch in numbers(whole, range(10)) for k in epoch]
    for rank in range(ranks):
        mine = HDF5Batches(source, ["x", "y"], size, shuffle=True, seed=1, rank=rank, ranks=ranks)
        plain = [k for i, k in enumerate(stream) if i % ranks == rank]
        assert numbers(mine, range(4)) == [plain[b * size : (b + 1) * size] for b in range(4)]
        with closing(Prefetcher(mine.produce, depth=3, start=2)) as ahead:
            assert [int(k) for k in ahead.next()[1]] == plain[2 * size : 3 * size]


def test_relative_paths_start_at_the_working_directory(source, tmp_path, monkeypatch):
    (tmp_path / "list.txt").write_text("a0.h5")
    with pytest.raises(DataError, match="start at the working directory") as caught:
        HDF5Batches(source, ["y"], 1)
    assert f"{tmp_path}/a0.h5" in caught.value.fix
    monkeypatch.chdir(tmp_path)
    assert len(HDF5Batches(source, ["y"], 1)) == 3


def test_what_cannot_be_used(tmp_path, source):
    def refused(words, name="y", content=None, source=source):
        if content is not None:
            (tmp_path / "list.txt").write_text(content)
        with pytest.raises(DataError, match=words) as caught:
            HDF5Batches(source, ["x", name], 2)
        assert caught.value.fix and str(tmp_path) in str(caught.value)

    refused('a0.h5.*blob "z".*no dataset "z"', "z")
    refused("cannot read the list", source=f"{tmp_path}/none.txt")
    refused("Could not open", content=f"{tmp_path}/none.h5")
    refused("empty", content=" \n")
    refused("hold no rows", content=f"{tmp_path}/a1.h5")
    refused("not a text file", source=f"{tmp_path}/a0.h5")
    refused("not a readable HDF5 file", content=f"{tmp_path}/list.txt")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"], file["y"], file["scalar"], file["text"] = np.ones((2, 3)), np.ones(3), 5.0, [b"a", b"b"]
        file["wide"], file["group/y"] = np.ones((2, 4)), 1
    content = f"{tmp_path}/b.h5"
    refused(r"numbers of rows differ: x \(2, 3\), y \(3,\)", content=content)
    refused("not rows of numbers", "scalar", content)
    refused("not rows of numbers", "text", content)
    refused('no dataset "group"', "group", content)
    with h5py.File(tmp_path / "b.h5", "a") as file:
        del file["y"]
        file["y"] = np.ones(2)
    refused(r"b.h5: rows are x \(3,\), y \(\), in .*a0.h5 x \(2, 3\)", content=f"{tmp_path}/a0.h5 {content}")


def test_a_file_that_changed(source, tmp_path):
    subject = HDF5Batches(source, ["y"], 2)
    write_files(tmp_path, (5,))
    with pytest.raises(DataError, match="has changed"):
        subject.produce(0)


@needs_shared
def test_caffes_own_files(tmp_path):
    names = [str(SHARED / "data" / "hdf5" / n) for n in ("sample_data.h5", "sample_data_2_gzip.h5")]
    (tmp_path / "list").write_text("\n".join(names))
    subject = HDF5Batches(str(tmp_path / "list"), ["data", "label", "label2"], 5, dtype=np.float64)
    whole = []
    for name in names:
        with h5py.File(name) as file:
            whole.append([file[k][()].astype(np.float64) for k in ("data", "label", "label2")])
    whole = [np.concatenate(parts) for parts in zip(*whole, strict=True)]
    for b in range(9):
        for found, all_rows in zip(subject.produce(b), whole, strict=True):
            np.testing.assert_array_equal(found, all_rows[(np.arange(5) + 5 * b) % 20])


# -- writing ------------------------------------------------------------------------------------------------------
def test_rows_add_up_and_appear_at_the_end(tmp_path):
    path = tmp_path / "out.h5"
    path.write_text("before")
    writer, rows = HDF5Writer(str(path)), np.arange(12.0).reshape(6, 2)
    writer.append({"a": rows[:2], "b": rows[:2, 0]})
    writer.append({"a": rows[2:], "b": rows[2:, 0]})
    assert path.read_text() == "before" and len(os.listdir(tmp_path)) == 2
    writer.close()
    writer.close()
    assert os.listdir(tmp_path) == ["out.h5"]
    with h5py.File(path) as file:
        assert set(file) == {"a", "b"}
        np.testing.assert_array_equal(file["a"], rows)
        np.testing.assert_array_equal(file["b"], rows[:, 0])
    with pytest.raises(DataError, match="complete"):
        writer.append({"a": rows})


def test_dropping_the_writer_completes_the_file(tmp_path):
    writer = HDF5Writer(str(tmp_path / "out.h5"))
    writer.append({"a": np.ones((2, 0))})
    del writer
    gc.collect()
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["a"].shape == (2, 0)


def test_nothing_written_leaves_nothing(tmp_path):
    HDF5Writer(str(tmp_path / "out.h5")).close()
    assert not os.listdir(tmp_path)


def test_writers_that_cannot(tmp_path):
    for path in (f"{tmp_path}/none/out.h5", str(tmp_path)):
        with pytest.raises(DataError, match="folder"):
            HDF5Writer(path)
    writer = HDF5Writer(str(tmp_path / "out.h5"))
    writer.append({"a": np.ones((2, 3))})
    with pytest.raises(DataError, match=r'"a": rows of shape \(4,\) after rows of shape \(3,\)'):
        writer.append({"a": np.ones((2, 4))})
    writer.close()
