"""MultiStageMeanfield: a dense conditional random field as a recurrent net (CRF-RNN)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...arrays import HostArray
from ..base import Declaration, Layer, Needs, Pass, Reads, Runs, Shapes, exactly
from ..registry import register_layer
from .permutohedral import Lattice


@register_layer("MultiStageMeanfield")
class MultiStageMeanfieldLayer(Layer):
    """q = unary - M (A s(p) + B b(p)), p = softmax(q) over classes, num_iterations times: pixels agree with near ones.

    Bottom 0: unary scores (N, C, H, W). Bottom 1: the first q, the same shape. Bottom 2: pictures (N, 3, H, W), in
    pixels. Top 0: the last q, (N, C, H, W), before a softmax.
    s and b are weighted means over all pixels of an image, for each class: s weighs by exp(-d^2 / 2 theta_gamma^2), d
    being the distance; b by exp(-d^2 / 2 theta_alpha^2 - c^2 / 2 theta_beta^2), c being that of colours. Both are
    computed by permutohedral lattices, which come close to these weights.
    Parameters: 0: A, 1: B, 2: M, (1, 1, C, C). They begin with spatial_filter_weights_str, bilateral_filter_weights_str
    (C numbers, or one for all) or else spatial_filter_weight, bilateral_filter_weight on the diagonal, and -1. The
    fork's files spatial.par and bilateral.par are not read. compatibility_mode, threshold, forced_spatial_filter_weight
    and forced_bilateral_filter_weight have no effect, as in the fork.
    Crop layers of the fork's nets find their offsets by themselves; here crop_param gives them: docs/differences.md.
    Runs on the host, backward too. Backward reads all bottoms, and computes all steps again. Bottom 2 gets no gradient.
    Raises: LayerParamError for numbers that are not above 0, or not C; ShapeError for other bottoms.
    Source: torrvision/crfasrnn (Zheng et al., Conditional Random Fields as Recurrent Neural Networks, 2015).
    """

    declares = Declaration(
        bottoms=exactly(3),
        runs_on=Runs.HOST,
        no_backward=frozenset({2}),
        ignores_force_backward=frozenset({2}),
        backward_reads=Reads.BOTTOM_DATA,
        full_precision=frozenset({2}),
    )
    _near: tuple[tuple[int, ...], Lattice] | None = None  # the lattice of distances, of this height and width

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.multi_stage_meanfield_param
        for name in ("theta_alpha", "theta_beta", "theta_gamma", "num_iterations"):
            if not getattr(p, name) > 0:
                raise self.error(f"{name} is {getattr(p, name):g}", fix="give a number above 0")
        self.check_axes(bottom_shapes[0], 4)
        classes = self.classes = bottom_shapes[0][1]
        diagonals = [self._numbers("spatial_filter_weight"), self._numbers("bilateral_filter_weight"), [-1.0] * classes]
        for numbers in diagonals:
            self.add_param((1, 1, classes, classes), 0, values=np.diag(numbers)[None, None].astype(self.dtype))

    def _numbers(self, field: str) -> list[float]:
        """Return the first weight of each class."""
        words = getattr(self.options, f"{field}s_str").replace(",", " ").split()
        try:
            numbers = [float(word) for word in words] or [getattr(self.options, field)]
        except ValueError:
            raise self.error(f"{field}s_str is {' '.join(words)!r}", fix="give numbers with spaces between") from None
        if len(numbers) not in (1, self.classes):
            raise self.error(
                f"{field}s_str has {len(numbers)} numbers for {self.classes} classes", fix="give one for each, or one"
            )
        return numbers * (self.classes // len(numbers))

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        unary = tuple(bottom_shapes[0])
        self.check_axes(unary, 4)
        self.check_kept("classes", unary[1], self.classes)
        for i, wanted in ((1, unary), (2, (unary[0], 3, *unary[2:]))):
            if tuple(bottom_shapes[i]) != wanted:
                raise self.shape_error(f"has shape {tuple(bottom_shapes[i])}", bottom=i, fix=f"give it {wanted}")
        return [unary]

    def forward(self, io: Pass) -> None:
        matrices = [param.reshape(self.classes, self.classes) for param in io.param]
        for unary, q, picture, y in zip(*io.bottom, io.top[0], strict=True):
            flat = unary.reshape(self.classes, -1)
            for step in self._steps(flat, q.reshape(flat.shape), self._lattices(picture), matrices):
                q = step[-1]
            y[...] = q.reshape(y.shape)

    def _lattices(self, picture: HostArray) -> tuple[Lattice, Lattice]:
        """Return the lattices of distances, and of distances and colours, of one picture (3, H, W)."""
        p, size = self.options, picture.shape[1:]
        places = np.stack(np.meshgrid(*map(np.arange, size), indexing="ij")[::-1], axis=-1).reshape(-1, 2)
        known = self._near
        if known is None or known[0] != size:
            known = self._near = size, Lattice(places / p.theta_gamma, self.dtype)
        colours = picture.reshape(3, -1).T.astype(np.float64)
        return known[1], Lattice(np.hstack([places / p.theta_alpha, colours / p.theta_beta]), self.dtype)

    def _steps(
        self, unary: HostArray, q: HostArray, lattices: Sequence[Lattice], matrices: Sequence[HostArray]
    ) -> Iterator[tuple[HostArray, HostArray, HostArray, HostArray]]:
        """Yield (p, s(p), b(p), next q) of each step, (C, H * W) each."""
        a, b, m = matrices
        for _ in range(self.options.num_iterations):
            p = np.exp(q - q.max(axis=0))
            p /= p.sum(axis=0)
            near, alike = (lattice.apply(p) for lattice in lattices)
            q = unary - m @ (a @ near + b @ alike)
            yield p, near, alike, q

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if not any(propagate_down) and not any(param_propagate):
            return Needs()
        return Needs(bottoms=frozenset(range(3)), params=frozenset(range(3)))

    def backward(self, io: Pass) -> None:
        a, b, m = matrices = [param.reshape(self.classes, self.classes) for param in io.param]
        sums = [np.zeros_like(matrix) for matrix in matrices]
        d_unary, d_first, _ = io.bottom_diff
        for n, (unary, q, picture) in enumerate(zip(*io.bottom, strict=True)):
            flat = unary.reshape(self.classes, -1)
            total = np.zeros_like(flat)
            dq = total if io.top_diff[0] is None else io.top_diff[0][n].reshape(flat.shape)
            lattices = self._lattices(picture)
            steps = list(self._steps(flat, q.reshape(flat.shape), lattices, matrices))
            for p, near, alike, _ in reversed(steps):
                total += dq
                message = -(m.T @ dq)
                sums[0] += message @ near.T
                sums[1] += message @ alike.T
                sums[2] -= dq @ (a @ near + b @ alike).T
                dp = lattices[0].transposed(a.T @ message) + lattices[1].transposed(b.T @ message)
                dq = p * (dp - (p * dp).sum(axis=0))
            for diff, values in ((d_unary, total), (d_first, dq)):
                if diff is not None:
                    diff[n] = values.reshape(diff[n].shape)
        for diff, values, accumulate in zip(io.param_diff, sums, io.accumulate, strict=True):
            if diff is not None:
                np.add(values.reshape(diff.shape), diff if accumulate else 0, out=diff)
