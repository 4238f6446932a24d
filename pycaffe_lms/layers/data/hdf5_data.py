"""HDF5Data: batches of rows from HDF5 files, which a thread reads ahead. HDF5Output: two blobs to an HDF5 file.

Source: BVLC/caffe, src/caffe/layers/hdf5_data_layer.cpp, hdf5_output_layer.cpp (behaviour).
"""

from __future__ import annotations

from dataclasses import replace

from ...data.feed.hdf5_batches import HDF5Batches
from ...data.feed.hdf5_writer import HDF5Writer
from ...formats.hdf5_file import load_h5py
from ..base import TRAIN, Declaration, Layer, Pass, Reads, Runs, Shape, Shapes, at_least, exactly
from ..registry import register_layer
from .data import DataLayer


@register_layer("HDF5Data")
class HDF5DataLayer(DataLayer):
    """Rows of the HDF5 files that the text file hdf5_data_param.source lists, again and again.

    Tops: one per dataset, with its name, (batch_size, *shape of a row); integers become floats. Relative paths in the
    list start at the working directory. A batch may contain rows of two files. shuffle: every epoch has another order
    of files, and of rows within each; it depends only on the layer's seed and the epoch's number. In a TRAIN net rank
    k % solver_count gets row k; all ranks have the order of rank 0. Resumed on another number of ranks, or with another
    batch_size, a run goes on with the next row. data_param.prefetch batches (default 4) are prepared ahead; one file is
    in memory.
    Raises: LayerParamError without source or batch_size, or with a transform_param, because this layer transforms
    nothing; DataError for a list or file that cannot be used; MissingDependency without h5py.
    """

    declares = replace(DataLayer.declares, tops=at_least(1))
    _reader = ("_seed", "_shapes", "_batches", "_prefetcher", "_next")

    def setup(self, bottom_shapes: Shapes) -> None:
        self._refuse_transforms()
        self._check_source("hdf5_data_param", "the text file that lists the HDF5 files")
        self._start()

    def _open(self) -> None:
        p = self.param.hdf5_data_param
        train = self.phase == TRAIN
        batches = HDF5Batches(
            p.source,
            self.param.top,
            p.batch_size,
            shuffle=p.shuffle,
            dtype=self.dtype,
            rank=self.context.solver_rank if train else 0,
            ranks=self.context.solver_count if train else 1,
            seed=self._seed,
        )
        self._shapes = batches.shapes
        self._prefetch(batches)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return self._shapes

    @property
    def seed_of_root(self) -> bool:
        return bool(self.param.hdf5_data_param.shuffle)


@register_layer("HDF5Output")
class HDF5OutputLayer(Layer):
    """Writes its bottoms to the HDF5 file hdf5_output_param.file_name, as datasets "data" and "label".

    Bottoms 0 and 1: any shapes with the same first dimension; missing axes up to four get length 1, as in Caffe. No
    tops, no gradient. Every forward appends its rows (in Caffe the second forward fails). The file appears under its
    name when the net is closed or deleted or the program ends; a file of that name stays unchanged until then.
    Raises: LayerParamError without file_name; ShapeError for bottoms of different first dimensions; DataError for a
    file that cannot be written; MissingDependency without h5py.
    """

    declares = Declaration(
        bottoms=exactly(2),
        tops=exactly(0),
        runs_on=Runs.HOST,
        no_backward=None,
        backward_reads=Reads.NONE,
        ignores_force_backward=frozenset({0, 1}),
        tests_alone=True,
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        path = self.param.hdf5_output_param.file_name
        if not path:
            raise self.error("hdf5_output_param.file_name is not set", fix="name the file to write")
        load_h5py()  # fail now if it is missing, not after the first forward
        self._writer = HDF5Writer(path)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        data, label = (_four_axes(s) for s in bottom_shapes)
        if data[0] != label[0]:
            raise self.shape_error(
                f"{data[0]} items of data but {label[0]} labels", bottom=1, fix="give both the same first dimension"
            )
        return []

    def forward(self, io: Pass) -> None:
        self._writer.append(
            {name: b.reshape(_four_axes(b.shape)) for name, b in zip(("data", "label"), io.bottom, strict=True)}
        )

    def close(self) -> None:
        self._writer.close()


def _four_axes(shape: Shape) -> Shape:
    return (*shape, *(1,) * (4 - len(shape)))
