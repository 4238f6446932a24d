"""Input, DummyData and Parameter: tops that the user, fillers or a solver fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ...arrays import HostArray
from ...errors import LayerParamError
from ...filler import check, fill
from ...proto import caffe_pb2
from ...random import CaffeRandom
from ..base import Declaration, Layer, Needs, Pass, Reads, Runs, Shape, Shapes, at_least, count, exactly
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


@register_layer("DummyData")
class DummyDataLayer(Layer):
    """Tops filled by dummy_data_param.data_filler: once by a constant filler, by others anew in every forward.

    Tops: one or more, with shapes from `shape`, or from num, channels, height and width; each field is given once, or
    once per top. data_filler: none (constant 0), one for all tops, or one per top.
    Values of top i in forward k depend only on (`seed`, i, k); `seed` comes from the net.
    Raises: LayerParamError for another number of shapes or fillers, or a filler that cannot fill its top.
    Source: BVLC/caffe, src/caffe/layers/dummy_data_layer.cpp.
    """

    declares = Declaration(
        bottoms=exactly(0), tops=at_least(1), runs_on=Runs.HOST, no_backward=None, backward_reads=Reads.NONE
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        self.seed, self.draws = self.context.seed, 0  # draws: forwards so far
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

    def rewrites(self, top: int) -> bool:
        return bool(self.fillers[top].type != "constant")

    def fill_once(self, top: int, array: HostArray) -> None:
        if array.size:
            self._fill(top, array)

    def forward(self, io: Pass) -> None:
        for i, top in enumerate(io.top):
            if self.rewrites(i) and top.size:
                self._fill(i, top)
        self.draws += 1

    def _fill(self, index: int, array: HostArray) -> None:
        array[...] = fill(
            self.fillers[index], array.shape, array.dtype, CaffeRandom.keyed(self.seed, self.draws, index)
        )

    def state(self) -> dict[str, int]:
        return {"seed": self.seed, "draws": self.draws}

    def set_state(self, state: dict[str, int]) -> None:
        self.seed, self.draws = state["seed"], state["draws"]

    def after(self, state: dict[str, int], forwards: int) -> dict[str, int]:
        return state | {"draws": state["draws"] + forwards}


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
