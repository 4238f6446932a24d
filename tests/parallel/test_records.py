"""Records of each iteration: those that one process with the whole batch reads, also after resuming on other ranks.

A record's label is its number, so labels say which records a rank got.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.leveldb_writer import write_leveldb
from pycaffe_lms.formats.weights.solverstate import read_solverstate, write_solverstate

from ..data.helpers import numbered_lmdb
from ..solvers.helpers import inner, solver_text
from .ranks import in_threads, joined, rank_solver

h5py = pytest.importorskip("h5py")
RECORDS = 23  # no multiple of a batch
KINDS = ["LMDB", "LEVELDB", "HDF5", "HDF5 shuffled"]


@pytest.fixture(params=KINDS)
def layer(request, tmp_path):
    """Return what makes the text of a data layer with a batch size."""
    kind = request.param
    if kind == "LMDB":
        numbered_lmdb(str(tmp_path / "db"), RECORDS, shape=(1, 2, 5))
    elif kind == "LEVELDB":
        pytest.importorskip("plyvel")
        values = (encode_datum(np.full((1, 2, 5), k, np.uint8), 100 + k) for k in range(RECORDS))
        write_leveldb(str(tmp_path / "db"), ((b"%08d" % k, value) for k, value in enumerate(values)))
    else:
        for name, first, last in (("a", 0, 9), ("b", 9, RECORDS)):
            with h5py.File(tmp_path / f"{name}.h5", "w") as file:
                file["x"] = np.zeros((last - first, 1, 2, 5), np.float32)
                file["label"] = np.arange(100 + first, 100 + last, dtype=np.float32)
        (tmp_path / "list.txt").write_text(f"{tmp_path}/a.h5\n{tmp_path}/b.h5\n")

    def text(batch: int) -> str:
        if kind in ("LMDB", "LEVELDB"):
            param = f'type: "Data" data_param {{ source: "{tmp_path}/db" backend: {kind} batch_size: {batch} }}'
        else:
            shuffle = "shuffle: true" if kind == "HDF5 shuffled" else ""
            param = (
                f'type: "HDF5Data" hdf5_data_param {{ source: "{tmp_path}/list.txt" batch_size: {batch} {shuffle} }}'
            )
        return f'layer {{ name: "data" top: "x" top: "label" {param} }}\n'

    return text


LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }\n'


def read(layer, batch: int, ranks: int, iterations: int, *, folder, snapshot="", resume="", seed=3) -> list[list[int]]:
    """Return the labels of all ranks by iteration, in the order of records: place i of rank r is record i * ranks + r.

    snapshot: the root writes one of this prefix at the end. resume: prefix of one to begin with.
    """
    text = solver_text(
        layer(batch) + inner(outputs=1) + LOSS,
        base_lr=0,
        random_seed=seed,
        snapshot_prefix=f'"{folder}/{snapshot or "none"}"',
    )

    def work(rank, path):
        solver = rank_solver(text, rank, ranks)
        parallel = joined(solver, path) if ranks > 1 else None
        if resume:
            (state,) = folder.glob(f"{resume}_iter_*.solverstate")
            solver.restore(state)
        found = []
        for _ in range(iterations):
            solver.step(1)
            found.append(solver.net.blobs["label"].data.astype(int).tolist())
        if snapshot and rank == 0:
            solver.snapshot()
        if parallel is not None:
            parallel.close()
        solver.close()
        return found

    every = in_threads(ranks, work)
    return [
        [label for place in zip(*(found[i] for found in every), strict=True) for label in place]
        for i in range(iterations)
    ]


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_iterations_records_are_those_of_one_process_with_the_whole_batch(layer, tmp_path, ranks):
    whole = read(layer, 4 * ranks, 1, 6, folder=tmp_path)
    assert read(layer, 4, ranks, 6, folder=tmp_path) == whole
    epoch = [label for batch in whole for label in batch][:RECORDS]
    assert sorted(epoch) == list(range(100, 100 + RECORDS))


@pytest.mark.parametrize(
    "before, after", [((2, 4), (2, 4)), ((2, 4), (3, 4)), ((3, 2), (2, 5)), ((1, 5), (3, 1)), ((3, 3), (1, 4))]
)
def test_another_number_of_ranks_goes_on_with_the_next_record(layer, tmp_path, before, after):
    """(ranks, batch) before and after: three iterations, a snapshot, and four more, the last two after another one."""
    ranks, batch = before
    read(layer, batch, ranks, 3, folder=tmp_path, snapshot="a")
    ranks_after, batch_after = after
    found = read(layer, batch_after, ranks_after, 2, folder=tmp_path, resume="a", snapshot="b", seed=9)
    found += read(layer, batch, ranks, 2, folder=tmp_path, resume="b", seed=17)
    used = 3 * ranks * batch
    more = 2 * ranks_after * batch_after + 2 * ranks * batch
    one_by_one = [label for (label,) in read(layer, 1, 1, used + more, folder=tmp_path)]
    assert [label for labels in found for label in labels] == one_by_one[used:]


def test_snapshots_of_before_records_were_counted(layer, tmp_path):
    """They say batches and seed alone, and go on with the next batch."""
    whole = read(layer, 4, 2, 5, folder=tmp_path)
    read(layer, 4, 2, 3, folder=tmp_path, snapshot="a")
    (path,) = tmp_path.glob("a_iter_*.solverstate")
    saved = read_solverstate(path)
    kept = {key: count for key, count in saved.resume.items() if key[2] != "records"}
    assert len(kept) == len(saved.resume) - 1
    write_solverstate(path, replace(saved, resume=kept))
    assert read(layer, 4, 2, 2, folder=tmp_path, resume="a") == whole[3:]
