"""TokenData: windows of a file of token ids, and the ids that follow, which a thread reads ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...data.feed.token_windows import TokenWindows
from ...proto.caffe_pb2 import TokenDataParameter
from ..base import TRAIN, Shapes, between
from ..registry import register_layer
from .data import DataLayer

_DTYPES = {
    TokenDataParameter.UINT8: np.uint8,
    TokenDataParameter.UINT16: np.uint16,
    TokenDataParameter.UINT32: np.uint32,
}


@register_layer("TokenData")
class TokenDataLayer(DataLayer):
    """Windows of the token ids in the file token_data_param.source, again and again, for language models.

    The file is mapped, not read as a whole: a .npy of integers (tokens), or raw little-endian numbers of token_type
    (default UINT16), such as `pycaffe-lms dataset text` writes.
    Top 0: ids, (batch_size, sequence_length). Top 1 (optional): the id after each, of the same shape.
    Windows follow one another; what is left at the end of the file is not used. shuffle: every epoch has another order
    of windows, which begin at another token; it depends only on the layer's seed and the epoch's number. In a TRAIN net
    rank k % solver_count gets window k; all ranks have the order of rank 0. Resumed on another number of ranks, or with
    another batch_size, a run goes on with the next window. data_param.prefetch batches (default 4) are prepared ahead.
    Raises: LayerParamError without source, batch_size or sequence_length, or with a transform_param; DataError for a
    file that cannot be used or is too short, or for an id of vocab_size or above (with its place in the file), when its
    batch is read.
    """

    declares = replace(DataLayer.declares, tops=between(1, 2))

    def setup(self, bottom_shapes: Shapes) -> None:
        self._refuse_transforms()
        self._check_source("token_data_param", "the file of token ids")
        if not self.param.token_data_param.sequence_length:
            raise self.error("token_data_param.sequence_length is not set", fix="set it to 1 or more tokens")
        self._start()

    def _open(self) -> None:
        p = self.param.token_data_param
        train = self.phase == TRAIN
        batches = TokenWindows(
            p.source,
            p.batch_size,
            p.sequence_length,
            token_dtype=_DTYPES[p.token_type],
            vocab_size=p.vocab_size,
            shuffle=p.shuffle,
            dtype=self.dtype,
            rank=self.context.solver_rank if train else 0,
            ranks=self.context.solver_count if train else 1,
            seed=self._seed,
        )
        self._shape = batches.shape
        self._prefetch(batches)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [self._shape] * len(self.param.top)

    @property
    def seed_of_root(self) -> bool:
        return bool(self.param.token_data_param.shuffle)
