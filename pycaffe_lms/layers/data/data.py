"""Data: batches of the Datum records in a database, which a thread reads and transforms ahead.

For a net on a GPU the host decodes and crops pictures; if there are many, the GPU mirrors them, subtracts the mean and
scales. Bytes are a quarter of what would cross the link, and the results are the same to the bit.
Source: BVLC/caffe, data_layer.cpp, base_data_layer.cpp (behaviour).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ...data.feed.batches import DatumBatches
from ...data.feed.prefetch import Prefetcher
from ...data.transform.transformer import CroppedBatch, DataTransformer
from ...data.transform.workers import SpareArrays
from ...ops.cpu.shape.pixels import finish_pixels
from ...proto.caffe_pb2 import LayerParameter
from ..base import (
    BuildContext,
    Declaration,
    Layer,
    Lives,
    Ops,
    Pass,
    Runs,
    Shape,
    Shapes,
    ShapesChanged,
    between,
    exactly,
)
from ..registry import register_layer

_log = logging.getLogger(__name__)
_OLD_FIELDS = ("scale", "mean_file", "crop_size", "mirror")  # only in old nets, whose upgrade moves them
ONLY_ANNOTATED = ("distort_param", "expand_param", "emit_constraint", "further_resize_param")
"""Fields of transform_param that act in AnnotatedData alone, as in SSD's fork."""
ONLY_SEGMENTED = ("crop_height", "crop_width", "scale_factors")
"""Fields of transform_param that act in ImageSegData alone, as in DeepLab's fork."""


@register_layer("Data")
class DataLayer(Layer):
    """Records of the database data_param.source in the order of their keys, again and again.

    Top 0: (batch_size, channels, height, width) after transform_param. Top 1 (optional): labels, (batch_size).
    In a TRAIN net rank k % solver_count gets record k. Random crops and mirrors depend only on the layer's seed and the
    batch's number, so a resumed run gets the same batches as an uninterrupted one. On another number of ranks, or with
    another batch_size, it goes on with the next record. data_param.prefetch batches are prepared ahead, by as many
    threads as OMP_NUM_THREADS or the CPU's cores allow; encoded pictures of 128 x 128 pixels or more for a net on a GPU
    by up to 8 processes. A GPU gets large batches as cropped bytes; it mirrors them, subtracts the mean and scales.
    Raises: DataError for a missing or damaged database (with the key); LayerParamError without source or batch_size.
    """

    declares = Declaration(bottoms=exactly(0), tops=between(1, 2), runs_on=Runs.HOST, no_backward=None)

    _shape: Shape
    _batches: Any = None  # prepares batch k; None: not opened
    _prefetcher: Prefetcher
    _spare: SpareArrays | None
    _pictures: DataTransformer | None = None  # of pictures that may be cropped bytes, which `finish` transforms
    _subtracted: np.ndarray | None = None  # what `finish` subtracts; None: forward does all
    _only_bytes = True  # that is known of all pictures so far
    _next: Any = None  # a batch that was read for its shape but not used yet
    _reader: ClassVar[Sequence[str]] = (
        "_seed",
        "_shape",
        "_batches",
        "_prefetcher",
        "_next",
        "_spare",
    )  # what one rank reads with

    def __init__(self, param: LayerParameter, context: BuildContext):
        super().__init__(param, context)
        self._readers: dict[int, dict[str, Any]] = {}  # by rank: of other virtual ranks of this process

    def setup(self, bottom_shapes: Shapes) -> None:
        self._check_source("data_param", "the database folder")
        self._warn_of_unused("data_param", *_OLD_FIELDS, "rand_skip", "force_encoded_color")
        self._warn_of_unused("transform_param", *ONLY_ANNOTATED, *ONLY_SEGMENTED)
        self._start()

    def _check_source(self, message: str, what: str) -> None:
        """Raise LayerParamError unless this message has a source, which names `what`, and a batch_size above 0."""
        p = getattr(self.param, message)
        if not p.source:
            raise self.error(f"{message}.source is not set", fix=f"name {what}")
        if p.batch_size == 0:
            state = "0" if p.HasField("batch_size") else "not set"
            raise self.error(f"{message}.batch_size is {state}", fix="set batch_size to 1 or more")

    def _refuse_transforms(self) -> None:
        """Raise LayerParamError where there is a transform_param."""
        if self.param.HasField("transform_param"):
            raise self.error(
                "does not transform data, but has a transform_param",
                fix="remove transform_param and store the values as the net takes them",
            )

    def _warn_of_unused(self, message: str, *fields: str) -> None:
        """Warn of those of these fields that are given: they have no effect, as in Caffe."""
        for field in fields:
            if any(given.name == field for given, _ in getattr(self.param, message).ListFields()):
                fix = f": write transform_param {{ {field} }}" if field in _OLD_FIELDS else ""
                fix = ": it acts in AnnotatedData alone" if field in ONLY_ANNOTATED else fix
                fix = ": it acts in ImageSegData alone" if field in ONLY_SEGMENTED else fix
                _log.warning("%s: %s.%s has no effect%s", self.where, message, field, fix)

    def _start(self) -> None:
        self._seed = self.context.seed
        self._next = None
        self._batches = None
        self._open()

    def _open(self) -> None:
        p = self.param.data_param
        transformer = DataTransformer(self.param.transform_param, self.phase, source=p.source)
        batches = DatumBatches(
            p.source,
            p.backend,
            p.batch_size,
            transformer,
            dtype=self.dtype,
            rank=self.context.solver_rank,
            ranks=self.context.solver_count,
            seed=self._seed,
            as_bytes=self._wants_bytes(p.batch_size),
            by_processes=not self._readers,  # those of the first virtual rank are enough
        )
        self._shape = batches.shape
        self._pictures = transformer
        self._prefetch(batches, transformer.spare)

    def _wants_bytes(self, batch_size: int) -> bool:
        """Return whether a GPU is to finish pictures, all of one size."""
        return self.context.on_gpu and self.dtype == np.float32 and batch_size > 1 and self._only_bytes

    def _prefetch(self, batches: Any, spare: SpareArrays | None = None) -> None:
        """Prepare these batches ahead from now on. `_open` calls it last. spare: where they take their memory from."""
        self._spare = spare
        depth = max(1, self.param.data_param.prefetch)
        self._batches, self._prefetcher = batches, Prefetcher(batches.produce, depth, ahead=self.context.reads_ahead)

    @property
    def records(self) -> int | None:
        """Return how many records the source holds; None where that is known only after they are read."""
        return None if self._batches is None else self._batches.records

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        """Return the shapes of the next batch; they may change from record to record if batch_size is 1."""
        if self._shape[0] == 1 and self._next is None:
            self._next = self._prefetcher.next()
            self._shape = self._next[0].shape
        return [self._shape, (self._shape[0],)][: len(self.param.top)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self._subtracted = None
        if self._pictures is not None and self._batches.as_bytes:
            shape = top_shapes[0]
            self._subtracted = self._pictures.mean_planes(shape[1])
            self.scratch("pixels", shape, dtype=np.uint8, lives=Lives.MADE, backward=False)
            self.scratch("crops", (shape[0], 3), dtype=np.int32, lives=Lives.MADE, backward=False)
            self.scratch("mean", self._subtracted.shape, lives=Lives.MADE, backward=False)

    def finished_tops(self) -> frozenset[int]:
        return frozenset() if self._subtracted is None else frozenset({0})

    def forward(self, io: Pass) -> None:
        batch = self._take()
        if isinstance(batch, CroppedBatch):
            self._show_cropped(io, batch)
        elif self._subtracted is None:
            for top, values in zip(io.top, batch, strict=False):
                np.copyto(top, values)
        else:
            self._next, self._only_bytes, self._batches.as_bytes = batch, False, False
            raise ShapesChanged  # the net asks `declare` again, and then for this batch
        self._give_back(batch)

    def _show_cropped(self, io: Pass, batch: CroppedBatch) -> None:
        if self._subtracted is None:  # one that was made before the first batch that is not of bytes
            assert self._pictures is not None, "which made the batch"
            mean = self._pictures.mean_planes(batch.data.shape[1])
            finish_pixels(batch.data, batch.crops, mean, self._pictures.scale, io.top[0])
        else:
            made = {"pixels": batch.data, "crops": batch.crops, "mean": self._subtracted}
            for name, values in made.items():
                np.copyto(io.scratch[name], values)
        for top in io.top[1:]:
            np.copyto(top, batch.labels)

    def finish(self, io: Pass) -> None:
        assert self._pictures is not None, "which made the batch"
        own = io.scratch
        io.ops.finish_pixels(own["pixels"], own["crops"], own["mean"], self._pictures.scale, io.top[0])

    def _take(self) -> Any:
        """Return the next batch."""
        batch = self._prefetcher.next() if self._next is None else self._next
        self._next = None
        return batch

    def _give_back(self, batch: Any) -> None:
        """Let the memory of a batch's data be used again: its values have been copied."""
        if self._spare is not None:
            self._spare.give(batch[0])

    def state(self) -> dict[str, int]:
        """Return the number of batches used, the seed of the random transforms, and the number of records that all
        ranks together have used: it says where another number of ranks, or another batch size, goes on."""
        batches = self._prefetcher.position - (0 if self._next is None else self._prefetcher.step)
        found = {"batches": batches, "seed": self._seed}
        return found | ({"records": self._batches.first + batches * self._stride} if self._stride else {})

    def set_state(self, state: dict[str, int]) -> None:
        self._seek(state, 1, self.context.reads_ahead)

    @property
    def _stride(self) -> int:
        """Return how many records a batch of all ranks has; 0: they are drawn at random, not counted."""
        return int(getattr(self._batches, "stride", 0))

    def after(self, state: dict[str, int], forwards: int) -> dict[str, int]:
        steps = {"batches": 1, "records": self._stride}
        return state | {key: state[key] + forwards * n for key, n in steps.items() if key in state}

    def jump(self, state: dict[str, int], every: int) -> None:
        if self.state() != state or self._prefetcher.step != every:
            self._seek(state, every, ahead=False)

    def _seek(self, state: dict[str, int], step: int, ahead: bool) -> None:
        self._next = None
        self._prefetcher.close()
        if state.get("seed", self._seed) != self._seed:
            self._batches.close()
            self._seed = state["seed"]
            self._open()
            self._prefetcher.close()
        if self._stride and "records" in state:
            self._batches.first = state["records"] - state["batches"] * self._stride
        self._prefetcher.seek(state["batches"], step, ahead=ahead)

    def turn_to(self, rank: int, seed: int) -> None:
        """Read the batches of another virtual rank. Each has a reader of its own, which goes on preparing batches."""
        seed = self._seed if self.seed_of_root else seed
        self._readers[self.context.solver_rank] = {name: vars(self)[name] for name in self._reader}
        self.update_context(solver_rank=rank, seed=seed)
        if rank in self._readers:
            vars(self).update(self._readers.pop(rank))
        else:
            self._start()

    def close(self) -> None:
        _close(self._batches, getattr(self, "_prefetcher", None))
        for reader in self._readers.values():
            _close(reader["_batches"], reader["_prefetcher"])


def _close(batches: Any, prefetcher: Prefetcher | None) -> None:
    """Close what reads batches, unless it was not opened."""
    if batches is not None and prefetcher is not None:
        prefetcher.close()
        batches.close()
