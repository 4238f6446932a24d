"""Input, DummyData, ContinuationIndicator and Parameter: tops that the user, fillers or a solver fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeVar

from ...arrays import AnyArray, HostArray
from ...errors import LayerParamError
from ...filler import check, fill_into, msra_std, sparse_share, xavier_bound
from ...proto import caffe_pb2
from ...random import CaffeRandom
from ..base import Declaration, Layer, Needs, Ops, Pass, Reads, Runs, Shape, Shapes, at_least, count, exactly
from ..mixins import RandomLayer
from ..registry import register_layer


@register_layer("Input")
class InputLayer(Layer):
    """The net's inputs: the tops, in order.

    Tops: one or more. input_param.shape: one for all tops, or one per top; without it they have shape (0) until they
    are reshaped.
    Raises: LayerParamError for another number of shapes, or a negative dim.
    Source: BVLC/caffe, src/caffe/layers/input_layer.cpp.
    """

    declares = Declaration(
        bottoms=exactly(0),
        tops=at_least(1),
        runs_on=Runs.NOWHERE,
        is_net_input=True,
        tests_alone=True,
        no_backward=None,
        backward_reads=Reads.NONE,
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        shapes, n = [tuple(s.dim) for s in self.param.input_param.shape], len(self.param.top)
        if len(shapes) not in (0, 1, n):
            raise self.error(f"{len(shapes)} shapes for {n} tops", fix=f"write one shape for all tops, or {n}")
        if any(d < 0 for shape in shapes for d in shape):
            raise self.error("input_param.shape has a negative dim", fix="use sizes of 0 or more")
        self.shapes = shapes if len(shapes) == n else (shapes or [(0,)]) * n

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return list(self.shapes)


_V = TypeVar("_V")
_STREAM = 1 << 40  # blocks of random numbers between the beginnings of two streams
_on_host: ContextVar[frozenset[str]] = ContextVar("on_host", default=frozenset())


@contextmanager
def on_host(layers: frozenset[str]) -> Iterator[None]:
    """Build nets that will not run in this context: DummyData layers of these names stand for layers on the host."""
    token = _on_host.set(_on_host.get() | layers)
    try:
        yield
    finally:
        _on_host.reset(token)


@register_layer("DummyData")
class DummyDataLayer(RandomLayer):
    """Tops filled by dummy_data_param.data_filler: once by a constant, bilinear, bilinear_3D or gabor filler, by others
    anew in every forward, on the device.

    Tops: one or more, with shapes from `shape`, or from num, channels, height and width; each field is given once, or
    once per top. data_filler: none (constant 0), one for all tops, or one per top.
    Values of top i in forward k depend only on (`seed`, i, k), and are the same on every device; `seed` comes from the
    net. In float32: uniform and xavier are multiples of 2^-24 times the range, gaussian and msra have no value beyond
    6.77 standard deviations.
    Raises: LayerParamError for another number of shapes or fillers, or a filler that cannot fill its top.
    Source: BVLC/caffe, src/caffe/layers/dummy_data_layer.cpp; with a generator that is the same on every device.
    """

    declares = Declaration(bottoms=exactly(0), tops=at_least(1), no_backward=None, backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        n = len(self.param.top)
        self.shapes = self._shapes(n)
        fillers = list(self.param.dummy_data_param.data_filler) or [caffe_pb2.FillerParameter()]
        self.fillers = self._spread("data_filler", fillers, n)
        for i, (filler, shape) in enumerate(zip(self.fillers, self.shapes, strict=True)):
            if count(shape):
                try:
                    check(filler, shape)
                except LayerParamError as error:
                    raise error.at(layer=self.name, type=self.param.type, blob=self.param.top[i]) from None
        self._stands_in = self.name in _on_host.get()
        if self._stands_in or not self.random:  # then forward never runs, or does nothing
            self.declares = replace(self.declares, runs_on=Runs.HOST)

    def _spread(self, what: str, values: list[_V], n: int) -> list[_V]:
        if len(values) not in (1, n):
            raise self.error(f"{len(values)} {what} for {n} tops", fix=f"write one {what} for all tops, or {n}")
        return values * n if len(values) == 1 else values

    def _shapes(self, n: int) -> list[Shape]:
        dummy = self.param.dummy_data_param
        legacy = {name: list(getattr(dummy, name)) for name in ("num", "channels", "height", "width")}
        if dummy.shape:
            if any(legacy.values()):
                raise self.error("shape and num/channels/height/width are both set", fix="keep shape alone")
            shapes = [tuple(shape.dim) for shape in dummy.shape]
            if any(d < 0 for shape in shapes for d in shape):
                raise self.error("shape has a negative dim", fix="use sizes of 0 or more")
            return self._spread("shape", shapes, n)
        return list(zip(*(self._spread(name, values, n) for name, values in legacy.items()), strict=True))

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return list(self.shapes)

    @property
    def random(self) -> bool:
        return any(map(self.rewrites, range(len(self.fillers))))

    def rewrites(self, top: int) -> bool:
        return self.fillers[top].type not in ("constant", "bilinear", "bilinear_3D", "gabor")

    def fill_once(self, top: int, array: HostArray) -> None:
        if array.size:
            fill_into(self.fillers[top], array, CaffeRandom(0))  # draws nothing

    def _streams(self) -> dict[str, int]:
        """Return {key: number} of independent streams of random numbers: two of each top that forward draws."""
        drawn = [i for i in range(len(self.fillers)) if self.rewrites(i)]
        sparse = [i for i in drawn if self.fillers[i].sparse >= 0]
        return {f"values {i}": 2 * i for i in drawn} | {f"sparse {i}": 2 * i + 1 for i in sparse}

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        for name in () if self._stands_in else self._streams():
            self.step_scalar(name, 3)

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        ((seed, draws, _),) = self.next_key().values()
        return {name: (seed, draws, number * _STREAM) for name, number in self._streams().items()}

    def forward(self, io: Pass) -> None:
        for i, (filler, shape, y) in enumerate(zip(self.fillers, self.shapes, io.top, strict=True)):
            if not self.rewrites(i) or not count(shape):
                continue
            key, kind = io.scratch[f"values {i}"], filler.type
            if kind == "uniform":
                io.ops.random_uniform(y, key, filler.min, filler.max)
            elif kind == "xavier":
                bound = xavier_bound(filler, shape)
                io.ops.random_uniform(y, key, -bound, bound)
            elif kind == "msra":
                io.ops.random_gaussian(y, key, 0.0, msra_std(filler, shape))
            elif kind == "gaussian" and filler.sparse >= 0:
                self._draw_sparse(io.ops, y, key, io.scratch[f"sparse {i}"], filler, sparse_share(filler, shape))
            elif kind == "gaussian":
                io.ops.random_gaussian(y, key, filler.mean, filler.std)
            else:
                io.ops.random_unit_rows(y, key, shape[0])

    @staticmethod
    def _draw_sparse(
        ops: Ops, y: AnyArray, key: AnyArray, sparse: AnyArray, filler: caffe_pb2.FillerParameter, share: float
    ) -> None:
        """Draw a share of the elements normally; the others are 0."""
        if share == 0:
            ops.fill(y, 0.0)
            return
        ops.random_gaussian(y, key, filler.mean, filler.std)
        ops.dropout.forward(y, y, 1 - share, sparse, 1.0)


@register_layer("ContinuationIndicator")
class ContinuationIndicatorLayer(Layer):
    """Marks for LSTM and RNN where every batch begins its sequences anew: 0 at the first time step, 1 at all others.

    Bottoms: none. Top 0: (T, N), constant, from continuation_indicator_param.time_step and batch_size.
    Raises: LayerParamError for sizes of 0.
    Source: xmfbit/warpctc-caffe, src/caffe/layers/continuation_indicator_layer.cpp; Intel's Caffe has it, too.
    """

    declares = Declaration(bottoms=exactly(0), runs_on=Runs.NOWHERE, no_backward=None, backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        for field in ("time_step", "batch_size"):
            if not getattr(self.param.continuation_indicator_param, field):
                raise self.error(f"{field} is 0", fix=f"write continuation_indicator_param {{ {field}: ... }}")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        p = self.param.continuation_indicator_param
        return [(p.time_step, p.batch_size)]

    def rewrites(self, top: int) -> bool:
        return False

    def fill_once(self, top: int, array: HostArray) -> None:
        array[:1], array[1:] = 0, 1


@register_layer("Parameter")
class ParameterLayer(Layer):
    """A learnable blob as a top: y = P.

    Bottoms: none. Top 0: y, of shape parameter_param.shape. Parameters: P, that shape, first 0.
    y's gradient is added to the gradient that P has from other layers. Backward reads nothing.
    Raises: LayerParamError for a negative size.
    Source: BVLC/caffe, include/caffe/layers/parameter_layer.hpp (there gradients overwrite instead of adding up).
    """

    declares = Declaration(bottoms=exactly(0))

    def setup(self, bottom_shapes: Shapes) -> None:
        self.shape = tuple(self.param.parameter_param.shape.dim)
        if any(d < 0 for d in self.shape):
            raise self.error(f"shape has a dim of {min(self.shape)}", fix="write sizes in parameter_param { shape }")
        self.add_param(self.shape, 0)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [self.shape]

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs()

    def forward(self, io: Pass) -> None:
        io.ops.copy(io.param[0], io.top[0])

    def backward(self, io: Pass) -> None:
        dy, diff = io.top_diff[0], io.param_diff[0]
        if diff is None:
            return
        if io.accumulate[0]:
            io.ops.sum_arrays([diff, dy], diff)
        else:
            io.ops.copy(dy, diff)
