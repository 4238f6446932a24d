"""Python: runs a layer that the user wrote. See user_layer.py for what that sees.

Source: BVLC/caffe, include/caffe/layers/python_layer.hpp, layer_factory.cpp (behaviour).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np

from ..arrays import HostArray
from ..errors import ReadOnlyValue
from ..proto import caffe_pb2
from ..vectors import BoolVec, RawBlobVec
from .base import Declaration, InPlace, Layer, Pass, Runs, Shape, Shapes, ShapesChanged, at_least
from .registry import register_layer
from .user_layer import BlobVec, HostBlob, UserLayer

_stand_ins: ContextVar[Mapping[str, tuple[int, ...]] | None] = ContextVar("stand_ins", default=None)


@contextmanager
def stand_ins(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[None]:
    """Within: nets are built without the code of layers written in Python; their tops get these shapes, by name."""
    token = _stand_ins.set(shapes)
    try:
        yield
    finally:
        _stand_ins.reset(token)


class StandIn(UserLayer):
    """In place of a user's layer where nothing runs: it makes tops of given shapes."""

    shapes: Mapping[str, tuple[int, ...]]

    def reshape(self, bottom: RawBlobVec[HostBlob], top: RawBlobVec[HostBlob]) -> None:
        for blob in top:
            if blob.name in self.shapes:  # else it is in place: its bottom
                blob.reshape(*self.shapes[blob.name])


_ZERO = caffe_pb2.FillerParameter(type="constant", value=0)


@register_layer("Python")
class PythonLayer(Layer):
    """The class python_param.layer of module python_param.module, with python_param.param_str.

    Bottoms, tops and parameters: any, the class decides. Forward and backward run on the host; the net brings the
    values there and back. The class may change its tops' shapes in `reshape` and even in `forward`. Its exceptions
    arrive as they are. In place, top and bottom are the same memory. Backward gets everything: bottoms, tops,
    parameters. `share_in_parallel` changes nothing, as in Caffe.
    Raises: LayerParamError for a module or a class that is not there; ReadOnlyValue for a write to bottom[i].data, or
    to top[i].data in backward.
    """

    # nobody can say what the class does
    declares = Declaration(
        bottoms=at_least(0),
        tops=at_least(0),
        in_place=InPlace.MUST,
        runs_on=Runs.HOST,
        overwrites_top_diffs=True,
        gradients_without_top_diffs=True,
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        self.user = self._make()
        if not isinstance(getattr(self.user, "blobs", None), BlobVec):
            self.user.blobs = BlobVec()
        self.user.blobs.dtype = self.dtype
        self.user.param_str = self.param.python_param.param_str
        self.user.phase = self.phase
        self._bottom = RawBlobVec(HostBlob(name, self.dtype) for name in self.param.bottom)
        self._top = RawBlobVec(HostBlob(name, self.dtype) for name in self.param.top)
        self._same = {j for j, (b, t) in enumerate(zip(self._bottom, self._top, strict=False)) if b.name == t.name}
        for j in self._same:  # in place: one blob, as in Caffe
            self._top[j] = self._bottom[j]
        self._show_bottoms(bottom_shapes)
        self._reshaped = self._ran = False  # what the user's code did already when the net comes again with new memory
        self._known: list[Shape] | None = None
        self._written_early: list[HostArray | None] = [None] * len(
            self._bottom
        )  # gradients that forward wrote, as some layers do
        self.user.setup(self._bottom, self._top)
        for blob in self.user.blobs:
            self.add_param(blob.shape, _ZERO, values=np.array(blob.data))

    def _make(self) -> UserLayer:
        shapes = _stand_ins.get()
        return self._load() if shapes is None else self._stand_in(shapes)

    def _stand_in(self, shapes: Mapping[str, tuple[int, ...]]) -> StandIn:
        unknown = [t for t in self.param.top if t not in shapes and t not in self.param.bottom]
        if unknown:
            raise self.error(
                f'is written in Python (module "{self.param.python_param.module}"), and its code is not run here, so '
                f'the shape of its top "{unknown[0]}" is not known',
                fix=f"give it, such as -shape {unknown[0]}=32,10, or let the module's code run: -python on",
            )
        made = StandIn(self.param)
        made.shapes = shapes
        return made

    def _load(self) -> UserLayer:
        p = self.param.python_param
        if not p.module or not p.layer:
            missing = "module" if not p.module else "layer"
            raise self.error(f"python_param.{missing} is not set", fix='write module: "file" layer: "Class"')
        try:
            module = importlib.import_module(p.module)
        except ModuleNotFoundError as failure:
            if failure.name is None or not f"{p.module}.".startswith(f"{failure.name}."):
                raise  # the module is there; what it imports is not
            raise self.error(
                f'no Python module "{p.module}"', fix=f"put the folder of {p.module}.py on PYTHONPATH"
            ) from failure
        cls = getattr(module, p.layer, None)
        if not isinstance(cls, type):
            raise self.error(
                f'module "{p.module}" ({getattr(module, "__file__", "built in")}) has no class "{p.layer}"',
                fix="name a class of the module in python_param.layer",
            )
        if not issubclass(cls, UserLayer):  # any class of any module can be named, subprocess.Popen too
            raise self.error(
                f'class "{p.layer}" of module "{p.module}" is no caffe.Layer',
                fix=f"write class {p.layer}(caffe.Layer):",
            )
        return cls(self.param)

    def _show_bottoms(self, shapes: Shapes) -> None:
        for blob, shape in zip(self._bottom, shapes, strict=True):
            blob.set_shape(shape)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shapes = [tuple(s) for s in bottom_shapes]
        if shapes != self._known:
            self._show_bottoms(shapes)
            self.user.reshape(self._bottom, self._top)
            self._known = shapes
        return [blob.shape for blob in self._top]

    def forward_updates(self) -> frozenset[int]:
        return frozenset(range(len(self.params)))

    def forward(self, io: Pass) -> None:
        try:
            self._forward(io)
        except ShapesChanged:
            raise
        except BaseException:
            self._reshaped = self._ran = False
            raise

    def _forward(self, io: Pass) -> None:
        made = [blob.data for blob in self._top] if self._ran else None
        self._bind_params(io.param, [None] * len(io.param))
        for j, (blob, array) in enumerate(zip(self._bottom, io.bottom, strict=True)):
            if j not in self._same:
                blob.bind(_read_only(array))
        if made is None:
            for j, (blob, array) in enumerate(zip(self._top, io.top, strict=True)):
                blob.set_shape(array.shape)
                if j not in self._same:
                    array.fill(0)
                blob.bind(array)
            if not self._reshaped:
                self.user.reshape(self._bottom, self._top)
                self._reshaped = True
                self._follow(io.top)
            with self._lent():
                self.user.forward(self._bottom, self._top)
            self._ran = True
            self._follow(io.top)
        for i, (blob, array) in enumerate(zip(self._top, io.top, strict=True)):
            values = blob.data if made is None else made[i]
            if not np.shares_memory(values, array):
                np.copyto(array, values)
        self._reshaped = self._ran = False
        self._written_early = [blob.early_diff() for blob in self._bottom]
        self._release()

    def _follow(self, tops: Sequence[HostArray]) -> None:
        """Ask for other memory where the user's code changed a shape. What forward made so far stays in the blobs."""
        if all(blob.shape == array.shape for blob, array in zip(self._top, tops, strict=True)):
            return
        for blob, array in zip(self._top, tops, strict=True):
            if self._ran and np.shares_memory(blob.data, array):
                blob.bind(np.array(blob.data))
            elif not self._ran:
                blob.bind()
        for blob in (*self._bottom, *self._own_params()):
            blob.bind()
        raise ShapesChanged

    def backward(self, io: Pass) -> None:
        self._bind_params(io.param, io.param_diff, io.accumulate)
        for blob, data, diff in zip(self._top, io.top, io.top_diff, strict=True):
            blob.bind(_read_only(data), np.zeros(blob.shape, self.dtype) if diff is None else diff)
        for k, (blob, data, diff) in enumerate(zip(self._bottom, io.bottom, io.bottom_diff, strict=True)):
            if k in self._same:
                if io.top_diff[k] is None and diff is not None:
                    diff.fill(0)
                    blob.bind(_read_only(data), diff)
                continue
            if diff is not None:
                diff[...] = 0 if self._written_early[k] is None else self._written_early[k]
            blob.bind(_read_only(data), diff)
        propagate_down = BoolVec(diff is not None for diff in io.bottom_diff)
        try:
            with self._lent():
                self.user.backward(self._top, propagate_down, self._bottom)
        finally:
            self._release()

    @contextmanager
    def _lent(self) -> Iterator[None]:
        """NumPy's words for a write to a bottom say neither which layer it was nor what to do."""
        try:
            yield
        except ValueError as failure:
            if "read-only" not in str(failure):
                raise
            raise self.error(
                f"wrote to a read-only array ({failure}); bottom[i].data, and in backward top[i].data, are only lent, "
                "for other layers may read them later, or on the GPU",
                kind=ReadOnlyValue,
                fix="write to top[i].data, or put the layer in place (top: and bottom: of one name) to change a bottom",
            ) from failure

    def _bind_params(
        self, datas: Sequence[HostArray], diffs: Sequence[HostArray | None], accumulate: Sequence[bool] = ()
    ) -> None:
        for i, (blob, data, diff) in enumerate(zip(self._own_params(), datas, diffs, strict=True)):
            if diff is not None and not accumulate[i]:
                diff.fill(0)
            blob.bind(data, diff if diff is not None else np.zeros(blob.shape, self.dtype))

    def _own_params(self) -> Sequence[HostBlob]:
        """Return the parameters as the user's code has them."""
        return cast("Sequence[HostBlob]", self.user.blobs)

    def _release(self) -> None:
        for blob in (*self._bottom, *self._top, *self._own_params()):
            blob.bind()

    @property
    def public_object(self) -> Any:
        """What `net.layers` shows: the user's object."""
        return self.user

    @property
    def blobs(self) -> Any:
        """The net's parameter blobs."""
        return self._blobs

    @blobs.setter
    def blobs(self, blobs: Any) -> None:
        self._blobs = blobs
        for mine, theirs in zip(self._own_params(), blobs, strict=True):
            mine.parameter = theirs
            mine.bind()


def _read_only(array: HostArray | None) -> HostArray | None:
    if array is None:
        return None
    view = array.view()
    view.flags.writeable = False
    return view
