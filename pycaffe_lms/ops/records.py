"""What operations are handed together: how an array is seen, and numbers and arrays that belong together.

Layers build records of sizes once for each shape, and those of arrays in every pass.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ..arrays import AnyArray


class Grid(NamedTuple):
    """Describe an array seen as (outer, channels, inner).

    An NCHW array has outer = N and inner = H * W, a channels-last one outer = N * H * W and inner = 1.
    """

    outer: int
    channels: int
    inner: int


class LabelGrid(NamedTuple):
    """Describe scores seen as (outer, c, inner), with one label for each of the outer * inner positions.

    A label equal to `ignore_label` does not count if `has_ignore`.
    """

    outer: int
    c: int
    inner: int
    has_ignore: bool
    ignore_label: int


class BatchNorm(NamedTuple):
    """Describe a normalisation of each channel: inv_std = 1 / sqrt(variance + eps).

    The mean and variance are the batch's own, which running sums times `momentum` are added to; with `use_global` they
    are those of the running sums, which stay. `outside`, with `use_global` alone: inv_std = 1 / (sqrt(variance) + eps).
    """

    grid: Grid
    eps: float
    momentum: float = 0.0
    use_global: bool = False
    outside: bool = False


class Moments(NamedTuple):
    """The mean of each channel, and inv_std = 1 / sqrt(variance + eps)."""

    mean: AnyArray
    inv_std: AnyArray


class RunningSums(NamedTuple):
    """BatchNorm's parameters: running sums of means and variances, and of the weights that they have, (1)."""

    mean: AnyArray
    var: AnyArray
    factor: AnyArray


class Affine(NamedTuple):
    """The scale and bias of each channel; None: there is none."""

    scale: AnyArray | None
    bias: AnyArray | None


class AffineGradients(NamedTuple):
    """Where the gradients of scale and bias go (None: not wanted), and whether they are added to what is there."""

    scale: AnyArray | None
    bias: AnyArray | None
    add_scale: bool = False
    add_bias: bool = False


class RowNormGradients(NamedTuple):
    """Where the gradients of normalised rows x (None: not wanted), of scale and of bias go.

    add_x: add that of x to what is there.
    """

    x: AnyArray | None
    affine: AffineGradients
    add_x: bool = False


class FusedNormGradients(NamedTuple):
    """Where the gradients of a fused normalisation's x, r, scale and bias go; None: not wanted."""

    x: AnyArray | None
    r: AnyArray | None
    affine: AffineGradients


class Rectified(NamedTuple):
    """What tells where a ReLU was active: `bits` where given, else y > 0; without both its input is computed again."""

    y: AnyArray | None
    bits: AnyArray | None = None


class RowNorm(NamedTuple):
    """Describe a normalisation of each of `rows` rows of `dim` values; eps is added to the variance."""

    rows: int
    dim: int
    eps: float


class RowMoments(NamedTuple):
    """The mean of each row (None: it counts as 0), and 1 / sqrt(variance + eps)."""

    mean: AnyArray | None
    inv_std: AnyArray


class QueryKeyValue(NamedTuple):
    """Queries (items, queries, heads * dim), keys and values (items, keys, kv_heads * dim); or their gradients, each of
    which may be None. Where the shape is `packed`, the one array of all three is `query`, and the others are None."""

    query: AnyArray | None
    key: AnyArray | None
    value: AnyArray | None


class AttentionShape(NamedTuple):
    """Describe an attention: its sizes, the factor of products, and which positions see which.

    Head h reads the keys and values of head h // (heads // kv_heads). `window` 0: there is none. Queries are worked on
    `rows` at a time. packed: queries, keys and values are parts, in this order, of the rows of one array. dropout: a
    share of the weights becomes 0, the others are divided by 1 - dropout.
    """

    items: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    dim: int
    scale: float
    causal: bool
    window: int
    rows: int
    packed: bool = False
    dropout: float = 0.0

    @property
    def row(self) -> tuple[int, int]:
        """Return the values from one query to the next in memory, and from one key to the next."""
        wide, narrow = self.heads * self.dim, self.kv_heads * self.dim
        return (wide + 2 * narrow,) * 2 if self.packed else (wide, narrow)

    def parts(self, arrays: QueryKeyValue) -> QueryKeyValue:
        """Return three arrays: those given, or views of the parts of a packed array."""
        array = arrays.query
        if not self.packed or array is None:
            return arrays
        wide, narrow = self.heads * self.dim, self.kv_heads * self.dim
        return QueryKeyValue(array[..., :wide], array[..., wide : wide + narrow], array[..., wide + narrow :])

    def blocks(self) -> list[tuple[int, int, int, int]]:
        """Return (first query, end, first key, end) of blocks of queries and the keys that one of them sees."""
        found = []
        for first in range(0, self.queries, self.rows):
            end = min(first + self.rows, self.queries)
            last_key = min(self.keys, end) if self.causal else self.keys
            first_key = max(0, first - self.window + 1) if self.window else 0
            found.append((first, end, min(first_key, last_key), last_key))
        return found


class AttentionCache(NamedTuple):
    """Keys and values (items, length, kv_heads * dim) that are kept, and room for scores (items, heads, length)."""

    keys: AnyArray
    values: AnyArray
    scores: AnyArray


class LinearLoss(NamedTuple):
    """Describe the loss of a linear layer's scores: positions of `width` values, scores of `classes`.

    Scores of `rows` positions exist at a time. normalizer: see `LossLayer.normalizer`.
    """

    positions: int
    classes: int
    width: int
    transpose: bool
    rows: int
    has_ignore: bool
    ignore: int
    normalizer: float

    def chunks(self) -> list[tuple[int, int]]:
        """Return (first position, end) of each chunk."""
        return [(first, min(first + self.rows, self.positions)) for first in range(0, self.positions, self.rows)]


class LinearLossInputs(NamedTuple):
    """What a linear layer's loss is of: values of each position, their labels, weights and, unless None, a bias."""

    x: AnyArray
    label: AnyArray
    weight: AnyArray
    bias: AnyArray | None


class LossRows(NamedTuple):
    """What backward needs of each position, the logarithm of its sum of exponentials, and the number to divide by."""

    lse: AnyArray
    norm: AnyArray


class LinearGradients(NamedTuple):
    """Where the gradients of a linear layer go (None: not wanted), and whether they are added to what is there."""

    x: AnyArray | None
    weight: AnyArray | None
    bias: AnyArray | None
    add_weight: bool = False
    add_bias: bool = False


class Rotation(NamedTuple):
    """Describe turns of pairs of values of arrays (rows, heads, dim), row r at position r % positions.

    The first `turned` values of each head are pairs: neighbours if `interleaved`, else values i and i + turned / 2.
    """

    rows: int
    positions: int
    heads: int
    dim: int
    turned: int
    base: float
    interleaved: bool


class L2Norm(NamedTuple):
    """Describe a division by sqrt(sum of x^2 + eps): a sum over channels, or over channels and inner if `across`."""

    grid: Grid
    eps: float
    across: bool


class LocalResponse(NamedTuple):
    """Describe y = x * (k + alpha / n * sum of x^2 over the n values around) ^ -beta, with n = size or size^2."""

    size: int
    alpha: float
    beta: float
    k: float


class LstmState(NamedTuple):
    """The hidden states h and the cells c of an LSTM, (N, D) or (T, N, D); c None: not kept."""

    h: AnyArray
    c: AnyArray | None


class StretchedWindow(NamedTuple):
    """Describe an interpolation of `planes` planes of `full` (height, width).

    The window of `size` from `start` on (in both axes) is stretched to `out`.
    """

    planes: int
    full: tuple[int, ...]
    start: int
    size: tuple[int, ...]
    out: tuple[int, ...]


class Resize(NamedTuple):
    """Describe how `planes` planes of `size` (height, width) become planes of `out`.

    nearest: without blending. corners: output o lies at o * size / out, its corner at that of an input.
    """

    planes: int
    size: tuple[int, ...]
    out: tuple[int, ...]
    nearest: bool
    corners: bool = False


class LocalWindows(NamedTuple):
    """Describe the square windows of a locally connected layer: `size` pixels a side, `pad` zeros around the map."""

    size: int
    stride: int
    pad: int


class Contrast(NamedTuple):
    """Describe a contrastive loss of `items` pairs of `channels` values.

    Pairs that are not similar cost max(margin - d, 0)^2, d being their distance, or max(margin - d^2, 0) if `legacy`.
    """

    items: int
    channels: int
    margin: float
    legacy: bool


class BoxWeights(NamedTuple):
    """The weights of differences before and behind Huber's function, of the differences' size; None: all 1."""

    inside: AnyArray | None
    outside: AnyArray | None


class Sampling(IntEnum):
    """Where a region is sampled. A cell has samples in a square.

    EVEN (torchvision's roi_align, aligned=False): `number` along each axis of a cell, at the centres of equal parts; 0:
    ceil(the cell's side). A region is at least 1 x 1; samples further than a pixel outside of the map do not count.
    GRID (Cascade R-CNN): one for each corner of the cells, of a region that `pad_ratio` of its size is added to on each
    side; pixel centres are at halves. Those outside of the map do not count, and none of a region without area.
    WARP (MNC's ROIWarping): one for each cell, at its first corner, of a region whose corners are rounded to pixels.
    Those outside of the map, more than half a pixel, do not count.
    SPREAD (R-FCN's PSROIAlign): `number` along each axis, a cell's side / (number + 1) apart, in the part of the cell
    that is on the map. A region reaches to one pixel behind its corner, and is at least 0.1 x 0.1.
    """

    EVEN = 0
    GRID = 1
    SPREAD = 2
    WARP = 3


class Samples(NamedTuple):
    """Describe the samples of regions with coordinates of a picture, which times `scale` are those of the map."""

    kind: Sampling
    scale: float
    number: int = 1
    pad_ratio: float = 0.0


class CtcRule(NamedTuple):
    """Describe a loss of sequences (connectionist temporal classification, CTC).

    There are `steps` time steps of `items` sequences, with scores of `classes` classes, and up to `most` labels each.
    collapse: equal neighbours among the labels count once. merge: equal neighbours on a path are one label. delay: time
    steps that are passed over at the start. by_item: labels are (items, most), cut to integers, and `blank` among them
    is none; else they are (most, items), rounded, and end with the first that is negative, `blank` or no class.
    """

    steps: int
    items: int
    classes: int
    most: int
    blank: int
    delay: int = 0
    collapse: bool = False
    merge: bool = True
    by_item: bool = False


class CtcSums(NamedTuple):
    """What the forward of a loss of sequences saves for its backward, in float64: logarithms of sums.

    norm (steps, items): of the divisors of softmaxes. alpha (items, steps, 2 * most + 1): of the probabilities of all
    beginnings of paths that end at a position, 0 where there is none. score (items): of the labels' probability. beta:
    as alpha, of ends of paths; of backward alone.
    """

    norm: AnyArray
    alpha: AnyArray
    score: AnyArray
    beta: AnyArray | None = None


class LabelRows(NamedTuple):
    """Describe how labels lie: `steps` of each of `items` items, label t of item i at t * step + i * item."""

    items: int
    steps: int
    step: int
    item: int


class Triplets(NamedTuple):
    """The bottoms of a triplet loss: rows that belong together, rows that do not, a weight of each or None (1)."""

    anchor: AnyArray
    positive: AnyArray
    negative: AnyArray
    weight: AnyArray | None


class Displacements(NamedTuple):
    """Describe which places of two maps are compared, see `ops/cpu/conv/correlation.py`; differ: by |a - b|."""

    pad: int
    window: int
    reach: int
    step: int
    stride: int
    across: int
    differ: bool


SAMPLE_PARTS = 32  # blocks that add up the gradient of one item's affine transformation
Affinity = tuple[float, ...]  # the six numbers of an affine transformation, NaN where each item has its own


class Warping(NamedTuple):
    """How maps are sampled where a flow leads.

    whole_pixels: places are inside up to the middle of the last pixel, column <= W - 1 and row <= H - 1; slopes at
    whole numbers are the mean of both sides. Else up to its end, column < W and row < H, the last pixel counting once
    more behind itself; slopes at whole numbers are those to the right, and below. fill: the value of places outside.
    """

    whole_pixels: bool
    fill: float
